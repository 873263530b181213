"""Everything that touches sessions and their jobs, at once: nothing deadlocks, and the two statuses never differ."""

from __future__ import annotations

import asyncio
import datetime
import random
from collections.abc import Awaitable, Callable
from uuid import uuid4

import asyncpg

from pulse import database
from tests import worker_harness as harness
from tests.lock_gates import until_one_waits_for_a_lock
from workers import liveness
from workers.claims import QUERIES

SECONDS = 4.0
SESSIONS = 5
AGES = datetime.timedelta(0)
REFUSALS = {"HP001", "HP006", "HP010", "HP014", "HP015", "HP046"}

STORE_NAME = """
SELECT cardinality(s.fact_ids)
FROM store_slice($1, 'fast', 1, ROW(new_id(), 1, 1, 'hash', 'model', 'model')::slice_origin, '{}', '{}',
    ARRAY[ROW('profile', 'name', to_jsonb($2::text), 'name', NULL, 0.9, '{1}', now())::fact_input], NULL, false) AS s
"""

DISAGREEING = """
SELECT count(*) FROM consolidation_jobs AS c JOIN procrastinate_jobs AS q ON q.id = c.procrastinate_job_id
WHERE c.status <> CASE q.status::text WHEN 'todo' THEN 'pending' WHEN 'doing' THEN 'running'
                  WHEN 'succeeded' THEN 'completed' WHEN 'failed' THEN 'failed' ELSE 'cancelled' END
"""


