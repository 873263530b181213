"""Erasure on request: of a user, a session, events, a memory or a fact, with everything that was extracted from them.

The table ``data_catalogue`` says which rows of which table are reached; the functions of
``schema/functions/erasure.sql`` erase them. A session, events, a memory and a fact are one transaction each. A user is
a stored request that is processed session by session; if the process is killed, `resume` continues it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE, MemoryNotFoundError
from hippocampus.names import check_app_name, check_count
from pulse.postgres.statements import Statements
from pulse.session_key import SessionKey

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

Scope: TypeAlias = Literal["user", "session", "events", "turn", "memory", "fact"]

#: Rows of a user that belong to no session, in one transaction.
STEP_ROWS = 1000
#: The pause between two polls of rows that another transaction has locked.
HELD_SECONDS = 0.05
#: Events in one call, at most.
EVENTS_MAX = 1000
#: Rows of each table that a preview shows, at most.
SAMPLE_ROWS_MAX = 100
#: Unfinished requests that one `resume` continues.
REQUESTS_MAX = 100

_STATEMENTS = Statements("hippocampus.erasure", "erasure.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A request to erase, and its progress. It holds ids and counts, never content.

    Attributes:
        counts: rows that were deleted or emptied, by table.
        remaining: rows that the request still finds, by table; empty if nothing is left.
        finished_at: None while there is more to do.
    """

    id: UUID
    scope: Scope
    app_name: str
    user_id: str
    thread_id: UUID | None
    sequence_nums: tuple[int, ...]
    target_id: UUID | None
    counts: Mapping[str, int]
    requested_at: datetime
    finished_at: datetime | None
    remaining: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether the request has finished and finds no row any more."""
        return self.finished_at is not None and not self.remaining


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePreview:
    """The rows of one table that an erasure would reach: how many, and the first of them as JSON without vectors."""

    table_name: str
    rows: int
    sample: tuple[Mapping[str, Any], ...]


class ErasureService:
    """Erases, shows beforehand what would be erased, and verifies afterwards that nothing of it is left."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def erase_user(self, app_name: str, user_id: str, *, seconds_max: float | None = None) -> Erasure:
        """Erase a user of an app: sessions, what was extracted from them, archives, state.

        A session that the user begins after the call stays. So do the app's own state and instructions: they belong to
        no user.

        Args:
            seconds_max: return after this time with `finished_at` None; `resume`, or another call, continues.

        Raises:
            InvalidInputError: a name is empty.
        """
        row = await _STATEMENTS.fetch_one(self._pool, "request_user", check_app_name(app_name), user_id)
        return await self._advance(row, None if seconds_max is None else time.monotonic() + seconds_max)

    async def erase_session(self, app_name: str, user_id: str, session_id: str) -> Erasure:
        """Erase a session, and everything that was extracted from it. The user's state stays.

        A fact that another session states as well becomes what that session states.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        row = await _STATEMENTS.fetch_one(self._pool, "erase_session", check_app_name(app_name), user_id, session_id)
        return await self._verified(row)

    async def erase_events(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        *,
        sequence_nums: Sequence[int] = (),
        event_ids: Sequence[str] = (),
    ) -> Erasure:
        """Erase events of a session: each leaves a tombstone with its number, its id and its time.

        State and snapshots become what they would be without them. What was extracted from them is erased; a worker
        extracts the summaries, insights and facts of their slices again from the turns that are left.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            MemoryNotFoundError: one of the events does not exist; nothing was changed.
            InvalidInputError: none, or more than EVENTS_MAX, were named.
        """
        events = (list(sequence_nums), list(event_ids))
        row = await _STATEMENTS.fetch_one(
            self._pool, "erase_events", check_app_name(app_name), user_id, session_id, *events
        )
        return await self._verified(row)

    async def erase_memory(self, app_name: str, user_id: str, memory_id: UUID) -> Erasure:
        """Erase one memory, archived or not, or one fact with all its versions.

        The turns that it was extracted from stay; it is not extracted from them again.

        Raises:
            MemoryNotFoundError: no such memory or fact of this app and user.
        """
        row = await _STATEMENTS.fetch_one(self._pool, "erase_memory", check_app_name(app_name), user_id, memory_id)
        return await self._verified(row)

    async def preview(
        self,
        app_name: str,
        user_id: str,
        *,
        session_id: str | None = None,
        sequence_nums: Sequence[int] = (),
        event_ids: Sequence[str] = (),
        memory_id: UUID | None = None,
        limit: int = 10,
    ) -> list[TablePreview]:
        """Return what an erasure would reach now, table by table. It changes nothing.

        Args:
            session_id: the session; with numbers or ids, those events of it. None, and no `memory_id`: the user.
            limit: rows of each table to show, 0 to SAMPLE_ROWS_MAX.

        Raises:
            as the call that erases.
        """
        check_count("limit", limit, 0, SAMPLE_ROWS_MAX)
        who = (check_app_name(app_name), user_id)
        scope, thread, seqs = "user", None, None
        if memory_id is not None:
            found = await _STATEMENTS.fetch_one(self._pool, "find_target", *who, memory_id)
            scope, thread = found["scope"], found["thread_id"]
        elif sequence_nums or event_ids:
            names = (list(sequence_nums), list(event_ids))
            seqs = await _STATEMENTS.fetchval(self._pool, "event_numbers", *who, session_id, *names)
            scope, thread = "events", await self._thread(SessionKey(*who, session_id or ""))
        elif session_id is not None:
            scope, thread = "session", await self._thread(SessionKey(*who, session_id))
        rows = await _STATEMENTS.fetch(self._pool, "preview", scope, *who, thread, seqs, memory_id, limit)
        return [
            TablePreview(table_name=row["table_name"], rows=row["row_count"], sample=tuple(row["sample"] or ()))
            for row in rows
        ]

    async def get(self, app_name: str, user_id: str, erasure_id: UUID) -> Erasure:
        """Return a request and what it still finds.

        Raises:
            MemoryNotFoundError: no such request of this app and user.
        """
        row = await _STATEMENTS.fetchrow(self._pool, "get_erasure", erasure_id, app_name, user_id)
        if row is None:
            raise MemoryNotFoundError(f"there is no erasure {erasure_id} of app {app_name!r} and user {user_id!r}")
        return await self._verified(row)

    async def resume(self, *, seconds_max: float | None = None) -> int:
        """Continue every unfinished request, such as one whose caller was killed; return how many are finished now.

        A request that another process works on is skipped.
        """
        deadline = None if seconds_max is None else time.monotonic() + seconds_max
        finished = 0
        for request in await _STATEMENTS.fetch(self._pool, "unfinished", REQUESTS_MAX):
            row = await _STATEMENTS.fetch_one(self._pool, "advance", request["id"], STEP_ROWS)
            finished += (await self._advance(row, deadline)).finished_at is not None
        return finished

    async def _advance(self, row: asyncpg.Record, deadline: float | None) -> Erasure:
        while row["finished_at"] is None and (deadline is None or time.monotonic() < deadline):
            before = row["counts"]
            row = await _STATEMENTS.fetch_one(self._pool, "advance", row["id"], STEP_ROWS)
            if row["finished_at"] is None and row["counts"] == before:
                # Another transaction has locked what is left.
                await asyncio.sleep(HELD_SECONDS)
        return await self._verified(row)

    async def _verified(self, row: asyncpg.Record) -> Erasure:
        found = await _STATEMENTS.fetch(self._pool, "remaining", row["id"])
        fields = {**row, "sequence_nums": tuple(row["sequence_nums"] or ())}
        return Erasure(**fields, remaining={each["table_name"]: each["row_count"] for each in found})

    async def _thread(self, key: SessionKey) -> UUID:
        thread_id: UUID | None = await _STATEMENTS.fetchval(self._pool, "find_thread", *key)
        if thread_id is None:
            raise key.not_found()
        return thread_id
