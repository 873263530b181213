"""Pins, and the archive: an archived memory can be restored until its app's policy has it purged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE
from hippocampus.names import check_app_name, check_count, check_optional_app_name
from pulse.errors import InvalidInputError
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: Rows in one transaction of restoring or purging, and in one page.
BATCH_ROWS_MAX = 1000

_FIRST_ID = UUID(int=0)
_STATEMENTS = Statements("hippocampus.retention", "retention.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMemory:
    """A memory that became too weak: its score then, why it was archived, and until when it can be restored."""

    id: UUID
    memory_type: str
    content: str
    score: float | None
    archive_reason: str
    archived_at: datetime
    purged_after: datetime | None  # None: never, since a person retired or corrected it
    occurred_at: datetime
    created_at: datetime


class MemoryArchive:
    """Pins memories; lists, restores and purges archived ones."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def pin(self, app_name: str, user_id: str, memory_id: UUID) -> bool:
        """Pin a memory: it never fades and is never archived. One in the archive is restored first.

        Returns:
            Whether it was not pinned before.

        Raises:
            MemoryNotFoundError: no such memory of this app and user.
        """
        return await self._set_pinned(app_name, user_id, memory_id, pinned=True)

    async def unpin(self, app_name: str, user_id: str, memory_id: UUID) -> bool:
        """Let a memory fade again, from its last access on. Returns and raises as `pin`."""
        return await self._set_pinned(app_name, user_id, memory_id, pinned=False)

    async def page(
        self, app_name: str, user_id: str, *, after: UUID | None = None, limit: int = 100
    ) -> list[ArchivedMemory]:
        """List a user's archived memories in the order of their ids, at most `limit` (1 to 1,000), after an id."""
        check_count("limit", limit, 1, BATCH_ROWS_MAX)
        rows = await _STATEMENTS.fetch(
            self._pool, "list_archive", check_app_name(app_name), user_id, after or _FIRST_ID, limit
        )
        return [ArchivedMemory(**row) for row in rows]

    async def restore(self, app_name: str, user_id: str, memory_ids: Sequence[UUID] | None = None) -> list[UUID]:
        """Restore archived memories of a user, as fresh as if they were used now; None: all of them.

        All are restored in batches, each a transaction of its own. The ids that were restored are returned: without
        those that are not in the user's archive, and without summaries whose slices have new ones.

        Raises:
            InvalidInputError: more than BATCH_ROWS_MAX ids.
        """
        if memory_ids is not None and len(memory_ids) > BATCH_ROWS_MAX:
            raise InvalidInputError(f"at most {BATCH_ROWS_MAX} memory_ids in one call, not {len(memory_ids)}")
        ids = None if memory_ids is None else list(memory_ids)
        restored: list[UUID] = []
        check_app_name(app_name)
        while batch := await _STATEMENTS.fetch(self._pool, "restore_memories", app_name, user_id, ids, BATCH_ROWS_MAX):
            restored += [row["id"] for row in batch]
            if ids is not None:
                break
        return restored

    async def purge(self, app_name: str | None = None, *, batch_rows: int = BATCH_ROWS_MAX) -> int:
        """Delete the memories that are archived for longer than their app's policy allows; return how many.

        In batches of at most `batch_rows` (1 to 1,000), each a transaction of its own.
        """
        check_count("batch_rows", batch_rows, 1, BATCH_ROWS_MAX)
        check_optional_app_name(app_name)
        total = 0
        while count := await _STATEMENTS.fetchval(self._pool, "purge_archive", app_name, batch_rows):
            total += count
        return total

    async def _set_pinned(self, app_name: str, user_id: str, memory_id: UUID, *, pinned: bool) -> bool:
        check_app_name(app_name)
        changed = await _STATEMENTS.fetchval(self._pool, "pin_memory", app_name, user_id, memory_id, pinned)
        return bool(changed)
