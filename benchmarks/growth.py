"""How appends, searches, reads and the upkeep change while the tables of events and messages grow.

    python -m benchmarks.growth [EVENTS …]

Sessions of 50 turns, five a user, filled by SQL. Figures are of random sessions and users, on one connection, without
waiting for the disk (`synchronous_commit` is off). The blocks are those of PostgreSQL that an operation touches, which
other load on the machine does not change.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks import options
from benchmarks.server import fresh_server, percentile, row
from hippocampus.context_assembler import ContextAssembler
from hippocampus.search import MemorySearch
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService

SIZES = (100_000, 1_000_000, 4_000_000)
TURNS = 50
SESSIONS_PER_USER = 5
SESSIONS_AT_ONCE = 4_000
APPENDS = 400
READS = 150
FILL = f"""
WITH made AS (
    INSERT INTO threads (app_name, user_id, session_id, version, last_seq, token_count, fast_upto_seq, deep_upto_seq,
                         fast_queued_seq, deep_queued_seq, fast_queued_tokens, deep_queued_tokens, last_event_at)
    SELECT 'bench', 'u' || n / {SESSIONS_PER_USER}, 's' || n, {TURNS}, {TURNS}, {TURNS} * 15, {TURNS}, {TURNS},
           {TURNS}, {TURNS}, {TURNS} * 15, {TURNS} * 15, now()
    FROM generate_series($1::integer, $2::integer) AS n RETURNING id, user_id
), said AS (
    SELECT m.id AS thread_id, m.user_id, s AS seq, now() - make_interval(secs => 60 * ({TURNS} - s)) AS at,
           'turn ' || s || ' of the ' || w[1 + (s * 7) % 8] || ' and the ' || w[1 + (s * 3) % 8]
           || ' near the harbour' AS text
    FROM made AS m CROSS JOIN generate_series(1, {TURNS}) AS s
    CROSS JOIN (VALUES ('{{bridge,garden,market,kitchen,violin,letter,winter,river}}'::text[])) AS words (w)
), stored AS (
    INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, version, occurred_at)
    SELECT thread_id, seq, 'e' || seq, 'user', 'user_message', json_build_object('text', text), seq, at FROM said
)
INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content, token_estimate,
                      occurred_at)
SELECT thread_id, seq, 'e' || seq, 'bench', user_id, 'user', 'user', text, 15, at FROM said
"""


async def main(sizes: list[int]) -> None:
    async with (
        fresh_server(synchronous_commit="off", max_wal_size="4GB", shared_buffers="512MB") as server,
        await database.create_pool(server.tcp_dsn, min_size=1, max_size=1) as pool,
    ):
        sessions = 0
        for size in sizes:
            await fill(pool, sessions, size // TURNS)
            sessions = size // TURNS
            await measure(pool, size, sessions)


async def fill(pool: asyncpg.Pool, first: int, end: int) -> None:
    async with pool.acquire() as connection:
        for begin in range(first, end, SESSIONS_AT_ONCE):
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(FILL, begin, min(begin + SESSIONS_AT_ONCE, end) - 1)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")


async def measure(pool: asyncpg.Pool, size: int, sessions: int) -> None:
    chosen = random.Random(7)
    service, search = OpenSessionService(pool), MemorySearch(pool, None)
    assembler = ContextAssembler(pool, None)

    def user() -> tuple[str, str]:
        number = chosen.randrange(sessions)
        return f"u{number // SESSIONS_PER_USER}", f"s{number}"

    async def append() -> None:
        owner, name = user()
        event = Event(author="user", content={"text": "We met at the market once more."})
        await service.append("bench", owner, name, [event])

    async def find() -> None:
        await search.search(app_name="bench", user_id=user()[0], query="who kept the violin in the kitchen?")

    async def assemble() -> None:
        owner, name = user()
        await assembler.assemble(
            app_name="bench", user_id=owner, session_id=name, query="the violin in the kitchen", max_tokens=2000
        )

    async def read() -> None:
        owner, name = user()
        await service.get_session("bench", owner, name)

    # Or the sessions of a smaller size would be due while a larger one is measured.
    await pool.execute(
        "UPDATE app_policies SET consolidate = false, fast_idle_seconds = 86400, deep_idle_seconds = 86400"
    )
    gigabytes = await pool.fetchval("SELECT pg_database_size(current_database())") / 2**30
    row(f"{size:,} events", f"{gigabytes:.2f} GB")
    for what, work, count in (
        ("append to a random session", append, APPENDS),
        ("read a random session", read, READS),
        ("search of a random user", find, READS),
        ("context window of a random session", assemble, READS),
        ("idle scan of the upkeep", lambda: pool.execute("SELECT enqueue_idle()"), 5),
        ("reconcile scan of the upkeep", lambda: pool.execute("SELECT reconcile_jobs()"), 5),
    ):
        await report(pool, what, work, count)


async def report(pool: asyncpg.Pool, what: str, work: Callable[[], Awaitable[object]], count: int) -> None:
    samples = []
    before = await blocks(pool)
    for _ in range(count):
        began = time.perf_counter()
        await work()
        samples.append((time.perf_counter() - began) * 1000)
    touched = (await blocks(pool) - before) / count
    times = f"{statistics.median(samples):.2f} ms, p95 {percentile(samples, 0.95):.2f}"
    row(f"  {what}", times, f"{touched:.0f}", "blocks")


async def blocks(pool: asyncpg.Pool) -> int:
    """Return how many blocks the connection of the pool has touched."""
    await pool.execute("SELECT pg_stat_force_next_flush()")
    await pool.execute("SELECT pg_stat_clear_snapshot()")
    return int(
        await pool.fetchval("SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()")
    )


if __name__ == "__main__":
    parser = options.parser()
    parser.add_argument("events", type=int, nargs="*", default=SIZES, help="at how many events to measure")
    asyncio.run(main(list(parser.parse_args().events)))
