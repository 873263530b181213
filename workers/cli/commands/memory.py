"""`hippocampus memory`: one memory's origin, pins, the archive, a user's whole memory out and in."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from hippocampus.erasure.provenance import Consequences, Derived, Provenance, SourceEvent, consequences, provenance
from hippocampus.retention.archive import ArchivedMemory, MemoryArchive
from hippocampus.transfer.memory_file import Imported, export_memory, import_memory
from pulse.errors import InvalidInputError
from workers.cli import databases, output
from workers.cli.groups import Verbs
from workers.cli.owners import NUMBER_MAX, find_owner, json_option, owner_options
from workers.cli.page import Item, write_items
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.group(
    cls=Verbs, epilog="Examples:  hippocampus memory origin 0199…;  hippocampus memory export --user ana > ana.jsonl"
)
def command() -> None:
    """Trace, pin, restore, export and import what is remembered; `hippocampus memories` lists and shows it."""


@command.command("origin", epilog="Example:  hippocampus memory origin 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def origin(memory_id: UUID, app: str | None, user: str | None, as_json: bool) -> None:
    """Show the events that a memory or a fact comes from, by which job, prompt and model."""

    async def work(_config: Settings, pool: Pool) -> list[Provenance]:
        who = await find_owner(pool, app, user)
        return await provenance(pool, who.app, who.user, memory_id)

    found = databases.run(work)
    if as_json:
        output.write_json(found)
        return
    items = []
    for each in found:
        said = tuple(f"#{event.sequence_num} {event.author}: {_said(event)}" for event in each.events)
        items.append(_item(each.drawn, *said))
    write_items(_COLUMNS, items, empty="")


@command.command("from-event", epilog="Example:  hippocampus memory from-event order-17 3")
@click.argument("session_id")
@click.argument("number", type=click.IntRange(1, NUMBER_MAX))
@owner_options
@json_option
def from_event(session_id: str, number: int, app: str | None, user: str | None, as_json: bool) -> None:
    """Show everything that was drawn from an event."""

    async def work(_config: Settings, pool: Pool) -> Consequences:
        who = await find_owner(pool, app, user)
        return await consequences(pool, who.app, who.user, session_id, sequence_num=number)

    found = databases.run(work)
    if as_json:
        output.write_json(found)
        return
    click.echo(f"#{found.event.sequence_num} {found.event.author}: {_said(found.event)}")
    items = [_item(each, "cites it") for each in found.citing]
    items += [_item(each, "drawn from its slice") for each in found.alongside]
    write_items(_COLUMNS, items, empty="Nothing was drawn from it.")


@command.command("pin", epilog="Example:  hippocampus memory pin 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def pin(memory_id: UUID, app: str | None, user: str | None, as_json: bool) -> None:
    """Keep a memory: it never fades and is never cleaned up."""

    async def work(_config: Settings, pool: Pool) -> bool:
        who = await find_owner(pool, app, user)
        return await MemoryArchive(pool).pin(who.app, who.user, memory_id)

    _tell(databases.run(work), "Pinned.", "It was pinned already.", as_json=as_json)


@command.command("unpin", epilog="Example:  hippocampus memory unpin 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def unpin(memory_id: UUID, app: str | None, user: str | None, as_json: bool) -> None:
    """Let a memory fade again, from its last access on."""

    async def work(_config: Settings, pool: Pool) -> bool:
        who = await find_owner(pool, app, user)
        return await MemoryArchive(pool).unpin(who.app, who.user, memory_id)

    _tell(databases.run(work), "Unpinned.", "It was not pinned.", as_json=as_json)


@command.command("archived", epilog="Example:  hippocampus memory archived --user ana")
@owner_options
@page_options(100)
@json_option
def archived(app: str | None, user: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List what clean-ups have put away, and until when it can be restored."""

    async def work(_config: Settings, pool: Pool) -> Paged[ArchivedMemory]:
        who = await find_owner(pool, app, user)
        pages = Pages(cursor, limit, "archived", who.app, who.user)
        found = await MemoryArchive(pool).page(who.app, who.user, after=pages.begin(UUID), limit=limit)
        return pages.full(found, lambda each: each.id)

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        items = [
            Item(
                (str(each.id), each.memory_type, each.archived_at, each.purged_after, each.content),
                each.memory_type,
                " ".join(each.content.split()),
                (
                    f"{each.id}, why: {each.archive_reason}",
                    f"can be restored until {output.show_time(each.purged_after)}",
                ),
            )
            for each in page.rows
        ]
        columns = ("id", "type", "archived", "until", "content")
        write_items(columns, items, empty=page.empty("Nothing is archived."))
    tell_more(page)


