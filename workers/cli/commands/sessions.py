"""`hippocampus sessions`: list, show, finalize, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pulse.errors import SessionNotFoundError
from pulse.events import Session
from pulse.session_service import OpenSessionService
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.owners import COUNT_MAX, QUERIES, Owner, find_owner, json_option, owner_options
from workers.cli.paging import Paged, Pages, again, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.group(cls=Listing, epilog="Examples:  hippocampus sessions;  hippocampus sessions show mei-session-1 --events 5")
def command() -> None:
    """List sessions; or show, finalize, delete one."""


@command.command("list", epilog="Example:  hippocampus sessions list --limit 5")
@owner_options
@page_options(100)
@json_option
def list_(app: str | None, user: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List a user's sessions, the newest first."""

    async def work(_config: Settings, pool: Pool) -> Paged[dict[str, Any]]:
        owner = await find_owner(pool, app, user)
        pages = Pages(cursor, limit, "sessions", owner.app, owner.user)
        found = await OpenSessionService(pool).list_sessions(
            owner.app, owner.user, limit=limit, cursor=pages.begin(str)
        )
        rows = await pool.fetch(QUERIES["session_counts"], [session.thread_id for session in found])
        counts = {row["id"]: row for row in rows}
        lines = [_line(session, counts[session.thread_id]) for session in found if session.thread_id in counts]
        return pages.page(lines, found.next_cursor)

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        columns = ("session", "events", "replayed", "reflected", "memories", "created")
        rows = [tuple(each[name] for name in columns) for each in page.rows]
        output.write_table(columns, rows, empty=page.empty("There is no session yet."))
    tell_more(page)


def _line(session: Session, counts: Any) -> dict[str, Any]:
    return {
        "session": session.id,
        "app": session.app_name,
        "user": session.user_id,
        "events": counts["events"],
        "replayed": counts["fast_upto_seq"],
        "reflected": counts["deep_upto_seq"],
        "memories": counts["memories"],
        "finalized": session.finalized_at,
        "created": session.created_at,
    }


@command.command("show", epilog="Example:  hippocampus sessions show mei-session-1 --events 5")
@click.argument("session_id")
@owner_options
@click.option(
    "--events",
    default=1000,
    show_default=True,
    type=click.IntRange(0, COUNT_MAX),
    help="How many of the newest events.",
)
@json_option
def show(session_id: str, app: str | None, user: str | None, events: int, as_json: bool) -> None:
    """Show a session: its state and its newest events."""
    _owner, session = databases.run(_finding(session_id, app, user, events=events))
    if as_json:
        output.write_json(session)
        return
    screen = output.console()
    older = (session.events[0].sequence_num or 1) - 1 if session.events else 0
    screen.print(
        f"{session.id}: app {session.app_name}, user {session.user_id}, version {session.version}", markup=False
    )
    if session.state:
        screen.print(f"state: {output.show(session.state)}", markup=False)
    rows = [
        (each.sequence_num, output.show_time(each.occurred_at), each.author, each.text or f"({each.event_type})")
        for each in session.events
    ]
    output.write_table(("#", "said", "author", "text"), rows, empty="There is no event to show.")
    if older:
        click.echo(f"{older} older events:  {again('--events', str(older + len(session.events)))}", err=True)


@command.command("finalize", epilog="Example:  hippocampus sessions finalize order-17")
@click.argument("session_id")
@owner_options
@json_option
def finalize(session_id: str, app: str | None, user: str | None, as_json: bool) -> None:
    """End a session: what is new in it is consolidated at once, if its app's policy says to consolidate."""

    async def work(_config: Settings, pool: Pool) -> dict[str, UUID]:
        owner = await find_owner(pool, app, user)
        return await OpenSessionService(pool).finalize_session(owner.app, owner.user, session_id)

    made = databases.run(work)
    if as_json:
        output.write_json({"jobs": made})
        return
    rows = [(str(job_id), kind) for kind, job_id in sorted(made.items())]
    output.write_table(
        ("job", "type"), rows, empty="Everything in it is consolidated already, or its app's policy says not to."
    )


@command.command("delete", epilog="Example:  hippocampus sessions delete order-17 --yes")
@click.argument("session_id")
@owner_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(session_id: str, app: str | None, user: str | None, yes: bool, as_json: bool) -> None:
    """Delete a session with its events and its state. What was learned from it stays; `forget session` reaches that."""
    owner, _session = databases.run(_finding(session_id, app, user, events=0))
    if not yes:
        click.confirm(f"Delete session {session_id} of {owner.user} in {owner.app}?", abort=True, err=True)

    async def work(_config: Settings, pool: Pool) -> None:
        await OpenSessionService(pool).delete_session(owner.app, owner.user, session_id)

    databases.run(work)
    if as_json:
        output.write_json({"deleted": session_id, "app": owner.app, "user": owner.user})
    else:
        click.echo("Deleted.")


def _finding(
    session_id: str, app: str | None, user: str | None, *, events: int
) -> Callable[[Settings, Pool], Awaitable[tuple[Owner, Session]]]:
    async def work(_config: Settings, pool: Pool) -> tuple[Owner, Session]:
        owner = await find_owner(pool, app, user)
        session = await OpenSessionService(pool).get_session(
            owner.app, owner.user, session_id, num_recent_events=events
        )
        if session is None:
            raise SessionNotFoundError(f"There is no session {session_id!r} for this user: see `hippocampus sessions`.")
        return owner, session

    return work
