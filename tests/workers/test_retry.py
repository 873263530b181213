"""What is retried, when, and how a job fails permanently."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import random
import re

import asyncpg
import pytest
from procrastinate.exceptions import JobAborted
from procrastinate.jobs import Job

from hippocampus.errors import (
    CallPostponedError,
    MalformedReplyError,
    PermanentProviderError,
    RateLimitedError,
    TransientProviderError,
    WatermarkMovedError,
)
from pulse.errors import DatabaseUnreachableError
from tests.support import worker_harness as harness
from tests.support.waiting import until
from tests.support.worker_harness import Workers
from tests.support.worker_process import SECRET
from workers import doctor, settings
from workers.failures import describe
from workers.queue.retry import JobRetry


class Highest(random.Random):
    """A random generator that returns the maximum."""

    def uniform(self, _low: float, high: float) -> float:
        return high


def job(attempts: int = 0, **kwargs: int) -> Job:
    return Job(id=1, queue="q", task_name="t", lock=None, queueing_lock=None, attempts=attempts, task_kwargs=kwargs)


def delay(error: BaseException, attempts: int = 0, attempts_max: int = 8, **kwargs: int) -> float | None:
    policy = JobRetry(attempts_max=attempts_max, base_seconds=2, cap_seconds=60, rng=Highest())
    decision = policy.get_retry_decision(exception=error, job=job(attempts, **kwargs))
    if decision is None:
        return None
    if decision.retry_at is None:
        return 0.0
    return (decision.retry_at - datetime.datetime.now(datetime.UTC)).total_seconds()


def test_delays_double_up_to_the_cap() -> None:
    """2, 4, 8 ... seconds at most, never above the cap."""
    error = TransientProviderError("x", code="503")
    delays = [delay(error, attempts) for attempts in range(7)]
    assert delays == pytest.approx([2, 4, 8, 16, 32, 60, 60], abs=0.9)


def test_a_provider_is_never_called_before_its_requested_delay() -> None:
    """The jitter is added to RetryInfo; a daily quota waits for hours."""
    assert delay(RateLimitedError("x", retry_after_seconds=30)) == pytest.approx(32, abs=0.9)
    assert delay(RateLimitedError("x", daily=True)) >= 3600


@pytest.mark.parametrize(
    "error",
    [
        TransientProviderError("x"),
        DatabaseUnreachableError("x"),
        ConnectionResetError(),
        TimeoutError(),
        asyncpg.DeadlockDetectedError("x"),
        asyncpg.AdminShutdownError("x"),
        asyncpg.InterfaceError("x"),
        asyncpg.InternalClientError("x"),
        WatermarkMovedError("x"),
        MemoryError(),
        RuntimeError("can't start new thread"),
    ],
)
def test_transport_faults_are_retried_a_bounded_number_of_times(error: Exception) -> None:
    """Up to the last attempt, and not beyond it."""
    assert delay(error, attempts=6) is not None
    assert delay(error, attempts=7) is None


@pytest.mark.parametrize(
    "error",
    [
        PermanentProviderError("x"),
        MalformedReplyError("x"),
        KeyError("x"),
        asyncpg.DataError("x"),
        ValueError("x"),
        RuntimeError("x"),
    ],
)
def test_content_faults_are_not_retried(error: Exception) -> None:
    assert delay(error) is None


@pytest.mark.parametrize(
    "error", [CallPostponedError("x", code="limited", retry_after_seconds=7), RateLimitedError("x", daily=True)]
)
def test_a_refused_call_costs_no_attempt(error: RateLimitedError) -> None:
    """However often a job is postponed, it never fails because of it, and its waits do not grow."""
    assert delay(error, attempts=99) == pytest.approx(delay(error, attempts=0), abs=0.9)


def test_a_job_whose_probe_failed_yields_to_others() -> None:
    """It may be the cause of the failures: its waits grow, but it does not fail."""
    error = CallPostponedError("x", code="503", retry_after_seconds=5, was_sent=True)
    assert [delay(error, attempts) for attempts in (0, 2, 99)] == pytest.approx([7, 13, 65], abs=0.9)


def test_a_moved_watermark_is_retried_soon() -> None:
    assert delay(WatermarkMovedError("x"), attempts=5) <= 0.5


@pytest.mark.parametrize("error", [asyncio.CancelledError(), JobAborted()])
def test_a_stopping_worker_gives_its_jobs_back_any_number_of_times(error: BaseException) -> None:
    assert delay(error, attempts=99) == 0.0


def test_a_job_run_again_by_hand_has_all_its_attempts() -> None:
    error = TransientProviderError("x")
    assert delay(error, attempts=8, tried=8) == pytest.approx(2, abs=0.9)
    assert delay(error, attempts=14, tried=8) is not None
    assert delay(error, attempts=15, tried=8) is None


def test_the_stored_text_of_an_error_is_valid() -> None:
    """NUL and lone surrogates, which PostgreSQL rejects, are replaced; long texts are cut."""
    kept = describe(MalformedReplyError("a\x00b\ud800" + "c" * 9999, code="malformed", raw_reply="\x00{"))
    assert "\x00" not in kept.error
    assert len(kept.error) < 4100
    assert kept.error.encode()
    assert kept.raw_reply == "\ufffd{"


async def test_two_429s_then_a_reply_complete_at_the_third_attempt(tables: asyncpg.Pool, workers: Workers) -> None:
    """The waits are at least the provider's delay (0.2 s)."""
    await workers.start("fast_replay")
    await tables.execute("INSERT INTO scripted (fault) VALUES ('429'), ('429')")
    job_id = await harness.enqueue(tables, await harness.make_thread(tables))
    await harness.wait_for_status(tables, job_id, "completed")
    row = await tables.fetchrow("SELECT * FROM consolidation_jobs WHERE id = $1", job_id)
    assert row["attempts"] == 3
    assert row["error"] is row["error_code"] is row["raw_reply"] is None
    times = [each["at"] for each in await tables.fetch("SELECT at FROM attempts_made ORDER BY at")]
    waits = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    assert all(wait >= 0.2 for wait in waits), waits
    assert await harness.count(tables, "effects") == 1


