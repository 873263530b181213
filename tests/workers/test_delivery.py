"""How jobs are delivered and end, in SQL: status mirrored, ends fenced, the next one woken, nothing kept for ever."""

from __future__ import annotations

import asyncio
import datetime
import random
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hippocampus import jobs
from hippocampus.errors import JobFencedError
from hippocampus.records import JobType
from hippocampus.retention import policies
from hippocampus.search import MemorySearch
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support import worker_harness as harness
from tests.support.pace import at_this_pace
from tests.support.queue_rows import fetch, in_process, scans
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers
from workers.pools import POOLS
from workers.queue import queue_worker, upkeep
from workers.queue.claims import JobClaim
from workers.queue.upkeep import Upkeep
from workers.settings import Settings

MONTHS_AGO = "now() - interval '90 days'"


@pytest.fixture
async def job(pool: asyncpg.Pool) -> UUID:
    return await harness.enqueue(pool, await harness.make_thread(pool))


async def row_of(pool: asyncpg.Pool, job: UUID) -> asyncpg.Record:
    row: asyncpg.Record = await pool.fetchrow("SELECT * FROM consolidation_jobs WHERE id = $1", job)
    return row


# Every transition is mirrored in the same statement


async def test_started_and_finished(pool: asyncpg.Pool, job: UUID) -> None:
    assert (await row_of(pool, job))["status"] == "pending"
    attempt = await fetch(pool)
    row = await row_of(pool, job)
    assert (row["status"], row["attempts"], row["completed_at"]) == ("running", 1, None)
    assert row["started_at"] is not None
    await pool.execute("SELECT finish_job($1, $2, $3, $4)", *attempt, {"n": 1})
    row = await row_of(pool, job)
    assert (row["status"], row["result"]) == ("completed", {"n": 1})
    assert row["completed_at"] is not None


async def test_retried_and_failed(pool: asyncpg.Pool, job: UUID) -> None:
    await pool.execute("SELECT retry_job_at($1, $2, $3, now(), 'boom', '503', NULL)", *await fetch(pool))
    row = await row_of(pool, job)
    assert (row["status"], row["attempts"], row["error"], row["error_code"]) == ("pending", 1, "boom", "503")
    await pool.execute("SELECT fail_job($1, $2, $3, 'bad', '400', 'raw')", *await fetch(pool))
    row = await row_of(pool, job)
    assert (row["status"], row["attempts"]) == ("failed", 2)
    assert (row["error"], row["error_code"], row["raw_reply"]) == ("bad", "400", "raw")


async def test_postponing_costs_no_attempt(pool: asyncpg.Pool, job: UUID) -> None:
    """Its number fences the attempt, but the next one still counts as the job's first."""
    for number in range(3):
        attempt = await fetch(pool)
        assert attempt[2] == number
        await pool.execute("SELECT postpone_job($1, $2, $3, now(), 'no call now', 'limited', NULL)", *attempt)
    row = await row_of(pool, job)
    assert (row["status"], row["attempts"], row["error_code"]) == ("pending", 3, "limited")
    assert await pool.fetchval("SELECT attempts - (args ->> 'tried')::int FROM procrastinate_jobs") == 0
    attempt = await fetch(pool)
    assert await pool.fetchval("SELECT cancel_job($1)", job)
    await pool.execute("SELECT postpone_job($1, $2, $3, now(), 'no call now', 'limited', NULL)", *attempt)
    assert (await row_of(pool, job))["status"] == "cancelled"


async def test_released_unattempted(pool: asyncpg.Pool, job: UUID) -> None:
    await pool.execute("SELECT release_job($1, $2, $3)", *await fetch(pool))
    assert (await row_of(pool, job))["status"] == "pending"
    attempt = await fetch(pool)
    assert attempt[2] == 0
    assert (await row_of(pool, job))["attempts"] == 1


