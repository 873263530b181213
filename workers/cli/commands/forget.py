"""`hippocampus forget`: a user, a session, events, a memory or a fact; what it would reach, and the proof."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hippocampus.erasure.service import Erasure, ErasureService, TablePreview
from workers.cli import databases, output
from workers.cli.groups import Verbs
from workers.cli.owners import NUMBER_MAX, QUERIES, Function, Owner, find_owner, json_option, owner_options
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

SAMPLE_CHARS_MAX = 160


@click.group(
    cls=Verbs,
    epilog="Examples:  hippocampus forget user --app shop --user ana --dry-run;  hippocampus forget memory 0199… --yes",
)
def command() -> None:
    """Forget for good: what was said, and everything that was drawn from it. Nothing brings it back."""


def _forget_options(function: Function) -> Function:
    function = json_option(function)
    function = click.option("--yes", is_flag=True, help="Do not ask.")(function)
    function = click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")(function)
    return owner_options(function)


@command.command("user", epilog="Example:  hippocampus forget user --app shop --user ana")
@_forget_options
def user_(app: str | None, user: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget a user of an app: sessions, memories, facts, archives, state.

    It is worked off session by session. If it is killed, `forget resume`, the retention worker, or the same command
    goes on.
    """
    _forget(app, user, dry_run, yes, as_json, {}, lambda forgetting, who: forgetting.erase_user(who.app, who.user))


@command.command("session", epilog="Example:  hippocampus forget session order-17 --app shop --user ana")
@click.argument("session_id")
@_forget_options
def session(session_id: str, app: str | None, user: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget a session, and everything that was drawn from it."""
    _forget(
        app,
        user,
        dry_run,
        yes,
        as_json,
        {"session_id": session_id},
        lambda forgetting, who: forgetting.erase_session(who.app, who.user, session_id),
    )


@command.command("events", epilog="Example:  hippocampus forget events order-17 3 4 --app shop --user ana")
@click.argument("session_id")
@click.argument("numbers", nargs=-1, type=click.IntRange(1, NUMBER_MAX))
@click.option("--id", "ids", multiple=True, help="An event by its id, in place of its number.")
@_forget_options
def events(
    session_id: str,
    numbers: tuple[int, ...],
    ids: tuple[str, ...],
    app: str | None,
    user: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Forget events of a session by their numbers. Each leaves an empty tombstone in its place."""
    if not numbers and not ids:
        raise click.UsageError("Name at least one event, by its number or with --id.")
    _forget(
        app,
        user,
        dry_run,
        yes,
        as_json,
        {"session_id": session_id, "sequence_nums": numbers, "event_ids": ids},
        lambda forgetting, who: forgetting.erase_events(
            who.app, who.user, session_id, sequence_nums=numbers, event_ids=ids
        ),
    )


@command.command("memory", epilog="Example:  hippocampus forget memory 0199… --app shop --user ana")
@click.argument("memory_id", type=click.UUID)
@_forget_options
def memory(memory_id: UUID, app: str | None, user: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget one memory, or one fact with its history. What was said stays, and does not bring it back."""
    _forget(
        app,
        user,
        dry_run,
        yes,
        as_json,
        {"memory_id": memory_id},
        lambda forgetting, who: forgetting.erase_memory(who.app, who.user, memory_id),
    )


@command.command("list", epilog="Example:  hippocampus forget list --app shop")
@click.option("--app", help="Only of this app.")
@click.option("--user", help="Only of this user.")
@page_options(50)
@json_option
def list_(app: str | None, user: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List requests, the newest first: what was to be forgotten, and whether that is done."""

    async def work(_config: Settings, pool: Pool) -> Paged[Erasure]:
        pages = Pages(cursor, limit, "erasures", app, user)
        rows = await pool.fetch(QUERIES["erasures"], app, user, limit, pages.begin(UUID))
        found = [Erasure(**{**row, "sequence_nums": tuple(row["sequence_nums"] or ())}) for row in rows]
        return pages.full(found, lambda each: each.id)

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        columns = ("request", "scope", "app", "user", "rows", "asked", "done")
        rows = [
            (
                str(each.id),
                each.scope,
                each.app_name,
                each.user_id,
                sum(each.counts.values()),
                each.requested_at,
                each.finished_at,
            )
            for each in page.rows
        ]
        output.write_table(columns, rows, empty=page.empty("Nothing was asked to be forgotten."))
    tell_more(page)


@command.command("show", epilog="Example:  hippocampus forget show 0199… --app shop --user ana")
@click.argument("erasure_id", type=click.UUID)
@click.option("--app", required=True, help="Of which app.")
@click.option("--user", required=True, help="Whose.")
@json_option
def show(erasure_id: UUID, app: str, user: str, as_json: bool) -> None:
    """Show a request: what went, and what it still finds."""

    async def work(_config: Settings, pool: Pool) -> Erasure:
        return await ErasureService(pool).get(app, user, erasure_id)

    _write(databases.run(work), as_json=as_json)


@command.command("resume", epilog="Example:  hippocampus forget resume")
@json_option
def resume(as_json: bool) -> None:
    """Go on with every request that was interrupted."""

    async def work(_config: Settings, pool: Pool) -> int:
        return await ErasureService(pool).resume()

    finished = databases.run(work)
    if as_json:
        output.write_json({"finished": finished})
    else:
        click.echo(f"Finished {finished} requests.")


def _forget(
    app: str | None,
    user: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    target: Mapping[str, Any],
    act: Callable[[ErasureService, Owner], Awaitable[Erasure]],
) -> None:
    async def look(_config: Settings, pool: Pool) -> tuple[Owner, list[TablePreview]]:
        who = await find_owner(pool, app, user)
        return who, await ErasureService(pool).preview(who.app, who.user, **target)

    async def work(_config: Settings, pool: Pool) -> Erasure:
        return await act(ErasureService(pool), who)

    if dry_run or not yes:
        who, reached = databases.run(look)
        if not as_json or dry_run:
            _write_preview(reached, as_json=as_json)
        if dry_run:
            return
        click.confirm(f"Forget this of {who.user} in {who.app}, for good?", abort=True, err=True)
    else:

        async def name(_config: Settings, pool: Pool) -> Owner:
            return await find_owner(pool, app, user)

        who = databases.run(name)
    _write(databases.run(work), as_json=as_json)


def _write_preview(reached: list[TablePreview], *, as_json: bool) -> None:
    if as_json:
        output.write_json(reached)
        return
    rows = [(each.table_name, each.rows, _sample(each)) for each in reached]
    output.write_table(("table", "rows", "for example"), rows, empty="There is nothing to forget.")


def _sample(each: TablePreview) -> str:
    for row in each.sample:
        for name in ("content", "value", "session_id", "state"):
            if row.get(name):
                return output.show(row[name])[:SAMPLE_CHARS_MAX]
    return ""


def _write(erasure: Erasure, *, as_json: bool) -> None:
    if as_json:
        output.write_json(erasure)
        return
    output.write_table(("table", "rows"), sorted(erasure.counts.items()), empty="There was nothing to forget.")
    left = ", ".join(f"{rows} in {table}" for table, rows in erasure.remaining.items())
    state = "Done; nothing is left" if erasure.is_complete else f"Not done yet: {left or 'being worked off'}"
    click.echo(f"{state}. Request {erasure.id}.")
