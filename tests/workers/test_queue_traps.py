"""Pitfalls of a queue on procrastinate: locks, transactions, old rows.

Wake-ups are in `test_delivery`, ends of workers in `test_worker_process`, dead workers in `test_liveness`.
"""

from __future__ import annotations

import asyncpg

from hippocampus.records import JobType
from pulse import database
from tests.support import worker_harness as harness
from tests.support.queue_rows import fetch, in_process, scans


async def test_nothing_is_enqueued_with_a_queueing_lock(pool: asyncpg.Pool, dsn: str) -> None:
    """A job given back while the next one waits would violate it, and stay running for ever."""
    app, _ = in_process(dsn, pool)
    assert {task.queueing_lock for task in app.tasks.values()} == {None}
    thread = await harness.make_thread(pool)
    for job_type in JobType:
        await harness.enqueue(pool, thread, job_type)
    await pool.execute("SELECT enqueue_embedding_backfill()")
    assert await pool.fetchval("SELECT count(*) FROM procrastinate_jobs WHERE queueing_lock IS NOT NULL") == 0


async def test_a_job_is_given_back_while_the_next_of_its_lock_waits(pool: asyncpg.Pool) -> None:
    """Both are there, in their order: the job given back first, then the one enqueued during its run."""
    thread = await harness.make_thread(pool)
    first = await harness.enqueue(pool, thread)
    attempt = await fetch(pool)
    second = await harness.enqueue(pool, thread)
    assert second != first
    await pool.execute("SELECT retry_job_at($1, $2, $3, now(), 'x', '503', NULL)", *attempt)
    for job in (first, second):
        attempt = await fetch(pool)
        assert await harness.status_of(pool, job) == "running"
        await pool.execute("SELECT finish_job($1, $2, $3)", *attempt)


async def test_a_job_that_waits_for_its_retry_blocks_only_its_own_type_and_session(pool: asyncpg.Pool) -> None:
    """procrastinate keeps the order of a lock, even behind a job that is not yet due: so a lock is one type of one
    session."""
    threads = [await harness.make_thread(pool, name) for name in "ab"]
    waits = await harness.enqueue(pool, threads[0])
    await pool.execute(
        "SELECT retry_job_at($1, $2, $3, now() + interval '1 hour', 'x', '503', NULL)", *await fetch(pool)
    )
    behind = await harness.enqueue(pool, threads[0])
    others = [
        await harness.enqueue(pool, threads[0], "deep_reflection"),
        await harness.enqueue(pool, threads[0], "full_consolidation"),
        await harness.enqueue(pool, threads[1]),
    ]
    for _ in others:
        await fetch(pool)
    assert [await harness.status_of(pool, job) for job in (waits, behind, *others)] == ["pending"] * 2 + ["running"] * 3


async def test_a_second_enqueue_costs_no_event(dsn: str) -> None:
    """In one transaction with an append: it joins the first, and aborts nothing."""
    connection = await database.connect(dsn)
    async with connection.transaction():
        await connection.execute("SELECT create_session('app', 'user', 's')")
        thread = await connection.fetchval("SELECT id FROM threads")
        for number in range(2):
            await connection.execute(
                "SELECT append_event('app', 'user', 's', NULL, $1, 'user', 'message', '{}', 'user', 'well')",
                f"e{number}",
            )
            await connection.execute("SELECT enqueue_consolidation($1, 'fast_replay')", thread)
    assert await connection.fetchval("SELECT count(*) FROM events") == 2
    assert await connection.fetchval("SELECT array_agg(upto_seq) FROM consolidation_jobs") == [2]
    await connection.close()


async def test_a_workers_start_reads_no_finished_job(pool: asyncpg.Pool) -> None:
    """It deletes the rows of workers that are long gone; references to a worker are found by an index."""
    await pool.execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, status)"
        " SELECT 'q', 't', 'succeeded' FROM generate_series(1, 5000)"
    )
    await pool.execute("ANALYZE procrastinate_jobs")
    worker = await pool.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    await pool.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
    before = await scans(pool)
    assert await pool.fetch("SELECT worker_id FROM procrastinate_prune_stalled_workers_v1(30)") == [(worker,)]
    after = await scans(pool)
    assert after["seq_scan"] == before["seq_scan"]
    assert after["procrastinate_jobs_worker_idx"] > before["procrastinate_jobs_worker_idx"]