async def test_cancelled_while_it_waits_or_runs(pool: asyncpg.Pool, job: UUID) -> None:
    assert await pool.fetchval("SELECT cancel_job($1)", job)
    assert (await row_of(pool, job))["status"] == "cancelled"
    assert not await pool.fetchval("SELECT cancel_job($1)", job)
    second = await harness.enqueue(pool, await harness.make_thread(pool, "s2"))
    attempt = await fetch(pool)
    assert await pool.fetchval("SELECT cancel_job($1)", second)
    assert (await row_of(pool, second))["status"] == "running"
    # Whatever the attempt then reports, the job is not run again.
    await pool.execute("SELECT retry_job_at($1, $2, $3, now(), 'boom', '503', NULL)", *attempt)
    assert (await row_of(pool, second))["status"] == "cancelled"


async def test_run_again_by_hand(pool: asyncpg.Pool, job: UUID) -> None:
    """Only a failed job can be; its attempt numbers go on, and its attempts are counted from zero."""
    await pool.execute("SELECT fail_job($1, $2, $3, 'bad', '400', 'raw')", *await fetch(pool))
    await pool.execute("SELECT retry_failed_job($1)", job)
    assert (await row_of(pool, job))["status"] == "pending"
    assert await pool.fetchval("SELECT args FROM procrastinate_jobs") == {"job_id": str(job), "tried": 1}
    with pytest.raises(asyncpg.PostgresError) as caught:
        await pool.execute("SELECT retry_failed_job($1)", job)
    assert caught.value.sqlstate == "HP015"
    await fetch(pool)
    assert (await row_of(pool, job))["attempts"] == 2


