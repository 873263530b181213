"""`hippocampus sessions`: list, show, finalize, delete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pulse.events import Session
from pulse.session_key import session_not_found
from pulse.session_service import OpenSessionService
from workers.cli import databases, output, rows
from workers.cli.groups import Listing
from workers.cli.options import COUNT_MAX, confirm, json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.paging import Paged, PageOptions, again, page_options
from workers.cli.rows import Owner

if TYPE_CHECKING:
    from pulse.database import Pool

_COLUMNS = ("session", "events", "replayed", "reflected", "memories", "created")


@dataclass(frozen=True, slots=True)
class _Line:
    """A session in the list, with how far each stage has consolidated it."""

    session: str
    app: str
    user: str
    events: int
    replayed: int
    reflected: int
    memories: int
    finalized: datetime | None
    created: datetime


@click.group(cls=Listing, epilog="Examples:  hippocampus sessions;  hippocampus sessions show mei-session-1 --events 5")
def command() -> None:
    """List sessions; show, finalize or delete one."""


@command.command("list", epilog="Example:  hippocampus sessions list --limit 5")
@owner_options
@page_options(100)
def list_(whose: Whose, options: PageOptions) -> None:
    """List a user's sessions, the newest first."""

    async def work(pool: Pool, owner: Owner) -> Paged[_Line]:
        pages = options.of("sessions", *owner)
        found = await OpenSessionService(pool).list_sessions(
            owner.app, owner.user, limit=options.limit, cursor=pages.begin(str)
        )
        counts = await rows.session_counts(pool, [session.thread_id for session in found])
        # A session may be deleted in between.
        lines = [_line(session, counts[session.thread_id]) for session in found if session.thread_id in counts]
        return pages.page(lines, found.next_cursor)

    options.write(whose.run(work), _COLUMNS, _row, empty="There are no sessions yet.")


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
def show(session_id: str, whose: Whose, events: int, as_json: bool) -> None:
    """Show a session: its state and its newest events."""
    session = whose.run(lambda pool, owner: _find(pool, owner, session_id, events=events))
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
    cells = [
        (each.sequence_num, output.show_time(each.occurred_at), each.author, each.text or f"({each.event_type})")
        for each in session.events
    ]
    output.write_table(("#", "said", "author", "text"), cells, empty="There are no events to show.")
    if older:
        click.echo(f"{older} older events:  {again('--events', str(older + len(session.events)))}", err=True)


@command.command("finalize", epilog="Example:  hippocampus sessions finalize order-17")
@click.argument("session_id")
@owner_options
@json_option
def finalize(session_id: str, whose: Whose, as_json: bool) -> None:
    """End a session: its new events are consolidated at once, if its app's policy says to consolidate."""
    jobs = whose.run(lambda pool, owner: OpenSessionService(pool).finalize_session(owner.app, owner.user, session_id))
    if as_json:
        output.write_json({"jobs": jobs})
        return
    cells = [(str(job_id), kind) for kind, job_id in sorted(jobs.items())]
    output.write_table(
        ("job", "type"),
        cells,
        empty="Everything in it is consolidated already, or its app's policy says not to consolidate.",
    )


@command.command("delete", epilog="Example:  hippocampus sessions delete order-17 --yes")
@click.argument("session_id")
@owner_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def delete(session_id: str, whose: Whose, yes: bool, as_json: bool) -> None:
    """Delete a session with its events and its state. Memories and facts stay; `forget session` erases them too."""
    session = whose.run(lambda pool, owner: _find(pool, owner, session_id, events=0))
    app, user = session.app_name, session.user_id
    if not yes:
        confirm(f"Delete session {session_id} of {user} in {app}?")
    databases.run(lambda pool: OpenSessionService(pool).delete_session(app, user, session_id))
    if as_json:
        output.write_json({"deleted": session_id, "app": app, "user": user})
    else:
        click.echo("Deleted.")


async def _find(pool: Pool, owner: Owner, session_id: str, *, events: int) -> Session:
    session = await OpenSessionService(pool).get_session(owner.app, owner.user, session_id, num_recent_events=events)
    if session is None:
        hint = "see `hippocampus sessions`"
        raise session_not_found(session_id, app_name=owner.app, user_id=owner.user, hint=hint)
    return session


def _line(session: Session, counts: rows.SessionCounts) -> _Line:
    return _Line(
        session=session.id,
        app=session.app_name,
        user=session.user_id,
        events=counts.events,
        replayed=counts.fast_upto_seq,
        reflected=counts.deep_upto_seq,
        memories=counts.memories,
        finalized=session.finalized_at,
        created=session.created_at,
    )


def _row(line: _Line) -> tuple[Any, ...]:
    return tuple(getattr(line, name) for name in _COLUMNS)
