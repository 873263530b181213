"""Nothing but rows grows with the number of users: no table, no index, and no page that is read for all of them."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from pulse import database
from pulse.postgres.statements import load_queries
from workers.migrate import check_schema

USERS = 20_000
#: A scan of all threads of so many users reads 700.
PAGES_MAX = 120
UPKEEP = load_queries("workers.queue", "upkeep.sql")
LIVENESS = load_queries("workers.queue", "liveness.sql")
#: What runs for all users, again and again.
STATEMENTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (UPKEEP["find_work"], ()),
    (UPKEEP["enqueue_idle"], ()),
    (UPKEEP["reconcile_jobs"], ()),
    (UPKEEP["delete_expired_session"], ()),
    (UPKEEP["reap_runs"], (100,)),
    (LIVENESS["find_orphans"], (30.0, None, [], ["fast_replay"], 5.0)),
)


async def test_users_add_rows_and_nothing_else(pool: asyncpg.Pool) -> None:
    """The catalogue stays as it is, and so do the pages that upkeep reads where there is nothing to do."""
    catalogue = "SELECT count(*) FROM pg_class"
    before = await pool.fetchval(catalogue)
    rows = "SELECT 'app', 'u' || n, 's' FROM generate_series(1, $1) AS n"
    await pool.execute(f"INSERT INTO threads (app_name, user_id, session_id) {rows}", USERS)
    await pool.execute("ANALYZE threads")
    assert await pool.fetchval(catalogue) == before
    async with pool.acquire() as connection:
        for statement, arguments in STATEMENTS:
            # The first execution of a session also reads the catalogue.
            for _ in range(2):
                explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {statement}"
                (plan,) = _json(await connection.fetchval(explained, *arguments))
            pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
            assert pages < PAGES_MAX, (statement, pages)


async def test_the_check_at_the_start_of_a_process_reads_no_row_of_a_user(dsn: str) -> None:
    """It reads the catalogue and the list of migrations: a start takes as long with a million users as with none."""
    rows = "SELECT 'app', 'u' || n, 's' FROM generate_series(1, $1) AS n"
    read = (
        "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint"
        " FROM pg_statio_user_tables WHERE relname IN (SELECT table_name FROM moved_tables())"
    )
    # One connection: another would report what it has read later.
    connection = await database.connect(dsn)
    try:

        async def blocks() -> int:
            await connection.execute("SELECT pg_stat_force_next_flush()")
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            return int(await connection.fetchval(read))

        await connection.execute(f"INSERT INTO threads (app_name, user_id, session_id) {rows}", 1000)
        before = await blocks()
        assert before > 0, "what was inserted is counted"
        await check_schema(connection)
        assert await blocks() == before
        await connection.fetchval("SELECT count(*) FROM threads")
        assert await blocks() > before, "what is read is counted"
    finally:
        await connection.close()


def _json(plan: Any) -> Any:
    return json.loads(plan) if isinstance(plan, str) else plan
