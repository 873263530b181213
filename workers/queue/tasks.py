"""Every task of the queue, and when the periodic ones run. `workers.queue.services` holds what they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from croniter import croniter
from procrastinate import App
from procrastinate.job_context import JobContext

from hippocampus.records import JobType
from workers.queue.claims import JobClaim
from workers.queue.fenced_jobs import FencedJobManager
from workers.queue.retry import JobRetry
from workers.queue.services import Services
from workers.webhooks.sender import Attempt

#: The queue of each kind of job, as the database's functions enqueue it.
CONSOLIDATION_QUEUES = {
    JobType.FAST_REPLAY: "fast_replay",
    JobType.DEEP_REFLECTION: "deep_reflection",
    JobType.FULL_CONSOLIDATION: "deep_reflection",
}
EMBEDDING_QUEUE = "embedding"
MAINTENANCE_QUEUE = "maintenance"
WEBHOOK_QUEUE = "webhooks"
KNOWLEDGE_QUEUE = "knowledge"

#: When each task of upkeep runs: cron, with seconds as a sixth field. That of `retention` is a setting.
MAINTENANCE_CRONS = {
    "enqueue_idle": "* * * * * */30",
    "reconcile": "* * * * *",
    "find_vectorless": "*/5 * * * *",
    "prune": "*/10 * * * *",
    "archive_jobs": "17 * * * *",
    "prune_artifacts": "37 * * * *",
    "expire_sessions": "* * * * *",
    "erase": "* * * * *",
    "reap_runs": "* * * * * */15",
    "prune_snapshots": "37 * * * *",
    "prune_streams": "*/2 * * * *",
    "reconcile_webhooks": "* * * * *",
}

Upkeep = Callable[[], Awaitable[None]]


def register_tasks(
    app: App, services: Services, manager: FencedJobManager, retry: JobRetry, *, retention_cron: str
) -> None:
    """Give an app every task.

    Raises:
        ValueError: `retention_cron` is not a cron expression.
    """
    for job_type, queue in CONSOLIDATION_QUEUES.items():
        _register_consolidation(app, services, manager, retry, job_type, queue)
    app.task(name="embedding_backfill", queue=EMBEDDING_QUEUE, retry=retry)(_upkeep(services.backfill))
    # It calls the same models as a reflection, and runs in the same worker pool.
    app.task(name="redraw_slices", queue=CONSOLIDATION_QUEUES[JobType.DEEP_REFLECTION], retry=retry)(
        _upkeep(services.rederive)
    )
    _register_webhooks(app, services, manager, retry)
    _register_knowledge(app, services, retry)
    for name, cron in {**MAINTENANCE_CRONS, "retention": _checked(retention_cron)}.items():
        _register_periodic(app, retry, name, cron, getattr(services, name))


def _register_consolidation(
    app: App, services: Services, manager: FencedJobManager, retry: JobRetry, job_type: str, queue: str
) -> None:
    @app.task(name=str(job_type), queue=queue, retry=retry, pass_context=True)
    async def consolidate(context: JobContext, job_id: str, tried: int = 0, traceparent: str | None = None) -> None:
        # The observer, which surrounds every attempt, reads `traceparent`.
        claim = JobClaim(context.job, is_last_attempt=retry.is_last_attempt(context.job))
        await services.consolidate(UUID(job_id), claim)
        if claim.is_finished:
            manager.note_finished(context.job)


def _register_webhooks(app: App, services: Services, manager: FencedJobManager, retry: JobRetry) -> None:
    # A delivery follows its own schedule; the retry is for faults of the database.
    @app.task(name="deliver_webhook", queue=WEBHOOK_QUEUE, retry=retry, pass_context=True)
    async def deliver(context: JobContext, delivery_id: str, tried: int = 0) -> None:
        job = context.job
        is_over = await services.deliver_webhook(UUID(delivery_id), Attempt(job.id, job.worker_id, job.attempts))
        manager.note_finished(job, "succeeded" if is_over else "retried")


def _register_knowledge(app: App, services: Services, retry: JobRetry) -> None:
    # It needs no fence: a document's version is compared in each transaction, and what is stored twice is stored once.
    @app.task(name="ingest_document", queue=KNOWLEDGE_QUEUE, retry=retry, pass_context=True)
    async def ingest(context: JobContext, document_id: str, tried: int = 0, traceparent: str | None = None) -> None:
        # As above, for the observer.
        def will_retry(error: Exception) -> bool:
            return retry.get_retry_decision(exception=error, job=context.job) is not None

        await services.ingest_document(UUID(document_id), will_retry)


def _register_periodic(app: App, retry: JobRetry, name: str, cron: str, work: Upkeep) -> None:
    # With the lock, one run ends before the next begins. A queueing lock would be wrong here: a job that is given back
    # while the next one waits already would violate it, and stay running for ever.
    task = app.task(name=name, queue=MAINTENANCE_QUEUE, lock=name, retry=retry)(_upkeep(work))
    app.periodic(cron=cron)(task)


def _upkeep(work: Upkeep) -> Callable[..., Awaitable[None]]:
    async def run(**_ignored: Any) -> None:
        await work()

    return run


def _checked(cron: str) -> str:
    if not croniter.is_valid(cron):
        raise ValueError(
            f"HIPPOCAMPUS_RETENTION_CRON is {cron!r}, not a cron expression: set it to one, such as '0 2 * * *'"
        )
    return cron
