"""State that changes safely: read-modify-write under optimistic concurrency, and an overlay inside an invocation.

What an invocation sets is in the air until it ends: its own reads see it (persistent state, and over it what is
pending), nobody else's do. At the end it becomes one ``state_update`` event, and is visible once that is committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pulse.errors import ConcurrencyConflictError, InvalidInputError, SessionNotFoundError
from pulse.event_types import STATE_UPDATE
from pulse.events import Event, EventActions, Session
from pulse.postgres.json_values import DELETED
from pulse.scopes import apply_delta
from pulse.session_service import OpenSessionService
from pulse.state.overlay import StateOverlay

__all__ = ["DELETED", "StateChange", "StateManager", "StateOverlay"]

#: From the state as it is now to the keys to set. Called again for each try: it must not have side effects.
StateChange = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_RETRY_DELAY_SECONDS = 0.005
_RETRY_DELAY_SECONDS_MAX = 0.25


class StateManager:
    """Changes the state of sessions through events, so that state can always be told from its history.

    The overlays of open invocations are this object's: one per process, kept by whoever executes the agents.
    """

    def __init__(self, sessions: OpenSessionService) -> None:
        self._sessions = sessions
        self._overlays: dict[tuple[str, str, str, str], StateOverlay] = {}

    async def get_all_state(
        self, app_name: str, user_id: str, session_id: str, *, invocation_id: str | None = None
    ) -> dict[str, Any]:
        """Return the merged state of the three stored scopes, with prefixes.

        Args:
            app_name, user_id, session_id: whose.
            invocation_id: an open invocation of this session: what it has set stands over what is stored.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            InvalidInputError: no such invocation is open here.
        """
        overlay = None if invocation_id is None else self.overlay(app_name, user_id, session_id, invocation_id)
        stored = (await self._read(app_name, user_id, session_id)).state
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
        """Return the value of one key, with its prefix, or the default where it was never set; see `get_all_state`.

        Only this key is read.
        """
        if invocation_id is not None:
            pending = self.overlay(app_name, user_id, session_id, invocation_id).pending
            if key in pending:
                return default if pending[key] is DELETED else pending[key]
        return (await self._read(app_name, user_id, session_id, [key])).state.get(key, default)

    async def set_state(self, app_name: str, user_id: str, session_id: str, delta: Mapping[str, Any]) -> Session:
        """Set keys to values that do not depend on what is there; see `update_session_state` where they do.

        `DELETED` in the place of a value takes the key out; None sets it to null.
        """
        return await self.update_session_state(app_name, user_id, session_id, lambda _: delta)

    async def update_session_state(
        self, app_name: str, user_id: str, session_id: str, change: StateChange, *, max_attempts: int = 20
    ) -> Session:
        """Read the state, compute a delta from it, append it; where somebody was faster, do all of it again.

        The delta is recomputed from fresh state on each try, never applied again as it was: nobody's update is lost,
        not even one of ``user:`` or ``app:`` keys by another session.

        Returns:
            The session after the update, without its events.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            ConcurrencyConflictError: others were faster `max_attempts` times in a row; nothing was changed.
        """
        for attempt in range(max_attempts):
            session = await self._read(app_name, user_id, session_id)
            event = _state_update(change(session.state))
            try:
                await self._sessions.append_event(session, event, guard_shared=True)
            except ConcurrencyConflictError:
                # Full jitter: contenders that wait equally long meet again.
                ceiling_seconds = min(_RETRY_DELAY_SECONDS * 2**attempt, _RETRY_DELAY_SECONDS_MAX)
                await asyncio.sleep(random.uniform(0, ceiling_seconds))  # noqa: S311  # spreads load, guards nothing
            else:
                return session
        raise ConcurrencyConflictError(
            f"session {session_id!r}: other writers were faster {max_attempts} times in a row; try again later"
        )

    @asynccontextmanager
    async def invocation(self, session: Session, invocation_id: str) -> AsyncIterator[StateOverlay]:
        """Open an overlay for one invocation; append its delta as one event at the end, or drop it on an error.

        The overlay is freed at the end, whichever it is. Appends through `session` meanwhile show through it.

        Raises:
            InvalidInputError: this invocation is open already.
            ConcurrencyConflictError: somebody appended past `session` meanwhile; the overlay is dropped.
        """
        key = (session.app_name, session.user_id, session.id, invocation_id)
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
        """Store what an open invocation has set by now; it goes on from there. Nothing where it has set nothing.

        Raises:
            InvalidInputError: no such invocation is open here.
            ConcurrencyConflictError: somebody appended past `session`; what is pending stays pending.
        """
        overlay = self.overlay(session.app_name, session.user_id, session.id, invocation_id)
        if overlay.delta:
            await self._sessions.append_event(session, _state_update(overlay.delta, invocation_id))
            overlay.mark_stored()

    def overlay(self, app_name: str, user_id: str, session_id: str, invocation_id: str) -> StateOverlay:
        """Return the overlay of an open invocation, for those parts of it that were not handed it.

        Raises:
            InvalidInputError: no such invocation is open here: it ended, or another process executes it.
        """
        try:
            return self._overlays[app_name, user_id, session_id.strip(), invocation_id]
        except KeyError:
            raise InvalidInputError(
                f"no invocation {invocation_id!r} of session {session_id!r} is open in this process"
            ) from None

    async def _read(self, app_name: str, user_id: str, session_id: str, state_keys: list[str] | None = None) -> Session:
        session = await self._sessions.get_session(
            app_name, user_id, session_id, num_recent_events=0, state_keys=state_keys
        )
        if session is None:
            raise SessionNotFoundError(f"there is no session {session_id!r} for app {app_name!r} and user {user_id!r}")
        return session


def _state_update(delta: Mapping[str, Any], invocation_id: str = "") -> Event:
    return Event(
        author="system",
        event_type=STATE_UPDATE,
        invocation_id=invocation_id,
        actions=EventActions(state_delta=delta),
    )
