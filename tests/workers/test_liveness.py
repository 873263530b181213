"""Workers that die or stop: their jobs are given back soon, and done once."""

from __future__ import annotations

import asyncio
import datetime
import json
import signal
import time

import asyncpg
import pytest
from procrastinate.jobs import Job

from hippocampus.providers.local.provider import LocalEmbedder
from pulse import database
from pulse.postgres.statements import load_queries, observe_statements
from pulse.process.background import in_background
from tests.support import worker_harness as harness
from tests.support.pace import at_this_pace
from tests.support.queue_rows import in_process
from tests.support.waiting import until
from tests.support.wakeups import wakeups
from tests.support.worker_harness import WorkerProcess, Workers
from workers.queue import liveness
from workers.queue.schedule import ON_DEMAND
from workers.queue.tasks import MAINTENANCE_CRONS
from workers.queue.upkeep import Upkeep
from workers.settings import Settings
from workers.telemetry.metrics import Metrics

RECOVERY_SECONDS_MAX = 2.0
#: A worker that is idle makes about 8; one whose guard does not wait makes hundreds.
COMMITS_PER_SECOND_MAX = 50
#: A worker that is idle waits every other second; with polls twice a second, it was 8 times.
WAITS_PER_SECOND_MAX = 2


@pytest.mark.timing
async def test_a_killed_workers_job_is_done_once_within_two_seconds(tables: asyncpg.Pool, workers: Workers) -> None:
    """kill -9 between the model's call and the commit: another worker does the job, and there is one effect."""
    victim = await workers.start("fast_replay")
    heir = await workers.start("fast_replay")
    await asyncio.sleep(2 * liveness.POLL_SECONDS)  # Both are idle, and poll seldom.
    async with harness.gate(tables):
        jobs = [await harness.enqueue(tables, await harness.make_thread(tables, f"s{n}")) for n in range(8)]
        for job in jobs:
            await harness.wait_for_status(tables, job, "running")
        for worker in (victim, heir):
            await until(lambda pid=worker.pid: _has_made(tables, pid, 4))
        victim.send(signal.SIGKILL)
        killed_at = time.monotonic()
    for job in jobs:
        await harness.wait_for_status(tables, job, "completed")
    assert time.monotonic() - killed_at < at_this_pace(RECOVERY_SECONDS_MAX)
    assert await harness.count(tables, "effects") == 8
    assert await tables.fetchval("SELECT count(DISTINCT job_id) FROM effects") == 8
    rows = await tables.fetch("SELECT pid, attempts FROM effects JOIN consolidation_jobs ON id = job_id")
    assert sorted((row["pid"], row["attempts"]) for row in rows) == [(heir.pid, 1)] * 4 + [(heir.pid, 2)] * 4


async def test_a_worker_of_another_pool_gives_back_a_dead_workers_jobs(tables: asyncpg.Pool, workers: Workers) -> None:
    """Every process polls: if the last worker of a pool dies, its jobs become pending for the next one."""
    victim = await workers.start("fast_replay")
    await workers.start("deep_reflection")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        victim.send(signal.SIGKILL)
        await harness.wait_for_status(tables, job, "pending")


