"""The retention manager: accesses, statistics, dry runs, and a clean-up that blocks no other process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hippocampus.retention import curves, policies
from hippocampus.retention_manager import REST_SECONDS_MAX, Batch, MemoryRetentionManager, MemoryStats, WeakMemory
from pulse import database
from pulse.errors import InvalidInputError
from tests.support.waiting import WAIT_SECONDS

NOW = datetime(2031, 5, 4, 12, tzinfo=UTC)
ADD = """
INSERT INTO memories (app_name, user_id, memory_type, content, initial_score, access_count, last_accessed_at,
                      occurred_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $7) RETURNING id
"""


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[asyncpg.Pool]:
    """A pool of one connection, with its clock set to NOW."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as opened:
        await opened.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
        await travel(opened, 0)
        yield opened


@pytest.fixture
async def other_pool(dsn: str, pool: asyncpg.Pool) -> AsyncIterator[asyncpg.Pool]:
    """Another connection to the same database, with the same clock."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as opened:
        await travel(opened, 0)
        yield opened


@pytest.fixture
def manager(pool: asyncpg.Pool) -> MemoryRetentionManager:
    return MemoryRetentionManager(pool)


async def travel(pool: asyncpg.Pool, days: float) -> None:
    await pool.execute("SELECT set_config('hippocampus.fake_time', $1, false)", str(NOW + timedelta(days=days)))


async def add(
    pool: asyncpg.Pool,
    *,
    app: str = "shop",
    user: str = "ana",
    kind: str = "episodic",
    initial: float = 0.5,
    count: int = 0,
    days_ago: float = 0,
    said: datetime | None = None,
) -> UUID:
    at = NOW - timedelta(days=days_ago)
    found: UUID = await pool.fetchval(ADD, app, user, kind, "Ana likes tea", initial, count, at, said or at)
    return found


async def add_many(pool: asyncpg.Pool, rows: int, *, app: str = "shop", days_ago: float = 40) -> None:
    await pool.execute(
        """INSERT INTO memories (app_name, user_id, content, last_accessed_at, created_at)
           SELECT $1, 'u' || i % 7, 'memory ' || i, $3, $3 FROM generate_series(1, $2) AS i""",
        app,
        rows,
        NOW - timedelta(days=days_ago),
    )


async def ids(pool: asyncpg.Pool, table: str = "memories") -> set[UUID]:
    return {row["id"] for row in await pool.fetch(f"SELECT id FROM {table}")}


async def everything(pool: asyncpg.Pool) -> Any:
    """Each row of each table that a clean-up could touch, with its row version."""
    return [
        await pool.fetch(f"SELECT xmin, ctid, * FROM {table} ORDER BY ctid")
        for table in ("memories", "memories_archive", "app_policies")
    ]


# Accesses


async def test_an_access_takes_effect_immediately_and_flattens_the_curve(
    pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """A memory accessed on day 10 is as fresh as a new one, and lasts longer than it would have."""
    read = await add(pool, initial=0.5)
    await add(pool, initial=0.5)
    await travel(pool, 10)
    assert await manager.record_access(read)
    row = await pool.fetchrow("SELECT access_count, last_accessed_at FROM memories WHERE id = $1", read)
    assert row is not None
    assert tuple(row) == (1, NOW + timedelta(days=10))
    assert await manager.get_retention_distribution() == {"high": 0, "medium": 1, "low": 1}
    await travel(pool, 10 + 27)
    stats = await manager.cleanup_low_value_memories()
    assert (stats.cleaned_count, stats.total_memories) == (1, 1)
    assert await ids(pool) == {read}
    assert stats.avg_retention_score == pytest.approx(curves.strength(0.5, 1, 27), abs=1e-9)
    await travel(pool, 10 + 27.5)
    assert (await manager.cleanup_low_value_memories()).cleaned_count == 1


async def test_a_batch_of_accesses_counts_each_memory_once(pool: asyncpg.Pool, manager: MemoryRetentionManager) -> None:
    """A repeated id counts once; unknown ids count nothing; a memory's count never overflows."""
    one, two, three = [await add(pool) for _ in range(3)]
    await pool.execute("UPDATE memories SET access_count = 2147483647 WHERE id = $1", three)
    assert await manager.record_batch_access([two, one, two, uuid4(), three]) == 3
    rows = await pool.fetch("SELECT id, access_count FROM memories")
    assert {row["id"]: row["access_count"] for row in rows} == {one: 1, two: 1, three: 2147483647}
    assert await manager.record_batch_access([]) == 0
    assert not await manager.record_access(uuid4())
    with pytest.raises(InvalidInputError, match="at most 10000"):
        await manager.record_batch_access([one] * 10_001)


