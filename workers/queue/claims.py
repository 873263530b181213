"""One attempt at one job: how it holds the job, and how it ends the job in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from procrastinate import jobs

from hippocampus.errors import JobFencedError
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.postgres.statements import Session

#: The fence's SQLSTATE is the only one of our own that these statements raise.
_STATEMENTS = Statements("workers.queue", "claims.sql", errors={"HP010": JobFencedError})


class JobClaim:
    """An attempt's right to its job, which another attempt may have taken meanwhile."""

    def __init__(self, job: jobs.Job, *, is_last_attempt: bool = False) -> None:
        self._attempt = (job.id, job.worker_id, job.attempts)
        self.is_last_attempt = is_last_attempt
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

    async def end(self, connection: Session, statement: str, *arguments: Any) -> None:
        """Run a statement of ``claims.sql`` with this attempt as its first arguments.

        Raises:
            JobFencedError: as `fence`.
        """
        await _STATEMENTS.execute(connection, statement, *self._attempt, *arguments)
