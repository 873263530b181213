"""The state of a session told from its events: what changed since, how it came to be, how it was.

A state is what a session was created with, and over it the delta of each event in order: a key's value is replaced
whole, nothing is deleted. Snapshots only shorten the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.postgres.json_values import unescape
from pulse.postgres.statements import load_queries, translate
from pulse.scopes import merge_deltas, without_deleted

if TYPE_CHECKING:
    from pulse.database import Pool

PAGE_SIZE_MAX = 1000
_VERSION_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges:
    """What a reader of a version does not know yet.

    Attributes:
        state: keys to set, with their prefixes; of a shared scope that changed, all of them.
        is_whole: the session's own keys are all of them: drop what is not among them. So where everything was asked
            for, and where events were erased, since that takes keys back.
        version, sequence_num, user_version, app_version: as of now: ask from here the next time.
    """

    state: Mapping[str, Any]
    is_whole: bool
    version: int
    sequence_num: int
    user_version: int
    app_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One event that changed the state: which, by whom, what.

    Attributes:
        version: of the session, once the event was appended.
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
        snapshot_sequence_num: of the snapshot that was started from; 0 where from the session's creation.
        deltas: how many were set over it.
    """

    state: Mapping[str, Any]
    sequence_num: int
    version: int
    snapshot_sequence_num: int
    deltas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStates:
    """The scopes that sessions share, told from the events; not complete where a session that changed one is gone."""

    user_state: Mapping[str, Any]
    user_is_complete: bool
    app_state: Mapping[str, Any]
    app_is_complete: bool


class StateHistory:
    """Reads the past of sessions' states, and keeps it short to read.

    Raises, from every method that names a session:
        SessionNotFoundError: no such session for this app and user.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._queries = load_queries("pulse", "state.sql")

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
        """Return what changed since a version, so that a reader of a large state is sent only that.

        Args:
            app_name, user_id, session_id: whose.
            version, user_version, app_version: of the session as it was read before. 0: also what it was created with,
                and the shared scopes whole.

        Raises:
            InvalidInputError: the session has not come to this version; it was deleted and made anew.
        """
        _check_range("version", version, 0, _VERSION_MAX)
        row = await self._fetchrow("changes_since", app_name, user_id, session_id, version, user_version, app_version)
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
            app_name, user_id, session_id: whose.
            limit: 1 to 1,000.
            before: only events before this number; None from the newest.
        """
        _check_range("limit", limit, 1, PAGE_SIZE_MAX)
        row = await self._fetchrow("list_changes", app_name, user_id, session_id, before, limit + 1)
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
        """Return a session's own state as it was after an event: the newest snapshot, and the later deltas over it.

        Args:
            app_name, user_id, session_id: whose.
            sequence_num: the event's; None is the newest one, 0 the session's creation.
            from_snapshot: False tells it from the events alone; the outcome is the same.

        Raises:
            InvalidInputError: the session has no such event.
        """
        row = await self._fetchrow("restore_state", app_name, user_id, session_id, sequence_num, from_snapshot)
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
        """Tell a user's and an app's state from the events of every session that changed them.

        It reads every session of the app: for inspection, not for each request.
        """
        row = await self._fetch_one("rebuild_shared_states", app_name, user_id)
        assert row is not None  # noqa: S101  # it is an aggregate
        return SharedStates(
            user_state=without_deleted(unescape(row["user_state"])),
            user_is_complete=row["user_is_complete"],
            app_state=without_deleted(unescape(row["app_state"])),
            app_is_complete=row["app_is_complete"],
        )

    async def take_snapshot(self, app_name: str, user_id: str, session_id: str) -> bool:
        """Take a snapshot beside those that are taken by themselves; False where nothing changed since the last."""
        row = await self._fetchrow("take_snapshot", app_name, user_id, session_id)
        return bool(row["taken"])

    async def prune(self, keep: timedelta, *, limit: int = 1000) -> int:
        """Delete snapshots that were superseded longer ago than `keep`; each session keeps its newest. How many."""
        row = await self._fetch_one("prune_snapshots", keep, limit)
        assert row is not None  # noqa: S101  # it is a function's value
        return int(row[0])

    async def _fetchrow(self, name: str, app_name: str, user_id: str, session_id: str, *more: Any) -> asyncpg.Record:
        row = await self._fetch_one(name, app_name, user_id, session_id.strip(), *more)
        if row is None:
            raise SessionNotFoundError(f"there is no session {session_id!r} for app {app_name!r} and user {user_id!r}")
        return row

    async def _fetch_one(self, name: str, *arguments: Any) -> asyncpg.Record | None:
        try:
            return await self._pool.fetchrow(self._queries[name], *arguments)
        except asyncpg.PostgresError as error:
            raise translate(error) from error


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


def _check_range(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise InvalidInputError(f"{name} is {lowest} to {highest}, not {value}")
