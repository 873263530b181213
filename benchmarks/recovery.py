"""How long the jobs of a killed worker wait for another one, with a model that takes a second to answer.

Two workers of 8 slots, 8 jobs, one worker is killed; measured on the server's clock, from just before the kill until
the other worker has started the last of its jobs again.
"""

from __future__ import annotations

import asyncio

import asyncpg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.real_workers import Worker, drained, enqueue, gemini, talk, workers
from benchmarks.server import commit_latency_ms, fresh_pool, percentile, row

MODEL_SECONDS = 1.0
SLOTS = 8
ROUNDS = 12
STARTED_AGAIN = """
SELECT bool_and(a.at IS NOT NULL) AND count(*) > 0, extract(epoch FROM max(a.at) - $2)::float
FROM unnest($1::bigint[]) AS j (id)
LEFT JOIN LATERAL (SELECT min(e.at) AS at FROM procrastinate_events AS e
                   WHERE e.job_id = j.id AND e.type = 'started' AND e.at > $2) AS a ON true
"""


async def main() -> None:
    async with fresh_pool(8) as (pool, server):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        seconds, jobs = [], 0
        with gemini(MODEL_SECONDS) as model:
            async with workers(2, server.tcp_dsn, model.url, concurrency=SLOTS) as running:
                for number in range(ROUNDS):
                    waited, count = await kill_one(pool, running, number)
                    seconds.append(waited)
                    jobs += count
                    await drained(pool)
                    running.append(Worker(server.tcp_dsn, model.url, concurrency=SLOTS))
                    await running[-1].worker_id()
        row(f"kill -9 of a worker with running jobs ({ROUNDS} kills, {jobs} jobs)", "")
        row("  until all of them run elsewhere, median", f"{percentile(seconds, 0.5):.2f} s")
        figure("recovery_seconds", max(seconds), "at most")


async def kill_one(pool: asyncpg.Pool, running: list[Worker], number: int) -> tuple[float, int]:
    """Kill a worker once all jobs run; return how many seconds its jobs waited, and their number."""
    await enqueue(pool, await talk(pool, SLOTS, f"kill{number}"))
    while await pool.fetchval("SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'") < SLOTS:
        await asyncio.sleep(0.01)
    victim, held = None, []
    for worker in running:
        rows = await pool.fetch(
            "SELECT id FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = $1", await worker.worker_id()
        )
        if len(rows) > len(held):
            victim, held = worker, [row["id"] for row in rows]
    assert victim is not None
    since = await pool.fetchval("SELECT clock_timestamp()")
    victim.kill()
    running.remove(victim)
    victim.stop()
    while True:
        all_started, seconds = await pool.fetchrow(STARTED_AGAIN, held, since)
        if all_started:
            return float(seconds), len(held)
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
