"""`hippocampus forget`: erase a user, a session, events, a memory or a fact; preview it, and prove it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hippocampus.erasure.service import Erasure, ErasureService, TablePreview
from workers.cli import databases, output, rows
from workers.cli.groups import Verbs
from workers.cli.options import NUMBER_MAX, bundled, confirm, filter_options, json_option
from workers.cli.owners import OWNER_OPTIONS, Whose
from workers.cli.paging import Paged, PageOptions, page_options
from workers.cli.rows import Owner

if TYPE_CHECKING:
    from pulse.database import Pool

SAMPLE_CHARS_MAX = 160


@dataclass(frozen=True, slots=True)
class _Request(Whose):
    """Whose data to erase, and whether to preview, to confirm, and to print JSON."""

    dry_run: bool
    yes: bool
    as_json: bool

    def perform(self, act: Callable[[ErasureService, Owner], Awaitable[Erasure]], **target: Any) -> None:
        """Preview the erasure of a target, ask for confirmation, and erase it."""

        async def preview(pool: Pool, owner: Owner) -> tuple[Owner, list[TablePreview]]:
            return owner, await ErasureService(pool).preview(owner.app, owner.user, **target)

        if self.dry_run or not self.yes:
            owner, reached = self.run(preview)
            if not self.as_json or self.dry_run:
                _write_preview(reached, as_json=self.as_json)
            if self.dry_run:
                return
            confirm(f"Forget this of {owner.user} in {owner.app}, for good?")
            erasure = databases.run(lambda pool: act(ErasureService(pool), owner))
        else:
            erasure = self.run(lambda pool, owner: act(ErasureService(pool), owner))
        _write(erasure, as_json=self.as_json)


_request_options = bundled(
    "request",
    _Request,
    *OWNER_OPTIONS,
    click.option("--dry-run", is_flag=True, help="Show what would be erased, and change nothing."),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    json_option,
)


@click.group(
    cls=Verbs,
    epilog="Examples:  hippocampus forget user --app shop --user ana --dry-run;  hippocampus forget memory 0199… --yes",
)
def command() -> None:
    """Erase for good what was said, and everything that was derived from it. It cannot be restored."""


@command.command("user", epilog="Example:  hippocampus forget user --app shop --user ana")
@_request_options
def user_(request: _Request) -> None:
    """Erase a user of an app: sessions, memories, facts, archives, state.

    The sessions are erased one by one. If the command is killed, `forget resume`, the retention worker, or the same
    command continues.
    """
    request.perform(lambda erasures, who: erasures.erase_user(who.app, who.user))


@command.command("session", epilog="Example:  hippocampus forget session order-17 --app shop --user ana")
@click.argument("session_id")
@_request_options
def session(session_id: str, request: _Request) -> None:
    """Erase a session, and everything that was derived from it."""
    request.perform(lambda erasures, who: erasures.erase_session(who.app, who.user, session_id), session_id=session_id)


@command.command("events", epilog="Example:  hippocampus forget events order-17 3 4 --app shop --user ana")
@click.argument("session_id")
@click.argument("numbers", nargs=-1, type=click.IntRange(1, NUMBER_MAX))
@click.option("--id", "ids", multiple=True, help="An event's id, instead of its number.")
@_request_options
def events(session_id: str, numbers: tuple[int, ...], ids: tuple[str, ...], request: _Request) -> None:
    """Erase events of a session by their numbers. Each is replaced by an empty tombstone."""
    if not numbers and not ids:
        raise click.UsageError("Name at least one event, by its number or with --id.")
    request.perform(
        lambda erasures, who: erasures.erase_events(
            who.app, who.user, session_id, sequence_nums=numbers, event_ids=ids
        ),
        session_id=session_id,
        sequence_nums=numbers,
        event_ids=ids,
    )


@command.command("memory", epilog="Example:  hippocampus forget memory 0199… --app shop --user ana")
@click.argument("memory_id", type=click.UUID)
@_request_options
def memory(memory_id: UUID, request: _Request) -> None:
    """Erase a memory, or a fact with its history. The conversation stays, and is not extracted from again."""
    request.perform(lambda erasures, who: erasures.erase_memory(who.app, who.user, memory_id), memory_id=memory_id)


@command.command("list", epilog="Example:  hippocampus forget list --app shop")
@filter_options("app", "user")
@page_options(50)
def list_(app: str | None, user: str | None, options: PageOptions) -> None:
    """List requests, the newest first: what was to be erased, and whether that is done."""

    async def work(pool: Pool) -> Paged[Erasure]:
        pages = options.of("erasures", app, user)
        found = await rows.erasures(pool, app, user, limit=options.limit, before=pages.begin(UUID))
        return pages.full(found, lambda each: each.id)

    columns = ("request", "scope", "app", "user", "rows", "requested", "done")
    options.write(databases.run(work), columns, _row, empty="No erasure was requested.")


@command.command("show", epilog="Example:  hippocampus forget show 0199… --app shop --user ana")
@click.argument("erasure_id", type=click.UUID)
@click.option("--app", required=True, help="The app of the user.")
@click.option("--user", required=True, help="The user.")
@json_option
def show(erasure_id: UUID, app: str, user: str, as_json: bool) -> None:
    """Show a request: what was erased, and what is left."""
    _write(databases.run(lambda pool: ErasureService(pool).get(app, user, erasure_id)), as_json=as_json)


@command.command("resume", epilog="Example:  hippocampus forget resume")
@json_option
def resume(as_json: bool) -> None:
    """Continue every request that was interrupted."""
    finished = databases.run(lambda pool: ErasureService(pool).resume())
    if as_json:
        output.write_json({"finished": finished})
    else:
        click.echo(f"Finished {finished} requests.")


def _write_preview(reached: list[TablePreview], *, as_json: bool) -> None:
    if as_json:
        output.write_json(reached)
        return
    cells = [(each.table_name, each.rows, _sample(each)) for each in reached]
    output.write_table(("table", "rows", "for example"), cells, empty="There is nothing to forget.")


def _sample(each: TablePreview) -> str:
    for row in each.sample:
        for name in ("content", "value", "session_id", "state"):
            if row.get(name):
                return output.show(row[name])[:SAMPLE_CHARS_MAX]
    return ""


def _row(each: Erasure) -> tuple[Any, ...]:
    count = sum(each.counts.values())
    return (str(each.id), each.scope, each.app_name, each.user_id, count, each.requested_at, each.finished_at)


def _write(erasure: Erasure, *, as_json: bool) -> None:
    if as_json:
        output.write_json(erasure)
        return
    output.write_table(("table", "rows"), sorted(erasure.counts.items()), empty="There was nothing to forget.")
    left = ", ".join(f"{count} in {table}" for table, count in erasure.remaining.items())
    state = "Done; nothing is left" if erasure.is_complete else f"Not done yet: {left or 'in progress'}"
    click.echo(f"{state}. Request {erasure.id}.")