async def test_a_permanent_error_fails_at_once_keeps_its_reply_and_can_be_run_again(
    tables: asyncpg.Pool, workers: Workers
) -> None:
    """400: one attempt, status failed, error and raw reply kept; run again by hand it completes,
    and the error is gone."""
    await workers.start("fast_replay")
    await tables.execute("INSERT INTO scripted (fault) VALUES ('400')")
    job_id = await harness.enqueue(tables, await harness.make_thread(tables))
    await harness.wait_for_status(tables, job_id, "failed")
    row = await tables.fetchrow("SELECT * FROM consolidation_jobs WHERE id = $1", job_id)
    assert (row["attempts"], row["error_code"]) == (1, "400")
    assert SECRET in row["error"]
    assert SECRET in row["raw_reply"]
    await tables.execute("SELECT retry_failed_job($1)", job_id)
    await harness.wait_for_status(tables, job_id, "completed")
    row = await tables.fetchrow("SELECT * FROM consolidation_jobs WHERE id = $1", job_id)
    assert (row["attempts"], row["error"], row["raw_reply"]) == (2, None, None)
    assert await harness.count(tables, "effects") == 1


async def test_a_transport_fault_fails_after_all_attempts_with_the_last_error(
    tables: asyncpg.Pool, workers: Workers
) -> None:
    await workers.start("fast_replay", job_attempts_max="3")
    await tables.execute("INSERT INTO scripted (fault) VALUES ('503'), ('503'), ('503'), ('503')")
    job_id = await harness.enqueue(tables, await harness.make_thread(tables))
    await harness.wait_for_status(tables, job_id, "failed")
    row = await tables.fetchrow("SELECT attempts, error_code FROM consolidation_jobs WHERE id = $1", job_id)
    assert tuple(row) == (3, "503")


