"""The threads of a user with their newest runs: for a page that shows which are live."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg

from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.runs.records import RunStatus

if TYPE_CHECKING:
    from pulse.database import Pool

THREADS_MAX = 1000
_STATEMENTS = Statements("pulse", "threads.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRun:
    """The run of a thread that began last."""

    run_id: str
    status: RunStatus
    error: str | None
    started_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A thread without its events and its state.

    Attributes:
        version: rises with each append.
        last_sequence: the number of its newest event; 0 if it has none.
    """

    id: uuid.UUID
    session_id: str
    version: int
    last_sequence: int
    created_at: datetime
    updated_at: datetime
    finalized_at: datetime | None
    newest_run: NewestRun | None


class ThreadList:
    """Lists threads."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_threads(
        self,
        app_name: str,
        user_id: str,
        *,
        limit: int = 100,
        after: tuple[datetime, uuid.UUID] | None = None,
        contains: str = "",
        session_id: str | None = None,
    ) -> Sequence[Thread]:
        """List a user's threads, the last changed first.

        Args:
            limit: 1 to 1,000 threads.
            after: `updated_at` and `id` of the last thread of the previous page.
            contains: only threads whose session id contains this text, in upper or lower case.
            session_id: only this one.

        Raises:
            InvalidInputError: the limit is not 1 to 1,000.
        """
        check_limit(limit, THREADS_MAX)
        rows = await _STATEMENTS.fetch(
            self._pool, "list_threads", app_name, user_id, limit, *(after or (None, None)), contains, session_id
        )
        return [_read(row) for row in rows]


def _read(row: asyncpg.Record) -> Thread:
    run = None
    if row["run_id"] is not None:
        run = NewestRun(
            run_id=row["run_id"],
            status=RunStatus(row["status"]),
            error=row["error"],
            started_at=row["started_at"],
            completed_at=row["completed_at"],
        )
    return Thread(
        id=row["id"],
        session_id=row["session_id"],
        version=row["version"],
        last_sequence=row["last_seq"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finalized_at=row["finalized_at"],
        newest_run=run,
    )