@pytest.mark.parametrize("call", ["cancel_job", "retry_failed_job"])
async def test_an_unknown_job_is_an_error(pool: asyncpg.Pool, call: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await pool.execute(f"SELECT {call}($1)", uuid4())
    assert caught.value.sqlstate == "HP014"


# The fence


@pytest.mark.parametrize(
    "end",
    [
        "fence_job($1, $2, $3)",
        "finish_job($1, $2, $3, '{}')",
        "retry_job_at($1, $2, $3, now(), 'x', 'x', NULL)",
        "postpone_job($1, $2, $3, now(), 'x', 'x', NULL)",
        "release_job($1, $2, $3)",
        "fail_job($1, $2, $3, 'x', 'x', NULL)",
        "abort_job($1, $2, $3)",
    ],
)
async def test_only_the_current_attempt_ends_a_job(pool: asyncpg.Pool, job: UUID, end: str) -> None:
    """An abandoned attempt changes nothing, however it tries to end."""
    late = await fetch(pool)
    await pool.execute("SELECT release_job($1, $2, $3)", *late)
    present = await fetch(pool)
    before = await row_of(pool, job)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await pool.execute("SELECT " + end, *late)
    assert caught.value.sqlstate == "HP010"
    assert await row_of(pool, job) == before
    await pool.execute("SELECT " + end, *present)


async def test_a_late_claim_is_reported_and_its_transaction_writes_nothing(pool: asyncpg.Pool, job: UUID) -> None:
    late = await fetch(pool)
    await pool.execute("SELECT release_job($1, $2, $3)", *late)

    class Late:
        id, worker_id, attempts = late

    async def write() -> None:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("UPDATE threads SET metadata = '{\"written\": true}'")
            await JobClaim(Late()).finish(connection, {})  # type: ignore[arg-type]

    with pytest.raises(JobFencedError):
        await write()
    assert await pool.fetchval("SELECT metadata FROM threads") == {}


async def test_an_ended_job_names_no_worker(pool: asyncpg.Pool, job: UUID) -> None:
    """So that deleting a worker's row never has to search for its jobs."""
    await pool.execute("SELECT finish_job($1, $2, $3)", *await fetch(pool))
    assert await pool.fetchval("SELECT worker_id FROM procrastinate_jobs") is None


async def test_a_rolled_back_enqueue_leaves_nothing(pool: asyncpg.Pool) -> None:
    """A second enqueue in a transaction joins the first; after a rollback there is no job, no event, no mark."""
    thread = await harness.make_thread(pool)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        rows = [
            await connection.fetchrow("SELECT * FROM enqueue_consolidation($1, 'fast_replay')", thread)
            for _ in range(2)
        ]
        assert [row["created"] for row in rows] == [True, False]
        assert rows[0]["job_id"] == rows[1]["job_id"]
        await transaction.rollback()
    for table in ("consolidation_jobs", "procrastinate_jobs", "procrastinate_events"):
        assert await harness.count(pool, table) == 0
    assert await pool.fetchval("SELECT fast_queued_seq FROM threads") == 0


# Wake-ups


async def test_releasing_a_lock_notifies_of_its_next_job(pool: asyncpg.Pool, dsn: str) -> None:
    """Also if a job is given back; not if it waits for its retry, nor for a job whose lock is held."""
    payloads: list[str] = []
    listener = await database.connect(dsn)
    await listener.add_listener("procrastinate_queue_v1#q", lambda *call: payloads.append(call[-1]))

    async def defer(lock: str) -> None:
        await pool.execute("INSERT INTO procrastinate_jobs (queue_name, task_name, lock) VALUES ('q', 't', $1)", lock)

    async def notified_ids() -> list[int]:
        await listener.execute("SELECT 1")
        found = [int(text.rpartition(":")[2].strip(" }")) for text in payloads]
        payloads.clear()
        return found

    await defer("x")
    await defer("x")
    assert await notified_ids() == [1, 2]
    attempt = await fetch(pool)
    assert await notified_ids() == []
    await pool.execute("SELECT retry_job_at($1, $2, $3, now() + interval '1 hour', 'x', 'x', NULL)", *attempt)
    assert await notified_ids() == []
    await pool.execute("UPDATE procrastinate_jobs SET scheduled_at = NULL")
    attempt = await fetch(pool)
    await pool.execute("SELECT release_job($1, $2, $3)", *attempt)
    assert await notified_ids() == [1]
    await pool.execute("SELECT finish_job($1, $2, $3)", *await fetch(pool))
    assert await notified_ids() == [2]
    await listener.close()


@pytest.mark.timing
async def test_a_chain_of_five_jobs_on_one_lock_is_quick(tables: asyncpg.Pool, workers: Workers) -> None:
    """Ten slots, five jobs, one lock: under 0.3 s, not one poll for each."""
    await workers.start("fast_replay", fast_replay_concurrency="10")
    warm = await harness.enqueue(tables, await harness.make_thread(tables))
    await harness.wait_for_status(tables, warm, "completed")
    seconds = []
    # The best of three: other processes of this machine may interfere.
    for _ in range(3):
        ids = [
            row["id"]
            for row in await tables.fetch(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args)"
                " SELECT 'fast_replay', 'fast_replay', 'chain', jsonb_build_object('job_id', gen_random_uuid())"
                " FROM generate_series(1, 5) RETURNING id"
            )
        ]
        await until(lambda ids=ids: _all_succeeded(tables, ids))
        seconds.append(
            await tables.fetchval(
                "SELECT extract(epoch FROM max(at) - min(at))::float FROM procrastinate_events WHERE job_id = ANY ($1)",
                ids,
            )
        )
    assert min(seconds) < at_this_pace(0.3), seconds


async def _all_succeeded(pool: asyncpg.Pool, ids: list[int]) -> bool:
    done: int = await pool.fetchval(
        "SELECT count(*) FROM procrastinate_jobs WHERE id = ANY ($1) AND status = 'succeeded'", ids
    )
    return done == len(ids)