async def test_a_stopped_worker_that_resumes_neither_finishes_nor_requeues(
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
        await until(lambda: _attempts_of(tables, heir.pid))
        await open_gate()
        await harness.wait_for_status(tables, job, "completed")
    stopped.send(signal.SIGCONT)
    await until(lambda: "job_fenced" in stopped.lines())
    assert await tables.fetch("SELECT pid FROM effects") == [(heir.pid,)]
    row = await tables.fetchrow("SELECT status, attempts, result FROM consolidation_jobs WHERE id = $1", job)
    assert (row["status"], row["attempts"], row["result"]) == ("completed", 2, {"said": "done"})
    # And it continues working.
    heir.send(signal.SIGTERM)
    assert await heir.ended() == 0
    again = await harness.enqueue(tables, await harness.make_thread(tables, "again"))
    await harness.wait_for_status(tables, again, "completed")


async def _has_made(pool: asyncpg.Pool, pid: int, attempts: int) -> bool:
    return await _attempts_of(pool, pid) == attempts


async def _attempts_of(pool: asyncpg.Pool, pid: int) -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM attempts_made WHERE pid = $1", pid)
    return count


async def test_a_live_workers_job_is_never_given_back(tables: asyncpg.Pool, workers: Workers) -> None:
    """A long job of a live worker is left alone by every poll."""
    await workers.start("fast_replay")
    await workers.start("deep_reflection")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        await asyncio.sleep(1.5)  # three polls
    await harness.wait_for_status(tables, job, "completed")
    assert await harness.count(tables, "attempts_made") == 1


async def test_a_worker_whose_guard_was_cut_takes_its_lock_again(
    tables: asyncpg.Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that proves a worker alive is terminated: its job continues, and no other worker gets it."""
    monkeypatch.setenv("GUARD_POLL_SECONDS", "2")  # what a busy machine needs to connect
    await workers.start("fast_replay")
    await workers.start("deep_reflection")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        for _ in range(3):
            cut = await _guards(tables)
            assert len(cut) == 2
            await tables.execute("SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) AS pid", list(cut))
            await until(lambda cut=cut: _are_replaced(tables, cut))
        await asyncio.sleep(4.1)  # two polls
    await harness.wait_for_status(tables, job, "completed")
    assert await harness.count(tables, "attempts_made") == 1


async def test_a_worker_that_was_stopped_and_cut_off_continues_its_job(tables: asyncpg.Pool, workers: Workers) -> None:
    """SIGSTOP for longer than a heartbeat may be old, every connection cut, SIGCONT: its job is not given back, and it
    polls at its usual rate."""
    worker = await workers.start("fast_replay")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        await until(lambda: _attempts_of(tables, worker.pid))
        for _ in range(3):
            await _stop_and_cut(tables, worker)
            # The heartbeat is renewed on the first connection, and not only when it is next due.
            await until(lambda: _heartbeat_is_fresh(tables), seconds=liveness.HEARTBEAT_SECONDS - 1)
        await _see_that_none_spins(tables)
        assert await tables.fetchrow("SELECT status, attempts FROM consolidation_jobs WHERE id = $1", job) == (
            "running",
            1,
        )
    await harness.wait_for_status(tables, job, "completed")
    assert await harness.count(tables, "effects") == 1
    assert "orphaned_jobs_released" not in worker.lines()


async def test_a_worker_that_was_stopped_shortly_and_cut_off_gives_way_to_its_heir(
    tables: asyncpg.Pool, workers: Workers
) -> None:
    """For as long as two polls, with a heartbeat that is fresh: without its lock it counts as dead. Its late end is
    fenced out, it takes its lock again, and it polls at its usual rate."""
    stopped = await workers.start("fast_replay")
    async with harness.gate(tables) as open_gate:
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        await until(lambda: _attempts_of(tables, stopped.pid))
        cut = await _guards(tables)
        heir = await workers.start("fast_replay")
        stopped.send(signal.SIGSTOP)
        await tables.execute("SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) AS pid", list(cut))
        await until(lambda: _attempts_of(tables, heir.pid))
        assert await _heartbeat_is_fresh(tables, liveness.STALLED_SECONDS), "the lock decided, not the heartbeat"
        await open_gate()
        await harness.wait_for_status(tables, job, "completed")
    stopped.send(signal.SIGCONT)
    await until(lambda: "job_fenced" in stopped.lines())
    assert await tables.fetch("SELECT pid FROM effects") == [(heir.pid,)]
    await until(lambda: _hold_locks(tables, 2), "it holds its lock again")
    await _see_that_none_spins(tables)
    heir.send(signal.SIGTERM)
    assert await heir.ended() == 0
    again = await harness.enqueue(tables, await harness.make_thread(tables, "again"))
    await harness.wait_for_status(tables, again, "completed")


async def _hold_locks(pool: asyncpg.Pool, count: int) -> bool:
    return len(await _guards(pool)) == count


async def _stop_and_cut(pool: asyncpg.Pool, worker: WorkerProcess) -> None:
    """Stop a worker, age its heartbeat, cut its guard and its queue's connections, and let it continue."""
    worker.send(signal.SIGSTOP)
    await pool.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '33 seconds'")
    cut = await _guards(pool)
    await pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND (pid = ANY ($1::integer[]) OR application_name = 'hippocampus queue')",
        list(cut),
    )
    worker.send(signal.SIGCONT)
    await until(lambda: _are_replaced(pool, cut))


async def _heartbeat_is_fresh(pool: asyncpg.Pool, seconds: float = 5.0) -> bool:
    oldest = "SELECT min(last_heartbeat) > now() - make_interval(secs => $1) FROM procrastinate_workers"
    fresh: bool = await pool.fetchval(oldest, seconds)
    return fresh


async def _see_that_none_spins(pool: asyncpg.Pool) -> None:
    """Count for two seconds what the workers commit."""
    before = await _commits(pool)
    await asyncio.sleep(2)
    assert await _commits(pool) - before < 2 * COMMITS_PER_SECOND_MAX


async def _commits(pool: asyncpg.Pool) -> int:
    await pool.execute("SELECT pg_stat_clear_snapshot()")
    commits: int = await pool.fetchval("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return commits


async def _guards(pool: asyncpg.Pool) -> set[int]:
    """The server's processes that hold a worker's lock."""
    rows = await pool.fetch(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2"
        " AND classid::bigint = worker_lock_class()::bigint & 4294967295"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return {row["pid"] for row in rows}


async def _are_replaced(pool: asyncpg.Pool, former: set[int]) -> bool:
    held = await _guards(pool)
    return len(held) == len(former) and not held & former


async def test_a_job_is_given_back_at_the_second_poll_only(tables: asyncpg.Pool) -> None:
    """A worker whose connection was cut has one poll interval to take its lock again."""
    await harness.enqueue(tables, await harness.make_thread(tables))
    worker = await tables.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    await tables.fetchval("SELECT id FROM procrastinate_fetch_job_v2(NULL, $1)", worker)
    async with tables.acquire() as poller, tables.acquire() as life:
        suspects, rescued, *_ = await liveness.poll(poller, frozenset())
        assert (len(suspects), rescued) == (1, 0)
        assert await life.fetchval(load_queries("workers.queue", "liveness.sql")["hold_worker"], worker)
        assert (await liveness.poll(poller, suspects))[:2] == (frozenset(), 0)
        await life.execute("SELECT pg_advisory_unlock_all()")
        assert (await liveness.poll(poller, suspects))[:2] == (suspects, 1)
    assert await tables.fetchval("SELECT status FROM consolidation_jobs") == "pending"


async def test_a_job_unknown_to_its_live_worker_is_given_back(tables: asyncpg.Pool, workers: Workers) -> None:
    """The result of a fetch was lost with its connection: according to the database the worker runs the job."""
    worker = await workers.start("fast_replay")
    await workers.start("retention")
    worker_id = json.loads(next(line for line in worker.lines().splitlines() if "worker_registered" in line))[
        "worker_id"
    ]
    thread = await harness.make_thread(tables)
    async with harness.gate(tables):
        running = await harness.enqueue(tables, thread)
        await harness.wait_for_status(tables, running, "running")
        # No running pool listens to its queue: no worker takes it.
        lost = await harness.enqueue(tables, thread, "deep_reflection")
        # In one transaction: the worker gives the job back soon after it sees it.
        async with tables.acquire() as taker, taker.transaction():
            fetched = await taker.fetchval(
                "SELECT id FROM procrastinate_fetch_job_v2(ARRAY['deep_reflection'], $1)", worker_id
            )
            assert fetched is not None
            assert await harness.status_of(taker, lost) == "running"
        await harness.wait_for_status(tables, lost, "pending")
        assert await harness.status_of(tables, running) == "running"
    await harness.wait_for_status(tables, running, "completed")
    assert await harness.count(tables, "attempts_made") == 1


async def test_a_job_is_aborted_though_the_notification_was_lost(tables: asyncpg.Pool, workers: Workers) -> None:
    """The guard, which polls often while a job runs, finds the request; procrastinate's own poll would wake idle
    workers."""
    await workers.start("fast_replay")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        async with tables.acquire() as silent, silent.transaction():
            await silent.execute("SET LOCAL session_replication_role = replica")  # no trigger, so no notification
            await silent.execute("UPDATE procrastinate_jobs SET abort_requested = true WHERE status = 'doing'")
        await harness.wait_for_status(tables, job, "cancelled")


async def test_a_job_that_kills_its_workers_is_failed(tables: asyncpg.Pool) -> None:
    """After so many deaths a job is failed, with the reason; an operator may run it again."""
    job = await harness.enqueue(tables, await harness.make_thread(tables))
    for death in range(3):
        worker = await tables.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
        await tables.fetchval("SELECT id FROM procrastinate_fetch_job_v2(NULL, $1)", worker)
        async with tables.acquire() as poller:
            suspects, *_ = await liveness.poll(poller, frozenset(), rescues_max=3)
            await liveness.poll(poller, suspects, rescues_max=3)
        assert await harness.status_of(tables, job) == ("pending" if death < 2 else "failed")
    assert await tables.fetchval("SELECT error_code FROM consolidation_jobs") == "worker_died"
    await tables.execute("SELECT retry_failed_job($1)", job)
    assert await harness.status_of(tables, job) == "pending"


async def test_a_periodic_task_runs_once_with_several_retention_workers(tables: asyncpg.Pool, workers: Workers) -> None:
    """Two retention processes, one run per scheduled time."""
    for _ in range(2):
        await workers.start("retention", retention_cron="* * * * * */2")

    async def three_runs() -> bool:
        return await harness.count(tables, "upkeep_runs") >= 3

    await until(three_runs)
    deferred = await tables.fetch(
        "SELECT args ->> 'timestamp' AS at, count(*) FROM procrastinate_jobs WHERE task_name = 'retention' GROUP BY 1"
    )
    assert {row["count"] for row in deferred} == {1}


async def test_the_retention_worker_does_all_upkeep_and_catches_up_on_missed_runs(
    tables: asyncpg.Pool, workers: Workers
) -> None:
    """At its start idle threads and threads with lost jobs are enqueued, each upkeep task runs, and so does last
    night's clean-up."""
    idle = await harness.make_thread(tables, "idle")
    await tables.execute(
        "UPDATE threads SET fast_due_at = now() - interval '1 s', last_event_at = now() - interval '1 hour'"
    )
    forgotten = await harness.make_thread(tables, "forgotten")
    await tables.execute("UPDATE threads SET deep_queued_seq = last_seq WHERE id = $1", forgotten)
    hours_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=3)
    await workers.start("retention", retention_cron=f"0 {hours_ago.hour} * * *")
    tasks = {*MAINTENANCE_CRONS, "retention"}

    async def all_ran() -> bool:
        rows = await tables.fetch("SELECT DISTINCT task_name FROM procrastinate_jobs WHERE status = 'succeeded'")
        return {row["task_name"] for row in rows} == tasks

    await until(all_ran)
    rows = await tables.fetch("SELECT thread_id, job_type, status FROM consolidation_jobs")
    assert {tuple(row) for row in rows} == {
        (idle, "fast_replay", "pending"),
        (forgotten, "deep_reflection", "pending"),
    }
    assert await tables.fetchval("SELECT count(*) FROM upkeep_runs WHERE name = 'retention'") == 1
    assert await tables.fetchval("SELECT model FROM embedding_target") == LocalEmbedder().model


async def test_tasks_on_demand_are_enqueued_only_where_they_have_work(tables: asyncpg.Pool) -> None:
    """All of them at the start of a process; afterwards those that would find something."""
    upkeep = Upkeep(tables, Settings())
    app, _ = in_process("postgresql://localhost/unused", tables, find_upkeep=upkeep.find_work)
    schedule = app.schedule()
    deferred: list[str] = []

    async def defer(*, job: Job, **_: object) -> int:
        deferred.append(job.task_name)
        return 1

    app.job_manager.defer_periodic_job = defer

    async def round_of_all() -> set[str]:
        deferred.clear()
        await schedule.defer_jobs([(task, 1) for task in app.periodic_registry.periodic_tasks.values()])
        return set(deferred)

    tasks = {*MAINTENANCE_CRONS, "retention"}
    assert await round_of_all() == tasks
    assert await round_of_all() == tasks - ON_DEMAND
    thread = await harness.make_thread(tables)
    for column, task in (
        ("fast_due_at = now()", "enqueue_idle"),
        ("deep_queued_seq = last_seq + 1", "reconcile"),
        ("ttl = '1 second', expires_at = now()", "expire_sessions"),
    ):
        await tables.execute(f"UPDATE threads SET {column} WHERE id = $1", thread)
        assert task in await upkeep.find_work()
    await tables.execute(
        "INSERT INTO erasures (app_name, user_id, scope) VALUES ('app', 'u', 'user');"
        "INSERT INTO stream_tickets (token_hash, app_name, user_id, session_id, expires_at)"
        " VALUES (sha256(''), 'app', 'u', 's', now())"
    )
    found = {"enqueue_idle", "reconcile", "expire_sessions", "erase", "prune_streams"}
    assert await round_of_all() == tasks - ON_DEMAND | found


async def test_an_idle_worker_seldom_wakes(tables: asyncpg.Pool, workers: Workers) -> None:
    """One poll for orphans and due jobs, and no waiting that wakes by itself: an idle installation costs little."""
    worker = await workers.start("fast_replay")
    job = await harness.enqueue(tables, await harness.make_thread(tables))
    await harness.wait_for_status(tables, job, "completed")
    await asyncio.sleep(2)
    counts = await wakeups(worker.pid, seconds=6, limit=6 * WAITS_PER_SECOND_MAX)
    assert counts[-1] < 6 * WAITS_PER_SECOND_MAX, counts


async def test_an_idle_guard_sends_its_heartbeat_with_each_poll(
    dsn: str, tables: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement is both: an idle worker sends no other."""
    monkeypatch.setattr(liveness, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(liveness, "IDLE_POLL_SECONDS", 0.2)
    monkeypatch.setattr(liveness, "HEARTBEAT_SECONDS", 0.1)
    worker = await tables.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    guard = liveness.Guard(lambda: database.connect(dsn), Metrics())
    ran: list[str] = []
    beats: set[object] = set()
    stop = observe_statements(lambda name, _seconds, _is_done: ran.append(name))

    async def has_sent_some() -> bool:
        beats.add(await tables.fetchval("SELECT last_heartbeat FROM procrastinate_workers WHERE id = $1", worker))
        return len(beats) > 5

    try:
        async with guard.hold(worker):
            watch = guard.watch(worker, lambda: [], ["q"], wake=lambda: None, abort=lambda _: None)
            async with in_background(watch):
                await until(has_sent_some)
    finally:
        stop()
    assert ran.count("liveness.send_heartbeat") == 1
    assert ran.count("liveness.find_orphans") + 1 >= len(beats)
    connected = {"database.begin_session", "liveness.send_heartbeat", "liveness.hold_worker"}
    assert set(ran) == {*connected, "liveness.find_orphans"}
