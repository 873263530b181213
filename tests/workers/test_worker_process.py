"""Worker processes: each pool runs its own queues, drains on SIGTERM, and survives its database."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from uuid import UUID

import asyncpg
import pytest

from tests.support import worker_harness as harness
from tests.support.paths import ROOT
from tests.support.waiting import until
from tests.support.worker_harness import Workers
from tests.support.worker_process import SECRET
from workers import worker as worker_process
from workers.pools import POOLS, get_pool
from workers.process.signals import SAME_REQUEST_SECONDS
from workers.queue import liveness
from workers.settings import Settings


async def test_a_worker_runs_an_enqueued_job_and_keeps_its_result(tables: asyncpg.Pool, workers: Workers) -> None:
    """A job enqueued by SQL alone is run once, and its row shows the result."""
    await workers.start("fast_replay")
    thread = await harness.make_thread(tables)
    job = await harness.enqueue(tables, thread)
    await harness.wait_for_status(tables, job, "completed")
    row = await tables.fetchrow("SELECT * FROM consolidation_jobs WHERE id = $1", job)
    assert row["attempts"] == 1
    assert row["result"] == {"said": "done"}
    assert row["completed_at"] >= row["started_at"] >= row["created_at"]
    assert await harness.count(tables, "effects") == 1


async def test_pools_never_take_each_others_jobs(tables: asyncpg.Pool, workers: Workers) -> None:
    """A fast_replay worker runs fast_replay alone; deep_reflection runs its own and full_consolidation."""
    fast = await workers.start("fast_replay")
    jobs = {}
    for number, job_type in enumerate(("fast_replay", "deep_reflection", "full_consolidation")):
        thread = await harness.make_thread(tables, f"s{number}")
        jobs[job_type] = await harness.enqueue(tables, thread, job_type)
    await harness.wait_for_status(tables, jobs["fast_replay"], "completed")
    # Two polls of a worker that would take any job.
    await asyncio.sleep(1.1)
    assert await harness.status_of(tables, jobs["deep_reflection"]) == "pending"
    assert await harness.status_of(tables, jobs["full_consolidation"]) == "pending"
    deep = await workers.start("deep_reflection")
    for job in jobs.values():
        await harness.wait_for_status(tables, job, "completed")
    rows = await tables.fetch("SELECT job_id, pid FROM effects")
    by_job = {row["job_id"]: row["pid"] for row in rows}
    assert by_job == {
        jobs["fast_replay"]: fast.pid,
        jobs["deep_reflection"]: deep.pid,
        jobs["full_consolidation"]: deep.pid,
    }


async def test_sigterm_lets_a_running_job_finish(tables: asyncpg.Pool, workers: Workers) -> None:
    """The running job is finished, no other is fetched, and the process exits with 0."""
    worker = await workers.start("fast_replay", fast_replay_concurrency="1", shutdown_grace_seconds="60")
    async with harness.gate(tables) as open_gate:
        running = await harness.enqueue(tables, await harness.make_thread(tables, "a"))
        await harness.wait_for_status(tables, running, "running")
        waiting = await harness.enqueue(tables, await harness.make_thread(tables, "b"))
        worker.send(signal.SIGTERM)
        await until(lambda: '"worker_stop_requested"' in worker.lines())
        await open_gate()
    assert await worker.ended() == 0
    assert await harness.status_of(tables, running) == "completed"
    assert await harness.status_of(tables, waiting) == "pending"
    assert await harness.count(tables, "effects") == 1


async def test_sigterm_gives_back_what_exceeds_the_grace_time(
    tables: asyncpg.Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that does not end in time is given back unattempted, never aborted, and another worker runs it."""
    monkeypatch.setenv("CLOSE_SECONDS_MAX", "60")  # otherwise it has half a second for giving it back
    worker = await workers.start("fast_replay", shutdown_grace_seconds="0.3")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        started = time.monotonic()
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        assert time.monotonic() - started < 20  # the job itself goes on until the end of the block
        assert await harness.status_of(tables, job) == "pending"
    await workers.start("fast_replay")
    await harness.wait_for_status(tables, job, "completed")
    assert await harness.count(tables, "effects") == 1
    assert await tables.fetchval("SELECT attempts FROM consolidation_jobs WHERE id = $1", job) == 1


async def test_a_second_signal_ends_the_process_at_once(tables: asyncpg.Pool, workers: Workers) -> None:
    """The job of a worker that was signalled twice is given back by another worker."""
    worker = await workers.start("fast_replay", shutdown_grace_seconds="60")
    other = await workers.start("deep_reflection")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job, "running")
        worker.send(signal.SIGTERM)
        await until(lambda: '"worker_stop_requested"' in worker.lines())
        await asyncio.sleep(0.3)  # until it counts as a second request, see SAME_REQUEST_SECONDS
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 128 + signal.SIGTERM
        await harness.wait_for_status(tables, job, "pending")
    assert other.popen.poll() is None


def test_a_second_signal_while_the_process_exits_ends_it_as_one_before() -> None:
    """The event loop, closed by then, took its handlers with it: the exit code was that of a killed process."""
    program = """
import asyncio, atexit, sys
from workers.process import signals

async def work():
    stop = asyncio.Event()
    signals.on_stop(lambda _: stop.set())
    print("works", flush=True)
    await stop.wait()

atexit.register(lambda: (print("exits", flush=True), sys.stdin.read()))
signals.run(work())
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for step in ("works", "exits"):
            assert process.stdout.readline().strip() == step
            # What was handled before this line was written is another request.
            time.sleep(2 * SAME_REQUEST_SECONDS)
            process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


async def test_every_role_exits_with_0_on_sigterm(tables: asyncpg.Pool, workers: Workers) -> None:
    """An idle worker of each pool exits gracefully, faster than a process manager's timeout."""
    started = [workers.spawn(pool) for pool in POOLS]
    for worker in started:
        await until(lambda log=worker: '"worker_registered"' in log.lines())
        worker.send(signal.SIGTERM)
    assert [await worker.ended() for worker in started] == [0] * len(POOLS)
    assert await tables.fetchval("SELECT count(*) FROM procrastinate_workers") == 0


