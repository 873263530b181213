"""What the tasks do: one object per process, assembled from the packages and given to `workers.queue.tasks`."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from hippocampus.consolidation.backfill import Backfilled, backfill_embeddings, choose_model
from hippocampus.consolidation.rederive import rederive_slices
from hippocampus.consolidation.vector_copies import copy_vectors, update_vector_indexes
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.erasure.service import ErasureService
from hippocampus.knowledge.ingest import DocumentIngest, WillRetry, backfill_chunks
from hippocampus.records import MemoryType
from hippocampus.retention.archive import MemoryArchive
from hippocampus.retention_manager import Batch, MemoryRetentionManager
from workers.models.call_gate import embedder_gate, generator_gate
from workers.models.factory import make_embedder, make_generator
from workers.models.reach import chosen_of, report_unreachable
from workers.queue.claims import JobClaim
from workers.queue.upkeep import Upkeep
from workers.settings import Settings
from workers.telemetry.metrics import Metrics
from workers.webhooks.sender import Attempt, WebhookSender

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool

_log = structlog.get_logger(__name__)

#: Texts in one call of the backfill.
BACKFILL_ROWS = 100

Work = Callable[[], Awaitable[None]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One coroutine function per kind of job.

    `choose_model` sets, at the start of a scheduler, the model to which vectors are moved. `pause_seconds` returns for
    how long no job can be done, because none could call its model. `find_upkeep` returns the tasks that have work, of
    those that `workers.queue.schedule` enqueues on demand. `report_unreachable` logs models that do not answer,
    until each has answered.
    """

    choose_model: Work
    find_upkeep: Callable[[], Awaitable[frozenset[str]]]
    consolidate: Callable[[UUID, JobClaim], Awaitable[object]]
    backfill: Work
    rederive: Work
    enqueue_idle: Work
    reconcile: Work
    find_vectorless: Work
    prune: Work
    archive_jobs: Work
    prune_artifacts: Work
    expire_sessions: Work
    reap_runs: Work
    prune_snapshots: Work
    prune_streams: Work
    retention: Work
    erase: Work
    ingest_document: Callable[[UUID, WillRetry], Awaitable[None]]
    deliver_webhook: Callable[[UUID, Attempt], Awaitable[bool]]
    reconcile_webhooks: Work
    close: Work
    pause_seconds: Callable[[], float]
    report_unreachable: Work


#: The settings, the process's pool and metrics, and its role: the name of its worker pool.
BuildServices = Callable[[Settings, "Pool", Metrics, str], Services]


def build(settings: Settings, pool: Pool, metrics: Metrics, role: str) -> Services:
    """Return the services of this program, with the provider that the settings name."""
    gate = generator_gate(settings, pool, metrics.model_calls, role)
    generator = make_generator(settings, metrics.observe_call, gate)
    embedder = make_embedder(settings, metrics.observe_call, embedder_gate(settings, pool, metrics.model_calls, role))
    upkeep = Upkeep(pool, settings)
    sender = WebhookSender(pool, settings, metrics)

    def count_stored(app_name: str, memory_type: MemoryType, count: int) -> None:
        metrics.stored.labels(metrics.apps.of(app_name), memory_type).inc(count)

    worker = MemoryConsolidationWorker(
        pool, generator, embedder, slice_tokens=settings.slice_tokens, on_stored=count_stored
    )

    async def consolidate(job_id: UUID, claim: JobClaim) -> None:
        job = await worker.run(job_id, claim)
        if job is not None and (skipped := job.result.get("skipped")):
            metrics.skipped.inc(len(skipped))
            _log.warning("refused_turns_skipped", count=len(skipped))

    async def choose() -> None:
        await choose_model(pool, embedder.model)

    async def find_vectorless() -> None:
        await upkeep.find_vectorless(embedder.model)

    async def backfill() -> None:
        await make_vectors(pool, embedder, metrics)

    async def rederive() -> None:
        count = await rederive_slices(pool, generator, embedder, slice_tokens=settings.slice_tokens)
        _log.info("slices_extracted_again", count=count)

    ingest = DocumentIngest(pool, embedder)

    async def ingest_document(document_id: UUID, will_retry: WillRetry) -> None:
        done = await ingest.run(document_id, will_retry=will_retry)
        if done is not None:
            metrics.chunks.labels("embedded").inc(done.embedded)
            metrics.chunks.labels("kept").inc(done.kept)
            _log.info("document_ingested", chunks=done.chunks, kept=done.kept, embedded=done.embedded)

    async def retention() -> None:
        await clean_up(MemoryRetentionManager(pool), metrics)
        _log.info("archive_purged", count=await MemoryArchive(pool).purge())

    async def erase() -> None:
        if count := await ErasureService(pool).resume():
            _log.info("erasures_resumed", count=count)

    async def report() -> None:
        await report_unreachable(chosen_of(settings, generator, embedder))

    async def close() -> None:
        await generator.close()
        await embedder.close()

    return Services(
        choose_model=choose,
        find_upkeep=upkeep.find_work,
        consolidate=consolidate,
        backfill=backfill,
        rederive=rederive,
        enqueue_idle=upkeep.enqueue_idle,
        reconcile=upkeep.reconcile,
        find_vectorless=find_vectorless,
        prune=upkeep.prune,
        archive_jobs=upkeep.archive_jobs,
        prune_artifacts=upkeep.prune_artifacts,
        expire_sessions=upkeep.expire_sessions,
        reap_runs=upkeep.reap_runs,
        prune_snapshots=upkeep.prune_snapshots,
        prune_streams=upkeep.prune_streams,
        retention=retention,
        erase=erase,
        ingest_document=ingest_document,
        deliver_webhook=sender.deliver,
        reconcile_webhooks=sender.reconcile,
        close=close,
        # A job also succeeds without vectors: the backfill adds them.
        pause_seconds=gate.pause_seconds,
        report_unreachable=report,
    )


async def make_vectors(pool: Pool, embedder: Embedder, metrics: Metrics) -> None:
    """Embed every text that may have a vector and has none of this model, and count them; keep what searches read."""
    if count := await copy_vectors(pool):
        _log.info("vectors_copied", count=count)
    total = Backfilled()
    while (batch := await backfill_embeddings(pool, embedder, limit=BACKFILL_ROWS)).settled:
        total = Backfilled(total.given + batch.given, total.refused + batch.refused)
        metrics.backfilled.labels("given").inc(batch.given)
        metrics.backfilled.labels("refused").inc(batch.refused)
    while (batch := await backfill_chunks(pool, embedder, limit=BACKFILL_ROWS)).settled:
        total = Backfilled(total.given + batch.given, total.refused + batch.refused)
        metrics.backfilled.labels("given").inc(batch.given)
        metrics.backfilled.labels("refused").inc(batch.refused)
    _log.info("vectors_backfilled", given=total.given, refused=total.refused)
    await update_vector_indexes(pool)


async def clean_up(manager: MemoryRetentionManager, metrics: Metrics) -> None:
    """Archive the memories that are weak by their app's policy; count those archived and those left."""

    def observe(batch: Batch) -> None:
        for app_name, count in batch.by_app.items():
            metrics.deleted.labels(metrics.apps.of(app_name)).inc(count)
        metrics.batch_seconds.observe(batch.seconds)

    stats = await manager.cleanup_low_value_memories(on_batch=observe)
    metrics.strength.labels("high").set(stats.high_value_count)
    metrics.strength.labels("medium").set(stats.medium_value_count)
    metrics.strength.labels("low").set(stats.low_value_count)
    _log.info("memories_cleaned_up", archived=stats.cleaned_count, left=stats.total_memories)
