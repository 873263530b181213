"""Google ADK's session service on PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from typing_extensions import override

from pulse import errors
from pulse.adk import events as adk_events
from pulse.adk import session_rows
from pulse.adk.json_safe import json_safe
from pulse.adk.markers import Marker
from pulse.adk.ttl import Ttl, read_ttl
from pulse.adk.turns import Turns
from pulse.adk.usual_events import usual_input
from pulse.event_rows import EventInput, event_input
from pulse.loop_pools import access
from pulse.notify.notifier import Look, Notifier
from pulse.postgres.json_values import escape_state
from pulse.postgres.statements import load_queries, translate
from pulse.scopes import merge_state, split_delta, without_deleted
from pulse.session_service import PAGE_SIZE_MAX, OpenSessionService, check_names

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.loop_pools import PoolAccess

Result = TypeVar("Result")

#: Of a session that carries no marker, so many of its newest events are compared with the last one stored.
SEEN_IDS_MAX: Final = 100
#: So many appends at once change the state of an app that all its sessions share: one holds it while the others do what
#: comes before. More would only wait in the database, each with a connection.
APP_WRITERS_MAX: Final = 3
_ALL_EVENTS: Final = 2**31 - 1
_PIECES_GUESSED: Final = 4
_STALE = (
    "The session has been modified in storage since it was loaded: get it again, recompute, and append again."
    " Nothing was stored."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPage:
    """A page of sessions without their events, and the token of the next page; None after the last."""

    sessions: list[Session]
    next_page_token: str | None


class PostgresSessionService(BaseSessionService):
    """Stands in for ADK's session services; see their base class for what each method means.

    One statement per call. What it stores is the engine's: any other client of the engine reads it, and workers
    consolidate it. Every call may come from another event loop, if it was given a URL.

    Raises, from every method:
        pulse.errors.InvalidInputError: an argument is out of its bounds (a ValueError); nothing was changed.
        pulse.errors.SchemaError: the database lacks our tables; the message names the command.
    """

    def __init__(self, database: Pool | PoolAccess | str) -> None:
        """Take a pool of the event loop that all calls come from, or a URL (``postgresql://…``) for any loops."""
        self._database = access(database)
        self._queries = load_queries("pulse.adk", "sessions.sql")
        self._notifiers: dict[Pool, tuple[asyncio.AbstractEventLoop, Notifier]] = {}
        # Branches that run in parallel share one session object: each append finds the marker that the last one left.
        # Another object of the same session is refused by its marker.
        self._turns = Turns(at_once=1)
        self._app_turns = Turns(at_once=APP_WRITERS_MAX)

    async def prepare_tables(self) -> None:
        """Check that the tables are there; `hippocampus migrate` makes them. Calling it is optional.

        Raises:
            pulse.errors.SchemaError: they are not.
        """
        await self._fetch("check_tables")

    @override
    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
        ttl: Ttl | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Create a session.

        Args:
            app_name: 1 to 255 characters.
            user_id: 1 to 255 characters.
            state: ``app:`` and ``user:`` keys go to their scopes, ``temp:`` keys nowhere.
            session_id: up to 512 characters; surrounding blanks are dropped, None or blank makes a new UUID.
            ttl: how long after its last event, or its creation, the session stays: a timedelta, seconds, or ``3600s``.
                Afterwards it is as if deleted. None: for good.
            metadata: kept with the session for other clients of the engine.

        Raises:
            AlreadyExistsError: the id is taken.
            pulse.errors.StateTooLargeError: a scope would be over the app's limit.
        """
        session_id = (session_id or "").strip() or str(uuid.uuid4())
        check_names(app_name, user_id, session_id)
        delta = split_delta(json_safe(state or {}))
        [row] = await self._fetch(
            "create_adk_session",
            app_name,
            user_id,
            session_id,
            escape_state(delta.session),
            escape_state(delta.user) if delta.user else None,
            escape_state(delta.app) if delta.app else None,
            escape_state(json_safe(metadata), where="metadata") if metadata else None,
            read_ttl(ttl),
        )
        shared = session_rows.read_state(row["user_state"]), session_rows.read_state(row["app_state"])
        state = merge_state(delta.session, *shared)
        session = session_rows.new_session(app_name, user_id, session_id, state, [], row["created_at"].timestamp())
        Marker.at(row).mark(session)
        return session

    @override
    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Read a session in one snapshot; None where this user has none of this id, or it has expired."""
        session_id = (session_id or "").strip()
        limit = config.num_recent_events if config else None
        after = config.after_timestamp if config else None
        asked = _ALL_EVENTS if limit is None else limit
        since = None if after is None else session_rows.moment(after)
        while True:
            rows = await self._fetch("get_adk_session", app_name, user_id, session_id, asked, since)
            if not rows:
                return None
            [row] = rows
            # Of events within one microsecond the database knows no order, and gives all.
            events, found = adk_events.from_rows(row["events"])
            if limit is None or len(events) >= limit or found < asked:
                break
            # Some are pieces of one event.
            asked *= _PIECES_GUESSED
        if limit is not None:
            events = events[len(events) - min(limit, len(events)) :]
        if after is not None:
            events = [event for event in events if event.timestamp >= after]
        shared = session_rows.read_state(row["user_state"]), session_rows.read_state(row["app_state"])
        return session_rows.read_session(row, app_name, user_id, session_id, shared, events)

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """List all sessions of a user, or of the app for None, without events, the longest untouched first."""
        rows = await self._fetch("list_adk_sessions", app_name, user_id, None, None, None)
        sessions = session_rows.read_sessions(rows, app_name)
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def list_sessions_page(
        self, *, app_name: str, user_id: str | None = None, page_size: int = 100, page_token: str | None = None
    ) -> SessionsPage:
        """List sessions page by page, without events, the newest made first; for all users, one user after the other.

        Appends between two pages change neither the order nor what is still to come.

        Args:
            app_name: as everywhere.
            user_id: None for all users of the app.
            page_size: 1 to 1,000.
            page_token: `SessionsPage.next_page_token` of the page before.
        """
        if not 1 <= page_size <= PAGE_SIZE_MAX:
            raise errors.InvalidInputError(f"page_size is 1 to {PAGE_SIZE_MAX}, not {page_size}")
        below = (None, None) if page_token is None else session_rows.read_token(page_token)
        rows = await self._fetch("list_adk_sessions", app_name, user_id, *below, page_size + 1)
        page = session_rows.read_sessions(rows[:page_size], app_name)
        last = rows[page_size - 1] if len(rows) > page_size else None
        token = None if last is None else session_rows.write_token(last["thread_id"], last["user_id"])
        return SessionsPage(sessions=page, next_page_token=token)

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its events, if there is one; the states of app and user stay, and so do memories."""

        async def delete(pool: Pool) -> None:
            try:
                await OpenSessionService(pool).delete_session(app_name, user_id, session_id)
            except errors.SessionNotFoundError:
                return

        await self._run(delete)

    async def finalize_session(self, *, app_name: str, user_id: str, session_id: str) -> dict[str, uuid.UUID]:
        """End a session for now: what is not yet consolidated is enqueued at once. Returns the jobs by type.

        Raises:
            SessionNotFoundError: no such session.
        """
        return await self._run(lambda pool: OpenSessionService(pool).finalize_session(app_name, user_id, session_id))

    @override
    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Read a user's state in the app, keys without their prefix; empty where there is none."""
        rows = await self._fetch("get_user_state", app_name, user_id)
        return without_deleted(session_rows.read_state(rows[0]["state"])) if rows else {}

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event through a session that was read before, and bring the session up to it.

        On any error the session and the event are as they were. An event that is stored already with the same content
        is not stored again.

        Raises:
            StaleSessionError: somebody else appended since the session was read, or it was deleted and made again.
            SessionNotFoundError: there is no such session any more.
            pulse.errors.EventConflictError: the event's id is taken by an event with other content.
            pulse.errors.EventTooLargeError, pulse.errors.StateTooLargeError: over the app's limits.
        """
        if event.partial:
            return event
        async with self._turns.of(id(session)):
            given = usual_input(event) or event_input(adk_events.to_engine(event))
            known = Marker.of(session)
            async with self._app_turns.of(session.app_name) if given.app_delta else nullcontext():
                row = await self._run(lambda pool: self._append(pool, session, given, event.timestamp, known))
            marker = Marker.at(row)
            if row["appended"] or _answers_a_lost_try(known, marker, row):
                self._apply_temp_state(session, event)
                event = self._trim_temp_delta_state(event)
                session.last_update_time = event.timestamp
                marker.mark(session)
                self._update_session_state(session, event)
                session.events.append(event)
            return event

    @override
    async def flush(self) -> None:
        """Send this event loop's notifications that wait; events are stored when `append_event` returns."""
        here = asyncio.get_running_loop()
        for loop, notifier in list(self._notifiers.values()):
            if loop is here:
                await notifier.close()

    async def close(self) -> None:
        """Send what waits, and close what a URL opened."""
        await self.flush()
        await self._database.close()

    async def __aenter__(self) -> PostgresSessionService:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _append(
        self, pool: Pool, session: Session, event: EventInput, seconds: float, known: Marker | None
    ) -> asyncpg.Record:
        names = session.app_name, session.user_id, session.id.strip()
        if known is not None:
            row = await pool.fetchrow(
                self._queries["append_adk_event"], *names, known.version, event, known.thread, seconds
            )
        else:
            seen = [each.id for each in session.events[-SEEN_IDS_MAX:]]
            row = await pool.fetchrow(self._queries["append_seen_event"], *names, seen, event, seconds)
        assert row is not None  # noqa: S101  # the function returns its row or raises
        if row["appended"]:
            newest = Look(row["sequence_num"], event.id, event.invocation_id, event.event_type)
            self._notifier(pool).look(row["thread_id"], newest)
        return row

    def _notifier(self, pool: Pool) -> Notifier:
        if pool not in self._notifiers:
            # A copy, and no error for what is gone: other threads do the same.
            for closed in [each for each in list(self._notifiers) if each.is_closing()]:
                self._notifiers.pop(closed, None)
            self._notifiers[pool] = asyncio.get_running_loop(), Notifier(pool)
        return self._notifiers[pool][1]

    async def _fetch(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self._run(lambda pool: pool.fetch(self._queries[name], *arguments))

    async def _run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        try:
            return await self._database.run(work)
        except (asyncpg.PostgresError, errors.PulseError) as error:
            raise _as_adk(error) from error


def _as_adk(error: Exception) -> Exception:
    """Return ADK's error for what the engine or the database says; one of ours where ADK has none."""
    if isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedFunctionError | asyncpg.UndefinedColumnError):
        return errors.SchemaError("This database lacks the tables of this program. Run `hippocampus migrate`.")
    known = translate(error) if isinstance(error, asyncpg.PostgresError) else error
    match known:
        case errors.ConcurrencyConflictError():
            return StaleSessionError(_STALE)
        case errors.SessionNotFoundError():
            return SessionNotFoundError(str(known))
        case errors.SessionExistsError():
            return AlreadyExistsError(str(known))
    return known


def _answers_a_lost_try(known: Marker | None, now: Marker, row: asyncpg.Record) -> bool:
    """Whether an event that is stored already is the one that this session lacks, and the only one.

    So it is when an earlier append of it was committed and its answer did not arrive.
    """
    return (
        known is not None and now == Marker(known.thread, known.version + 1) and row["sequence_num"] == row["last_seq"]
    )