async def test_accesses_in_opposite_orders_do_not_deadlock(
    pool: asyncpg.Pool, other_pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """The holder of the first id is waited for before any other is taken."""
    one, two = sorted([await add(pool), await add(pool)])
    async with other_pool.acquire() as conn, conn.transaction():
        await conn.execute("SELECT FROM memories WHERE id = $1 FOR UPDATE", one)
        waiting = asyncio.create_task(manager.record_batch_access([two, one]))
        async with asyncio.timeout(WAIT_SECONDS):
            while not await conn.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)
        await conn.execute("SET LOCAL lock_timeout = '1s'")
        await conn.execute("SELECT FROM memories WHERE id = $1 FOR UPDATE", two)
    assert await waiting == 2


# Statistics


async def test_statistics_have_their_bounds(pool: asyncpg.Pool, manager: MemoryRetentionManager) -> None:
    """0.7 is high, 0.3 is medium, each by its own app's curve; users and apps are separate."""
    for initial in (1.0, 0.7, 0.69, 0.3, 0.29):
        await add(pool, initial=initial)
    await add(pool, user="ben", initial=1.0)
    await policies.set_policy(pool, "bank", retention_curve="classic")
    await add(pool, app="bank", initial=1.0)
    assert await manager.get_retention_distribution(app_name="shop", user_id="ana") == {
        "high": 2,
        "medium": 2,
        "low": 1,
    }
    assert await manager.get_retention_distribution(user_id="ben") == {"high": 1, "medium": 0, "low": 0}
    assert await manager.get_retention_distribution(app_name="bank") == {"high": 0, "medium": 0, "low": 1}
    assert await manager.get_retention_distribution() == {"high": 3, "medium": 2, "low": 2}
    assert await manager.cleanup_low_value_memories(dry_run=True) == MemoryStats(
        total_memories=7,
        high_value_count=3,
        medium_value_count=2,
        low_value_count=2,
        avg_retention_score=pytest.approx((1 + 0.7 + 0.69 + 0.3 + 0.29 + 1 + 0.2) / 7),
    )


async def test_no_memories_is_an_average_of_zero(manager: MemoryRetentionManager) -> None:
    stats = await manager.cleanup_low_value_memories()
    assert (stats.total_memories, stats.avg_retention_score, stats.cleaned_count, stats.batch_count) == (0, 0.0, 0, 1)


# Clean-up


