"""The history of a session's state, from its events: what changed since a version, what changed when, earlier states.

A state is what the session was created with, and over it the delta of each event in order; a key's value is replaced
whole. Snapshots only save time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.errors import InvalidInputError
from pulse.postgres.json_values import unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.scopes import merge_deltas, without_deleted
from pulse.session_key import SessionKey

if TYPE_CHECKING:
    from pulse.database import Pool

PAGE_SIZE_MAX = 1000
_VERSION_MAX = 2**31 - 1
_STATEMENTS = Statements("pulse.state", "state.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges:
    """What changed since a version.

    Attributes:
        state: keys to set, with their prefixes; all keys of a shared scope that changed.
        is_whole: `state` holds all of the session's own keys, so drop the others: after a request from version 0, or
            after an erasure, which takes keys back.
        version, sequence_num, user_version, app_version: the current ones, for the next request.
    """

    state: Mapping[str, Any]
    is_whole: bool
    version: int
    sequence_num: int
    user_version: int
    app_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """An event that changed the state.

    Attributes:
        version: the session's version after the event.
        delta: the keys that it set, with their prefixes.
    """

    sequence_num: int
    version: int
    event_id: str
    event_type: str
    author: str
    invocation_id: str
    delta: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHistoryPage:
    """Changes, the newest first; `next_cursor` is the `before` of the next page, None after the last."""

    changes: Sequence[StateChange]
    next_cursor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    """The state of a session after one of its events.

    Attributes:
        state: the session's own scope.
        snapshot_sequence_num: the number of the snapshot that it was built from; 0 for the session's creation.
        deltas: how many were applied to it.
    """

    state: Mapping[str, Any]
    sequence_num: int
    version: int
    snapshot_sequence_num: int
    deltas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStates:
    """The shared scopes, rebuilt from the events; incomplete if a session that changed one was deleted."""

    user_state: Mapping[str, Any]
    user_is_complete: bool
    app_state: Mapping[str, Any]
    app_is_complete: bool


class StateHistory:
    """Reads the history of sessions' states, and takes and prunes snapshots.

    Raises, from every method that names a session:
        SessionNotFoundError: no such session for this app and user.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def changes_since(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        version: int,
        *,
        user_version: int = 0,
        app_version: int = 0,
    ) -> StateChanges:
        """Return what changed since a version, so that a reader of a large state gets only that.

        Args:
            app_name, user_id, session_id: the session.
            version, user_version, app_version: of the session as it was read before; 0 for everything, including what
                it was created with.

        Raises:
            InvalidInputError: the session has not reached this version; it was deleted and created again.
        """
        if not 0 <= version <= _VERSION_MAX:
            raise InvalidInputError(f"version must be from 0 to {_VERSION_MAX}, not {version}")
        key = SessionKey(app_name, user_id, session_id.strip())
        row = await self._fetchrow("changes_since", key, version, user_version, app_version)
        if row["version"] < version:
            raise InvalidInputError(f"session {session_id!r} is at version {row['version']}, not yet at {version}")
        state = merge_deltas(unescape(row["delta"]), unescape(row["user_state"]), unescape(row["app_state"]))
        return StateChanges(
            state=state,
            is_whole=row["is_whole"],
            version=row["version"],
            sequence_num=row["last_seq"],
            user_version=row["user_version"],
            app_version=row["app_version"],
        )

    async def list_changes(
        self, app_name: str, user_id: str, session_id: str, *, limit: int = 20, before: int | None = None
    ) -> StateHistoryPage:
        """List the events of a session that changed the state, the newest first.

        Args:
            app_name, user_id, session_id: the session.
            limit: 1 to 1,000.
            before: only events before this number; None for the newest.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        key = SessionKey(app_name, user_id, session_id.strip())
        row = await self._fetchrow("list_changes", key, before, limit + 1)
        changes = [_change(*fields) for fields in row["changes"] or ()]
        following = changes[limit - 1].sequence_num if len(changes) > limit else None
        return StateHistoryPage(changes=changes[:limit], next_cursor=following)

    async def restore(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        *,
        sequence_num: int | None = None,
        from_snapshot: bool = True,
    ) -> RestoredState:
        """Return a session's own state after an event: the newest snapshot before it, and the later deltas.

        Args:
            app_name, user_id, session_id: the session.
            sequence_num: the event's; None for the newest, 0 for the session's creation.
            from_snapshot: False reads the events alone; the outcome is the same.

        Raises:
            InvalidInputError: the session has no such event.
        """
        key = SessionKey(app_name, user_id, session_id.strip())
        row = await self._fetchrow("restore_state", key, sequence_num, from_snapshot)
        if row["state"] is None:
            raise InvalidInputError(f"session {session_id!r} has no event {sequence_num}")
        return RestoredState(
            state=without_deleted(unescape(row["state"])),
            sequence_num=row["sequence_num"],
            version=row["version"],
            snapshot_sequence_num=row["snapshot_seq"],
            deltas=row["deltas"],
        )

    async def rebuild_shared(self, app_name: str, user_id: str) -> SharedStates:
        """Rebuild a user's and an app's state from the events of every session that changed them.

        It reads every session of the app: for inspection, not for each request.
        """
        row = await _STATEMENTS.fetch_one(self._pool, "rebuild_shared_states", app_name, user_id)
        return SharedStates(
            user_state=without_deleted(unescape(row["user_state"])),
            user_is_complete=row["user_is_complete"],
            app_state=without_deleted(unescape(row["app_state"])),
            app_is_complete=row["app_is_complete"],
        )

    async def take_snapshot(self, app_name: str, user_id: str, session_id: str) -> bool:
        """Take a snapshot besides the automatic ones; False if nothing changed since the last."""
        row = await self._fetchrow("take_snapshot", SessionKey(app_name, user_id, session_id.strip()))
        return bool(row["taken"])

    async def prune(self, keep: timedelta, *, limit: int = 1000) -> int:
        """Delete snapshots that were superseded longer ago than `keep`, and return how many.

        Each session keeps its newest.
        """
        return int(await _STATEMENTS.fetchval(self._pool, "prune_snapshots", keep, limit))

    async def _fetchrow(self, name: str, key: SessionKey, *arguments: Any) -> asyncpg.Record:
        row = await _STATEMENTS.fetchrow(self._pool, name, *key, *arguments)
        if row is None:
            raise key.not_found()
        return row


def _change(
    sequence_num: int,
    version: int,
    event_id: str,
    event_type: str,
    author: str,
    invocation_id: str,
    session_delta: Any,
    user_delta: Any,
    app_delta: Any,
    created_at: datetime,
) -> StateChange:
    session, user, app = (unescape(delta or {}) for delta in (session_delta, user_delta, app_delta))
    return StateChange(
        sequence_num=sequence_num,
        version=version,
        event_id=event_id,
        event_type=event_type,
        author=author,
        invocation_id=invocation_id,
        delta=merge_deltas(session, user, app),
        created_at=created_at,
    )