async def test_a_worker_survives_the_loss_of_every_connection(tables: asyncpg.Pool, workers: Workers) -> None:
    """Backends are terminated, all of a worker's at once, while it runs a job: it does the job, once."""
    worker = await workers.start("fast_replay")
    async with harness.gate(tables):
        job = await harness.enqueue(tables, await harness.make_thread(tables, "a"))
        await harness.wait_for_status(tables, job, "running")
        await tables.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_locks WHERE classid = 77)"
            " AND query NOT LIKE '%pg_advisory_lock_shared%'"
        )
    await harness.wait_for_status(tables, job, "completed")
    again = await harness.enqueue(tables, await harness.make_thread(tables, "b"))
    await harness.wait_for_status(tables, again, "completed")
    assert worker.popen.poll() is None
    assert await harness.count(tables, "effects") == 2


QUEUE = "FROM pg_stat_activity WHERE application_name = 'hippocampus queue' AND datname = current_database()"


async def test_a_cut_connection_stops_no_worker_from_taking_other_jobs(tables: asyncpg.Pool, workers: Workers) -> None:
    """All connections of the queue are terminated while one job waits for its model: another job
    starts all the same."""
    worker = await workers.start("fast_replay", shutdown_grace_seconds="60")
    async with harness.gate(tables):
        for session in "abc":
            job = await harness.enqueue(tables, await harness.make_thread(tables, session))

            async def begun(job: UUID = job) -> bool:
                return bool(await tables.fetchval("SELECT count(*) FROM attempts_made WHERE job_id = $1", job))

            await until(begun)
            await until(lambda: tables.fetchval(f"SELECT count(*) >= 2 {QUEUE}"), "it listens and has a connection")
            await tables.execute(f"SELECT pg_terminate_backend(pid) {QUEUE}")
    await until(lambda: _all_completed(tables, 3))
    assert worker.popen.poll() is None
    assert "worker_restarted" not in worker.lines()
    assert "queue_connection_lost" in worker.lines()
    assert await harness.count(tables, "effects") == await harness.count(tables, "attempts_made") == 3


async def _all_completed(pool: asyncpg.Pool, jobs: int) -> bool:
    done: int = await pool.fetchval("SELECT count(*) FROM consolidation_jobs WHERE status = 'completed'")
    return done == jobs


async def test_a_worker_that_stops_in_a_transaction_counts_as_dead(dsn: str) -> None:
    """As soon as by its heartbeat: the locks of its transaction are free for the worker that takes its job."""
    async with worker_process.open_pool(Settings(DATABASE_URL=dsn), get_pool("fast_replay")) as connections:
        shown = await connections.fetchval("SHOW idle_in_transaction_session_timeout")
    assert shown == f"{liveness.STALLED_SECONDS:g}s"


async def test_a_worker_survives_the_pruning_of_its_row(tables: asyncpg.Pool, workers: Workers) -> None:
    """A worker that another considered stalled registers again instead of exiting."""
    worker = await workers.start("fast_replay")
    await tables.execute("DELETE FROM procrastinate_workers")
    job = await harness.enqueue(tables, await harness.make_thread(tables))
    await harness.wait_for_status(tables, job, "completed")
    assert worker.popen.poll() is None


async def test_logs_hold_ids_and_never_content(tables: asyncpg.Pool, workers: Workers) -> None:
    """Every line is a JSON object; a failed job's lines have its ids, and nothing of its content."""
    worker = await workers.start("fast_replay", job_attempts_max="2", log_level="debug")
    await tables.execute("INSERT INTO scripted (fault) VALUES ('429'), ('400'), ('bug')")
    threads = [await harness.make_thread(tables, f"s{number}") for number in range(2)]
    jobs = [await harness.enqueue(tables, thread) for thread in threads]
    for job in jobs:
        await until(lambda job=job: _has_ended(tables, job))
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0
    assert SECRET not in worker.lines()
    assert "PELICAN" not in worker.lines()
    lines = [json.loads(line) for line in worker.lines().splitlines()]
    ended = [line for line in lines if line["event"] == "job_failed"]
    assert ended
    assert {line["job_id"] for line in ended} <= {str(job) for job in jobs}
    assert {line["thread_id"] for line in ended} <= {str(thread) for thread in threads}
    assert all(line["attempt"] in (1, 2) and line["error_type"] for line in ended)


async def _has_ended(pool: asyncpg.Pool, job: object) -> bool:
    return await pool.fetchval("SELECT status FROM consolidation_jobs WHERE id = $1", job) in ("failed", "completed")


def test_a_worker_without_a_database_says_what_to_do() -> None:
    """No DATABASE_URL, an unknown pool, an unreachable database: exit code 2 and a sentence."""
    for arguments, dsn, word in (
        ("fast_replay", "", "DATABASE_URL"),
        ("fast", "postgresql://localhost/x", "deep_reflection"),
        ("fast_replay", "postgresql://postgres@127.0.0.1:1/none", "127.0.0.1:1"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "workers.worker", arguments],
            cwd=ROOT,
            env={"DATABASE_URL": dsn, "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert word in done.stderr
        assert "Traceback" not in done.stderr