async def test_a_dry_run_lists_the_exact_rows_and_changes_nothing(
    pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """The later run archives what it lists, page by page, with its reasons; until then nothing is touched."""
    await policies.set_policy(pool, "bank", preset="sensitive", min_age_days=2)
    for days_ago in range(0, 60, 3):
        for app in ("shop", "bank"):
            for initial in (0.4, 1.0):
                await add(pool, app=app, initial=initial, count=days_ago % 2, days_ago=days_ago)
    before = await everything(pool)
    rows: list[WeakMemory] = []
    while page := await manager.preview(limit=7, after=rows[-1].id if rows else None):
        rows += page
    dry = await manager.cleanup_low_value_memories(dry_run=True)
    assert await everything(pool) == before

    for row in rows:
        rate, threshold = (0.3, 0.2) if row.app_name == "bank" else (0.1, 0.1)
        assert (row.curve, row.decay_rate, row.threshold) == ("strength", rate, threshold)
        assert row.score == pytest.approx(
            curves.strength(row.initial_score, row.access_count, row.idle_days, rate), abs=1e-9
        )
        assert row.score < threshold
        assert row.age_days >= (2 if row.app_name == "bank" else 7)
        assert row.age_days == row.idle_days == (NOW - row.created_at) / timedelta(days=1)
    every = await ids(pool)
    real = await manager.cleanup_low_value_memories()
    assert {row.id for row in rows} == await ids(pool, "memories_archive") == every - await ids(pool)
    assert len(rows) == dry.cleaned_count == real.cleaned_count > 20
    assert dry.cleaned_by_app == real.cleaned_by_app
    assert dry.total_memories == real.total_memories + real.cleaned_count == len(every)
    assert 0 < dry.avg_retention_score < real.avg_retention_score
    assert await manager.preview() == []


async def test_importance_delays_archiving(pool: asyncpg.Pool, manager: MemoryRetentionManager) -> None:
    """Under the default policy, unread insights go in the order of their importance, weeks after the minimum age."""
    kept = {initial: await add(pool, kind="semantic", initial=initial) for initial in (0.4, 0.7, 1.0)}
    left = {}
    for day in (13.8, 13.9, 19.4, 19.5, 23.0, 23.1):
        await travel(pool, day)
        await manager.cleanup_low_value_memories()
        left[day] = [initial for initial, memory in kept.items() if memory in await ids(pool)]
    assert left == {
        13.8: [0.4, 0.7, 1.0],
        13.9: [0.7, 1.0],
        19.4: [0.7, 1.0],
        19.5: [1.0],
        23.0: [1.0],
        23.1: [],
    }


async def test_each_app_is_cleaned_under_its_own_policy(pool: asyncpg.Pool, manager: MemoryRetentionManager) -> None:
    """The same memories, the same day: an app's policy decides for that app alone."""
    await policies.set_policy(pool, "secret", preset="sensitive", min_age_days=0)
    await policies.set_policy(pool, "wiki", preset="knowledge")
    await policies.set_policy(pool, "keep", cleanup_threshold=0)
    await policies.set_policy(pool, "old", retention_curve="classic")
    for app in ("secret", "wiki", "keep", "old", "shop"):
        for days_ago in (4, 8, 40, 200):
            await add(pool, app=app, days_ago=days_ago)
    stats = await manager.cleanup_low_value_memories(app_name="shop")
    assert stats.cleaned_by_app == {"shop": 2}
    assert stats.total_memories == 2
    stats = await manager.cleanup_low_value_memories()
    assert stats.cleaned_by_app == {"secret": 4, "wiki": 1, "old": 3}
    assert stats.cleaned_count == 8


async def test_explicit_limits_override_the_policies(pool: asyncpg.Pool) -> None:
    """The call's before the manager's before the policy's; 0 is a number like any other."""
    young = await add(pool, initial=0.05, days_ago=1)
    old = await add(pool, days_ago=30)

    async def weak(manager: MemoryRetentionManager, **limits: float) -> set[UUID]:
        dry = await manager.cleanup_low_value_memories(dry_run=True, **limits)  # type: ignore[arg-type]
        rows = await manager.preview(**limits)  # type: ignore[arg-type]
        assert dry.cleaned_count == len(rows)
        return {row.id for row in rows}

    manager = MemoryRetentionManager(pool)
    assert await weak(manager) == {old}
    assert await weak(manager, min_age_days=0) == {young, old}
    assert await weak(manager, threshold=0) == set()
    assert await weak(manager, threshold=0.04) == {old}
    assert await weak(manager, threshold=0.02) == set()
    assert await weak(MemoryRetentionManager(pool, min_age_days=0)) == {young, old}
    assert await weak(MemoryRetentionManager(pool, min_age_days=0), min_age_days=31) == set()
    assert await weak(MemoryRetentionManager(pool, cleanup_threshold=0)) == set()
    assert await weak(MemoryRetentionManager(pool, decay_rate=0)) == set()
    assert await weak(MemoryRetentionManager(pool, decay_rate=0), min_age_days=0) == {young}
    assert (await MemoryRetentionManager(pool, decay_rate=0).cleanup_low_value_memories()).cleaned_count == 0
    assert (await manager.cleanup_low_value_memories(min_age_days=0)).cleaned_count == 2


async def test_a_score_at_the_threshold_and_an_age_at_the_minimum(
    pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """A score equal to the threshold keeps the memory; an age equal to the minimum is old enough."""
    await add(pool, initial=0.5, days_ago=7)
    at = MemoryRetentionManager(pool, decay_rate=0, cleanup_threshold=0.5)
    above = MemoryRetentionManager(pool, decay_rate=0, cleanup_threshold=0.5000001)
    assert (await at.cleanup_low_value_memories(dry_run=True)).cleaned_count == 0
    assert (await above.cleanup_low_value_memories(dry_run=True)).cleaned_count == 1
    assert (await above.cleanup_low_value_memories(min_age_days=7.0001, dry_run=True)).cleaned_count == 0


async def test_twenty_thousand_are_archived_in_bounded_batches(
    pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """Each batch is a short transaction, no larger than requested; no memory is visited twice."""
    await add_many(pool, 20_000)
    await add_many(pool, 15_000, days_ago=0)
    seen: list[Batch] = []
    stats = await manager.cleanup_low_value_memories(batch_rows=500, rest_factor=0, on_batch=seen.append)
    assert stats.cleaned_count == 20_000
    assert stats.total_memories == 15_000
    assert stats.cleaned_by_app == {"shop": 20_000}
    assert max(batch.archived for batch in seen) == 500
    # 40 full batches, then 15,000 memories that stay, of which a batch reads 10,000.
    assert stats.batch_count == len(seen) == 42
    assert stats.batch_seconds_max == max(batch.seconds for batch in seen)
    assert stats.seconds == pytest.approx(sum(batch.seconds for batch in seen))
    assert await pool.fetchval("SELECT count(DISTINCT xmin::text) FROM memories_archive") == 40
    assert await pool.fetchval("SELECT max(count) FROM (SELECT count(*) FROM memories_archive GROUP BY xmin)") == 500
    assert await pool.fetchval("SELECT count(*) FROM memories_archive") == 20_000


async def test_a_failed_batch_loses_nothing_and_keeps_those_before(
    pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """A run that ends half-way has archived what it deleted; the next run does the rest."""
    await add_many(pool, 1200)
    await pool.execute("""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'disk full'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON memories_archive FOR EACH ROW
            WHEN (NEW.content = 'memory 700') EXECUTE FUNCTION refuse()""")
    every = await ids(pool)
    with pytest.raises(asyncpg.RaiseError, match="disk full"):
        await manager.cleanup_low_value_memories(batch_rows=500)
    assert len(await ids(pool, "memories_archive")) == 500
    assert await ids(pool, "memories_archive") | await ids(pool) == every
    await pool.execute("DROP TRIGGER refuse ON memories_archive")
    assert (await manager.cleanup_low_value_memories(batch_rows=500)).cleaned_count == 700
    assert await ids(pool, "memories_archive") == every


async def test_it_rests_between_batches(pool: asyncpg.Pool, manager: MemoryRetentionManager) -> None:
    """For a multiple of the batch's duration, so that a busy server gets more rest; not after the last one."""
    await add_many(pool, 100)
    started = time.perf_counter()
    batches: list[Batch] = []
    stats = await manager.cleanup_low_value_memories(batch_rows=10, rest_factor=4, on_batch=batches.append)
    elapsed = time.perf_counter() - started
    assert (stats.cleaned_count, stats.batch_count) == (100, 11)
    assert elapsed >= sum(min(4 * batch.seconds, REST_SECONDS_MAX) for batch in batches[:-1])
    for wrong in (-1, 101, float("nan")):
        with pytest.raises(InvalidInputError, match="rest_factor"):
            await manager.cleanup_low_value_memories(rest_factor=wrong)


async def test_an_open_batch_blocks_no_other_process(
    pool: asyncpg.Pool, other_pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """While a batch holds its rows, others read them, append events, add memories and access other memories."""
    await add_many(pool, 10)
    strong = await add(pool)
    await other_pool.execute("SELECT create_session('shop', 'ana', 's1')")
    async with pool.acquire() as conn, conn.transaction():
        assert await conn.fetchval("SELECT archived FROM archive_weak_memories()") == 10
        await other_pool.execute("SET lock_timeout = '200ms'")
        assert await other_pool.fetchval("SELECT count(*) FROM memories") == 11
        await other_pool.execute(
            "SELECT append_event('shop', 'ana', 's1', 0, 'e1', 'user', 'message', '{}', 'user', 'hello')"
        )
        await add(other_pool)
        assert await MemoryRetentionManager(other_pool).record_access(strong)
    assert await pool.fetchval("SELECT count(*) FROM memories") == 2


async def test_two_concurrent_runs_share_the_work(
    pool: asyncpg.Pool, other_pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """The second skips the rows that the first holds, does not wait, and archives nothing twice."""
    await add_many(pool, 1500)
    every = await ids(pool)
    async with other_pool.acquire() as conn, conn.transaction():
        assert await conn.fetchval("SELECT archived FROM archive_weak_memories()") == 500
        await pool.execute("SET lock_timeout = '200ms'")
        stats = await manager.cleanup_low_value_memories(rest_factor=0)
        assert stats.cleaned_count == 1000
    assert await ids(pool) == set()
    assert await ids(pool, "memories_archive") == every
    await add_many(pool, 3000)
    await pool.execute("RESET lock_timeout")
    both = await asyncio.gather(
        manager.cleanup_low_value_memories(batch_rows=50, rest_factor=0),
        MemoryRetentionManager(other_pool).cleanup_low_value_memories(batch_rows=50, rest_factor=0),
    )
    assert sum(stats.cleaned_count for stats in both) == 3000
    assert await pool.fetchval("SELECT count(*) FROM memories_archive") == 4500


async def test_a_memory_in_use_is_skipped(
    pool: asyncpg.Pool, other_pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """An access that is not yet committed saves its memory, without making the clean-up wait."""
    used, unused = await add(pool, days_ago=40), await add(pool, days_ago=40)
    async with other_pool.acquire() as conn, conn.transaction():
        await conn.execute("UPDATE memories SET access_count = 1, last_accessed_at = engine_now() WHERE id = $1", used)
        await pool.execute("SET lock_timeout = '200ms'")
        assert (await manager.cleanup_low_value_memories()).cleaned_count == 1
    assert await ids(pool) == {used}
    assert await ids(pool, "memories_archive") == {unused}
    assert (await manager.cleanup_low_value_memories()).cleaned_count == 0


async def test_a_rolled_back_access_saves_nothing(pool: asyncpg.Pool, manager: MemoryRetentionManager) -> None:
    memory = await add(pool, days_ago=40)
    async with pool.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        await conn.execute("UPDATE memories SET last_accessed_at = engine_now() WHERE id = $1", memory)
        await transaction.rollback()
    assert (await manager.cleanup_low_value_memories()).cleaned_count == 1


async def test_numbers_out_of_range_are_refused_and_nothing_is_archived(
    pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    await add(pool, days_ago=400)
    for wrong in ({"decay_rate": -1}, {"decay_rate": 101}, {"cleanup_threshold": 1.1}, {"min_age_days": float("nan")}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            MemoryRetentionManager(pool, **wrong)  # type: ignore[arg-type]
    for limits in ({"threshold": -0.1}, {"threshold": "0.1"}, {"min_age_days": True}, {"min_age_days": 36501}):
        with pytest.raises(InvalidInputError, match=next(iter(limits))):
            await manager.cleanup_low_value_memories(**limits)  # type: ignore[arg-type]
    for rows in (0, 1001):
        with pytest.raises(InvalidInputError, match="limit must be from 1 to 1000"):
            await manager.cleanup_low_value_memories(batch_rows=rows)
        with pytest.raises(InvalidInputError, match="limit must be from 1 to 1000"):
            await manager.preview(limit=rows)
    with pytest.raises(InvalidInputError, match="app_name"):
        await manager.cleanup_low_value_memories(app_name="")
    assert len(await ids(pool)) == 1


# Time slices


async def test_a_time_slice_has_both_its_bounds_newest_first(
    pool: asyncpg.Pool, manager: MemoryRetentionManager
) -> None:
    """By the time of the conversation, of one user and app, episodic memories only; reading them is not an access."""
    said = [NOW - timedelta(days=days) for days in (5, 4, 3, 2, 1)]
    memories = [await add(pool, said=at) for at in said]
    await add(pool, said=said[2], kind="summary")
    await add(pool, said=said[2], user="ben")
    await add(pool, said=said[2], app="bank")
    found = await manager.get_episodic_memories_by_time_slice(
        app_name="shop", user_id="ana", start_time=said[1], end_time=said[3]
    )
    assert [memory.id for memory in found] == [memories[3], memories[2], memories[1]]
    assert found[0].occurred_at == said[3]
    assert found[0].created_at == NOW
    assert (found[0].retention_score, found[0].memory_type, found[0].metadata) == (0.5, "episodic", {})
    found = await manager.get_episodic_memories_by_time_slice(
        app_name="shop", user_id="ana", start_time=said[0], end_time=NOW, limit=2
    )
    assert [memory.id for memory in found] == [memories[4], memories[3]]
    assert (
        await manager.get_episodic_memories_by_time_slice(
            app_name="shop", user_id="ana", start_time=said[0], end_time=NOW, limit=0
        )
        == []
    )
    assert await pool.fetchval("SELECT sum(access_count) FROM memories") == 0


async def test_an_invalid_time_slice_is_refused(manager: MemoryRetentionManager) -> None:
    async def ask(start: datetime, end: datetime, limit: float = 50) -> None:
        await manager.get_episodic_memories_by_time_slice(
            app_name="shop",
            user_id="ana",
            start_time=start,
            end_time=end,
            limit=limit,  # type: ignore[arg-type]
        )

    with pytest.raises(InvalidInputError, match="time zone"):
        await ask(datetime(2031, 1, 1), NOW)  # noqa: DTZ001 (the zone is what is missing)
    with pytest.raises(InvalidInputError, match="before start_time"):
        await ask(NOW, NOW - timedelta(seconds=1))
    for limit in (-1, 1001, 2.5):
        with pytest.raises(InvalidInputError, match="limit must be a whole number from 0 to 1000"):
            await ask(NOW, NOW, limit)
