"""What more workers gain with a model that takes 200 ms to answer, and how many events one call covers.

Each fast_replay job makes one call for its summary and one for its vectors, so a worker of 4 slots can do 10 jobs a
second at best; the ratio is to one worker. Events per call: ten sessions are appended to while two workers run; what
arrives while a session's job waits or runs is covered by the next one.
"""

from __future__ import annotations

import asyncio
import json
import time

import asyncpg

from benchmarks import options
from benchmarks.real_workers import Gemini, drained, enqueue, gemini, talk, workers
from benchmarks.server import commit_latency_ms, fresh_pool, row

MODEL_SECONDS = 0.2
CALLS_PER_JOB = 2
SLOTS = 4
JOBS_PER_WORKER = 60
WORKERS_MAX = 4
SESSIONS = 10
APPENDS_PER_SECOND = 100
SECONDS = 6.0


async def main() -> None:
    async with fresh_pool(8) as (pool, server):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        with gemini(MODEL_SECONDS) as model:
            await scale(pool, server.tcp_dsn, model)
            async with workers(2, server.tcp_dsn, model.url, concurrency=SLOTS):
                for every in (1, 20):
                    covered = await events_per_call(pool, model, every)
                    what = f"a job asked for at every {every}. event" if every > 1 else "a job asked for at every event"
                    row(f"events per call of the model, {what}", f"{covered:.1f}")


async def scale(pool: asyncpg.Pool, dsn: str, model: Gemini) -> None:
    """Jobs per second with 1 to 4 workers."""
    best = SLOTS / (MODEL_SECONDS * CALLS_PER_JOB)
    alone = 0.0
    for count in range(1, WORKERS_MAX + 1):
        threads = await talk(pool, JOBS_PER_WORKER * count, f"scale{count}")
        async with workers(count, dsn, model.url, concurrency=SLOTS):
            began = time.perf_counter()
            await enqueue(pool, threads)
            await drained(pool)
            rate = len(threads) / (time.perf_counter() - began)
        alone = alone or rate
        what = f"jobs of a 200 ms model, {count} worker{'s' if count > 1 else ''} of {SLOTS} slots"
        row(what, f"{rate:.1f}/s", f"{rate / alone:.2f}", f"at best {best * count:.0f}/s")


async def events_per_call(pool: asyncpg.Pool, model: Gemini, every: int) -> float:
    """Append at a steady rate for a while; return how many events one generation call covered."""
    await pool.execute("UPDATE app_policies SET fast_events = $1", every)
    for number in range(SESSIONS):
        await pool.execute("SELECT create_session('bench', 'user', $1)", f"every{every}-{number}")
    calls = model.calls("generateContent")
    appends = int(APPENDS_PER_SECOND * SECONDS)
    began = time.perf_counter()
    for number in range(appends):
        await asyncio.sleep(max(0.0, number / APPENDS_PER_SECOND - (time.perf_counter() - began)))
        await pool.execute(
            "SELECT append_event('bench', 'user', $1, NULL, $2, 'user', 'message', $3, 'user', $4, p_notify => false)",
            f"every{every}-{number % SESSIONS}",
            f"e{number}",
            json.dumps({"text": "well"}),
            "And then we went on, as one does.",
        )
    await drained(pool)
    done = await pool.fetchval("SELECT sum(fast_upto_seq) FROM threads WHERE session_id LIKE $1", f"every{every}-%")
    return float(done) / (model.calls("generateContent") - calls)


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
