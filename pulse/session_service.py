"""Sessions on PostgreSQL: the entry point of the engine.

Every method is one round trip. The service runs in the agent's own process and needs only a pool of
`pulse.create_pool`; workers in other processes consolidate what it commits.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.errors import InvalidInputError
from pulse.event_rows import event_input, read_appended, read_event, stored_keys
from pulse.events import Appended, Event, Session, SessionPage
from pulse.names import check_session_names
from pulse.notify.notifier import Notifier
from pulse.postgres.json_values import escape_state, unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.scopes import apply_delta, merge_state, split_delta
from pulse.session_key import SessionKey
from pulse.tracing.manager import current_tracing

if TYPE_CHECKING:
    from pulse.database import Pool

PAGE_SIZE_MAX = 1000
BATCH_SIZE_MAX = 1000
_STATEMENTS = Statements("pulse", "sessions.sql")
#: The statement that also hands the context of a span to the jobs.
_TRACED = {"append_next_event": "append_next_event_traced", "append_events": "append_events_traced"}


class OpenSessionService:
    """Creates, reads, lists, appends to, finalises and deletes sessions.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._notifier = Notifier(pool)

    async def close(self) -> None:
        """Send the notifications that wait. The caller closes the pool afterwards."""
        await self._notifier.close()

    async def create_session(
        self,
        app_name: str,
        user_id: str,
        state: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Create a session. ``user:`` and ``app:`` keys of its state go to their scopes, ``temp:`` keys are dropped.

        Args:
            session_id: 1 to 512 characters, unique for app and user, without surrounding blanks; None or blank for a
                new UUID.

        Raises:
            SessionExistsError: the id is taken.
            StateTooLargeError: a scope would be over the app's limit.
        """
        key = SessionKey(app_name, user_id, (session_id or "").strip() or str(uuid.uuid4()))
        check_session_names(*key)
        delta = split_delta(_plain(state or {}, "state"))
        row = await _STATEMENTS.fetch_one(
            self._pool,
            "create_session",
            *key,
            escape_state(delta.session),
            escape_state(delta.user) or None,
            escape_state(delta.app) or None,
            escape_state(metadata or {}, where="metadata"),
        )
        self._notifier.announce_shared(row["thread_id"], user=bool(delta.user), app=bool(delta.app))
        return Session(
            id=key.session_id,
            app_name=app_name,
            user_id=user_id,
            state=merge_state(delta.session, unescape(row["user_state"]), unescape(row["app_state"])),
            last_update_time=row["created_at"].timestamp(),
            version=row["version"],
            user_version=row["user_version"],
            app_version=row["app_version"],
            thread_id=row["thread_id"],
            metadata=_plain(metadata or {}, "metadata"),
            created_at=row["created_at"],
        )

    async def get_session(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        *,
        after_sequence: int = 0,
        num_recent_events: int | None = None,
        state_keys: Sequence[str] | None = None,
    ) -> Session | None:
        """Read a session in one snapshot; None if the user has no such session in this app.

        Args:
            after_sequence: only events past this number.
            num_recent_events: at most this many, the newest; None for all, 0 for none.
            state_keys: only these keys of the state, with their prefixes; None for all, () for none.
        """
        if after_sequence < 0 or (num_recent_events or 0) < 0:
            raise InvalidInputError("after_sequence and num_recent_events count from 0")
        key = SessionKey(app_name, user_id, session_id.strip())
        row = await _STATEMENTS.fetchrow(
            self._pool, "get_session", *key, after_sequence, num_recent_events, *stored_keys(state_keys)
        )
        return None if row is None else _session(row, app_name, user_id)

    async def list_sessions(
        self, app_name: str, user_id: str, *, limit: int = 100, cursor: str | None = None
    ) -> SessionPage:
        """List a user's sessions without their events, the newest first.

        Args:
            limit: 1 to 1,000.
            cursor: `SessionPage.next_cursor` of the page before.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        before = None if cursor is None else _read_cursor(cursor)
        rows = await _STATEMENTS.fetch(self._pool, "list_sessions", app_name, user_id, before, limit + 1)
        page = [_session(row, app_name, user_id) for row in rows[:limit]]
        return SessionPage(page, _write_cursor(page[-1].thread_id) if len(rows) > limit else None)

    async def list_events(
        self, app_name: str, user_id: str, session_id: str, *, after_sequence: int = 0, limit: int = 100
    ) -> list[Event]:
        """Read a session's events in sequence, page by page.

        Args:
            after_sequence: only events past this number: that of the last one read.
            limit: 1 to 1,001, one more than a page to see whether there is a next one.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        if after_sequence < 0:
            raise InvalidInputError(f"after_sequence must be at least 0, not {after_sequence}")
        check_limit(limit, PAGE_SIZE_MAX + 1)
        key = SessionKey(app_name, user_id, session_id.strip())
        row = await _STATEMENTS.fetchrow(self._pool, "list_events", *key, after_sequence, limit)
        if row is None:
            raise key.not_found()
        return [read_event(*fields) for fields in row["events"] or ()]

    async def append_event(self, session: Session, event: Event, *, guard_shared: bool = False) -> Event:
        """Append one event through a session that was read before; see `append_events`."""
        (stored,) = await self.append_events(session, [event], guard_shared=guard_shared)
        return stored

    async def append_events(
        self, session: Session, events: Sequence[Event], *, guard_shared: bool = False
    ) -> tuple[Event, ...]:
        """Append events in order, all or none, unless another writer appended since the session was read.

        On success the session's version, state and events are updated. On any error it stays as it was.

        Args:
            session: as it was read.
            events: 1 to 1,000.
            guard_shared: also refuse ``user:`` and ``app:`` values if another session changed their scope since; for
                values that were computed from it.

        Raises:
            ConcurrencyConflictError: another writer appended; read the session again, recompute, append again.
            others: as `append`.
        """
        outcome = await self.append(
            session.app_name,
            session.user_id,
            session.id,
            events,
            expected_version=session.version,
            expected_user_version=session.user_version if guard_shared else None,
            expected_app_version=session.app_version if guard_shared else None,
        )
        _update(session, outcome)
        return outcome.events

    async def append(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        events: Sequence[Event],
        *,
        expected_version: int | None = None,
        expected_user_version: int | None = None,
        expected_app_version: int | None = None,
        apply_state: bool = True,
    ) -> Appended:
        """Append up to 1,000 events to a session, in one transaction.

        The same transaction numbers the events, stores their messages, merges their deltas into the scopes, and
        enqueues the jobs of the app's policy. Events that are stored already with the same content are skipped.
        Stream listeners are notified a few milliseconds after the commit.

        Args:
            expected_version: refuse if the session is at another version; None appends at any version.
            apply_state: False stores the deltas with the events and changes no state, as for imported events.
            expected_user_version, expected_app_version: refuse to change the user's or the app's state if another
                session changed it since; None changes it at any version.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            ConcurrencyConflictError: the session, or a shared state to change, is at another version.
            EventConflictError: an id is taken by an event with other content.
            EventTooLargeError, StateTooLargeError: over the app's limits.
        """
        if not 1 <= len(events) <= BATCH_SIZE_MAX:
            raise InvalidInputError(f"a batch must hold 1 to {BATCH_SIZE_MAX} events, not {len(events)}: split it")
        key = SessionKey(app_name, user_id, session_id.strip())
        inputs = [event_input(event, apply_state=apply_state) for event in events]
        shared_versions = expected_user_version, expected_app_version
        arguments: tuple[Any, ...]
        if len(inputs) == 1 and expected_version is not None and shared_versions == (None, None):
            name, arguments = "append_next_event", (*key, expected_version, inputs[0])
        else:
            name, arguments = "append_events", (*key, expected_version, inputs, *shared_versions)
        tracing = current_tracing()
        if tracing.is_on:
            with tracing.span(
                "append",
                kind="producer",
                attributes={"hippocampus.events": len(inputs)},
                app_name=app_name,
                user_id=user_id,
                session_id=key.session_id,
            ) as span:
                rows = await _STATEMENTS.fetch(self._pool, _TRACED[name], *arguments, span.traceparent)
        else:
            rows = await _STATEMENTS.fetch(self._pool, name, *arguments)
        outcome = read_appended(rows[0]["thread_id"], events, rows)
        if outcome.new_events:
            self._notifier.wake(outcome)
        return outcome

    async def finalize_session(
        self, app_name: str, user_id: str, session_id: str, *, expected_version: int | None = None
    ) -> dict[str, uuid.UUID]:
        """Finalize a session: what is not consolidated yet is enqueued at once. Idempotent.

        Args:
            expected_version: refuse if the session is at another version.

        Returns:
            The jobs that will do it, by type; empty if everything is consolidated, or the app's policy turns
            consolidation off.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            ConcurrencyConflictError: the session is at another version; nothing was changed.
        """
        key = SessionKey(app_name, user_id, session_id.strip())
        if expected_version is None:
            rows = await _STATEMENTS.fetch(self._pool, "finalize_session", *key)
        else:
            rows = await _STATEMENTS.fetch(self._pool, "finalize_session_at", *key, expected_version)
        return {row["job_type"]: row["job_id"] for row in rows}

    async def delete_session(
        self, app_name: str, user_id: str, session_id: str, *, expected_version: int | None = None
    ) -> None:
        """Delete a session with its events, messages, runs, snapshots and jobs; what was learned from it stays.

        Args:
            expected_version: refuse if the session is at another version.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            ConcurrencyConflictError: the session is at another version; nothing was changed.
        """
        key = SessionKey(app_name, user_id, session_id.strip())
        if expected_version is None:
            is_deleted = await _STATEMENTS.fetchval(self._pool, "delete_session", *key)
        else:
            is_deleted = await _STATEMENTS.fetchval(self._pool, "delete_session_at", *key, expected_version)
        if not is_deleted:
            raise key.not_found()


def _update(session: Session, outcome: Appended) -> None:
    """Update a session after an append that was made through it.

    Where every event was stored already, by an earlier attempt whose answer was lost, the version and the last number
    show whether other appends followed. If so, the session must stay stale, or it would hide events that it has not
    seen.
    """
    is_last = any(event.sequence_num == outcome.last_sequence_num for event in outcome.events)
    if outcome.version != session.version + 1 or not is_last:
        return
    session.version = outcome.version
    # If another session changed a shared state meanwhile, it stays as it was read, and stale.
    if outcome.user_version == session.user_version + 1:
        session.user_version = outcome.user_version
    if outcome.app_version == session.app_version + 1:
        session.app_version = outcome.app_version
    for event in outcome.new_events or outcome.events:
        apply_delta(session.state, event.actions.state_delta)
        session.events.append(event)
        if event.created_at is not None:
            session.last_update_time = event.created_at.timestamp()


def _plain(state: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Copy a state as plain JSON values: what a later read returns."""
    plain = unescape(escape_state(state, where=where))
    assert isinstance(plain, dict)  # noqa: S101  # a mapping stays an object
    return plain


def _session(row: asyncpg.Record, app_name: str, user_id: str) -> Session:
    return Session(
        id=row["session_id"],
        app_name=app_name,
        user_id=user_id,
        state=merge_state(unescape(row["state"]), unescape(row["user_state"]), unescape(row["app_state"])),
        events=[read_event(*fields) for fields in row["events"] or ()],
        last_update_time=row["updated_at"].timestamp(),
        version=row["version"],
        user_version=row["user_version"],
        app_version=row["app_version"],
        thread_id=row["thread_id"],
        metadata=unescape(row["metadata"]),
        created_at=row["created_at"],
        finalized_at=row["finalized_at"],
    )


def _write_cursor(thread_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(thread_id.bytes).decode().rstrip("=")


def _read_cursor(cursor: str) -> uuid.UUID:
    try:
        return uuid.UUID(bytes=base64.b64decode(cursor.encode() + b"==", altchars=b"-_", validate=True))
    except ValueError as error:
        raise InvalidInputError(f"{cursor[:40]!r} is not a cursor; use next_cursor of the page before") from error
