"""Nothing but rows grows with the number of users: no table, no index, and no page that is read for all of them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from hippocampus.context_assembler import ContextAssembler
from hippocampus.profile import read_profile
from hippocampus.search import MemorySearch
from pulse import database
from pulse.events import Event
from pulse.postgres.statements import load_queries
from pulse.session_service import OpenSessionService
from workers.migrate import check_schema

USERS = 10_000
#: A scan of all threads of so many users reads 350.
PAGES_MAX = 120
#: A window of one user reads 108.
USER_PAGES_MAX = 200
DAY = datetime.timedelta(days=1)
UPKEEP = load_queries("workers.queue", "upkeep.sql")
#: The arguments of the upkeep's statements that take any.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "reap_runs": (100,),
    "archive_jobs": (DAY, DAY, 1000),
    **dict.fromkeys(("expire_store_items", "reconcile_knowledge", "prune_audit_log", "prune_tickets"), (1000,)),
    **dict.fromkeys(
        (
            "prune_knowledge", "prune_queue", "prune_webhooks", "prune_default_traces", "prune_jobs_archive",
            "prune_tool_calls", "prune_sandbox", "prune_snapshots", "prune_live_messages", "prune_artifact_blobs",
        ),
        (DAY, 1000),
    ),
}  # fmt: skip
#: Those of partitions read the catalogue, by days and months; the third, which reads what waits for a vector and counts
#: vectors, is repeated after a multiple of the time that it took.
OTHERWISE_BOUNDED = {"keep_trace_partitions", "keep_pulse_partitions", "enqueue_embedding_backfill"}
#: What runs for all users, again and again.
STATEMENTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    **{
        name: (statement, ARGUMENTS.get(name, ()))
        for name, statement in UPKEEP.items()
        if name not in OTHERWISE_BOUNDED
    },
    "find_orphans": (
        load_queries("workers.queue", "liveness.sql")["find_orphans"],
        (30.0, None, [], ["fast_replay"], 10.0, False),
    ),
    "queue_state": (load_queries("workers.telemetry", "queue_state.sql")["queue_state"], ()),
    **{name: (load_queries("workers.autonomic", "senses.sql")[name], ()) for name in ("survey", "queues")},
}
#: Every user has a session whose job has ended, a turn and a memory with their vectors, and a state. Half of the
#: sessions have another turn, whose job is not due.
USERS_ROWS = """
WITH t AS (
    INSERT INTO threads (app_name, user_id, session_id, version, last_seq, fast_upto_seq, deep_upto_seq,
                         fast_queued_seq, deep_queued_seq, fast_due_at, deep_due_at)
    SELECT 'app', 'u' || n, 's', 1, 1 + n % 2, 1, 1, 1, 1, now() + interval '1 hour', now() + interval '1 hour'
    FROM generate_series(1, $1::integer) AS n RETURNING id, user_id, last_seq
), e AS (
    INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, version, occurred_at)
    SELECT id, s, 'e' || s, 'user', 'user_message', '{"text": "I like tea"}', 1, now()
    FROM t, generate_series(1, last_seq) AS s
), m AS (
    INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content, token_estimate,
                          occurred_at, embedding, embedding_model)
    SELECT id, s, 'e' || s, 'app', user_id, 'user', 'user', 'I like tea', 3, now(),
           CASE s WHEN 1 THEN '[1,2,3]'::vector END, CASE s WHEN 1 THEN 'm' END
    FROM t, generate_series(1, last_seq) AS s RETURNING id, user_id, embedding
), mv AS (
    INSERT INTO message_vectors (id, app_name, user_id, model, embedding)
    SELECT id, 'app', user_id, 'm', embedding::halfvec FROM m WHERE embedding IS NOT NULL
), y AS (
    INSERT INTO memories (thread_id, app_name, user_id, content, embedding, embedding_model)
    SELECT id, 'app', user_id, 'likes tea', '[1,2,3]', 'm' FROM t RETURNING id, user_id, embedding
), yv AS (
    INSERT INTO memory_vectors (id, app_name, user_id, model, embedding)
    SELECT id, 'app', user_id, 'm', embedding::halfvec FROM y
), s AS (
    INSERT INTO user_states (app_name, user_id, state) SELECT 'app', user_id, '{"drink": "tea"}' FROM t
), i AS (
    INSERT INTO store_items (app_name, namespace, key, value)
    SELECT 'app', ARRAY['drinks'], user_id, '{"drink": "tea"}' FROM t
)
INSERT INTO consolidation_jobs (thread_id, job_type, status, upto_seq, completed_at)
SELECT id, 'fast_replay', 'completed', 1, now() FROM t
"""


#: The pages that this session has read of tables with users' rows, and of their indexes.
PAGES_READ = """
SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint
FROM pg_statio_user_tables WHERE relname IN (SELECT table_name FROM moved_tables())
"""


async def test_users_add_rows_and_nothing_else(dsn: str, pool: asyncpg.Pool) -> None:
    """The catalogue stays as it is, and so do the pages that upkeep and gauges read where there is nothing to do, and
    those that a user's appends, searches and context windows read."""
    catalogue = "SELECT count(*) FROM pg_class"
    before = await pool.fetchval(catalogue)
    async with pool.acquire() as connection:
        async with connection.transaction():
            # What triggers would do is in the statement, which is quicker.
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(USERS_ROWS, USERS)
        await connection.execute("VACUUM ANALYZE")
        assert await pool.fetchval(catalogue) == before
        for name, (statement, arguments) in STATEMENTS.items():
            # The first execution of a session also reads the catalogue.
            for _ in range(2):
                explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {statement}"
                (plan,) = _json(await connection.fetchval(explained, *arguments))
            pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
            assert pages < PAGES_MAX, (name, pages)
    assert await pool.fetchval("SELECT count(*) FROM procrastinate_jobs") == 0, "there was nothing to do"
    async with await database.create_pool(dsn, min_size=1, max_size=1) as alone:
        sessions, search, assembler = OpenSessionService(alone), MemorySearch(alone), ContextAssembler(alone)
        user: dict[str, Any] = {"app_name": "app", "user_id": "u5000"}
        vector: dict[str, Any] = {"query_embedding": [1.0, 2.0, 3.0], "embedding_model": "m"}
        tea = Event(author="user", content={"text": "I like green tea"})
        acts: dict[str, Callable[[], Awaitable[Any]]] = {
            "append": lambda: sessions.append("app", "u5000", "s", [tea]),
            "read": lambda: sessions.get_session("app", "u5000", "s"),
            "search": lambda: search.search(**user, query="tea", **vector),
            "window": lambda: assembler.assemble(**user, session_id="s", query="tea", max_tokens=2000, **vector),
            "profile": lambda: read_profile(alone, **user),
        }
        for name, act in acts.items():
            await act()
            before = await pages_read(alone)
            await act()
            read = await pages_read(alone) - before
            assert 0 < read < USER_PAGES_MAX, (name, read)
        await sessions.close()


async def pages_read(pool: asyncpg.Pool) -> int:
    """Of a pool with one connection: another would report later what it has read."""
    await pool.execute("SELECT pg_stat_force_next_flush()")
    await pool.execute("SELECT pg_stat_clear_snapshot()")
    return int(await pool.fetchval(PAGES_READ))


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
