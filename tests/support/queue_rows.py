"""The queue without worker processes: its rows, the scans of its table, a worker within the test."""

from __future__ import annotations

from typing import Any

import asyncpg

from pulse import database
from workers.pools import WorkerPool
from workers.queue import liveness, queue_worker, services
from workers.queue.app import make_app
from workers.settings import Settings
from workers.telemetry.metrics import Metrics

ATTEMPT = "SELECT id, worker_id, attempts FROM procrastinate_fetch_job_v2(NULL, $1)"


async def fetch(pool: asyncpg.Pool) -> tuple[int, int, int]:
    """Take the next job as a new worker; return its attempt."""
    worker = await pool.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    row = await pool.fetchrow(ATTEMPT, worker)
    assert row["id"] is not None
    return tuple(row)


async def scans(pool: asyncpg.Pool) -> dict[str, int]:
    """The number of sequential scans of the queue's table, and of scans of each of its indexes."""
    async with pool.acquire() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        rows = await connection.fetch(
            "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE relname = 'procrastinate_jobs'"
        )
        whole = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'procrastinate_jobs'"
        return {"seq_scan": await connection.fetchval(whole), **{row[0]: row[1] for row in rows}}


def in_process(
    dsn: str, pool: asyncpg.Pool, *, queue: str = "fast_replay", **replaced: Any
) -> tuple[Any, queue_worker.QueueWorker]:
    settings = Settings(DATABASE_URL=dsn)
    metrics = Metrics()
    nothing: dict[str, Any] = dict.fromkeys(services.Services.__dataclass_fields__, _nothing)
    app = make_app(settings, pool, metrics, services.Services(**{**nothing, "pause_seconds": float, **replaced}))
    guard = liveness.Guard(lambda: database.connect(dsn), metrics)
    return app, queue_worker.QueueWorker(
        app, WorkerPool(queue, (queue,)), guard, metrics, concurrency=4, grace_seconds=1
    )


async def _nothing(*_given: object) -> None:
    return None
