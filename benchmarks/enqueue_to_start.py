"""How soon an enqueued job starts on an idle pool, and how many jobs a second a pool works off.

    python -m benchmarks.enqueue_to_start [--jobs 300] [--throughput-jobs 2000] [--dsn postgresql://...]

Prints milliseconds, and beside them what the same server and machine do at best in the same run: a bare
LISTEN/NOTIFY round trip, and a bare procrastinate worker with a task that does nothing. Ratios count. The worker is a
real process of its own; its model answers at once and makes no vectors. Without --dsn it starts an embedded PostgreSQL
in a folder of its own, with fsync on. The database must be empty: it is migrated, and the jobs stay in it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg

from pulse import database
from workers.embedded import EmbeddedServer
from workers.migrate import migrate

ROOT = Path(__file__).parent.parent
GAP_SECONDS = 0.03
CONCURRENCY = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--throughput-jobs", type=int, default=2000)
    parser.add_argument("--dsn")
    given = parser.parse_args()
    with server(given.dsn) as dsn:
        asyncio.run(measure(dsn, given.jobs, given.throughput_jobs))


@contextlib.contextmanager
def server(dsn: str | None) -> Iterator[str]:
    """The given database, or one of an embedded server."""
    if dsn is not None:
        yield dsn
        return
    with tempfile.TemporaryDirectory(prefix="hippo-bench-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        with EmbeddedServer(Path(name) / "home") as running:
            yield running.dsn


async def measure(dsn: str, jobs: int, throughput_jobs: int) -> None:
    await migrate(dsn)
    async with await database.create_pool(dsn, min_size=4, max_size=8) as pool:
        commit = await commit_latency(pool)
        bare = await notify_round_trips(pool, dsn, jobs)
        async with process("benchmarks.instant_worker", dsn):
            await wait_for_worker(pool)
            ours = await pick_ups(pool, jobs)
        print(f"server's commit                p50 {commit:7.2f} ms")
        show("LISTEN/NOTIFY round trip      ", bare, bare)
        show("enqueue to start, idle pool   ", ours, bare)
        ours_each, bare_each = [], []
        # In turns, so that a slow minute of the machine hits both.
        for _ in range(3):
            bare_each.append(await bare_throughput(pool, dsn, throughput_jobs))
            ours_each.append(await throughput(pool, dsn, throughput_jobs))
        ours_rate, bare_rate = statistics.median(ours_each), statistics.median(bare_each)
        print(f"bare procrastinate no-op       {bare_rate:7.0f} jobs/s at concurrency {CONCURRENCY}")
        print(f"consolidation jobs, fenced     {ours_rate:7.0f} jobs/s   ratio {ours_rate / bare_rate:.2f}")


def show(name: str, found: list[float], base: list[float]) -> None:
    p50, p99 = percentile(found, 50), percentile(found, 99)
    ratio = p50 / percentile(base, 50), p99 / percentile(base, 99)
    print(f"{name} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   ratio {ratio[0]:.1f} / {ratio[1]:.1f}")


def percentile(values: list[float], rank: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[rank - 1]


async def commit_latency(pool: asyncpg.Pool) -> float:
    """A transaction that writes one row, in milliseconds."""
    await pool.execute("CREATE TABLE IF NOT EXISTS bench_commits (n int)")
    await pool.execute("CREATE TABLE IF NOT EXISTS bench_starts (job_id uuid, at timestamptz)")
    seconds = []
    for number in range(200):
        started = time.perf_counter()
        await pool.execute("INSERT INTO bench_commits VALUES ($1)", number)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1000


async def notify_round_trips(pool: asyncpg.Pool, dsn: str, count: int) -> list[float]:
    """From the start of a transaction that writes a row and notifies, to a listener that hears of it."""
    heard = asyncio.Event()
    listener = await database.connect(dsn)
    await listener.add_listener("bench", lambda *_: heard.set())
    milliseconds = []
    for number in range(count):
        await asyncio.sleep(GAP_SECONDS)
        heard.clear()
        started = time.perf_counter()
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO bench_commits VALUES ($1)", number)
            await connection.execute("SELECT pg_notify('bench', '')")
        await heard.wait()
        milliseconds.append((time.perf_counter() - started) * 1000)
    await listener.close()
    return milliseconds


async def pick_ups(pool: asyncpg.Pool, count: int) -> list[float]:
    """From just before the enqueue's transaction to the first statement of the job, by the server's clock."""
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
    """Jobs a second of a queue's last `count` jobs, from the first start to the last end."""
    seconds = await pool.fetchval(
        "SELECT extract(epoch FROM max(at) - min(at))::float FROM procrastinate_events WHERE type <> 'deferred' AND job_id IN"
        " (SELECT id FROM procrastinate_jobs WHERE queue_name = $1 ORDER BY id DESC LIMIT $2)",
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
    main()
