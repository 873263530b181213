"""The memory's statements: the server accepts each, the code runs each, and the hot one uses its index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

import hippocampus
from hippocampus.consolidation.statements import STATEMENTS
from hippocampus.transfer.given_memories import GivenMemories
from pulse.events import Event
from pulse.postgres.statements import load_queries

ROOT = Path(hippocampus.__file__).parent
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.sql"))


def queries(file: str | Path) -> Mapping[str, str]:
    path = Path(file)
    return load_queries(".".join(("hippocampus", *path.parts[:-1])), path.name)


@pytest.mark.parametrize("file", FILES, ids=str)
async def test_the_server_accepts_every_statement(file: Path, conn: asyncpg.Connection) -> None:
    for statement in queries(file).values():
        await conn.prepare(statement)


async def test_a_slice_is_read_through_the_index_of_its_thread(conn: asyncpg.Connection) -> None:
    """The cost does not grow with other users' messages, nor with those below the watermark."""
    await conn.execute(
        """WITH t AS (INSERT INTO threads (app_name, user_id, session_id, last_seq, fast_upto_seq)
                      SELECT 'a', 'u', n::text, 100, 90 FROM generate_series(1, 100) AS n RETURNING id),
                e AS (INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, occurred_at)
                      SELECT id, n, n::text, 'user', 'message', '{}', now() FROM t, generate_series(1, 100) AS n
                      RETURNING thread_id, sequence_num)
           INSERT INTO messages (thread_id, sequence_num, event_id, app_name, user_id, role, author, content,
                                 token_estimate, occurred_at)
           SELECT thread_id, sequence_num, 'e', 'a', 'u', 'user', 'user', 'hello', 1, now() FROM e"""
    )
    await conn.execute("ANALYZE messages, threads")
    job_id = await conn.fetchval(
        "SELECT job_id FROM threads AS t, enqueue_consolidation(t.id, 'fast_replay') WHERE t.session_id = '7'"
    )
    plan = await conn.fetch("EXPLAIN (ANALYZE, BUFFERS) " + STATEMENTS["read_slice"], job_id, None, 6000, 90)
    text = "\n".join(row[0] for row in plan)
    assert "messages_thread_id_sequence_num_key" in text
    assert "Seq Scan on messages" not in text
    (read,) = re.findall(r"messages_thread_id_sequence_num_key on messages.*actual time=\S+ rows=(\d+)", text)
    assert int(read) == 10


async def test_a_time_slice_is_read_in_the_order_of_its_index(conn: asyncpg.Connection) -> None:
    """The cost does not grow with the user's memories: fifty rows are read, and none is sorted."""
    await conn.execute(
        """INSERT INTO memories (app_name, user_id, memory_type, content, occurred_at)
           SELECT 'a', 'u', CASE n % 2 WHEN 0 THEN 'episodic' ELSE 'summary' END, 'hello', now() - n * interval '1 hour'
           FROM generate_series(1, 3000) AS n"""
    )
    await conn.execute("ANALYZE memories")
    statement = queries("retention/retention.sql")["time_slice"]
    since, until = (datetime.now(UTC) - timedelta(days=days) for days in (365, 1))
    plan = await conn.fetch("EXPLAIN (ANALYZE, BUFFERS) " + statement, "a", "u", since, until, 50, None)
    text = "\n".join(row[0] for row in plan)
    assert "Sort" not in text
    (read,) = re.findall(r"memories_time_idx on memories.*actual time=\S+ rows=(\d+)", text)
    assert int(read) == 50


async def test_a_long_session_is_added_again_without_reading_other_sessions(pool: asyncpg.Pool) -> None:
    """An agent may add its session after each turn; the cost must not be its events times the user's sessions."""
    await pool.execute(
        "INSERT INTO threads (app_name, user_id, session_id) SELECT 'a', 'u', n::text FROM generate_series(1, 200) AS n"
    )
    events = [Event(author="user", content={"text": "hello"}, id=f"e{n}", timestamp=1e9 + n) for n in range(200)]
    assert await GivenMemories(pool).remember_turns("a", "u", "s", events) == 200
    ids, times = [each.id for each in events], [each.occurred_at for each in events]
    for name, arguments in (("unknown_events", (ids, times)), ("consolidate_session", ())):
        statement = queries("transfer/given_memories.sql")[name]
        rows = await pool.fetch("EXPLAIN ANALYZE " + statement, "a", "u", "s", *arguments)
        text = "\n".join(row[0] for row in rows)
        passed_over = [
            int(loops) * int(removed)
            for loops, removed in re.findall(r"loops=(\d+)\)(?:(?!loops=)[\s\S])*?Rows Removed by Filter: (\d+)", text)
        ]
        assert sum(passed_over) <= 1000, text


async def test_an_access_is_recorded_without_waiting_for_the_disk(conn: asyncpg.Connection) -> None:
    """Only for its own transaction."""
    await conn.execute("SET synchronous_commit = on")
    async with conn.transaction():
        await conn.fetch(queries("search.sql")["record_memory_access"], [], "app", "user")
        assert await conn.fetchval("SHOW synchronous_commit") == "off"
    assert await conn.fetchval("SHOW synchronous_commit") == "on"
