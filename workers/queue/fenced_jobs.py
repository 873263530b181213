"""How procrastinate's worker ends a job here: by statements that only the job's current attempt may run."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import structlog
from procrastinate import manager, utils
from procrastinate.connector import BaseConnector
from procrastinate.exceptions import JobAborted, UniqueViolation
from procrastinate.jobs import Job, Status
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_chain, wait_fixed

from hippocampus.errors import JobFencedError
from workers import failures
from workers.queue import cuts
from workers.queue.claims import JobClaim
from workers.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pulse.database import Pool

_log = structlog.get_logger(__name__)
#: What is logged of an attempt's end, by its outcome.
_EVENTS = {
    "succeeded": "job_succeeded",
    "retried": "job_retried",
    "postponed": "job_postponed",
    "failed": "job_failed",
    "released": "job_released",
    "aborted": "job_aborted",
    "fenced": "job_fenced",
}

#: Waits before the end of a job is written again after the database failed.
WRITE_AGAIN_SECONDS = (0.1, 0.4, 1.0)
WRITE_SECONDS_MAX = 5.0


class FencedJobManager(manager.JobManager):
    """procrastinate's job manager, with fenced ends that keep the error.

    A worker that resumes can neither finish nor re-queue a job that another worker now runs: its end is dropped and
    counted. A job that its own transaction finished is not written a second time.
    """

    def __init__(
        self, connector: BaseConnector, pool: Pool, metrics: Metrics, pause_seconds: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`pause_seconds` returns for how long no job could be done; none is fetched meanwhile."""
        super().__init__(connector)
        self._pause_seconds = pause_seconds
        self._pool = pool
        self._metrics = metrics
        self._ended: set[int] = set()
        self._errors: dict[int, BaseException] = {}

    def note_finished(self, job: Job, outcome: str = "succeeded") -> None:
        """The attempt's own transaction ended the job, or gave it back: nothing is left to write."""
        self._ended.add(_id(job))
        self._count(job, outcome)

    def note_fenced(self, job: Job) -> None:
        """The attempt found that the job belongs to another one: nothing may be written."""
        self._ended.add(_id(job))
        self._count(job, "fenced")

    def note_error(self, job: Job, error: BaseException) -> None:
        """Keep the error of an attempt until procrastinate ends the job."""
        self._errors[_id(job)] = error

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        """Take the next job of these queues for a worker; None if none is ready, or none could be done."""
        if self._pause_seconds() > 0:
            # The job stays in the queue; the worker asks again at its next poll.
            return None
        try:
            return await super().fetch_job(queues, worker_id)
        except UniqueViolation:
            # Another fetch took an older job of the same lock in between.
            return await super().fetch_job(queues, worker_id)

    async def listen_for_jobs(
        self, *, on_notification: manager.NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        """Call back for each notification until cancelled. Polls find what arrives while it reconnects."""
        listen = super().listen_for_jobs
        await cuts.through_cuts("listener", lambda: listen(on_notification=on_notification, queues=queues))

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """End the job for good. Finished jobs are pruned later: `delete_job` is ignored."""
        error = self._errors.pop(_id(job), None)
        if _id(job) in self._ended:
            self._ended.discard(_id(job))
            return
        if status is Status.SUCCEEDED:
            await self._end(job, "succeeded", "finish_job", None)
        elif status is Status.ABORTED:
            await self._end(job, "aborted", "abort_job")
        else:
            kept = failures.describe(error or RuntimeError("the task is unknown to this worker"))
            await self._end(job, "failed", "fail_job", kept.error, kept.error_code, kept.raw_reply, error=error)

    async def retry_job(
        self,
        job: Job,
        retry_at: datetime.datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        """Give the job back, now or for later. Its priority, queue and lock stay as they are.

        The clock of this machine may be wrong by days: only the time from now is written, and the database adds it to
        its own.
        """
        error = self._errors.pop(_id(job), None)
        self._ended.discard(_id(job))
        if error is None or isinstance(error, asyncio.CancelledError | JobAborted):
            await self._end(job, "released", "release_job")
            return
        kept = failures.describe(error)
        self._metrics.retries.labels(job.task_name, kept.error_code).inc()
        seconds = 0.0 if retry_at is None else max(0.0, (retry_at - utils.utcnow()).total_seconds())
        outcome, statement = (
            ("postponed", "postpone_job") if failures.is_postponed(error) else ("retried", "retry_job_at")
        )
        await self._end(job, outcome, statement, seconds, kept.error, kept.error_code, kept.raw_reply, error=error)

    async def _end(
        self, job: Job, outcome: str, statement: str, *arguments: Any, error: BaseException | None = None
    ) -> None:
        try:
            await self._write(JobClaim(job), statement, arguments)
        except JobFencedError:
            outcome = "fenced"
        self._count(job, outcome, error)

    def _count(self, job: Job, outcome: str, error: BaseException | None = None) -> None:
        if outcome == "fenced":
            self._metrics.fenced.labels(job.queue).inc()
        self._metrics.jobs.labels(job.queue, job.task_name, outcome).inc()
        cause = {} if error is None else {"error_type": type(error).__name__, "error_code": failures.code_of(error)}
        _log.info(_EVENTS[outcome], **cause)

    async def _write(self, claim: JobClaim, statement: str, arguments: tuple[Any, ...]) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(failures.DATABASE_FAULTS),
            wait=wait_chain(*map(wait_fixed, WRITE_AGAIN_SECONDS)),
            stop=stop_after_attempt(1 + len(WRITE_AGAIN_SECONDS)),
            reraise=True,
        ):
            with attempt:
                # On a connection that was lost silently a statement would wait for minutes.
                async with asyncio.timeout(WRITE_SECONDS_MAX):
                    await claim.end(self._pool, statement, *arguments)


def _id(job: Job) -> int:
    assert job.id is not None  # noqa: S101 - a fetched job has an id
    return job.id
