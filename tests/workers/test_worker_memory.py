"""The whole path through real processes: a conversation becomes memories, whatever happens to the workers."""

from __future__ import annotations

import asyncio
import signal
import time

import asyncpg

from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.real_worker import KEY, PRODUCT, gemini_settings, say
from tests.support.waiting import until
from tests.support.worker_harness import Workers


async def all_ended(pool: asyncpg.Pool) -> bool:
    return bool(
        await pool.fetchval("SELECT bool_and(status IN ('completed', 'failed', 'cancelled')) FROM consolidation_jobs")
    )


async def summaries(pool: asyncpg.Pool) -> int:
    number: int = await pool.fetchval("SELECT count(*) FROM memories WHERE memory_type = 'summary'")
    return number


async def test_a_conversation_becomes_memories_and_facts(pool: asyncpg.Pool, workers: Workers) -> None:
    """Without a key: both pools, the local provider, every event consolidated; no log line has a text of the
    conversation."""
    started = [await workers.start(name, module=PRODUCT) for name in ("fast_replay", "deep_reflection")]
    await say(pool)
    await until(lambda: all_ended(pool))
    thread = await pool.fetchrow("SELECT last_seq, fast_upto_seq, deep_upto_seq FROM threads")
    assert tuple(thread) == (4, 4, 4)
    assert await summaries(pool) == 1
    facts = {row["value"] for row in await pool.fetch("SELECT value #>> '{}' AS value FROM facts")}
    assert any("Bruges" in fact for fact in facts)
    for worker in started:
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        for word in ("Marguerite", "Bruges", "quokka", "plum"):
            assert word not in worker.lines()


async def test_a_worker_killed_during_the_model_call_leaves_one_summary(pool: asyncpg.Pool, workers: Workers) -> None:
    """The model hangs, the worker is killed, another does the job at once: one summary, one slice."""
    async with FakeGemini() as gemini:
        gemini.script("hang", operation="generateContent")
        victim = await workers.start("fast_replay", module=PRODUCT, **gemini_settings(gemini))
        await say(pool)
        await until(lambda: gemini.stats()["calls"].get("generateContent"))
        await workers.start("fast_replay", module=PRODUCT, **gemini_settings(gemini))
        victim.send(signal.SIGKILL)
        killed_at = time.monotonic()

        async def summarised() -> bool:
            return await summaries(pool) == 1

        await until(summarised)
        assert time.monotonic() - killed_at < 20
        assert await pool.fetchval("SELECT count(*) FROM memories WHERE memory_type = 'episodic'") == 1
        job = await pool.fetchrow("SELECT status, attempts FROM consolidation_jobs WHERE job_type = 'fast_replay'")
        assert tuple(job) == ("completed", 2)
        assert KEY not in victim.lines()


async def test_two_429s_then_a_reply_complete_with_three_attempts(pool: asyncpg.Pool, workers: Workers) -> None:
    """No attempt comes earlier than the API requested."""
    async with FakeGemini() as gemini:
        gemini.script("rate_limit", operation="generateContent", times=2, retry_delay_seconds=0.3)
        started = time.monotonic()
        await workers.start("fast_replay", module=PRODUCT, **gemini_settings(gemini))
        await say(pool)

        async def completed() -> bool:
            return bool(await pool.fetchval("SELECT bool_or(status = 'completed') FROM consolidation_jobs"))

        await until(completed)
        assert time.monotonic() - started > 0.6
        job = await pool.fetchrow("SELECT attempts, error FROM consolidation_jobs WHERE job_type = 'fast_replay'")
        assert tuple(job) == (3, None)
        assert await summaries(pool) == 1


async def test_a_malformed_reply_fails_is_kept_and_can_be_run_again(pool: asyncpg.Pool, workers: Workers) -> None:
    """Broken JSON, also after the repair: failed at the first attempt, the raw reply in the row, not in the log."""
    async with FakeGemini() as gemini:
        gemini.script("broken_json", operation="generateContent", times=2)
        worker = await workers.start("deep_reflection", module=PRODUCT, **gemini_settings(gemini))
        await say(pool)

        async def failed() -> asyncpg.Record | None:
            return await pool.fetchrow("SELECT * FROM consolidation_jobs WHERE status = 'failed'")

        job = await until(failed)
        assert job["attempts"] == 1
        assert job["raw_reply"]
        assert job["raw_reply"] not in worker.lines()
        await asyncio.sleep(0.6)  # a poll: no worker takes it by itself
        assert await harness.status_of(pool, job["id"]) == "failed"
        await pool.execute("SELECT retry_failed_job($1)", job["id"])
        await harness.wait_for_status(pool, job["id"], "completed")
