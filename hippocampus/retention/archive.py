"""Pins, and the archive: what a clean-up put away can be brought back until its app's policy has it purged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from hippocampus.errors import from_postgres
from hippocampus.retention.policies import check_app_name
from pulse.errors import InvalidInputError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

#: Rows in one transaction of restoring or purging, and in one page.
BATCH_ROWS_MAX = 1000

_FIRST_ID = UUID(int=0)
_QUERIES = load_queries("hippocampus", "memory_care.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMemory:
    """A memory that became too weak: its score then, why it went, and until when it can be restored."""

    id: UUID
    memory_type: str
    content: str
    score: float | None
    archive_reason: str
    archived_at: datetime
    purged_after: datetime
    occurred_at: datetime
    created_at: datetime


class MemoryArchive:
    """Pins memories, lists what is archived, brings it back, and purges what nobody wanted back."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def pin(self, app_name: str, user_id: str, memory_id: UUID) -> bool:
        """Keep a memory: it never fades and is never cleaned up. One in the archive is restored first.

        Returns:
            Whether it was not pinned before.

        Raises:
            MemoryNotFoundError: no such memory of this app and user.
        """
        [(changed,)] = await self._call("pin_memory", check_app_name(app_name), user_id, memory_id, True)
        return bool(changed)

    async def unpin(self, app_name: str, user_id: str, memory_id: UUID) -> bool:
        """Let a memory fade again, from its last access on. Returns and raises as `pin`."""
        [(changed,)] = await self._call("pin_memory", check_app_name(app_name), user_id, memory_id, False)
        return bool(changed)

    async def page(
        self, app_name: str, user_id: str, *, after: UUID | None = None, limit: int = 100
    ) -> list[ArchivedMemory]:
        """List a user's archived memories in the order of their ids, at most `limit` (1 to 1,000), after an id."""
        _check_limit(limit)
        rows = await self._call("list_archive", check_app_name(app_name), user_id, after or _FIRST_ID, limit)
        return [ArchivedMemory(**row) for row in rows]

    async def restore(self, app_name: str, user_id: str, memory_ids: Sequence[UUID] | None = None) -> list[UUID]:
        """Bring archived memories of a user back, as fresh as if they had been used now; None: all of them.

        All are brought back in batches, each a transaction of its own. An id that is not in the user's archive, and a
        summary whose slice has one again, are left out of what is returned.

        Raises:
            InvalidInputError: more than BATCH_ROWS_MAX ids.
        """
        if memory_ids is not None and len(memory_ids) > BATCH_ROWS_MAX:
            raise InvalidInputError(f"at most {BATCH_ROWS_MAX} memory_ids in one call, not {len(memory_ids)}")
        ids = None if memory_ids is None else list(memory_ids)
        restored: list[UUID] = []
        while batch := await self._call("restore_memories", check_app_name(app_name), user_id, ids, BATCH_ROWS_MAX):
            restored += [row["id"] for row in batch]
            if ids is not None:
                break
        return restored

    async def purge(self, app_name: str | None = None, *, batch_rows: int = BATCH_ROWS_MAX) -> int:
        """Delete for good what is archived for longer than its app's policy says; return how many.

        In batches of at most `batch_rows` (1 to 1,000), each a transaction of its own.
        """
        _check_limit(batch_rows)
        total = 0
        while True:
            count: int
            [(count,)] = await self._call("purge_archive", app_name and check_app_name(app_name), batch_rows)
            total += count
            if not count:
                return total

    async def _call(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        try:
            return await self._pool.fetch(_QUERIES[name], *arguments)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error


def _check_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= BATCH_ROWS_MAX:
        raise InvalidInputError(f"limit must be from 1 to {BATCH_ROWS_MAX}, not {limit!r:.80}")