async def test_a_job_that_waits_for_its_retry_does_not_keep_its_slot(tables: asyncpg.Pool, workers: Workers) -> None:
    """A daily quota: the job waits for hours in the queue, its last error is visible, and other jobs run."""
    await workers.start("fast_replay", fast_replay_concurrency="1")
    await tables.execute("INSERT INTO scripted (fault) VALUES ('daily')")
    waiting = await harness.enqueue(tables, await harness.make_thread(tables, "a"))
    await until(lambda: _error_code(tables, waiting))
    assert await harness.status_of(tables, waiting) == "pending"
    due = await tables.fetchval("SELECT scheduled_at - now() FROM procrastinate_jobs")
    assert due > datetime.timedelta(minutes=59)
    neighbour = await harness.enqueue(tables, await harness.make_thread(tables, "b"))
    await harness.wait_for_status(tables, neighbour, "completed")


async def _error_code(pool: asyncpg.Pool, job_id: object) -> str | None:
    code: str | None = await pool.fetchval("SELECT error_code FROM consolidation_jobs WHERE id = $1", job_id)
    return code


async def test_a_running_job_can_be_cancelled(tables: asyncpg.Pool, workers: Workers) -> None:
    """The attempt is cut off, nothing is written, and the job is cancelled, not retried."""
    await workers.start("fast_replay")
    async with harness.gate(tables):
        job_id = await harness.enqueue(tables, await harness.make_thread(tables))
        await harness.wait_for_status(tables, job_id, "running")
        assert await tables.fetchval("SELECT cancel_job($1)", job_id)
        await harness.wait_for_status(tables, job_id, "cancelled")
    assert await harness.count(tables, "effects") == 0


async def test_the_stored_database_error_quotes_no_row(pool: asyncpg.Pool) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as caught:
        await pool.execute("INSERT INTO app_policies (app_name, fast_events) VALUES ('what the user said', 0)")
    assert "what the user said" in str(caught.value)
    kept = describe(caught.value)
    assert "fast_events" in kept.error
    assert "what the user said" not in kept.error


async def test_a_worker_that_is_out_of_memory_fails_no_job(tables: asyncpg.Pool, workers: Workers) -> None:
    """The attempt is repeated, and the process and its other jobs go on."""
    await tables.execute("INSERT INTO scripted (fault) VALUES ('memory'), ('memory')")
    worker = await workers.start("fast_replay")
    jobs = [await harness.enqueue(tables, await harness.make_thread(tables, f"s{number}")) for number in range(3)]
    for job in jobs:
        await harness.wait_for_status(tables, job, "completed")
    assert await harness.count(tables, "attempts_made") == 5
    assert worker.popen.poll() is None


async def test_a_wrong_clock_delays_no_retry(
    tables: asyncpg.Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker three days ahead gives its job back for a second by the database's clock, and the doctor names it."""
    monkeypatch.setenv("CLOCK_AHEAD_SECONDS", "259200")
    await tables.execute("INSERT INTO scripted (fault) VALUES ('503'), ('429')")
    await workers.start("fast_replay")
    job = await harness.enqueue(tables, await harness.make_thread(tables))
    await harness.wait_for_status(tables, job, "completed")
    assert await harness.count(tables, "attempts_made") == 3
    monkeypatch.setenv("DATABASE_URL", workers.dsn)
    found = {each.check: each async for each in doctor.examine(settings.load())}
    assert found["clocks"].verdict == "problem"
    ahead = re.search(r"fast_replay on 127\.0\.0\.1 is \+(\d+)", found["clocks"].found)
    assert ahead is not None, found["clocks"].found
    # Less what its registration took on a busy machine.
    assert 259_140 <= int(ahead[1]) <= 259_201
