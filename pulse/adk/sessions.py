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
from pulse.names import check_session_names
from pulse.notify.notifier import Newest, Notifier
from pulse.postgres.bounded_pool import BoundedPool
from pulse.postgres.json_values import escape_state
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.process.counts import COUNTS
from pulse.scopes import split_delta, without_deleted
from pulse.session_key import SessionKey
from pulse.session_service import PAGE_SIZE_MAX, OpenSessionService
from pulse.tracing.manager import current_tracing

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.loop_pools import PoolAccess

Result = TypeVar("Result")

#: How many of the newest events of a session without a marker are compared with the last event stored.
SEEN_IDS_MAX: Final = 100
#: How many appends may change an app's shared state at once: one holds its lock while the others prepare. More would
#: only wait in the database, each with a connection.
APP_WRITERS_MAX: Final = 3
_ALL_EVENTS: Final = 2**31 - 1
_PIECES_GUESSED: Final = 4
_STALE = (
    "The session has been modified in storage since it was loaded: get it again, recompute, and append again."
    " Nothing was stored."
)
_STATEMENTS = Statements("pulse.adk", "sessions.sql")
#: The statement that also hands the context of a span to the jobs.
_TRACED = {"append_adk_event": "append_adk_event_traced", "append_seen_event": "append_seen_event_traced"}
_MISSING = (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.UndefinedColumnError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPage:
    """A page of sessions without their events, and the token of the next page; None after the last page."""

    sessions: list[Session]
    next_page_token: str | None


class PostgresSessionService(BaseSessionService):
    """Replaces ADK's session services; see their base class for the meaning of each method.

    Each call runs one statement. Sessions are the engine's own: its other clients read them, and workers consolidate
    them. With a URL, each call may come from another event loop.

    Raises, from every method:
        pulse.errors.InvalidInputError: an argument is out of its bounds (a ValueError); nothing was changed.
        pulse.errors.SchemaError: the database lacks our tables; the message names the command.
    """

    def __init__(self, database: Pool | PoolAccess | str) -> None:
        """Take a pool of the event loop that all calls come from, or a URL (``postgresql://…``) for any loops."""
        self._database = access(database)
        self._notifiers: dict[Pool, tuple[asyncio.AbstractEventLoop, Notifier]] = {}
        # Branches that run in parallel share one session object: each append must see the marker of the last one.
        # Another object of the same session is refused by its marker.
        self._turns = Turns(at_once=1)
        self._app_turns = Turns(at_once=APP_WRITERS_MAX)

    async def prepare_tables(self) -> None:
        """Check that the tables exist; `hippocampus migrate` creates them. Calling this is optional.

        Raises:
            pulse.errors.SchemaError: they do not exist.
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
            state: ``app:`` and ``user:`` keys are stored in their scopes, ``temp:`` keys are not stored.
            session_id: up to 512 characters; surrounding blanks are removed; a new UUID if None or blank.
            ttl: how long the session is kept after its last event, or its creation: a timedelta, seconds, or ``3600s``.
                An expired session behaves like a deleted one. None: it does not expire.
            metadata: stored with the session for other clients of the engine.

        Raises:
            AlreadyExistsError: a session with this id exists.
            pulse.errors.StateTooLargeError: a scope would exceed the app's limit.
        """
        key = SessionKey(app_name, user_id, (session_id or "").strip() or str(uuid.uuid4()))
        check_session_names(*key)
        delta = split_delta(json_safe(state or {}))
        [row] = await self._fetch(
            "create_adk_session",
            *key,
            escape_state(delta.session),
            escape_state(delta.user) if delta.user else None,
            escape_state(delta.app) if delta.app else None,
            escape_state(json_safe(metadata), where="metadata") if metadata else None,
            read_ttl(ttl),
        )
        return session_rows.created_session(session_rows.CreatedRow(*row), key, delta.session)

    @override
    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Read a session in one snapshot; None if this user has no session with this id, or it has expired."""
        key = SessionKey(app_name, user_id, (session_id or "").strip())
        limit = config.num_recent_events if config else None
        after = config.after_timestamp if config else None
        rows_max = _ALL_EVENTS if limit is None else limit
        since = None if after is None else session_rows.moment(after)
        while True:
            rows = await self._fetch("get_adk_session", *key, rows_max, since)
            if not rows:
                return None
            row = session_rows.SessionRow(*rows[0])
            # The order of events within one microsecond is not stored: the database returns all of them.
            events, found = adk_events.from_rows(row.events)
            if limit is None or len(events) >= limit or found < rows_max:
                break
            # Some rows are pieces of one event.
            rows_max *= _PIECES_GUESSED
        if limit is not None:
            events = events[len(events) - min(limit, len(events)) :]
        if after is not None:
            events = [event for event in events if event.timestamp >= after]
        return session_rows.read_session(row, key, events)

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """List all sessions of a user, or of the app for None, without events, the least recently updated first."""
        rows = await self._fetch("list_adk_sessions", app_name, user_id, None, None, None)
        sessions, _ = session_rows.read_sessions(rows, app_name)
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def list_sessions_page(
        self, *, app_name: str, user_id: str | None = None, page_size: int = 100, page_token: str | None = None
    ) -> SessionsPage:
        """List sessions page by page, without events, newest first; for all users, one user after the other.

        Appends between two pages do not change the order of the sessions.

        Args:
            user_id: None for all users of the app.
            page_size: 1 to 1,000.
            page_token: `SessionsPage.next_page_token` of the previous page.
        """
        check_limit(page_size, PAGE_SIZE_MAX, name="page_size")
        below = (None, None) if page_token is None else session_rows.read_token(page_token)
        found = await self._fetch("list_adk_sessions", app_name, user_id, *below, page_size + 1)
        page, rows = session_rows.read_sessions(found[:page_size], app_name)
        token = None
        if len(found) > page_size:
            token = session_rows.write_token(rows[-1].thread_id, rows[-1].user_id)
        return SessionsPage(sessions=page, next_page_token=token)

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its events, if it exists. The states of the app and the user and memories remain."""

        async def delete(pool: Pool) -> None:
            try:
                await OpenSessionService(pool).delete_session(app_name, user_id, session_id)
            except errors.SessionNotFoundError:
                return

        await self._run(delete)

    async def finalize_session(self, *, app_name: str, user_id: str, session_id: str) -> dict[str, uuid.UUID]:
        """Enqueue the consolidation of a session's new events at once, and return the jobs by type.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        return await self._run(lambda pool: OpenSessionService(pool).finalize_session(app_name, user_id, session_id))

    @override
    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Read a user's state in the app, keys without their prefix; empty if there is none."""
        rows = await self._fetch("get_user_state", app_name, user_id)
        return without_deleted(session_rows.read_state(rows[0]["state"])) if rows else {}

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session that was read before, and update the session object.

        On any error the session and the event are unchanged. An event that is already stored with the same id and
        content is not stored again.

        Raises:
            StaleSessionError: another writer appended since the session was read, or it was deleted and created again.
            SessionNotFoundError: the session no longer exists.
            pulse.errors.EventConflictError: another event with this id is stored.
            pulse.errors.EventTooLargeError, pulse.errors.StateTooLargeError: it would exceed the app's limits.
        """
        if event.partial:
            return event
        async with self._turns.of(id(session)):
            given = usual_input(event) or event_input(adk_events.to_engine(event))
            known = Marker.of(session)
            async with self._app_turns.of(session.app_name) if given.app_delta else nullcontext():
                row = await self._run(lambda pool: self._append(pool, session, given, event.timestamp, known))
            marker = Marker.at(row.thread_id, row.version)
            if row.appended or _completes_lost_append(known, marker, row):
                self._apply_temp_state(session, event)
                event = self._trim_temp_delta_state(event)
                session.last_update_time = event.timestamp
                marker.mark(session)
                self._update_session_state(session, event)
                session.events.append(event)
            return event

    @override
    async def flush(self) -> None:
        """Send this event loop's pending notifications; events are stored when `append_event` returns."""
        here = asyncio.get_running_loop()
        for loop, notifier in list(self._notifiers.values()):
            if loop is here:
                await notifier.close()

    async def close(self) -> None:
        """Send pending notifications, and close the pools that a URL opened."""
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
    ) -> session_rows.AppendedRow:
        key = SessionKey(session.app_name, session.user_id, session.id.strip())
        arguments: tuple[Any, ...]
        if known is not None:
            name, arguments = "append_adk_event", (*key, known.version, event, known.thread, seconds)
        else:
            seen = [each.id for each in session.events[-SEEN_IDS_MAX:]]
            name, arguments = "append_seen_event", (*key, seen, event, seconds)
        tracing = current_tracing()
        if tracing.is_on:
            with tracing.span(
                "append", kind="producer", app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
            ) as span:
                found = await _STATEMENTS.fetch_one(pool, _TRACED[name], *arguments, span.traceparent)
        else:
            found = await _STATEMENTS.fetch_one(pool, name, *arguments)
        row = session_rows.AppendedRow(*found)
        if row.appended:
            COUNTS.events_appended += 1
            newest = Newest(row.sequence_num, event.id, event.invocation_id, event.event_type)
            notifier = self._notifier(pool)
            notifier.announce(row.thread_id, newest)
            notifier.announce_shared(row.thread_id, user=bool(event.user_delta), app=bool(event.app_delta))
        return row

    def _notifier(self, pool: Pool) -> Notifier:
        if pool not in self._notifiers:
            # A copy, and no error for a missing entry: other threads do the same.
            for closed in [each for each in list(self._notifiers) if each.is_closing()]:
                self._notifiers.pop(closed, None)
            notifier = Notifier(pool)
            self._notifiers[pool] = asyncio.get_running_loop(), notifier
            if isinstance(pool, BoundedPool):
                # A loop that ends closes its pool: notifications that wait for the notifier's pause are sent before.
                pool.before_close(notifier.close)
        return self._notifiers[pool][1]

    async def _fetch(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self._run(lambda pool: _STATEMENTS.fetch(pool, name, *arguments))

    async def _run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        """Run work on a pool, and raise ADK's own errors for those that ADK has."""
        try:
            return await self._database.run(work)
        except errors.ConcurrencyConflictError as error:
            raise StaleSessionError(_STALE) from error
        except errors.SessionNotFoundError as error:
            raise SessionNotFoundError(str(error)) from error
        except errors.SessionExistsError as error:
            raise AlreadyExistsError(str(error)) from error
        except _MISSING as error:
            raise errors.SchemaError(
                "This database lacks the tables of this program. Run `hippocampus migrate`."
            ) from error


def _completes_lost_append(known: Marker | None, now: Marker, row: session_rows.AppendedRow) -> bool:
    """Whether an event that is already stored is the only one that this session object lacks.

    This is the case when an earlier append of it was committed but its response was lost.
    """
    return known is not None and now == Marker(known.thread, known.version + 1) and row.sequence_num == row.last_seq
