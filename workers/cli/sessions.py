"""`hippocampus sessions`: list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pulse.errors import SessionNotFoundError
from pulse.events import Session
from pulse.session_service import OpenSessionService
from workers.cli import databases, output
from workers.cli.owners import QUERIES, find_owner, json_option, owner_options

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.group(
    invoke_without_command=True, epilog="Examples:  hippocampus sessions;  hippocampus sessions show mei-session-1"
)
@click.pass_context
def command(context: click.Context) -> None:
    """List sessions, or show one."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@command.command("list", epilog="Example:  hippocampus sessions list --limit 5")
@owner_options
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1000), help="How many at most.")
@json_option
def list_(app: str | None = None, user: str | None = None, limit: int = 100, as_json: bool = False) -> None:
    """List a user's sessions, the newest first."""

    async def work(_config: Settings, pool: Pool) -> list[dict[str, Any]]:
        owner = await find_owner(pool, app, user)
        page = await OpenSessionService(pool).list_sessions(owner.app, owner.user, limit=limit)
        rows = await pool.fetch(QUERIES["session_counts"], [session.thread_id for session in page])
        counts = {row["id"]: row for row in rows}
        return [_line(session, counts[session.thread_id]) for session in page if session.thread_id in counts]

    sessions = databases.run(work)
    if as_json:
        output.write_json(sessions)
        return
    columns = ("session", "events", "replayed", "reflected", "memories", "created")
    rows = [tuple(each[name] for name in columns) for each in sessions]
    output.write_table(columns, rows, empty="There is no session yet.")


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
    "--events", default=1000, show_default=True, type=click.IntRange(0), help="How many of the newest events."
)
@json_option
def show(session_id: str, app: str | None, user: str | None, events: int, as_json: bool) -> None:
    """Show a session: its state and its events."""

    async def work(_config: Settings, pool: Pool) -> Session | None:
        owner = await find_owner(pool, app, user)
        return await OpenSessionService(pool).get_session(owner.app, owner.user, session_id, num_recent_events=events)

    session = databases.run(work)
    if session is None:
        raise SessionNotFoundError(f"There is no session {session_id!r} for this user: see `hippocampus sessions`.")
    if as_json:
        output.write_json(session)
        return
    screen = output.console()
    screen.print(
        f"{session.id}: app {session.app_name}, user {session.user_id}, version {session.version}", markup=False
    )
    if session.state:
        screen.print(f"state: {output.show(session.state)}", markup=False)
    rows = [
        (each.sequence_num, output.show_time(each.occurred_at), each.author, each.text or f"({each.event_type})")
        for each in session.events
    ]
    output.write_table(("#", "said", "author", "text"), rows, empty="It has no event.")