async def test_a_notification_during_an_empty_fetch_is_not_lost(
    tables: asyncpg.Pool, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job inserted between the fetch's snapshot and its end starts immediately, not at the next poll."""
    monkeypatch.setattr(queue_worker, "POLL_SECONDS", 60.0)
    started: list[str] = []

    async def consolidate(job_id: UUID, _claim: JobClaim) -> None:
        started.append(str(job_id))

    app, worker = in_process(dsn, tables, consolidate=consolidate)
    fetch_job = app.job_manager.fetch_job

    async def fetch_slowly(**given: Any) -> Any:
        found = await fetch_job(**given)
        if found is None and len(started) == 1 and not slowed:
            slowed.append(True)
            await _insert(tables)
            await until(worker._new_job_event.is_set)
        return found

    slowed: list[bool] = []
    monkeypatch.setattr(app.job_manager, "fetch_job", fetch_slowly)
    async with app.open_async():
        running = asyncio.create_task(worker.run())
        await until(lambda: _listens(tables))
        await _insert(tables)
        await until(lambda: len(started) == 2)
        worker.stop()
        await running
    assert slowed


@pytest.mark.parametrize("pairs", [50, pytest.param(200, marks=pytest.mark.system)])
async def test_no_wake_up_is_lost_in_hundreds_of_pairs(
    tables: asyncpg.Pool, dsn: str, monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    """Two jobs 0 to 6 ms apart, again and again, on workers that poll once an hour: each starts immediately.

    Most of the time is waiting: five workers, each with a queue of its own, share the pairs.
    """
    monkeypatch.setattr(queue_worker, "POLL_SECONDS", 3600.0)

    async def work(queue: str, rng: random.Random) -> None:
        started = asyncio.Queue[UUID]()

        async def consolidate(job_id: UUID, _claim: JobClaim) -> None:
            started.put_nowait(job_id)

        app, worker = in_process(dsn, tables, queue=queue, consolidate=consolidate)
        fetch_job = app.job_manager.fetch_job

        async def fetch_over_a_network(**given: Any) -> Any:
            """The result takes 2 ms, during which the notification of the next job may arrive."""
            found = await fetch_job(**given)
            await asyncio.sleep(0.002)
            return found

        monkeypatch.setattr(app.job_manager, "fetch_job", fetch_over_a_network)
        async with app.open_async():
            running = asyncio.create_task(worker.run())
            await until(lambda: _listens(tables, queue))
            for _ in range(pairs):
                await _insert(tables, queue)
                await asyncio.sleep(rng.uniform(0, 0.006))
                await _insert(tables, queue)
                for _ in range(2):
                    # A lost one would wait for half an hour on average.
                    await asyncio.wait_for(started.get(), WAIT_SECONDS)
            worker.stop()
            await running

    async with asyncio.TaskGroup() as lanes:
        for number in range(5):
            lanes.create_task(work(f"queue_{number}", random.Random(number)))
    assert await harness.count(tables, "procrastinate_jobs") == 5 * 2 * pairs


async def _insert(pool: asyncpg.Pool, queue: str = "fast_replay") -> None:
    await pool.execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, args)"
        " VALUES ($1, 'fast_replay', jsonb_build_object('job_id', gen_random_uuid()))",
        queue,
    )


async def _listens(pool: asyncpg.Pool, queue: str = "fast_replay") -> bool:
    found: bool = await pool.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND query LIKE 'LISTEN %' AND query LIKE '%' || $1 || '%')",
        queue,
    )
    return found


# Consumers


