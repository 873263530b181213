"""A provider that is down for an hour, by a clock that is set forward, with the settings that an installation has.

Promised: no job fails, none uses up its attempts, the provider is asked seldom, and what waited is done by itself.
"""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.waiting import until
from tests.support.worker_harness import Workers
from tests.support.writer_process import free_port
from workers.settings import Settings

pytestmark = pytest.mark.system

HOUR = 3600.0
SESSIONS = 12
#: How long until a job is due and, while the breaker is open, the next call may be made.
UNTIL_DUE = """
SELECT greatest(0, extract(epoch FROM greatest(
    (SELECT min(coalesce(scheduled_at, now())) FROM procrastinate_jobs
     WHERE status = 'todo' AND queue_name = 'fast_replay'),
    (SELECT max(next_probe_at) FROM call_breakers)) - clock_timestamp()))::float
"""
#: Whether nothing happens until then.
IS_WAITING = """
SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE queue_name = 'fast_replay' AND status = 'doing')
   AND (NOT EXISTS (SELECT FROM procrastinate_jobs WHERE queue_name = 'fast_replay' AND status = 'todo'
                    AND coalesce(scheduled_at, now()) <= now())
        OR EXISTS (SELECT FROM call_breakers WHERE state <> 'closed' AND next_probe_at > clock_timestamp()))
"""
WAKE = """SELECT pg_notify('procrastinate_queue_v1#fast_replay', '{"type": "job_inserted", "job_id": 0}')"""
STATUSES = "SELECT array_agg(DISTINCT status) FROM consolidation_jobs WHERE job_type = 'fast_replay'"


class Hour:
    """The time that the worker and the database live in."""

    def __init__(self, pool: asyncpg.Pool, file: Path) -> None:
        self._pool = pool
        self._file = file
        self.seconds = 0.0
        file.write_text("0")

    async def go_on(self) -> None:
        """Set the clock forward to when something is due, and wait until it was done."""
        seconds = await self._pool.fetchval(UNTIL_DUE) + 0.01
        self.seconds += seconds
        later = self._file.with_suffix(".new")
        later.write_text(str(self.seconds))
        later.rename(self._file)
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "UPDATE call_breakers SET next_probe_at = next_probe_at - make_interval(secs => $1),"
                " first_failure_at = first_failure_at - make_interval(secs => $1)",
                seconds,
            )
            await connection.execute(
                "UPDATE procrastinate_jobs SET scheduled_at = scheduled_at - make_interval(secs => $1)"
                " WHERE status = 'todo' AND queue_name = 'fast_replay'",
                seconds,
            )

        async def is_done() -> bool:
            # Again and again: a worker that is not yet asleep does not hear it.
            await self._pool.execute(WAKE)
            return bool(await self._pool.fetchval(IS_WAITING))

        await until(is_done)


async def test_a_provider_that_is_down_for_an_hour(
    pool: asyncpg.Pool, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Held: no other process takes it while the provider is down.
    port = free_port()
    fake = FakeGemini()
    clock = Hour(pool, tmp_path / "clock")
    monkeypatch.setenv("CLOCK_FILE", str(tmp_path / "clock"))
    worker = await workers.start(
        "fast_replay",
        module="tests.support.clocked_worker",
        provider="gemini",
        provider_api_key="AIza-test-key-0123456789",
        provider_base_url=f"http://127.0.0.1:{port}",
        provider_attempts_max="1",
        retry_base_seconds="2",
        retry_delay_seconds_max="600",
    )
    for number in range(SESSIONS):
        await harness.enqueue(pool, await harness.make_thread(pool, f"s{number}"))
    await until(lambda: pool.fetchval(IS_WAITING))
    while clock.seconds < HOUR:
        await clock.go_on()
        assert set(await pool.fetchval(STATUSES)) <= {"pending", "running"}
    down = await pool.fetchrow("SELECT state, probes FROM call_breakers")
    used = await pool.fetchval(
        "SELECT max(attempts - (args ->> 'tried')::int) FROM procrastinate_jobs WHERE queue_name = 'fast_replay'"
    )
    await fake.start(port)
    try:
        back_at = clock.seconds
        while await pool.fetchval(STATUSES) != ["completed"]:
            await clock.go_on()
        took = clock.seconds - back_at
    finally:
        await fake.stop()
    # The breaker's times: 5, 10, 20, 40, then 80 s.
    assert down["state"] != "closed"
    assert 20 <= down["probes"] <= 50
    assert used < Settings().job_attempts_max
    assert took <= 80 + Settings().retry_delay_seconds_max * 2
    assert fake.stats()["calls"]["generateContent"] == SESSIONS
    assert worker.popen.poll() is None
