"""`hippocampus memory`: what people write, a memory's origin, pins, the archive, export and import."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from hippocampus.erasure.provenance import Consequences, Derived, SourceEvent, consequences, provenance
from hippocampus.retention.archive import ArchivedMemory, MemoryArchive
from hippocampus.transfer.memory_file import export_memory, import_memory
from pulse.errors import InvalidInputError
from workers.cli import by_hand, databases, output
from workers.cli.groups import Verbs
from workers.cli.options import NUMBER_MAX, json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import Item, write_rows
from workers.cli.paging import Paged, PageOptions, page_options
from workers.cli.rows import Owner

if TYPE_CHECKING:
    from pulse.database import Pool

_COLUMNS = ("source", "type", "content", "session", "model", "said")


@click.group(
    cls=Verbs, epilog="Examples:  hippocampus memory origin 0199…;  hippocampus memory export --user ana > ana.jsonl"
)
def command() -> None:
    """Write, trace, pin, restore, export and import memories; `hippocampus memories` lists and shows them."""


for each in (by_hand.remember_memory, by_hand.correct, by_hand.retire, by_hand.confirm):
    command.add_command(each)


@command.command("origin", epilog="Example:  hippocampus memory origin 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def origin(memory_id: UUID, whose: Whose, as_json: bool) -> None:
    """Show the events that a memory or a fact comes from, and the job, prompt and model that derived it."""
    found = whose.run(lambda pool, owner: provenance(pool, owner.app, owner.user, memory_id))
    if as_json:
        output.write_json(found)
        return
    items = []
    for each in found:
        sources = tuple(f"#{event.sequence_num} {event.author}: {_text(event)}" for event in each.events)
        items.append(_item(each.drawn, *sources))
    write_rows(_COLUMNS, items, empty="")


@command.command("from-event", epilog="Example:  hippocampus memory from-event order-17 3")
@click.argument("session_id")
@click.argument("number", type=click.IntRange(1, NUMBER_MAX))
@owner_options
@json_option
def from_event(session_id: str, number: int, whose: Whose, as_json: bool) -> None:
    """Show everything that was derived from an event."""

    async def work(pool: Pool, owner: Owner) -> Consequences:
        return await consequences(pool, owner.app, owner.user, session_id, sequence_num=number)

    found = whose.run(work)
    if as_json:
        output.write_json(found)
        return
    click.echo(f"#{found.event.sequence_num} {found.event.author}: {_text(found.event)}")
    items = [_item(each, "cites it") for each in found.citing]
    items += [_item(each, "derived from its slice") for each in found.alongside]
    write_rows(_COLUMNS, items, empty="Nothing was derived from it.")


@command.command("pin", epilog="Example:  hippocampus memory pin 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def pin(memory_id: UUID, whose: Whose, as_json: bool) -> None:
    """Keep a memory: it never fades and is never archived."""
    changed = whose.run(lambda pool, owner: MemoryArchive(pool).pin(owner.app, owner.user, memory_id))
    output.write_change(changed, as_json=as_json, done="Pinned.", unchanged="It was already pinned.")


@command.command("unpin", epilog="Example:  hippocampus memory unpin 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def unpin(memory_id: UUID, whose: Whose, as_json: bool) -> None:
    """Let a memory fade again, from its last access on."""
    changed = whose.run(lambda pool, owner: MemoryArchive(pool).unpin(owner.app, owner.user, memory_id))
    output.write_change(changed, as_json=as_json, done="Unpinned.", unchanged="It was not pinned.")


@command.command("archived", epilog="Example:  hippocampus memory archived --user ana")
@owner_options
@page_options(100)
def archived(whose: Whose, options: PageOptions) -> None:
    """List the memories that clean-ups and people archived, why, and until when each can be restored."""

    async def work(pool: Pool, owner: Owner) -> Paged[ArchivedMemory]:
        pages = options.of("archived", *owner)
        found = await MemoryArchive(pool).page(owner.app, owner.user, after=pages.begin(UUID), limit=options.limit)
        return pages.full(found, lambda each: each.id)

    columns = ("id", "type", "archived", "until", "why", "content")
    options.write(whose.run(work), columns, _archived_item, empty="Nothing is archived.")


@command.command("restore", epilog="Example:  hippocampus memory restore 0199… 0199…")
@click.argument("memory_ids", nargs=-1, type=click.UUID)
@click.option("--all", "everything", is_flag=True, help="All of the user's.")
@owner_options
@json_option
def restore(memory_ids: tuple[UUID, ...], everything: bool, whose: Whose, as_json: bool) -> None:
    """Restore archived memories, as strong as if they had been used now."""
    if bool(memory_ids) == everything:
        raise click.UsageError("Name the memories to restore, or use --all.")

    async def work(pool: Pool, owner: Owner) -> list[UUID]:
        return await MemoryArchive(pool).restore(owner.app, owner.user, None if everything else memory_ids)

    restored = whose.run(work)
    missing = [str(each) for each in memory_ids if each not in restored]
    if as_json:
        output.write_json({"restored": restored})
    else:
        click.echo(f"Restored {output.counted(len(restored), 'memory')}.")
    if missing:
        raise InvalidInputError(f"Not in the archive of this user: {', '.join(missing)}.")


@command.command("export", epilog="Example:  hippocampus memory export --app shop --user ana > ana.jsonl")
@owner_options
@click.option("--output", "-o", "path", type=click.Path(dir_okay=False, path_type=Path), help="A new file.")
@click.option("--no-vectors", is_flag=True, help="Leave the vectors out; an import computes them again.")
def export(whose: Whose, path: Path | None, no_vectors: bool) -> None:
    """Write everything that is remembered of a user as JSON lines, to standard output or a file."""

    async def work(pool: Pool, owner: Owner) -> int:
        count = 0
        with path.open("x", encoding="utf-8") if path else contextlib.nullcontext(sys.stdout) as sink:
            async for line in export_memory(pool, owner.app, owner.user, vectors=not no_vectors):
                sink.write(line + "\n")
                count += 1
        return count

    try:
        count = whose.run(work)
    except FileExistsError:
        raise click.BadParameter(f"{path} already exists: name a new file.", param_hint="--output") from None
    click.echo(f"Exported {count - 2} rows.", err=True)


@command.command("import", epilog="Example:  hippocampus memory import ana.jsonl")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--app", help="The app to import into; by default the file's.")
@click.option("--user", help="The user to import for; by default the file's.")
@json_option
def import_(path: Path, app: str | None, user: str | None, as_json: bool) -> None:
    """Store an export: all of it, or nothing, naming the lines that are wrong."""
    imported = databases.run(lambda pool: import_memory(pool, _lines(path), app_name=app, user_id=user))
    if as_json:
        output.write_json(imported)
        return
    stored = ", ".join(f"{count} {kind}" for kind, count in imported.stored.items() if count) or "nothing new"
    click.echo(f"Imported {stored} for {imported.user_id} in {imported.app_name}; {imported.skipped} were skipped.")
    if imported.forgotten:
        click.echo(f"Erased {imported.forgotten} memories and facts that the file names as forgotten.")


def _item(derived: Derived, *notes: str) -> Item:
    source = f"{derived.session_id or 'deleted session'} #{derived.from_seq} to #{derived.upto_seq}"
    row = (derived.source, derived.kind, derived.content, source, derived.model, " ".join(notes))
    made = f"{derived.id}, {source}, by {derived.model or 'hand'}"
    return Item(row, derived.source, " ".join(derived.content.split()), (made, *notes))


def _archived_item(each: ArchivedMemory) -> Item:
    until = f"until {output.show_time(each.purged_after)}" if each.purged_after else "at any time"
    return Item(
        (str(each.id), each.memory_type, each.archived_at, each.purged_after, each.archive_reason, each.content),
        each.memory_type,
        " ".join(each.content.split()),
        (f"{each.id}, why: {each.archive_reason}", f"can be restored {until}"),
    )


def _text(event: SourceEvent) -> str:
    if event.erased_at is not None:
        return "(forgotten)"
    return f"“{event.text}”" if event.text else f"({event.event_type})"


def _lines(path: Path) -> Iterator[str]:
    if str(path) == "-":
        yield from sys.stdin
        return
    with path.open(encoding="utf-8", newline="\n") as source:
        yield from source