@command.command("restore", epilog="Example:  hippocampus memory restore 0199… 0199…")
@click.argument("memory_ids", nargs=-1, type=click.UUID)
@click.option("--all", "everything", is_flag=True, help="All of the user's.")
@owner_options
@json_option
def restore(memory_ids: tuple[UUID, ...], everything: bool, app: str | None, user: str | None, as_json: bool) -> None:
    """Bring archived memories back, as fresh as if they had been used now."""
    if bool(memory_ids) == everything:
        raise click.UsageError("Name the memories to restore, or say --all.")

    async def work(_config: Settings, pool: Pool) -> list[UUID]:
        who = await find_owner(pool, app, user)
        return await MemoryArchive(pool).restore(who.app, who.user, None if everything else memory_ids)

    restored = databases.run(work)
    missing = [str(each) for each in memory_ids if each not in restored]
    if as_json:
        output.write_json({"restored": restored})
    else:
        click.echo(f"Restored {len(restored)} memories.")
    if missing:
        raise InvalidInputError(f"not in the archive of this user: {', '.join(missing)}")


@command.command("export", epilog="Example:  hippocampus memory export --app shop --user ana > ana.jsonl")
@owner_options
@click.option("--output", "-o", "path", type=click.Path(dir_okay=False, path_type=Path), help="A new file.")
@click.option("--no-vectors", is_flag=True, help="Leave vectors out; an import makes them anew.")
def export(app: str | None, user: str | None, path: Path | None, no_vectors: bool) -> None:
    """Write a user's whole memory as JSON lines, to standard output or a file."""

    async def work(_config: Settings, pool: Pool) -> int:
        who = await find_owner(pool, app, user)
        count = 0
        with path.open("x", encoding="utf-8") if path else contextlib.nullcontext(sys.stdout) as sink:
            async for line in export_memory(pool, who.app, who.user, vectors=not no_vectors):
                sink.write(line + "\n")
                count += 1
        return count

    try:
        count = databases.run(work)
    except FileExistsError:
        raise click.BadParameter(f"{path} exists already: name a new file.", param_hint="--output") from None
    click.echo(f"Exported {count - 2} rows.", err=True)


@command.command("import", epilog="Example:  hippocampus memory import ana.jsonl")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--app", help="Into which app; by default the file's.")
@click.option("--user", help="Whose it becomes; by default the file's.")
@json_option
def import_(path: Path, app: str | None, user: str | None, as_json: bool) -> None:
    """Store an export: all of it, or nothing and the numbers of the lines that are wrong."""

    async def work(_config: Settings, pool: Pool) -> Imported:
        return await import_memory(pool, _lines(path), app_name=app, user_id=user)

    imported = databases.run(work)
    if as_json:
        output.write_json(imported)
        return
    stored = ", ".join(f"{count} {kind}" for kind, count in imported.stored.items() if count) or "nothing new"
    click.echo(f"Imported {stored} for {imported.user_id} in {imported.app_name}; {imported.skipped} were passed over.")
    if imported.forgotten:
        click.echo(
            f"{imported.forgotten} memories and facts that stood here are forgotten: the file says that they were."
        )


def _tell(changed: bool, yes: str, no: str, *, as_json: bool) -> None:
    if as_json:
        output.write_json({"changed": changed})
    else:
        click.echo(yes if changed else no)


_COLUMNS = ("source", "type", "content", "session", "model", "said")


def _item(drawn: Derived, *notes: str) -> Item:
    place = f"{drawn.session_id or 'deleted session'} #{drawn.from_seq} to #{drawn.upto_seq}"
    row = (drawn.source, drawn.kind, drawn.content, place, drawn.model, " ".join(notes))
    made = f"{drawn.id}, {place}, by {drawn.model or 'hand'}"
    return Item(row, drawn.source, " ".join(drawn.content.split()), (made, *notes))


def _said(event: SourceEvent) -> str:
    if event.erased_at is not None:
        return "(forgotten)"
    return f"“{event.text}”" if event.text else f"({event.event_type})"


def _lines(path: Path) -> Iterator[str]:
    if str(path) == "-":
        yield from sys.stdin
        return
    with path.open(encoding="utf-8", newline="\n") as source:
        yield from source
