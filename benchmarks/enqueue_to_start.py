"""How soon an enqueued job starts on an idle pool, and how many jobs a second a pool completes.

They are compared with the limits of the same server in the same run: a bare LISTEN/NOTIFY round trip, and a bare
procrastinate worker with a task that does nothing. The worker is a separate process; its model answers at once and
computes no vectors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, percentile, row
from pulse import database

ROOT = Path(__file__).parent.parent
JOBS = 200
THROUGHPUT_JOBS = 1500
GAP_SECONDS = 0.03
CONCURRENCY = 10


async def main() -> None:
    async with fresh_pool(8) as (pool, server):
        dsn = server.tcp_dsn
        await pool.execute("CREATE TABLE bench_starts (job_id uuid, at timestamptz)")
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        bare = await notify_round_trips(pool, dsn, JOBS)
        async with process("benchmarks.instant_worker", dsn):
            await wait_for_worker(pool)
            ours = await pick_ups(pool, JOBS)
        for share in (0.5, 0.99):
            own, base = percentile(ours, share), percentile(bare, share)
            row(f"LISTEN/NOTIFY round trip, p{share * 100:.0f}", f"{base:.2f} ms")
            row(f"enqueue to job start, idle pool, p{share * 100:.0f}", f"{own:.2f} ms", f"{own / base:.1f}x")
        figure("enqueue_p99", percentile(ours, 0.99))
        # Alternating, so that a slow minute of the machine affects both.
        rounds = [
            (await bare_throughput(pool, dsn, THROUGHPUT_JOBS), await throughput(pool, dsn, THROUGHPUT_JOBS))
            for _ in range(3)
        ]
        base, own = (sorted(rates)[1] for rates in zip(*rounds, strict=True))
        row(f"bare procrastinate no-op, {CONCURRENCY} at once", f"{base:.0f}/s")
        row("consolidation jobs with an instant model", f"{own:.0f}/s")
        figure("jobs_vs_noop", own / base)


async def notify_round_trips(pool: asyncpg.Pool, dsn: str, count: int) -> list[float]:
    """From the start of a transaction that writes a row and notifies, until a listener receives the notification."""
    received = asyncio.Event()
    listener = await database.connect(dsn)
    await listener.add_listener("bench", lambda *_: received.set())
    milliseconds = []
    for number in range(count):
        await asyncio.sleep(GAP_SECONDS)
        received.clear()
        started = time.perf_counter()
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO bench_commit VALUES ($1)", number)
            await connection.execute("SELECT pg_notify('bench', '')")
        await received.wait()
        milliseconds.append((time.perf_counter() - started) * 1000)
    await listener.close()
    return milliseconds


async def pick_ups(pool: asyncpg.Pool, count: int) -> list[float]:
    """From just before the enqueue's transaction to the job's first statement, on the server's clock."""
    threads = await make_threads(pool, count, "pick-up")
    begun = {}
    for thread in threads:
        await asyncio.sleep(GAP_SECONDS)
        begun_at = await pool.fetchval("SELECT clock_timestamp()")
        job = await pool.fetchval("SELECT job_id FROM enqueue_consolidation($1, 'fast_replay')", thread)
        begun[job] = begun_at
    await drained(pool)
    rows = await pool.fetch("SELECT job_id, at FROM bench_starts")
    return [(row["at"] - begun[row["job_id"]]).total_seconds() * 1000 for row in rows if row["job_id"] in begun]


async def throughput(pool: asyncpg.Pool, dsn: str, count: int) -> float:
    threads = await make_threads(pool, count, f"run-{time.monotonic_ns()}")
    for thread in threads:
        await pool.execute("SELECT enqueue_consolidation($1, 'fast_replay')", thread)
    async with process("benchmarks.instant_worker", dsn, quiet=True):
        await drained(pool)
    return await rate(pool, "fast_replay", count)


async def bare_throughput(pool: asyncpg.Pool, dsn: str, count: int) -> float:
    await pool.execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name) SELECT 'bare', 'nothing' FROM generate_series(1, $1)",
        count,
    )
    async with process("benchmarks.bare_worker", dsn):
        await drained(pool)
    return await rate(pool, "bare", count)


async def rate(pool: asyncpg.Pool, queue: str, count: int) -> float:
    """Jobs per second of a queue's last `count` jobs, from the first start to the last end."""
    seconds = await pool.fetchval(
        "SELECT extract(epoch FROM max(at) - min(at))::float FROM procrastinate_events WHERE type <> 'deferred'"
        " AND job_id IN (SELECT id FROM procrastinate_jobs WHERE queue_name = $1 ORDER BY id DESC LIMIT $2)",
        queue,
        count,
    )
    return count / float(seconds)


async def make_threads(pool: asyncpg.Pool, count: int, prefix: str) -> list[object]:
    rows = await pool.fetch(
        "INSERT INTO threads (app_name, user_id, session_id) SELECT 'bench', 'user', $1 || g"
        " FROM generate_series(1, $2) AS g RETURNING id",
        prefix,
        count,
    )
    return [row["id"] for row in rows]


async def drained(pool: asyncpg.Pool) -> None:
    while await pool.fetchval("SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"):
        await asyncio.sleep(0.05)


async def wait_for_worker(pool: asyncpg.Pool) -> None:
    while not await pool.fetchval("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query ILIKE 'LISTEN %')"):
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def process(module: str, dsn: str, *, quiet: bool = False) -> AsyncIterator[None]:
    """A worker process, ended by SIGTERM."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "DATABASE_URL": dsn,
        "HIPPOCAMPUS_FAST_REPLAY_CONCURRENCY": str(CONCURRENCY),
        "HIPPOCAMPUS_DATABASE_POOL_SIZE": str(CONCURRENCY + 2),
        "HIPPOCAMPUS_QUEUE_POOL_SIZE": str(CONCURRENCY),
        "HIPPOCAMPUS_LOG_LEVEL": "warning",
        "BENCH_QUIET": "1" if quiet else "",
    }
    running = subprocess.Popen([sys.executable, "-m", module], cwd=ROOT, env=environment)
    try:
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        await asyncio.to_thread(running.wait)


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
