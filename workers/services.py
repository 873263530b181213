"""What the tasks do, put together from the rooms: one object per process, given to `workers.tasks`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from hippocampus.backfill import backfill_embeddings
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.retention_manager import Batch, MemoryRetentionManager
from workers.claims import JobClaim
from workers.embedders import make_embedder
from workers.generators import make_generator
from workers.metrics import Metrics
from workers.settings import Settings
from workers.upkeep import Upkeep

if TYPE_CHECKING:
    from pulse.database import Pool


async def _nothing() -> None:
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One coroutine function per kind of job."""

    consolidate: Callable[[UUID, JobClaim], Awaitable[object]]
    backfill: Callable[[], Awaitable[None]]
    enqueue_idle: Callable[[], Awaitable[None]]
    reconcile: Callable[[], Awaitable[None]]
    prune: Callable[[], Awaitable[None]]
    archive_jobs: Callable[[], Awaitable[None]]
    retention: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]] = _nothing


BuildServices = Callable[[Settings, "Pool", Metrics], Services]


def build(settings: Settings, pool: Pool, metrics: Metrics) -> Services:
    """Return the services of this program, with the provider that the settings name."""
    upkeep = Upkeep(pool, settings, metrics)
    generator = make_generator(settings, metrics.observe_call)
    embedder = make_embedder(settings, metrics.observe_call)
    worker = MemoryConsolidationWorker(pool, generator, embedder, slice_tokens=settings.slice_tokens)

    async def backfill() -> None:
        while await backfill_embeddings(pool, embedder):
            pass

    async def retention() -> None:
        def count(batch: Batch) -> None:
            metrics.deleted.inc(batch.archived)
            metrics.batch_seconds.observe(batch.seconds)

        await MemoryRetentionManager(pool).cleanup_low_value_memories(on_batch=count)

    async def close() -> None:
        await asyncio.gather(generator.close(), embedder.close())

    return Services(
        consolidate=worker.run,
        backfill=backfill,
        enqueue_idle=upkeep.enqueue_idle,
        reconcile=upkeep.reconcile,
        prune=upkeep.prune,
        archive_jobs=upkeep.archive_jobs,
        retention=retention,
        close=close,
    )
