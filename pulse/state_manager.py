"""Changes of state: read-modify-write under optimistic concurrency, and an overlay inside an invocation.

What an invocation sets is pending until it ends: only its own reads see it, over the stored state. At the end it
becomes one ``state_update`` event, visible to others once that is committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pulse.errors import ConcurrencyConflictError, InvalidInputError
from pulse.event_types import STATE_UPDATE
from pulse.events import Event, EventActions, Session
from pulse.postgres.backoff import Backoff
from pulse.postgres.json_values import DELETED
from pulse.process.counts import COUNTS
from pulse.scopes import apply_delta
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.state.overlay import StateOverlay

#: Returns the keys to set for the current state. Called again for each attempt, so it must not have side effects.
StateUpdate = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_RETRY_SECONDS = 0.005
_RETRY_SECONDS_MAX = 0.25


class StateManager:
    """Changes the state of sessions through events, so that state can be rebuilt from its history.

    It holds the overlays of open invocations: a process that executes agents has one.
    """

    def __init__(self, sessions: OpenSessionService) -> None:
        self._sessions = sessions
        self._overlays: dict[tuple[SessionKey, str], StateOverlay] = {}

    async def get_all_state(
        self, app_name: str, user_id: str, session_id: str, *, invocation_id: str | None = None
    ) -> dict[str, Any]:
        """Return the merged state of the three stored scopes, with prefixes.

        Args:
            app_name, user_id, session_id: the session.
            invocation_id: an open invocation of this session, whose pending keys override what is stored.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            InvalidInputError: no such invocation is open here.
        """
        overlay = None if invocation_id is None else self.overlay(app_name, user_id, session_id, invocation_id)
        stored = (await self._read(SessionKey(app_name, user_id, session_id))).state
        if overlay is not None:
            apply_delta(stored, overlay.pending)
        return stored

    async def get_state(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        key: str,
        default: Any = None,
        *,
        invocation_id: str | None = None,
    ) -> Any:
        """Return the value of one key, given with its prefix, or the default if it is not set; see `get_all_state`.

        Only this key is read.
        """
        if invocation_id is not None:
            pending = self.overlay(app_name, user_id, session_id, invocation_id).pending
            if key in pending:
                return default if pending[key] is DELETED else pending[key]
        session = await self._read(SessionKey(app_name, user_id, session_id), [key])
        return session.state.get(key, default)

    async def set_state(self, app_name: str, user_id: str, session_id: str, delta: Mapping[str, Any]) -> Session:
        """Set keys to values that do not depend on the state; for those that do, see `update_session_state`.

        `DELETED` as a value removes the key; None sets it to null.
        """
        return await self.update_session_state(app_name, user_id, session_id, lambda _: delta)

    async def update_session_state(
        self, app_name: str, user_id: str, session_id: str, change: StateUpdate, *, max_attempts: int = 20
    ) -> Session:
        """Read the state, compute a delta from it, append it; after a conflict, do all of it again.

        Each attempt recomputes the delta from fresh state, so no update is lost, not even one of ``user:`` or ``app:``
        keys by another session.

        Returns:
            The session after the update, without its events.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            ConcurrencyConflictError: `max_attempts` conflicts in a row; nothing was changed.
        """
        key = SessionKey(app_name, user_id, session_id)
        # Full jitter: writers that wait equally long conflict again.
        backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS_MAX)
        for _ in range(max_attempts):
            session = await self._read(key)
            event = _state_update(change(session.state))
            try:
                await self._sessions.append_event(session, event, guard_shared=True)
            except ConcurrencyConflictError:
                COUNTS.conflict_retries += 1
                await backoff.wait()
            else:
                return session
        raise ConcurrencyConflictError(
            f"session {session_id!r}: other writers appended first {max_attempts} times in a row; retry later"
        )

    @asynccontextmanager
    async def invocation(self, session: Session, invocation_id: str) -> AsyncIterator[StateOverlay]:
        """Open an overlay for one invocation; append its delta as one event at the end, or discard it on an error.

        Appends through `session` meanwhile are visible in it.

        Raises:
            InvalidInputError: this invocation is open already.
            ConcurrencyConflictError: another writer appended past `session`; the overlay is discarded.
        """
        key = session.key, invocation_id
        if key in self._overlays:
            raise InvalidInputError(f"the invocation {invocation_id!r} of session {session.id!r} is open already")
        overlay = self._overlays[key] = StateOverlay(session.state)
        try:
            yield overlay
            await self.commit(session, invocation_id)
        finally:
            del self._overlays[key]
            overlay.discard()

    async def commit(self, session: Session, invocation_id: str) -> None:
        """Store what an open invocation has set so far, if anything; the invocation continues.

        Raises:
            InvalidInputError: no such invocation is open here.
            ConcurrencyConflictError: another writer appended past `session`; what is pending stays pending.
        """
        overlay = self.overlay(*session.key, invocation_id)
        if overlay.delta:
            await self._sessions.append_event(session, _state_update(overlay.delta, invocation_id))
            overlay.mark_stored()

    def overlay(self, app_name: str, user_id: str, session_id: str, invocation_id: str) -> StateOverlay:
        """Return the overlay of an open invocation.

        Raises:
            InvalidInputError: no such invocation is open here; it ended, or another process executes it.
        """
        try:
            return self._overlays[SessionKey(app_name, user_id, session_id.strip()), invocation_id]
        except KeyError:
            raise InvalidInputError(
                f"no invocation {invocation_id!r} of session {session_id!r} is open in this process"
            ) from None

    async def _read(self, key: SessionKey, state_keys: list[str] | None = None) -> Session:
        session = await self._sessions.get_session(*key, num_recent_events=0, state_keys=state_keys)
        if session is None:
            raise key.not_found()
        return session


def _state_update(delta: Mapping[str, Any], invocation_id: str = "") -> Event:
    return Event(
        author="system",
        event_type=STATE_UPDATE,
        invocation_id=invocation_id,
        actions=EventActions(state_delta=delta),
    )
