"""procrastinate's worker, made safe: no notification is lost, its liveness is guarded, no job is lost at its end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import structlog
from procrastinate import jobs, retry
from procrastinate.exceptions import ConnectorException
from procrastinate.job_context import JobContext, JobResult
from procrastinate.worker import Worker

from workers.failures import DATABASE_FAULTS
from workers.pools import WorkerPool
from workers.queue import cuts, liveness
from workers.queue.app import JobApp
from workers.queue.observer import JobObserver
from workers.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

#: The fallback of the guard's poll, which wakes the worker when a job is due.
POLL_SECONDS = 300.0
#: Cuts in a row for longer than this end the worker: the next one opens new connections.
CUT_SECONDS_MAX = 30.0


class WakeUp(asyncio.Event):
    """An event that is cleared before the queue is read, never after.

    procrastinate clears it after each fetch: a notification that arrives during a fetch which finds nothing is
    lost, and its job waits for the next poll.
    """

    def clear(self) -> None:
        """Do nothing; see `rearm`."""

    def rearm(self) -> None:
        """Clear the event. Each notification from now on starts another fetch."""
        super().clear()


class QueueWorker(Worker):
    """One run of a worker pool's worker, from its registration to its end.

    A connection that is cut does not end it: procrastinate would fetch nothing more until the running jobs are over,
    which delays waiting jobs by up to the grace time. The guard gives back what a cut fetch may have taken, and jobs
    whose end could not be written: for the database they run, and this worker does not run them.
    """

    def __init__(
        self,
        app: JobApp,
        pool: WorkerPool,
        guard: liveness.Guard,
        metrics: Metrics,
        *,
        concurrency: int,
        grace_seconds: float,
    ) -> None:
        super().__init__(
            app,
            queues=list(pool.queues),
            name=pool.name,
            concurrency=concurrency,
            fetch_job_polling_interval=POLL_SECONDS,
            shutdown_graceful_timeout=grace_seconds,
            install_signal_handlers=False,
            stalled_worker_timeout=liveness.STALLED_SECONDS,
            worker_middleware=[JobObserver(app.job_manager, metrics)],
        )
        self._job_app = app
        self._pool = pool
        self._guard = guard
        self._new_job_event = WakeUp()
        self._cuts = 0  # of fetches, in a row
        self._cut_at = 0.0
        self._backoff = cuts.make_backoff()

    async def _run_loop(self) -> None:
        # The lock is held before the first fetch and until the last job is over.
        async with self._guard.hold(self._id):
            _log.info("worker_registered", worker_id=self._id)
            await super()._run_loop()

    def _start_side_tasks(self) -> list[asyncio.Task[Any]]:
        watched = self._guard.watch(
            self._id,
            self._running_ids,
            self._pool.queues,
            wake=self._new_job_event.set,
            abort=self._handle_abort_jobs_requested,
        )
        return [*super()._start_side_tasks(), asyncio.create_task(watched, name="guard")]

    async def _handle_notification(self, *, channel: str, notification: jobs.Notification) -> None:
        if notification["type"] != "abort_job_requested":
            self._guard.note_activity()
            await super()._handle_notification(channel=channel, notification=notification)
        elif notification["job_id"] in self._running_ids():
            # Channels are the database's: another schema may have a job of this number. Which one it is, is asked.
            try:
                self._handle_abort_jobs_requested(await self.app.job_manager.list_jobs_to_abort_async())
            except ConnectorException as error:
                _log.warning("abort_postponed", error_type=type(error).__name__)  # The guard's poll finds it.

    async def _poll_jobs_to_abort(self) -> None:
        # The guard's poll finds them, which is frequent while a job runs; procrastinate's own wakes idle workers, too.
        await asyncio.Event().wait()

    async def _update_heartbeat(self) -> None:
        # The guard sends it, on a connection that it replaces as soon as it is lost.
        await asyncio.Event().wait()

    async def _periodic_deferrer(self) -> None:
        if self._pool.is_scheduler:
            await cuts.through_cuts("deferrer", lambda: self._job_app.schedule().worker())
        # A side task that returns would end the worker.
        await asyncio.Event().wait()

    async def _fetch_and_process_jobs(self) -> None:
        assert isinstance(self._new_job_event, WakeUp)  # noqa: S101 - set above
        self._new_job_event.rearm()
        try:
            await super()._fetch_and_process_jobs()
        except ConnectorException as error:
            if not cuts.is_cut(error) or self._is_cut_off():
                raise
            await cuts.pause("fetch", self._backoff)
            self._cuts += 1
            self._new_job_event.set()
        else:
            self._cuts = 0
            self._backoff = cuts.make_backoff()

    def _is_cut_off(self) -> bool:
        if self._cuts == 0:
            self._cut_at = time.monotonic()
        return time.monotonic() - self._cut_at > CUT_SECONDS_MAX

    async def _persist_job_status(
        self,
        job: jobs.Job,
        status: jobs.Status,
        retry_decision: retry.RetryDecision | None,
        context: JobContext,
        job_result: JobResult | None,
    ) -> None:
        try:
            await super()._persist_job_status(job, status, retry_decision, context, job_result)
        except DATABASE_FAULTS as error:
            _log.error("job_end_lost", error_type=type(error).__name__)

    def _running_ids(self) -> list[int]:
        return [context.job.id for context in self._running_jobs.values() if context.job.id is not None]

    @property
    def _id(self) -> int:
        assert self.worker_id is not None  # noqa: S101 - registered before the loop starts
        return self.worker_id
