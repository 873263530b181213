"""One attempt at one job: how it holds the job, and how it ends it in a transaction of its own choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import asyncpg
from procrastinate import jobs

from hippocampus.errors import JobFencedError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from pulse.database import Connection, Pool

    Session = Connection | Pool | PoolConnectionProxy[asyncpg.Record]

QUERIES = load_queries("workers")
_FENCED_SQLSTATE = "HP010"


class JobClaim:
    """An attempt's right to its job, which another attempt may have taken meanwhile."""

    def __init__(self, job: jobs.Job, *, is_last_try: bool = False) -> None:
        self._attempt = (job.id, job.worker_id, job.attempts)
        self.is_last_try = is_last_try
        self.is_finished = False  # finish() ran; its transaction may still fail

    async def fence(self, connection: Session) -> None:
        """Lock the job for the rest of the transaction.

        Raises:
            JobFencedError: the job does not belong to this attempt any more.
        """
        await self.end(connection, "fence_job")

    async def finish(self, connection: Session, result: Mapping[str, Any]) -> None:
        """End the job with this result, in the caller's transaction.

        Raises:
            JobFencedError: as `fence`.
        """
        await self.end(connection, "finish_job", dict(result))
        self.is_finished = True

    async def end(self, connection: Session, query: str, *arguments: Any) -> None:
        """Run one of the fenced statements of ``queries.sql`` with this attempt as its first arguments."""
        try:
            await connection.execute(QUERIES[query], *self._attempt, *arguments)
        except asyncpg.PostgresError as error:
            if error.sqlstate == _FENCED_SQLSTATE:
                raise JobFencedError(str(error)) from error
            raise
