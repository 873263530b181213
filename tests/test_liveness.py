"""Workers that die or stop: their jobs are given back soon, and done once."""

from __future__ import annotations

import asyncio
import signal
import time

import asyncpg

from tests import worker_harness as harness
from tests.worker_harness import Workers
from workers.claims import QUERIES

RECOVERY_SECONDS_MAX = 2.0


async def test_a_killed_workers_job_is_done_once_within_two_seconds(tables: asyncpg.Pool, workers: Workers) -> None:
    """kill -9 between the model's call and the commit: another worker does the job, and there is one effect."""
    victim = await workers.start("fast_replay")
    heir = await workers.start("fast_replay")
    async with harness.gate(tables):
        jobs = [await harness.enqueue(tables, await harness.make_thread(tables, f"s{n}")) for n in range(8)]
        for job in jobs:
            await harness.wait_for_status(tables, job, "running")
        of_victim = await tables.fetch("SELECT job_id FROM attempts_made WHERE pid = $1", victim.pid)
        assert len(of_victim) == 4
        victim.send(signal.SIGKILL)
        killed_at = time.monotonic()
    for job in jobs:
        await harness.wait_for_status(tables, job, "completed")
    assert time.monotonic() - killed_at < RECOVERY_SECONDS_MAX
    assert await harness.count(tables, "effects") == 8
    assert await tables.fetchval("SELECT count(DISTINCT job_id) FROM effects") == 8
    rows = await tables.fetch("SELECT pid, attempts FROM effects JOIN consolidation_jobs ON id = job_id")
    assert sorted((row["pid"], row["attempts"]) for row in rows) == [(heir.pid, 1)] * 4 + [(heir.pid, 2)] * 4


async def test_a_worker_of_another_pool_gives_back_a_dead_ones_jobs(tables: asyncpg.Pool, workers: Workers) -> None:
    """Every process looks: the last worker of a pool may die, and its jobs wait for the next one, pending."""
    victim = await workers.start("fast_replay")
    await workers.start("deep_reflection")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        victim.send(signal.SIGKILL)
        await harness.wait_for_status(tables, job, "pending", RECOVERY_SECONDS_MAX)


async def test_a_stopped_worker_that_wakes_up_neither_finishes_nor_requeues(
    tables: asyncpg.Pool, workers: Workers
) -> None:
    """SIGSTOP, its job given to another worker, SIGCONT: the late end is fenced out, and counted."""
    stopped = await workers.start("fast_replay")
    async with harness.gate(tables) as open_gate:
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        stopped.send(signal.SIGSTOP)
        # As if half a minute had passed without a heartbeat.
        await tables.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '31 seconds'")
        heir = await workers.start("fast_replay")
        await harness.until(lambda: _attempts_of(tables, heir.pid))
        await open_gate()
        await harness.wait_for_status(tables, job, "completed")
    stopped.send(signal.SIGCONT)
    await harness.until(lambda: "job fenced" in stopped.lines())
    assert await tables.fetch("SELECT pid FROM effects") == [(heir.pid,)]
    row = await tables.fetchrow("SELECT status, attempts, result FROM consolidation_jobs WHERE id = $1", job)
    assert (row["status"], row["attempts"], row["result"]) == ("completed", 2, {"said": "done"})
    # And it goes on working.
    heir.send(signal.SIGTERM)
    assert await heir.ended() == 0
    again = await harness.enqueue(tables, await harness.make_thread(tables, "again"))
    await harness.wait_for_status(tables, again, "completed")


async def _attempts_of(pool: asyncpg.Pool, pid: int) -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM attempts_made WHERE pid = $1", pid)
    return count


async def test_a_living_workers_job_is_never_given_back(tables: asyncpg.Pool, workers: Workers) -> None:
    """A long job of a worker that lives is left alone by all that look."""
    await workers.start("fast_replay")
    await workers.start("deep_reflection")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        await asyncio.sleep(1.5)  # three looks
    await harness.wait_for_status(tables, job, "completed")
    assert await harness.count(tables, "attempts_made") == 1


async def test_a_job_is_given_back_at_the_second_look_only(tables: asyncpg.Pool) -> None:
    """A worker whose connection was cut has one look's time to take its lock again."""
    await harness.enqueue(tables, await harness.make_thread(tables))
    worker = await tables.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    await tables.fetchval("SELECT id FROM procrastinate_fetch_job_v2(NULL, $1)", worker)
    first = await tables.fetch(QUERIES["rescue_jobs"], [], 30.0, 20)
    assert [row["rescued"] for row in first] == [False]
    async with tables.acquire() as life:
        assert await life.fetchval(QUERIES["hold_worker"], worker)
        assert await tables.fetch(QUERIES["rescue_jobs"], [first[0]["suspect"]], 30.0, 20) == []
        await life.execute("SELECT pg_advisory_unlock_all()")
    third = await tables.fetch(QUERIES["rescue_jobs"], [first[0]["suspect"]], 30.0, 20)
    assert [row["rescued"] for row in third] == [True]
    assert await tables.fetchval("SELECT status FROM consolidation_jobs") == "pending"


async def test_a_job_that_kills_its_workers_is_given_up(tables: asyncpg.Pool) -> None:
    """After so many deaths a job is failed, with what happened; a person may run it again."""
    job = await harness.enqueue(tables, await harness.make_thread(tables))
    for death in range(3):
        worker = await tables.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
        await tables.fetchval("SELECT id FROM procrastinate_fetch_job_v2(NULL, $1)", worker)
        suspects = [row["suspect"] for row in await tables.fetch(QUERIES["rescue_jobs"], [], 30.0, 3)]
        await tables.fetch(QUERIES["rescue_jobs"], suspects, 30.0, 3)
        assert await harness.status_of(tables, job) == ("pending" if death < 2 else "failed")
    assert await tables.fetchval("SELECT error_code FROM consolidation_jobs") == "worker_died"
    await tables.execute("SELECT retry_failed_job($1)", job)
    assert await harness.status_of(tables, job) == "pending"


async def test_a_periodic_task_runs_once_although_several_keepers_run(tables: asyncpg.Pool, workers: Workers) -> None:
    """Two retention processes, one run of each moment."""
    for _ in range(2):
        await workers.start("retention", retention_cron="* * * * * */2")

    async def three_runs() -> bool:
        return await harness.count(tables, "upkeep_runs") >= 3

    await harness.until(three_runs)
    deferred = await tables.fetch(
        "SELECT args ->> 'timestamp' AS at, count(*) FROM procrastinate_jobs WHERE task_name = 'retention' GROUP BY 1"
    )
    assert {row["count"] for row in deferred} == {1}
