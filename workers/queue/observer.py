"""Surrounds every attempt: what is logged and measured, and what its exception means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import structlog
from procrastinate.exceptions import JobAborted
from procrastinate.job_context import AbortReason, JobContext
from procrastinate.jobs import Job
from procrastinate.worker import Worker

from hippocampus.errors import JobFencedError
from pulse.tracing.manager import current_tracing
from pulse.tracing.spans import NO_SPAN, Span
from workers.queue.fenced_jobs import FencedJobManager
from workers.queue.tasks import MAINTENANCE_QUEUE
from workers.telemetry.metrics import Metrics

_UUID_VERSION_WITH_TIME = 7


class JobObserver:
    """The middleware of procrastinate's worker."""

    def __init__(self, manager: FencedJobManager, metrics: Metrics) -> None:
        self._manager = manager
        self._metrics = metrics

    async def __call__(self, call_next: Callable[[], Awaitable[Any]], context: JobContext, _worker: Worker) -> None:
        """Run an attempt. Its result is dropped: procrastinate would log it."""
        job = context.job
        # Each attempt is an asyncio task with its own context: nothing has to be unbound.
        structlog.contextvars.bind_contextvars(**log_facts(job))
        self._observe_start(job)
        started = time.perf_counter()
        try:
            with self._metrics.in_progress.labels(job.queue).track_inprogress(), _span(job):
                await self._run(call_next, context)
        finally:
            self._metrics.job_seconds.labels(job.queue, job.task_name).observe(time.perf_counter() - started)

    async def _run(self, call_next: Callable[[], Awaitable[Any]], context: JobContext) -> None:
        try:
            await call_next()
        except JobFencedError:
            # Another attempt owns the job: there is nothing to end, and nothing is lost.
            self._manager.note_fenced(context.job)
        except asyncio.CancelledError:
            if context.abort_reason() is AbortReason.USER_REQUEST:
                raise JobAborted from None
            if context.abort_reason() is None:
                # The worker is not stopping: a job that is given back without an attempt would run for ever.
                error = TimeoutError("the job was cancelled from within")
                self._manager.note_error(context.job, error)
                raise error from None
            raise
        except Exception as error:
            self._manager.note_error(context.job, error)
            raise

    def _observe_start(self, job: Job) -> None:
        enqueued = _enqueued_at(job)
        if job.attempts == 0 and enqueued is not None:
            self._metrics.queue_seconds.labels(job.queue).observe(max(0.0, time.time() - enqueued))


def _span(job: Job) -> Span:
    """Return the span of an attempt, in a trace of its own: it links the append that caused it, one of perhaps many.

    Upkeep, which runs every few seconds, has none.
    """
    if job.queue == MAINTENANCE_QUEUE:
        return NO_SPAN
    return current_tracing().span(
        f"job {job.task_name}",
        kind="consumer",
        is_new=True,
        links=(job.task_kwargs.get("traceparent"),),
        attributes={
            "messaging.system": "procrastinate",
            "messaging.destination.name": job.queue,
            "messaging.message.id": job.task_kwargs.get("job_id") or str(job.id),
            "hippocampus.attempt": job.attempts + 1,
        },
    )


def log_facts(job: Job) -> dict[str, Any]:
    """Return what every log line of an attempt carries: ids and numbers, nothing of any content."""
    kind, _, thread_id = (job.lock or "").partition(":")
    if kind in ("effect", "knowledge"):
        thread_id = ""  # Effects on one target, and jobs of one document, share a lock, too.
    return {
        "task": job.task_name,
        "queue_job_id": job.id,
        "attempt": job.attempts + 1,
        **({"job_id": job.task_kwargs["job_id"]} if "job_id" in job.task_kwargs else {}),
        **({"thread_id": thread_id} if thread_id else {}),
    }


def _enqueued_at(job: Job) -> float | None:
    """Return when a consolidation job was enqueued, in Unix seconds: its id begins with its milliseconds."""
    if "job_id" not in job.task_kwargs:
        return None
    job_id = UUID(str(job.task_kwargs["job_id"]))
    return (job_id.int >> 80) / 1000 if job_id.version == _UUID_VERSION_WITH_TIME else None
