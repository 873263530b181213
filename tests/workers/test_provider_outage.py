"""Real workers and a model that is down, refuses or hangs: no attempt of a job is wasted, all complete in the end."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.scraping import scrape, targets
from tests.support.waiting import until
from tests.support.worker_harness import WorkerProcess, Workers
from tests.support.writer_process import free_port

MODEL = "gemini-flash-lite-latest"


@pytest.fixture
async def fake() -> AsyncIterator[FakeGemini]:
    async with FakeGemini() as running:
        yield running


async def start(workers: Workers, fake: FakeGemini, **settings: str) -> WorkerProcess:
    """A fast_replay worker of the product, which calls the fake."""
    return await workers.start(
        "fast_replay",
        module="workers.worker",
        provider="gemini",
        provider_api_key="AIza-test-key-0123456789",
        provider_base_url=fake.base_url,
        provider_attempts_max="1",
        **settings,
    )


async def enqueue(pool: asyncpg.Pool, *names: str) -> list[UUID]:
    return [await harness.enqueue(pool, await harness.make_thread(pool, name)) for name in names]


async def error_code(pool: asyncpg.Pool, job: UUID) -> str | None:
    code: str | None = await pool.fetchval("SELECT error_code FROM consolidation_jobs WHERE id = $1", job)
    return code


async def test_an_outage_uses_up_no_attempts(pool: asyncpg.Pool, workers: Workers, fake: FakeGemini) -> None:
    """The provider is down for many calls: no job fails although each has two attempts; then all complete."""
    await fake.stop()
    port = free_port()  # which nobody else is given meanwhile
    fake.base_url = f"http://127.0.0.1:{port}"
    await start(
        workers,
        fake,
        breaker_failures="1",
        breaker_open_seconds="0.05",
        job_attempts_max="2",
        # So that a probe whose outcome a busy machine does not report in time is soon followed by the next one.
        generate_timeout_seconds="10",
    )
    jobs = await enqueue(pool, *"abcdef")

    async def probed_often() -> bool:
        return (await pool.fetchval("SELECT max(probes) FROM call_breakers") or 0) >= 6

    await until(probed_often)
    state = await pool.fetchrow("SELECT name, state FROM call_breakers")
    assert state["name"] == f"fast_replay/{MODEL}"
    assert state["state"] != "closed"
    assert await pool.fetchval("SELECT count(*) FROM consolidation_jobs WHERE status = 'failed'") == 0
    await fake.start(port)
    for job in jobs:
        await harness.wait_for_status(pool, job, "completed")
    assert await pool.fetchval("SELECT state FROM call_breakers") == "closed"
    assert fake.stats()["calls"]["generateContent"] == len(jobs)


async def test_a_daily_quota_stops_every_process_for_long(
    pool: asyncpg.Pool, workers: Workers, fake: FakeGemini
) -> None:
    """One call detects it. Its job comes back after an hour or more; another process's job does so without a call."""
    fake.script("rate_limit", retry_delay_seconds=1, daily=True, times=100)
    await start(workers, fake)
    [first] = await enqueue(pool, "a")
    await until(lambda: error_code(pool, first))
    await start(workers, fake)
    [second] = await enqueue(pool, "b")
    await until(lambda: error_code(pool, second))
    assert [await error_code(pool, job) for job in (first, second)] == ["429", "limited"]
    assert fake.stats()["calls"] == {"generateContent": 1}
    rows = await pool.fetch(
        "SELECT status, attempts - (args ->> 'tried')::int AS used, scheduled_at - now() AS due FROM procrastinate_jobs"
    )
    assert {(row["status"], row["used"]) for row in rows} == {("todo", 0)}
    assert min(row["due"] for row in rows) > datetime.timedelta(minutes=59)


async def test_a_paused_worker_leaves_jobs_in_the_queue(pool: asyncpg.Pool, workers: Workers, fake: FakeGemini) -> None:
    """While a process knows that calls are refused, it fetches nothing: a long queue is not cycled in vain."""
    fake.script("rate_limit", retry_delay_seconds=3)
    await start(workers, fake, fast_replay_concurrency="1", limit_wait_seconds_max="0.5")
    [first] = await enqueue(pool, "a")
    await until(lambda: error_code(pool, first))
    others = await enqueue(pool, *"bcd")
    for job in (first, *others):
        await harness.wait_for_status(pool, job, "completed")
    attempts = await pool.fetch("SELECT attempts FROM consolidation_jobs WHERE id = ANY ($1)", others)
    assert [row["attempts"] for row in attempts] == [1, 1, 1]


async def test_a_cancelled_call_is_counted(pool: asyncpg.Pool, workers: Workers, fake: FakeGemini) -> None:
    """A cancelled job stops its call immediately, and the metrics count it."""
    fake.script("hang")
    await start(workers, fake)
    [job] = await enqueue(pool, "a")
    await until(lambda: fake.requests)
    assert await pool.fetchval("SELECT cancel_job($1)", job)
    await harness.wait_for_status(pool, job, "cancelled")
    [address] = (await targets(pool))["fast_replay"]

    async def counted() -> bool:
        return (await scrape(address)).get(("model_requests_total", "cancelled", "summarize", "gemini")) == 1

    await until(counted)
    await until(lambda: fake.stats()["aborted"] == 1)


async def test_the_gauges_show_breakers_and_penalties(pool: asyncpg.Pool, workers: Workers) -> None:
    """One process exports the shared values, and the number of texts for which a model refused a vector."""
    await pool.execute("INSERT INTO embedding_refusals VALUES ('facts', gen_random_uuid(), 'm', md5('x'), '400')")
    await pool.execute("SELECT report_failure('fast_replay/m', NULL, '503', 1, 60, 600)")
    await pool.execute("SELECT penalise_limit('m', 600, '429')")
    await workers.start("retention")
    [address] = (await targets(pool))["retention"]

    async def exported() -> dict[tuple[str, ...], float]:
        seen = await scrape(address)
        return seen if ("model_breaker_state", "fast_replay/m", "open") in seen else {}

    seen = await until(exported)
    assert [seen["model_breaker_state", "fast_replay/m", state] for state in ("closed", "open", "half_open")] == [
        0,
        1,
        0,
    ]
    assert seen["embedding_refused_texts", "m"] == 1
    assert 500 < seen["model_limit_blocked_seconds", "m"] <= 600
