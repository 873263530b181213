"""Forgetting on request: a user, a session, events, a memory or a fact, with everything that was drawn from them.

Which rows of which table are meant stands in the table ``data_catalogue``; the work is done by the functions of
``schema/functions/erasure.sql``. A session, events, a memory and a fact are one transaction each: all of
it or nothing. A user is a stored request that is worked off session by session; whoever is killed, `resume` goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

import asyncpg

from hippocampus.errors import MemoryNotFoundError, from_postgres
from hippocampus.retention.policies import check_app_name
from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

Scope: TypeAlias = Literal["user", "session", "events", "turn", "memory", "fact"]

#: Rows of a user that hang on no session, in one transaction.
STEP_ROWS = 1000
#: Between two looks at rows that somebody holds.
HELD_SECONDS = 0.05
#: Events in one call, at most.
EVENTS_MAX = 1000
#: Rows of each table that a preview shows, at most.
SAMPLE_ROWS_MAX = 100
#: Unfinished requests that one `resume` looks at.
REQUESTS_MAX = 100

_QUERIES = load_queries("hippocampus", "forgetting.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A request to forget, and what became of it. It holds ids and counts, never content.

    Attributes:
        counts: rows that went or were emptied, by table.
        remaining: rows that the request still finds, by table: nothing is left where it is empty.
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
        """Whether everything is done, and nothing was found afterwards."""
        return self.finished_at is not None and not self.remaining


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePreview:
    """What would be reached in one table: how many rows, and the first of them as JSON, without their vectors."""

    table_name: str
    rows: int
    sample: tuple[Mapping[str, Any], ...]


class Forgetting:
    """Erases, shows beforehand what would go, and proves afterwards that it is gone."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def forget_user(self, app_name: str, user_id: str, *, seconds_max: float | None = None) -> Erasure:
        """Forget a user of an app: sessions, what was drawn from them, archives, state.

        A session that the user begins after the call is a new life, and stays. An app's own state and instructions
        are nobody's, and stay.

        Args:
            seconds_max: return after so long with `finished_at` None; `resume`, or another call, goes on.

        Raises:
            InvalidInputError: a name is empty.
        """
        [row] = await self._call("request_user", check_app_name(app_name), user_id)
        return await self._advance(row, None if seconds_max is None else time.monotonic() + seconds_max)

    async def forget_session(self, app_name: str, user_id: str, session_id: str) -> Erasure:
        """Forget a session, and everything that was drawn from it. The user's state stays.

        Facts that another session taught as well come back as that session told them.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        [row] = await self._call("erase_session", check_app_name(app_name), user_id, session_id)
        return await self._proved(row)

    async def forget_events(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        *,
        sequence_nums: Sequence[int] = (),
        event_ids: Sequence[str] = (),
    ) -> Erasure:
        """Forget events of a session: each leaves a tombstone with its number, its id and its time.

        State and snapshots become what they would be without them. What rests on them goes; summaries, insights and
        facts of their slices are drawn anew, by a worker, from the turns that are left.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            MemoryNotFoundError: one of the events does not exist; nothing was changed.
            InvalidInputError: none, or more than EVENTS_MAX, were named.
        """
        names = (list(sequence_nums), list(event_ids))
        [row] = await self._call("erase_events", check_app_name(app_name), user_id, session_id, *names)
        return await self._proved(row)

    async def forget_memory(self, app_name: str, user_id: str, memory_id: UUID) -> Erasure:
        """Forget one memory, kept or archived, or one fact with all its versions.

        The turns that it was drawn from stay; nothing draws it from them again.

        Raises:
            MemoryNotFoundError: no such memory or fact of this app and user.
        """
        [row] = await self._call("erase_memory", check_app_name(app_name), user_id, memory_id)
        return await self._proved(row)

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
        """Say what forgetting would reach now, table by table. It changes nothing.

        Args:
            session_id: the session; with numbers or ids, those events of it. None, and no `memory_id`: the user.
            limit: rows of each table to show, 0 to SAMPLE_ROWS_MAX.

        Raises:
            as the call that it stands for.
        """
        if not 0 <= limit <= SAMPLE_ROWS_MAX:
            raise InvalidInputError(f"limit must be from 0 to {SAMPLE_ROWS_MAX}, not {limit!r:.80}")
        who = (check_app_name(app_name), user_id)
        scope, thread, seqs = "user", None, None
        if memory_id is not None:
            [found] = await self._call("find_target", *who, memory_id)
            scope, thread = found["scope"], found["thread_id"]
        elif sequence_nums or event_ids:
            [numbers] = await self._call("event_numbers", *who, session_id, list(sequence_nums), list(event_ids))
            scope, thread, seqs = "events", await self._thread(*who, session_id), numbers[0]
        elif session_id is not None:
            scope, thread = "session", await self._thread(*who, session_id)
        rows = await self._call("preview", scope, *who, thread, seqs, memory_id, limit)
        return [
            TablePreview(table_name=row["table_name"], rows=row["row_count"], sample=tuple(row["sample"] or ()))
            for row in rows
        ]

    async def get(self, app_name: str, user_id: str, erasure_id: UUID) -> Erasure:
        """Return a request as it stands, with what it still finds.

        Raises:
            MemoryNotFoundError: no such request of this app and user.
        """
        rows = await self._call("get_erasure", erasure_id, app_name, user_id)
        if not rows:
            raise MemoryNotFoundError(f"there is no erasure {erasure_id} of app {app_name!r} and user {user_id!r}")
        return await self._proved(rows[0])

    async def resume(self, *, seconds_max: float | None = None) -> int:
        """Go on with every unfinished request, also one whose caller was killed; return how many are finished now.

        A request that somebody else is at is passed over.
        """
        deadline = None if seconds_max is None else time.monotonic() + seconds_max
        finished = 0
        for (erasure_id,) in await self._call("unfinished", REQUESTS_MAX):
            [row] = await self._call("advance", erasure_id, STEP_ROWS)
            finished += (await self._advance(row, deadline)).finished_at is not None
        return finished

    async def _advance(self, row: asyncpg.Record, deadline: float | None) -> Erasure:
        while row["finished_at"] is None and (deadline is None or time.monotonic() < deadline):
            before = row["counts"]
            [row] = await self._call("advance", row["id"], STEP_ROWS)
            if row["finished_at"] is None and row["counts"] == before:
                # Somebody holds what is left.
                await asyncio.sleep(HELD_SECONDS)
        return await self._proved(row)

    async def _proved(self, row: asyncpg.Record) -> Erasure:
        found = await self._call("remaining", row["id"])
        fields = {**row, "sequence_nums": tuple(row["sequence_nums"] or ())}
        return Erasure(**fields, remaining={each["table_name"]: each["row_count"] for each in found})

    async def _thread(self, app_name: str, user_id: str, session_id: str | None) -> UUID:
        rows = await self._call("find_thread", app_name, user_id, session_id)
        if not rows:
            raise SessionNotFoundError(f"there is no session {session_id!r} for app {app_name!r} and user {user_id!r}")
        found: UUID = rows[0]["id"]
        return found

    async def _call(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        try:
            return await self._pool.fetch(_QUERIES[name], *arguments)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error