async def test_append_consolidate_delete_and_clean_up_never_deadlock(dsn: str) -> None:
    """Four seconds of every writer against every other on five sessions; a deadlock would raise within 20 ms."""
    rng = random.Random(7)
    counts: dict[str, int] = {}
    async with await database.create_pool(dsn, min_size=12, max_size=12) as pool:
        await pool.execute("UPDATE app_policies SET fast_events = 2, deep_tokens = 4")
        name = await pool.fetchval("SELECT current_database()")
        await pool.execute(f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '20ms'")
        await pool.expire_connections()
        acts: tuple[Callable[[asyncpg.Pool, random.Random], Awaitable[object]], ...] = (
            append, append, append, consolidate, consolidate, fail, delete, finalise,
            archive, prune, reconcile, rescue, cancel, retry, erase, erase, forget,
        )  # fmt: skip
        deadline = asyncio.get_running_loop().time() + SECONDS

        async def act() -> None:
            while asyncio.get_running_loop().time() < deadline:
                each = rng.choice(acts)
                # Anything but a plain refusal is a fault: above all 40P01, a deadlock.
                code = await sqlstate_of(each(pool, rng))
                assert code is None or code in REFUSALS, (each.__name__, code)
                counts[each.__name__] = counts.get(each.__name__, 0) + 1

        await asyncio.gather(*(act() for _ in range(8)), check(pool, deadline))
    assert all(counts[each.__name__] >= 5 for each in acts), counts


async def test_a_fact_learned_anew_while_its_first_session_is_deleted(pool: asyncpg.Pool) -> None:
    """The job holds the fact and keeps its old version; the deletion holds the session and waits for the fact."""
    threads = {name: await harness.make_thread(pool, name) for name in ("first", "second")}
    await pool.execute(STORE_NAME, threads["first"], "Bo")
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", threads["second"])
            await connection.execute("SELECT FROM facts FOR UPDATE")
            deletion = asyncio.create_task(pool.fetchval("SELECT delete_session('app', 'user', 'first')"))
            await until_one_waits_for_a_lock(pool)
            await connection.execute(STORE_NAME, threads["second"], "Al")
        assert await deletion
    assert await pool.fetchval("SELECT value FROM facts WHERE thread_id = $1", threads["second"]) == "Al"
    assert await pool.fetchval("SELECT value FROM fact_versions WHERE thread_id IS NULL") == "Bo"


async def check(pool: asyncpg.Pool, deadline: float) -> None:
    while asyncio.get_running_loop().time() < deadline:
        assert await pool.fetchval(DISAGREEING) == 0
        await asyncio.sleep(0.02)


async def sqlstate_of(act: Awaitable[object]) -> str | None:
    try:
        await act
    except asyncpg.PostgresError as error:
        return error.sqlstate
    return None


def session(rng: random.Random) -> str:
    return f"s{rng.randrange(SESSIONS)}"


async def append(pool: asyncpg.Pool, rng: random.Random) -> None:
    chosen = session(rng)
    try:
        await pool.execute(
            "SELECT append_event('app', 'user', $1, NULL, $2, 'user', 'message', '{}', 'user', 'well', '{\"a\": 1}')",
            chosen,
            str(uuid4()),
        )
    except asyncpg.PostgresError as error:
        if error.sqlstate != "HP001":
            raise
        await pool.execute("SELECT create_session('app', 'user', $1)", chosen)


async def erase(pool: asyncpg.Pool, rng: random.Random) -> None:
    await pool.execute(
        "SELECT erase_events('app', 'user', $1, ARRAY[$2::bigint], NULL)", session(rng), rng.randrange(1, 9)
    )


async def forget(pool: asyncpg.Pool, rng: random.Random) -> None:
    """A session, or a step of forgetting the user."""
    if rng.random() < 0.1:
        await pool.execute("SELECT erase_session('app', 'user', $1)", session(rng))
    elif rng.random() < 0.1:
        await pool.execute("SELECT advance_erasure(r.id, 10) FROM request_user_erasure('app', 'user') AS r")


async def _attempt(pool: asyncpg.Pool) -> tuple[int, int, int] | None:
    worker = await pool.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    try:
        row = await pool.fetchrow("SELECT id, worker_id, attempts FROM procrastinate_fetch_job_v2(NULL, $1)", worker)
    except asyncpg.UniqueViolationError:
        # Another fetch took an older job of the same lock just then, one that was run again by hand.
        return None
    return None if row["id"] is None else tuple(row)


async def consolidate(pool: asyncpg.Pool, _rng: random.Random) -> None:
    """The order of a real job's last transaction: thread, fence, effects, watermark, end."""
    attempt = await _attempt(pool)
    if attempt is None:
        return
    async with pool.acquire() as connection, connection.transaction():
        thread = await connection.fetchval(
            "SELECT id FROM threads WHERE id ="
            " (SELECT thread_id FROM consolidation_jobs WHERE procrastinate_job_id = $1) FOR NO KEY UPDATE",
            attempt[0],
        )
        await connection.execute(QUERIES["fence_job"], *attempt)
        await connection.execute("UPDATE threads SET fast_upto_seq = fast_queued_seq WHERE id = $1", thread)
        await connection.execute(QUERIES["finish_job"], *attempt, {"n": 1})


async def fail(pool: asyncpg.Pool, _rng: random.Random) -> None:
    attempt = await _attempt(pool)
    if attempt is not None:
        await pool.execute(QUERIES["fail_job"], *attempt, "x", "503", None)


async def delete(pool: asyncpg.Pool, rng: random.Random) -> None:
    if rng.random() < 0.3:
        await pool.execute("SELECT delete_session('app', 'user', $1)", session(rng))


async def finalise(pool: asyncpg.Pool, rng: random.Random) -> None:
    await pool.execute("SELECT finalize_session('app', 'user', $1)", session(rng))


async def archive(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.fetchval(QUERIES["archive_jobs"], AGES, AGES, 20)


async def prune(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.fetchval(QUERIES["prune_queue"], AGES, 20)


async def reconcile(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.fetchval("SELECT reconcile_jobs(500, 0)")


async def rescue(pool: asyncpg.Pool, _rng: random.Random) -> None:
    """Everybody here is dead: nobody holds a lock."""
    async with pool.acquire() as connection:
        suspects, _ = await liveness.look(connection, frozenset())
        await liveness.look(connection, suspects)


async def cancel(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.execute("SELECT cancel_job(id) FROM (SELECT id FROM consolidation_jobs ORDER BY random() LIMIT 1) AS j")


async def retry(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.execute(
        "SELECT retry_failed_job(id) FROM"
        " (SELECT id FROM consolidation_jobs WHERE status = 'failed' ORDER BY random() LIMIT 1) AS j"
    )
