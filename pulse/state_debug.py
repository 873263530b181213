"""State for inspection: by scope, with the events that made it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulse.scopes import split_delta
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.state.history import StateChange, StateHistory, StateHistoryPage

if TYPE_CHECKING:
    from pulse.database import Pool

#: How many changes are shown by default.
HISTORY_LENGTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedState:
    """A session's state by scope, keys without their prefix, in one snapshot."""

    thread_id: uuid.UUID
    version: int
    user_version: int
    app_version: int
    session: Mapping[str, Any]
    user: Mapping[str, Any]
    app: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDebugInfo:
    """The state of a session and its last changes.

    Attributes:
        current_state: the merged view, with prefixes.
        state_history: the last changes, the newest first.
        prefix_breakdown: the same state by prefix: '' for the session's own, ``user:``, ``app:``.
    """

    thread_id: uuid.UUID
    current_state: Mapping[str, Any]
    state_history: Sequence[StateChange]
    prefix_breakdown: Mapping[str, Mapping[str, Any]]


class StateDebugService:
    """Shows states and their history.

    Raises, from every method:
        SessionNotFoundError: no such session for this app and user.
    """

    def __init__(self, pool: Pool, sessions: OpenSessionService | None = None) -> None:
        self._sessions = sessions or OpenSessionService(pool)
        self._history = StateHistory(pool)

    async def get_state(
        self, app_name: str, user_id: str, session_id: str, *, keys: Sequence[str] | None = None
    ) -> GroupedState:
        """Return a session's state by scope; `keys` limits it to these keys, given with their prefixes."""
        key = SessionKey(app_name, user_id, session_id)
        session = await self._sessions.get_session(*key, num_recent_events=0, state_keys=keys)
        if session is None:
            raise key.not_found()
        scopes = split_delta(session.state)
        return GroupedState(
            thread_id=session.thread_id,
            version=session.version,
            user_version=session.user_version,
            app_version=session.app_version,
            session=scopes.session,
            user=scopes.user,
            app=scopes.app,
        )

    async def get_history(
        self, app_name: str, user_id: str, session_id: str, *, limit: int = HISTORY_LENGTH, before: int | None = None
    ) -> StateHistoryPage:
        """Return the events of a session that changed the state; see `StateHistory.list_changes`."""
        return await self._history.list_changes(app_name, user_id, session_id, limit=limit, before=before)

    async def get_debug_info(self, app_name: str, user_id: str, session_id: str) -> StateDebugInfo:
        """Return the state, merged and by prefix, and its last 20 changes.

        These are two reads: a change in between is in the history alone.
        """
        state = await self.get_state(app_name, user_id, session_id)
        page = await self.get_history(app_name, user_id, session_id)
        breakdown = {"": state.session, "user:": state.user, "app:": state.app}
        return StateDebugInfo(
            thread_id=state.thread_id,
            current_state={prefix + key: value for prefix, scope in breakdown.items() for key, value in scope.items()},
            state_history=page.changes,
            prefix_breakdown=breakdown,
        )