async def test_every_enqueued_job_has_a_task_and_a_pool(pool: asyncpg.Pool, dsn: str) -> None:
    """Everything that enqueues, in SQL or by the clock, uses a registered task and a queue that a pool listens to."""
    app, _ = in_process(dsn, pool)
    thread = await harness.make_thread(pool)
    for job_type in JobType:
        await harness.enqueue(pool, thread, job_type)
    await pool.execute("SELECT enqueue_embedding_backfill()")
    await pool.execute(
        "INSERT INTO slice_redraws (thread_id, stage, from_seq, upto_seq) VALUES ($1, 'fast', 1, 1)", thread
    )
    await pool.execute("SELECT enqueue_redraws()")
    hook = "INSERT INTO webhook_endpoints (app_name, url) VALUES ('app', 'https://example.org/') RETURNING id"
    await pool.execute("SELECT ping_webhook('app', $1)", await pool.fetchval(hook))
    rows = await pool.fetch("SELECT DISTINCT queue_name, task_name FROM procrastinate_jobs")
    enqueued = {(row["queue_name"], row["task_name"]) for row in rows}
    assert len(enqueued) == len(JobType) + 3
    enqueued |= {(each.task.queue, each.task.name) for each in app.periodic_registry.periodic_tasks.values()}
    served = {queue for each in POOLS.values() for queue in each.queues}
    for queue, task in enqueued:
        assert task in app.tasks
        assert app.tasks[task].queue == queue
        assert queue in served
    assert sum(each.is_scheduler for each in POOLS.values()) == 1
    rows = await pool.fetch("SELECT proname FROM pg_proc WHERE prosrc LIKE '%procrastinate_defer_jobs_v1%'")
    ours = {row["proname"] for row in rows if not row["proname"].startswith("procrastinate_")}
    assert ours == {
        "defer_consolidation", "enqueue_embedding_backfill", "enqueue_redraws", "defer_webhook", "defer_effect",
        "defer_ingest", "run_upkeep_now",
    }  # fmt: skip


async def test_one_waiting_backfill_is_enough(pool: asyncpg.Pool) -> None:
    for _ in range(3):
        await pool.execute("SELECT enqueue_embedding_backfill()")
    assert await harness.count(pool, "procrastinate_jobs") == 1


