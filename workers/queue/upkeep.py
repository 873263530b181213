"""The upkeep of the queue and of everything that expires: enqueues what is due or was missed, deletes what is over."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING

import structlog

from hippocampus.consolidation.vector_copies import INDEXED_ROWS
from pulse.postgres.statements import Statements
from workers.settings import Settings

if TYPE_CHECKING:
    from pulse.database import Pool

_log = structlog.get_logger(__name__)
_STATEMENTS = Statements("workers.queue", "upkeep.sql")

#: Rows in one transaction of pruning or archiving.
BATCH_ROWS = 1000
#: Files in one transaction: each may hold hundreds of megabytes.
BLOBS_BATCH = 100
#: Versions of documents in one transaction: each may have 20,000 chunks.
VERSIONS_BATCH = 20
#: How long a file stays that no artifact refers to: longer than any save may take.
BLOBS_KEEP = datetime.timedelta(hours=1)
#: Sessions that one run deletes at the end of their time to live, each in a transaction of its own: one may hold
#: thousands of events.
EXPIRED_SESSIONS_MAX = 1000
#: Runs ended in one transaction: each holds the lock of its session.
RUNS_BATCH = 100
#: Batches of 500 due timers in one run; the next run processes what is left, or was locked by a writer.
IDLE_BATCHES_MAX = 100
_FIND_SECONDS_MAX = 10.0
#: After a search for texts without a vector, the next one waits this many times as long as it took: it reads more the
#: more turns wait for their job and the more vectors there are. What it takes of a core is the inverse of this.
_VECTORLESS_PAUSE = 500


class Upkeep:
    """Small statements, each its own transaction: a process killed between any two leaves nothing half done."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._queue_keep = datetime.timedelta(hours=settings.queue_keep_hours)
        self._jobs_keep = datetime.timedelta(days=settings.jobs_keep_days)
        self._snapshots_keep = datetime.timedelta(days=settings.snapshots_keep_days)
        self._live_texts_keep = datetime.timedelta(seconds=settings.live_texts_keep_seconds)
        self._failed_jobs_keep = datetime.timedelta(days=settings.failed_jobs_keep_days)
        self._traces_keep = datetime.timedelta(days=settings.traces_keep_days)
        self._record_months = settings.pulse_record_months
        self._tool_calls_keep = datetime.timedelta(days=settings.tool_executions_keep_days)
        self._knowledge_keep = datetime.timedelta(days=settings.knowledge_keep_days)
        self._webhooks_keep = datetime.timedelta(days=settings.webhook_keep_days)
        self._archived_jobs_keep = datetime.timedelta(days=settings.archived_jobs_keep_days)
        self._vectorless_due = 0.0

    async def find_work(self) -> frozenset[str]:
        """Return the tasks of `workers.queue.schedule.ON_DEMAND` that have something to do."""
        rows = await _STATEMENTS.fetch(self._pool, "find_work", timeout=_FIND_SECONDS_MAX)
        return frozenset(row["task"] for row in rows)

    async def enqueue_idle(self) -> None:
        """Enqueue the sessions whose idle timer is due."""
        total = 0
        for _ in range(IDLE_BATCHES_MAX):
            total += await _STATEMENTS.fetchval(self._pool, "enqueue_idle")
            if not await _STATEMENTS.fetchval(self._pool, "idle_waits"):
                break
        _report("idle_sessions_enqueued", total)

    async def reconcile(self) -> None:
        """Enqueue what should be in the queue and is not."""
        _report("missed_sessions_enqueued", await _STATEMENTS.fetchval(self._pool, "reconcile_jobs"))

    async def find_vectorless(self, model: str) -> None:
        """Enqueue the backfill if a text waits for its vector of this model, and the slices to extract again."""
        began = time.monotonic()
        if began >= self._vectorless_due:
            await _STATEMENTS.execute(self._pool, "enqueue_embedding_backfill", model, INDEXED_ROWS)
            ended = time.monotonic()
            self._vectorless_due = ended + (ended - began) * _VECTORLESS_PAUSE
        await _STATEMENTS.execute(self._pool, "enqueue_redraws")
        _report("documents_enqueued_again", await self._in_batches("reconcile_knowledge"))

    async def prune(self) -> None:
        """Delete finished jobs of the queue, with their events, webhook events, traces, and calls of tools, once their
        time is over."""
        _report("queue_pruned", await self._in_batches("prune_queue", self._queue_keep))
        _report("audit_entries_pruned", await self._in_batches("prune_audit_log"))
        _report("webhook_events_pruned", await self._in_batches("prune_webhooks", self._webhooks_keep))
        # Here, not in a task of its own: one that the previous release does not know would fail there in an upgrade.
        days = await _STATEMENTS.fetchval(self._pool, "keep_trace_partitions", self._traces_keep)
        _report("trace_days_dropped", days)
        _report("late_spans_pruned", await self._in_batches("prune_default_traces", self._traces_keep))
        await self.archive_record()
        _report("sandbox_executions_pruned", await self._in_batches("prune_sandbox", self._tool_calls_keep))
        pruned = await self._in_batches("prune_knowledge", self._knowledge_keep, batch=VERSIONS_BATCH)
        _report("document_versions_pruned", pruned)
        _report("tool_calls_pruned", await self._in_batches("prune_tool_calls", self._tool_calls_keep))

    async def archive_record(self) -> None:
        """Move old months of the autonomic layer's record to its archive."""
        moved = await _STATEMENTS.fetchval(self._pool, "keep_pulse_partitions", self._record_months)
        _report("pulse_months_archived", moved)

    async def archive_jobs(self) -> None:
        """Move consolidation jobs that ended long ago to the archive; delete those that were archived long ago."""
        moved = await self._in_batches("archive_jobs", self._jobs_keep, self._failed_jobs_keep)
        _report("jobs_archived", moved)
        _report("archived_jobs_deleted", await self._in_batches("prune_jobs_archive", self._archived_jobs_keep))

    async def prune_artifacts(self) -> None:
        """Delete the contents of files that no artifact refers to any more."""
        _report("artifact_files_pruned", await self._in_batches("prune_artifact_blobs", BLOBS_KEEP, batch=BLOBS_BATCH))

    async def expire_sessions(self) -> None:
        """Delete sessions and items whose time to live is over; postpone sessions that were used since."""
        processed = 0
        while processed < EXPIRED_SESSIONS_MAX and await _STATEMENTS.fetchval(self._pool, "delete_expired_session"):
            processed += 1
        _report("expired_sessions_processed", processed)
        _report("expired_items_deleted", await self._in_batches("expire_store_items"))

    async def reap_runs(self) -> None:
        """End the runs whose process was lost, so that their followers are notified."""
        _report("orphaned_runs_ended", await self._in_batches("reap_runs", batch=RUNS_BATCH))

    async def prune_snapshots(self) -> None:
        """Delete snapshots of sessions' states that newer ones superseded long ago."""
        _report("snapshots_pruned", await self._in_batches("prune_snapshots", self._snapshots_keep))

    async def prune_streams(self) -> None:
        """Delete the texts of messages that were never finished, and tickets that were not used."""
        _report("live_texts_pruned", await self._in_batches("prune_live_messages", self._live_texts_keep))
        _report("tickets_pruned", await self._in_batches("prune_tickets"))

    async def _in_batches(self, statement: str, *keep: datetime.timedelta, batch: int = BATCH_ROWS) -> int:
        total = 0
        while True:
            count = int(await _STATEMENTS.fetchval(self._pool, statement, *keep, batch))
            total += count
            if count < batch:
                return total


def _report(event: str, count: int) -> None:
    if count:
        _log.info(event, count=count)
