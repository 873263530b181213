"""The upkeep of the queue: what falls due, what was forgotten, what is over."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import structlog

from workers.queue.claims import QUERIES
from workers.settings import Settings
from workers.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pulse.database import Pool

_log = structlog.get_logger("workers.queue.upkeep")

#: Rows in one transaction of pruning or archiving.
BATCH_ROWS = 1000
#: Files in one transaction: each may hold hundreds of megabytes.
BLOBS_BATCH = 100
#: How long a file stays that no artifact refers to: longer than any save may take.
BLOBS_KEEP = datetime.timedelta(hours=1)
#: Sessions that one run deletes at the end of their time to live, each in a transaction of its own: one may hold
#: thousands of events.
EXPIRED_SESSIONS_MAX = 1000
#: Runs ended in one transaction: each holds the lock of its session.
RUNS_BATCH = 100
#: Batches of 500 due timers in one run; what is left, or was held by a writer, is looked at by the next run.
IDLE_BATCHES_MAX = 100


class Upkeep:
    """Small statements, each a transaction of its own: killed between any two of them, nothing is half done."""

    def __init__(self, pool: Pool, settings: Settings, metrics: Metrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self._queue_keep = datetime.timedelta(hours=settings.queue_keep_hours)
        self._jobs_keep = datetime.timedelta(days=settings.jobs_keep_days)
        self._snapshots_keep = datetime.timedelta(days=settings.snapshots_keep_days)
        self._live_texts_keep = datetime.timedelta(seconds=settings.live_texts_keep_seconds)
        self._failed_jobs_keep = datetime.timedelta(days=settings.failed_jobs_keep_days)
        self._archived_jobs_keep = datetime.timedelta(days=settings.archived_jobs_keep_days)

    async def enqueue_idle(self) -> None:
        """Enqueue what the idle timers say is due."""
        total = 0
        for _ in range(IDLE_BATCHES_MAX):
            total += await self._pool.fetchval(QUERIES["enqueue_idle"])
            if not await self._pool.fetchval(QUERIES["idle_waits"]):
                break
        self._tell("idle sessions enqueued", total)

    async def reconcile(self) -> None:
        """Enqueue what ought to be in the queue and is not."""
        self._tell("forgotten sessions enqueued", await self._pool.fetchval(QUERIES["reconcile_jobs"]))

    async def find_vectorless(self, model: str) -> None:
        """Enqueue the backfill where something waits for its vector of this model, and the redrawing of slices."""
        await self._pool.execute(QUERIES["enqueue_embedding_backfill"], model)
        await self._pool.execute(QUERIES["enqueue_redraws"])

    async def prune(self) -> None:
        """Delete finished jobs of the queue, with their events, when nobody asks for them any more."""
        self._tell("queue pruned", await self._in_batches("prune_queue", self._queue_keep))

    async def archive_jobs(self) -> None:
        """Move consolidation jobs that ended long ago to the archive; delete those that are there for too long."""
        moved = await self._in_batches("archive_jobs", self._jobs_keep, self._failed_jobs_keep)
        self._tell("jobs archived", moved)
        self._tell("archived jobs deleted", await self._in_batches("prune_jobs_archive", self._archived_jobs_keep))

    async def prune_artifacts(self) -> None:
        """Delete the contents of files that no artifact refers to any more."""
        self._tell("files pruned", await self._in_batches("prune_artifact_blobs", BLOBS_KEEP, batch=BLOBS_BATCH))

    async def expire_sessions(self) -> None:
        """Delete sessions whose time to live is over; those that it was too early to look at are looked at later."""
        looked_at = 0
        while looked_at < EXPIRED_SESSIONS_MAX and await self._pool.fetchval(QUERIES["delete_expired_session"]):
            looked_at += 1
        self._tell("sessions past their time looked at", looked_at)

    async def reap_runs(self) -> None:
        """End the runs whose process was lost, so that whoever follows them hears of it."""
        self._tell("orphaned runs ended", await self._in_batches("reap_runs", batch=RUNS_BATCH))

    async def prune_snapshots(self) -> None:
        """Delete snapshots of sessions' states that newer ones superseded long ago."""
        self._tell("snapshots pruned", await self._in_batches("prune_snapshots", self._snapshots_keep))

    async def prune_streams(self) -> None:
        """Delete the texts of messages that were never finished, and tickets that nobody used."""
        self._tell("live texts pruned", await self._in_batches("prune_live_messages", self._live_texts_keep))
        self._tell("tickets pruned", await self._in_batches("prune_tickets"))

    async def _in_batches(self, query: str, *keep: datetime.timedelta, batch: int = BATCH_ROWS) -> int:
        total = 0
        while True:
            count = int(await self._pool.fetchval(QUERIES[query], *keep, batch))
            total += count
            if count < batch:
                return total

    @staticmethod
    def _tell(event: str, count: int) -> None:
        if count:
            _log.info(event, count=count)
