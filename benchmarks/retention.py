"""Retention at scale: what a clean-up costs concurrent appends, and that decay rewrites no row.

Appends arrive at a steady rate, not one after another: a closed loop would slow down with the server and hide the cost.
The memories carry vectors, since archiving moves them; the index over vectors is left out while loading, because
building it takes longer than everything else, and a DELETE does not touch it.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, percentile, row
from hippocampus.retention_manager import BATCH_ROWS, REST_FACTOR, MemoryRetentionManager
from pulse.events import Event, EventActions
from pulse.session_service import OpenSessionService

TEXT = "I moved to Lisbon last spring, and I still miss the dumplings near my old office. " * 2
LOAD = """
INSERT INTO memories (app_name, user_id, content, embedding, embedding_model, last_accessed_at, created_at)
SELECT 'app' || i % 10, 'u' || i % 100, $1 || i, v.embedding, CASE WHEN v.embedding IS NOT NULL THEN 'bench' END, at, at
FROM generate_series(1, $2) AS i
LEFT JOIN (SELECT n, (SELECT array_agg(random()) FROM generate_series(1, 1536) WHERE n >= 0)::vector AS embedding
           FROM generate_series(0, 99) AS n WHERE $4) AS v ON v.n = i % 100
CROSS JOIN LATERAL (SELECT now() - CASE WHEN i % 2 = 0 THEN $3 ELSE 0 END * interval '1 day' AS at) AS moment
"""
UPDATES = "SELECT n_tup_upd FROM pg_stat_all_tables WHERE relid = 'memories'::regclass"


async def append_latencies_ms(pool: asyncpg.Pool, per_second: int, until: asyncio.Event) -> list[float]:
    """Append at a steady rate over 20 sessions until stopped; return each append's time from when it was due."""
    service = OpenSessionService(pool)
    opened = asyncio.Queue[object]()
    sessions = [await service.create_session("chat", f"u{n}") for n in range(20)]
    for session in sessions:
        opened.put_nowait(session)
    latencies: list[float] = []

    async def append(due: float) -> None:
        session = await opened.get()
        await service.append_event(
            session,  # type: ignore[arg-type]
            Event(author="user", content={"text": TEXT}, actions=EventActions(state_delta={"step": due})),
        )
        latencies.append((time.perf_counter() - due) * 1000)
        opened.put_nowait(session)

    due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        while not until.is_set():
            due += 1 / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(append(due))
    return latencies


async def quiet(pool: asyncpg.Pool, per_second: int, seconds: float) -> list[float]:
    """Return the latencies with nothing else going on."""
    until = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, until.set)
    return await append_latencies_ms(pool, per_second, until)


async def measure_cleanup(pool: asyncpg.Pool, rows: int, per_second: int, batch_rows: int, rest_factor: float) -> None:
    """Clean up half of twice `rows` memories while appends arrive."""
    start = time.perf_counter()
    for _ in range(0, rows, 10_000):
        await pool.execute(LOAD, TEXT, 2 * min(10_000, rows), 40, True)
    await pool.execute("VACUUM ANALYZE memories")
    await pool.execute("CHECKPOINT")
    row(f"{2 * rows} memories with vectors loaded in", f"{time.perf_counter() - start:.0f} s")

    before = await quiet(pool, per_second, 10)
    until = asyncio.Event()
    appending = asyncio.create_task(append_latencies_ms(pool, per_second, until))
    start = time.perf_counter()
    stats = await MemoryRetentionManager(pool).cleanup_low_value_memories(
        batch_rows=batch_rows, rest_factor=rest_factor
    )
    seconds = time.perf_counter() - start
    until.set()
    meanwhile = await appending
    after = await quiet(pool, per_second, 10)

    p99, base = percentile(meanwhile, 0.99), percentile(before + after, 0.99)
    row(f"clean-up of {stats.cleaned_count} memories", f"{stats.cleaned_count / seconds:.0f}/s")
    figure("cleanup_batch", stats.batch_seconds_max * 1000)
    row(f"append p50 at {per_second}/s, quiet", f"{percentile(before + after, 0.5):.1f} ms")
    row(f"append p50 at {per_second}/s, meanwhile", f"{percentile(meanwhile, 0.5):.1f} ms")
    row(f"append p99 at {per_second}/s, quiet", f"{base:.1f} ms")
    row(f"append p99 at {per_second}/s, meanwhile", f"{p99:.1f} ms")
    figure("cleanup_append_ratio", p99 / base)


async def measure_decay(pool: asyncpg.Pool, rows: int) -> None:
    """Let `rows` memories age, and read their scores."""
    await pool.execute("TRUNCATE memories, memories_archive CASCADE")
    await pool.execute("DROP INDEX memories_search_idx")
    await pool.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
    await pool.execute(LOAD, "", rows, 0, False)
    await pool.execute("VACUUM ANALYZE memories")
    updates = await pool.fetchval(UPDATES)
    scores = []
    async with pool.acquire() as connection:
        for days in (0, 10, 30):
            await connection.execute(
                "SELECT set_config('hippocampus.fake_time', (now() + $1 * interval '1 day')::text, false)", days
            )
            start = time.perf_counter()
            total, weak = await connection.fetchrow(
                "SELECT sum(score_sum) / sum(total), sum(weak) FROM retention_stats()"
            )
            scores.append(f"{total:.3f}")
            seconds = time.perf_counter() - start
        await connection.execute("SELECT pg_stat_force_next_flush()")
    row(f"mean score of {rows} memories after 0, 10, 30 days", " > ".join(scores))
    row("  reading all scores and what is too weak", f"{seconds:.2f} s", "", f"{int(weak)} too weak")
    figure("decay_rewrites", await pool.fetchval(UPDATES) - updates)


async def main() -> None:
    parser = options.parser()
    parser.add_argument("--rows", type=int, default=100_000, help="weak memories to clean up")
    parser.add_argument("--decay-rows", type=int, default=1_000_000, help="memories that grow old")
    parser.add_argument("--per-second", type=int, default=100, help="appends per second meanwhile")
    parser.add_argument("--batch-rows", type=int, default=BATCH_ROWS)
    parser.add_argument("--rest-factor", type=float, default=REST_FACTOR)
    given = parser.parse_args()
    async with fresh_pool(12) as (pool, _):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        await measure_cleanup(pool, given.rows, given.per_second, given.batch_rows, given.rest_factor)
        if given.decay_rows:
            await measure_decay(pool, given.decay_rows)


if __name__ == "__main__":
    asyncio.run(main())
