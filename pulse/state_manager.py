"""State that changes safely: read-modify-write under optimistic concurrency, and an overlay inside an invocation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from pulse.errors import ConcurrencyConflictError, InvalidInputError, SessionNotFoundError
from pulse.events import Event, EventActions, Session
from pulse.scopes import Scope, parse_state_prefix
from pulse.session_service import OpenSessionService

#: From the state as it is now to the keys to set. Called again for each try: it must not have side effects.
StateChange = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_RETRY_DELAY_SECONDS = 0.005
_RETRY_DELAY_SECONDS_MAX = 0.25


class StateOverlay(MutableMapping[str, Any]):
    """The state that one invocation sees: what is stored, and over it what this invocation has set.

    Nothing of it reaches the session before it is committed; discarding it leaves no trace. Keys cannot be deleted:
    set them to None.
    """

    def __init__(self, persistent: Mapping[str, Any]) -> None:
        self._persistent = persistent
        self._pending: dict[str, Any] = {}

    @property
    def delta(self) -> dict[str, Any]:
        """What was set and belongs into the session: everything but ``temp:`` keys."""
        return {key: value for key, value in self._pending.items() if parse_state_prefix(key)[0] is not Scope.TEMP}

    def discard(self) -> None:
        """Forget everything that was set."""
        self._pending.clear()

    def __getitem__(self, key: str) -> Any:
        return self._pending[key] if key in self._pending else self._persistent[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._pending[key] = value

    def __delitem__(self, key: str) -> None:
        raise InvalidInputError(f"state keys are not deleted; set {key!r} to None")

    def __iter__(self) -> Iterator[str]:
        return iter({**self._persistent, **self._pending})

    def __len__(self) -> int:
        return len(self._persistent.keys() | self._pending.keys())


class StateManager:
    """Changes the state of sessions through events, so that state can always be told from its history."""

    def __init__(self, sessions: OpenSessionService) -> None:
        self._sessions = sessions

    async def get_all_state(self, app_name: str, user_id: str, session_id: str) -> dict[str, Any]:
        """Return the merged state of the three stored scopes, with prefixes.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        return (await self._read(app_name, user_id, session_id)).state

    async def get_state(self, app_name: str, user_id: str, session_id: str, key: str, default: Any = None) -> Any:
        """Return the value of one key, with its prefix, or the default where it was never set."""
        return (await self.get_all_state(app_name, user_id, session_id)).get(key, default)

    async def set_state(self, app_name: str, user_id: str, session_id: str, delta: Mapping[str, Any]) -> Session:
        """Set keys to values that do not depend on what is there; see `update_session_state` where they do."""
        return await self.update_session_state(app_name, user_id, session_id, lambda _: delta)

    async def update_session_state(
        self, app_name: str, user_id: str, session_id: str, change: StateChange, *, max_attempts: int = 20
    ) -> Session:
        """Read the state, compute a delta from it, append it; where somebody was faster, do all of it again.

        The delta is recomputed from fresh state on each try, never applied again as it was: nobody's update is lost.

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
                await self._sessions.append_event(session, event)
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

        Raises:
            ConcurrencyConflictError: somebody appended past `session` meanwhile; the overlay is dropped.
        """
        overlay = StateOverlay(session.state)
        try:
            yield overlay
            if overlay.delta:
                await self._sessions.append_event(session, _state_update(overlay.delta, invocation_id))
        finally:
            overlay.discard()

    async def _read(self, app_name: str, user_id: str, session_id: str) -> Session:
        session = await self._sessions.get_session(app_name, user_id, session_id, num_recent_events=0)
        if session is None:
            raise SessionNotFoundError(f"there is no session {session_id!r} for app {app_name!r} and user {user_id!r}")
        return session


def _state_update(delta: Mapping[str, Any], invocation_id: str = "") -> Event:
    return Event(
        author="system",
        event_type="state_update",
        invocation_id=invocation_id,
        actions=EventActions(state_delta=delta),
    )
