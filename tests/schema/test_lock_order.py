"""All acts on sessions and their jobs run concurrently: nothing deadlocks, and the two statuses never differ."""

from __future__ import annotations

import asyncio
import collections
import random

import asyncpg
import pytest

from pulse import database
from tests.support import worker_harness as harness
from tests.support.lock_acts import ACTS, sqlstate_of
from tests.support.lock_gates import until_one_waits_for_a_lock

ACTS_AT_ONCE = 6
REFUSALS = {"HP001", "HP006", "HP010", "HP014", "HP015", "HP020", "HP022", "HP046"}

STORE_NAME = """
SELECT s.fact_outcomes
FROM store_slice($1, 'deep', 1, ROW(new_id(), 1, 1, 'hash', 'model', 'model')::slice_origin, '{}', '{}',
    ARRAY(SELECT ROW('profile', 'name', to_jsonb(v.value), 'name', NULL, 0.9, '{1}', now() + v.hours * interval '1 h',
                     'name', NULL, '')::fact_input
          FROM unnest($2::text[], $3::integer[]) AS v (value, hours)), NULL, false) AS s
"""

DISAGREEING = """
SELECT count(*) FROM consolidation_jobs AS c JOIN procrastinate_jobs AS q ON q.id = c.procrastinate_job_id
WHERE c.status <> CASE q.status::text WHEN 'todo' THEN 'pending' WHEN 'doing' THEN 'running'
                  WHEN 'succeeded' THEN 'completed' WHEN 'failed' THEN 'failed' ELSE 'cancelled' END
"""


@pytest.mark.parametrize("rounds", [150, pytest.param(1000, marks=pytest.mark.system)])
async def test_no_deadlock_in_many_rounds_of_everything_at_once(dsn: str, rounds: int) -> None:
    """Six random acts start together, many times, on five sessions of one user; a deadlock is an error."""
    # The acts draw from theirs as often as it happens.
    choosing, rng = random.Random(7), random.Random(7)
    counts: collections.Counter[str] = collections.Counter()
    async with await database.create_pool(dsn, min_size=12, max_size=12) as pool:
        await pool.execute("UPDATE app_policies SET fast_events = 2, deep_tokens = 4, snapshot_events = 2")
        name = await pool.fetchval("SELECT current_database()")
        await pool.execute(f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '20ms'")
        await pool.expire_connections()
        before = await deadlocks(pool)
        # What acts wrote, others may erase.
        unwritten = {"fact_versions", "memories_archive"}
        for _ in range(rounds):
            chosen = choosing.choices(ACTS, k=ACTS_AT_ONCE)
            codes = await asyncio.gather(*(sqlstate_of(act(pool, rng)) for act in chosen))
            # Anything but a plain refusal is a fault, above all 40P01, a deadlock.
            for act, code in zip(chosen, codes, strict=True):
                assert code is None or code in REFUSALS, (act.__name__, code)
            counts.update(act.__name__ for act in chosen)
            assert await pool.fetchval(DISAGREEING) == 0
            unwritten -= {table for table in unwritten if await harness.count(pool, table)}
        assert await deadlocks(pool) == before
        assert not unwritten
    assert min(counts[act.__name__] for act in ACTS) >= rounds / 10, counts


async def deadlocks(pool: asyncpg.Pool) -> int:
    """Includes deadlocks that were retried without a report."""
    await pool.execute("SELECT pg_stat_force_next_flush()")
    number: int = await pool.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return number


@pytest.mark.parametrize(
    ("values", "hours", "outcomes"),
    [
        # A new value: the fact's old version is kept, which names the first session.
        (["Al"], [1], ["updated"]),
        # The same twice: a row that its own transaction wrote has its foreign key checked when it is written again.
        (["Bo", "Bo", "Bo"], [1, 2, 3], ["confirmed"] * 3),
        # Between two times at which it was said: it is split.
        (["Bo", "Al", "Bo"], [5, 3, 6], ["confirmed", "out_of_order", "confirmed"]),
    ],
)
async def test_a_repeated_fact_while_its_first_session_is_deleted(
    pool: asyncpg.Pool, values: list[str], hours: list[int], outcomes: list[str]
) -> None:
    """The job holds the user's facts and writes them; the deletion holds the session and waits: both succeed."""
    threads = {name: await harness.make_thread(pool, name) for name in ("first", "second")}
    await pool.execute(STORE_NAME, threads["first"], ["Bo"], [-9])
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", threads["second"])
            await connection.execute("SELECT lock_user_memory('app', 'user')")
            deletion = asyncio.create_task(pool.fetchval("SELECT delete_session('app', 'user', 'first')"))
            await until_one_waits_for_a_lock(pool)
            ago = [hour - 9 for hour in hours]
            assert await connection.fetchval(STORE_NAME, threads["second"], values, ago) == outcomes
        assert await deletion
    last = values[-1]
    assert await pool.fetchval("SELECT value FROM facts WHERE thread_id IS DISTINCT FROM $1", threads["first"]) == last
    assert await pool.fetchval("SELECT count(*) FROM fact_versions WHERE thread_id = $1", threads["first"]) == 0