async def test_a_long_search_for_missing_vectors_is_not_repeated_soon(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads more the larger an installation is, and takes a bounded share of a core."""
    await pool.execute(
        "CREATE TABLE searches (); CREATE OR REPLACE FUNCTION list_vectorless_chunks(p_model text, p_limit integer)"
        " RETURNS TABLE (id uuid, app_name text, label text, content text) LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO searches DEFAULT VALUES; PERFORM pg_sleep(0.2); END $$"
    )
    service = Upkeep(pool, Settings())
    for _ in range(3):
        await service.find_vectorless("m")
    assert await harness.count(pool, "searches") == 1
    monkeypatch.setattr(upkeep, "_VECTORLESS_PAUSE", 0)
    service = Upkeep(pool, Settings())
    for _ in range(3):
        await service.find_vectorless("m")
    assert await harness.count(pool, "searches") == 4


# Upkeep


async def test_a_thread_with_a_lost_job_is_enqueued_again(pool: asyncpg.Pool, job: UUID) -> None:
    """It is behind its mark and has no live job: the reconciler enqueues another job, once."""
    assert await pool.fetchval("SELECT reconcile_jobs()") == 0
    await pool.execute("DELETE FROM consolidation_jobs")
    await pool.execute("DELETE FROM procrastinate_jobs")
    assert await pool.fetchval("SELECT reconcile_jobs()") == 1
    assert await pool.fetchval("SELECT reconcile_jobs()") == 0
    assert await pool.fetchval("SELECT job_type FROM consolidation_jobs WHERE status = 'pending'") == "fast_replay"


@pytest.mark.parametrize(("code", "hours", "enqueued"), [("503", 2, 1), ("503", 0, 0), ("400", 2, 0)])
async def test_a_failed_thread_is_resumed_only_after_a_transport_fault(
    pool: asyncpg.Pool, job: UUID, code: str, hours: int, enqueued: int
) -> None:
    """An hour after a permanent transport failure; never automatically after a failure of content."""
    await pool.execute("SELECT fail_job($1, $2, $3, 'x', $4, NULL)", *await fetch(pool), code)
    await pool.execute("UPDATE consolidation_jobs SET completed_at = now() - make_interval(hours => $1)", hours)
    assert await pool.fetchval("SELECT reconcile_jobs()") == enqueued


async def test_a_cancelled_job_does_not_come_back_by_itself(pool: asyncpg.Pool, job: UUID) -> None:
    """Neither soon nor once it is archived; but a lost job of later events is enqueued again."""
    assert await pool.fetchval("SELECT cancel_job($1)", job)
    assert await pool.fetchval("SELECT reconcile_jobs()") == 0
    assert await pool.fetchval("SELECT archive_jobs('0', '0', 10)") == 1
    assert await pool.fetchval("SELECT reconcile_jobs()") == 0
    await pool.execute("SELECT append_event('app', 'user', 's1', NULL, 'e2', 'user', 'message', '{}', 'user', 'more')")
    await harness.enqueue(pool, await pool.fetchval("SELECT id FROM threads"))
    await pool.execute("DELETE FROM consolidation_jobs")
    assert await pool.fetchval("SELECT reconcile_jobs()") == 1


async def test_a_cancelled_job_can_be_requested_again(pool: asyncpg.Pool, job: UUID) -> None:
    """The cancelled job keeps its status; another of its type waits."""
    await jobs.cancel(pool, job)
    again = await jobs.retry(pool, job)
    assert (again.job_type, again.status) == ("fast_replay", "pending")
    assert again.id != job
    assert (await jobs.get(pool, job)).status == "cancelled"


async def test_threads_that_wait_for_an_operator_hide_no_thread_with_a_lost_job(pool: asyncpg.Pool, job: UUID) -> None:
    """However few threads one poll handles."""
    await pool.execute("SELECT fail_job($1, $2, $3, 'x', '400', NULL)", *await fetch(pool))
    forgotten = await harness.enqueue(pool, await harness.make_thread(pool, "s2"))
    await pool.execute("DELETE FROM consolidation_jobs WHERE id = $1", forgotten)
    assert await pool.fetchval("SELECT reconcile_jobs(1)") == 1


async def test_one_run_handles_every_due_idle_timer(pool: asyncpg.Pool) -> None:
    """Even if thousands of sessions are active, whose timers are due first and only postponed."""
    await pool.execute(
        """INSERT INTO threads (app_name, user_id, session_id, last_seq, last_event_at, fast_due_at)
           SELECT 'app', 'user', n::text, 1, now() - CASE n WHEN 601 THEN interval '1 hour' ELSE interval '0' END,
                  now() - interval '1 minute' + make_interval(secs => n / 100.0)
           FROM generate_series(1, 601) AS n"""
    )
    await Upkeep(pool, Settings()).enqueue_idle()
    assert await harness.count(pool, "consolidation_jobs") == 1


async def test_an_app_without_consolidation_enqueues_nothing_and_loses_nothing(pool: asyncpg.Pool) -> None:
    """Appends, idle timers and the end of a session enqueue nothing; messages are found by their words; a request
    enqueues; once enabled, the timers do."""
    await policies.set_policy(pool, "app", consolidate=False, fast_events=3)
    sessions = OpenSessionService(pool)
    for session_id in ("quiet", "asked"):
        await sessions.create_session("app", "ann", session_id=session_id)
        said = [Event(author="user", content={"text": f"I like tea {n}"}) for n in range(9)]
        await sessions.append("app", "ann", session_id, said)
    late = "UPDATE threads SET last_event_at = now() - interval '1 day', fast_due_at = now(), deep_due_at = now()"
    upkeep = Upkeep(pool, Settings())
    for _ in range(2):
        await pool.execute(late)
        await upkeep.enqueue_idle()
        await upkeep.reconcile()
    assert await harness.count(pool, "consolidation_jobs") == 0
    found = await MemorySearch(pool, None).search(app_name="app", user_id="ann", query="tea")
    assert len(found.memories) == 10
    for session_id in ("quiet", "asked"):
        assert await sessions.finalize_session("app", "ann", session_id) == {}
    assert await pool.fetchval("SELECT bool_and(finalized_at IS NOT NULL) FROM threads")
    assert await harness.count(pool, "consolidation_jobs") == 0
    await pool.execute("SELECT consolidate_session('app', 'ann', 'asked')")
    assert await harness.count(pool, "consolidation_jobs") == 2
    await policies.set_policy(pool, "app", consolidate=True)
    assert await pool.fetchval("SELECT bool_and(fast_due_at > now()) FROM threads WHERE session_id = 'quiet'")
    await pool.execute("UPDATE threads SET fast_due_at = now(), deep_due_at = now() WHERE fast_due_at IS NOT NULL")
    await upkeep.enqueue_idle()
    assert await harness.count(pool, "consolidation_jobs") == 4


async def test_the_queue_is_pruned_in_batches(pool: asyncpg.Pool) -> None:
    """Jobs that ended long ago are deleted with their events; waiting, running, failed and recent ones stay."""
    keep = datetime.timedelta(days=1)
    await pool.execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, status)"
        " SELECT 'q', 't', 'succeeded' FROM generate_series(1, 25)"
    )
    assert await pool.fetchval("SELECT prune_queue($1, 10)", keep) == 10
    assert [await pool.fetchval("SELECT prune_queue($1, 10)", keep) for _ in range(2)] == [10, 5]
    old = await harness.enqueue(pool, await harness.make_thread(pool, "old"))
    await pool.execute("SELECT fail_job($1, $2, $3, 'x', '400', NULL)", *await fetch(pool))
    recent = await harness.enqueue(pool, await harness.make_thread(pool, "recent"))
    await pool.execute("SELECT finish_job($1, $2, $3)", *await fetch(pool))
    await harness.enqueue(pool, await harness.make_thread(pool, "waits"))
    await pool.execute(
        f"UPDATE procrastinate_events SET at = {MONTHS_AGO} WHERE job_id ="
        " (SELECT procrastinate_job_id FROM consolidation_jobs WHERE id = $1)",
        old,
    )
    assert await pool.fetchval("SELECT prune_queue($1, 10)", keep) == 0
    await pool.execute(f"UPDATE procrastinate_events SET at = {MONTHS_AGO}")
    assert await pool.fetchval("SELECT prune_queue($1, 10)", keep) == 1
    assert (await row_of(pool, recent))["status"] == "completed"
    assert await harness.count(pool, "procrastinate_jobs") == 2
    await pool.execute("SELECT retry_failed_job($1)", old)


async def test_pruning_finds_ended_jobs_by_its_indexes(pool: asyncpg.Pool) -> None:
    """Even if nothing is to be deleted among thousands of waiting jobs: neither branch scans the table."""
    await pool.execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock)"
        " SELECT 'q', 't', 'lock ' || n FROM generate_series(1, 5000) AS n"
    )
    await pool.execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, status)"
        " SELECT 'q', 't', (ARRAY['failed', 'succeeded'])[1 + n % 2]::procrastinate_job_status"
        " FROM generate_series(1, 100) AS n"
    )
    await pool.execute("ANALYZE procrastinate_jobs")
    before = await scans(pool)
    assert await pool.fetchval("SELECT prune_queue('0', 20)") == 20
    after = await scans(pool)
    assert after["seq_scan"] == before["seq_scan"]
    for index in ("procrastinate_jobs_ended_idx", "procrastinate_jobs_failed_idx"):
        assert after[index] > before[index]


async def test_ended_jobs_are_archived_in_batches(pool: asyncpg.Pool) -> None:
    """Completed and cancelled ones after a time, failed ones after a longer one; each is moved completely, once."""
    week, month = datetime.timedelta(days=7), datetime.timedelta(days=30)
    made = [await harness.enqueue(pool, await harness.make_thread(pool, f"s{n}")) for n in range(5)]
    await pool.execute("SELECT finish_job($1, $2, $3, $4)", *await fetch(pool), {"n": 1})
    await pool.execute("SELECT fail_job($1, $2, $3, 'x', '400', 'raw')", *await fetch(pool))
    await pool.execute("SELECT fail_job($1, $2, $3, 'x', '400', 'raw')", *await fetch(pool))
    await pool.execute("SELECT cancel_job($1)", made[3])
    assert await pool.fetchval("SELECT archive_jobs($1, $2, 10)", week, month) == 0
    await pool.execute("UPDATE consolidation_jobs SET completed_at = completed_at - interval '8 days'")
    assert await pool.fetchval("SELECT archive_jobs($1, $2, 1)", week, month) == 1
    assert await pool.fetchval("SELECT archive_jobs($1, $2, 10)", week, month) == 1
    await pool.execute("UPDATE consolidation_jobs SET completed_at = completed_at - interval '30 days'")
    # One of the failed jobs is being run again meanwhile: it stays.
    await pool.execute("SELECT retry_failed_job($1)", made[2])
    assert await pool.fetchval("SELECT archive_jobs($1, $2, 10)", week, month) == 1
    rows = await pool.fetch("SELECT id, status, result, raw_reply, app_name FROM consolidation_jobs_archive ORDER BY 1")
    assert [tuple(row) for row in rows] == [
        (made[0], "completed", {"n": 1}, None, "app"),
        (made[1], "failed", {}, "raw", "app"),
        (made[3], "cancelled", {}, None, "app"),
    ]
    left = await pool.fetch("SELECT id, status FROM consolidation_jobs ORDER BY id")
    assert [tuple(row) for row in left] == [(made[2], "pending"), (made[4], "pending")]


async def test_the_archive_of_jobs_is_pruned_in_batches(pool: asyncpg.Pool) -> None:
    """Jobs archived long ago are deleted, a bounded number at a time; younger ones stay."""
    await pool.execute(
        """INSERT INTO consolidation_jobs_archive (id, thread_id, job_type, status, attempts, upto_seq, result,
                                                   created_at, archived_at)
           SELECT gen_random_uuid(), gen_random_uuid(), 'fast_replay', 'completed', 1, 1, '{}', now(),
                  now() - make_interval(days => 360 + n) FROM generate_series(1, 10) AS n"""
    )
    year = datetime.timedelta(days=365)
    assert await pool.fetchval("SELECT prune_jobs_archive($1, 4)", year) == 4
    upkeep = Upkeep(pool, Settings())
    await upkeep.archive_jobs()
    assert await harness.count(pool, "consolidation_jobs_archive") == 4


async def test_upkeep_ends_orphaned_runs_and_prunes_snapshots(pool: asyncpg.Pool) -> None:
    """More of both than one batch holds; live runs, and each session's newest snapshot, stay."""
    await pool.execute(
        """SELECT create_session('app', 'user', n::text) FROM generate_series(1, 230) AS n;
           SELECT start_run('app', 'user', n::text, n::text, 'holder', CASE n WHEN 230 THEN 3600 ELSE 1 END,
               ARRAY[ROW('start', 'system', 'run_started', n::text, '{}', '{}', '{"a": 1}', NULL, NULL, NULL, NULL,
                         NULL)::event_input])
           FROM generate_series(1, 230) AS n;
           UPDATE runs SET lease_until = lease_until - interval '1 minute'"""
    )
    upkeep = Upkeep(pool, Settings(snapshots_keep_days=1))
    await upkeep.reap_runs()
    statuses = await pool.fetch("SELECT status, count(*) FROM runs GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in statuses] == [("failed", 229), ("running", 1)]
    assert await pool.fetchval("SELECT count(*) FROM events WHERE event_type = 'error'") == 229
    await pool.execute(
        """INSERT INTO snapshots (thread_id, version, sequence_num, state, superseded_at)
           SELECT t.id, n + 1000, 0, '{}', now() - make_interval(days => n % 2 * 2)
           FROM generate_series(1, 2400) AS n, (SELECT id FROM threads LIMIT 1) AS t"""
    )
    await upkeep.prune_snapshots()
    assert await pool.fetchval("SELECT count(*) FROM snapshots") == 1200 + 229
