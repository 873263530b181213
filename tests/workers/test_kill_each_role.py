"""kill -9 of each role in the middle of its work: nothing is lost, nothing is duplicated."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx
import pytest

from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.real_worker import KEY, PRODUCT, SAID, gemini_settings
from tests.support.real_worker import say as finalised_conversation
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import WorkerProcess, Workers
from tests.support.writer_process import WriterProcess, append, say

SESSIONS = "/v1/apps/app/users/user/sessions"


async def test_a_killed_writers_clients_retry_and_every_event_is_stored_once(
    dsn: str, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    """One append hangs inside its transaction, others were answered or never arrived: retries with the same ids resolve
    all."""
    events = [say(f"turn {number}", id=f"e{number}") for number in range(60)]
    async with pool.acquire() as gate:
        with WriterProcess(dsn, tmp_path / "first.log") as first:
            async with httpx.AsyncClient(base_url=first.url, timeout=WAIT_SECONDS) as client:
                assert (await client.post(SESSIONS, json={"session_id": "s"})).status_code == 201
                for event in events[:20]:
                    assert (await append(client, f"{SESSIONS}/s", event)).is_success
                held = gate.transaction()
                await held.start()
                await gate.execute("SELECT FROM threads FOR UPDATE")
                hanging = asyncio.create_task(append(client, f"{SESSIONS}/s", *events[20:40]))
                await until(lambda: waits_for_a_lock(pool))
                assert first.process is not None
                first.process.kill()
                with pytest.raises(httpx.TransportError):
                    await hanging
        await held.rollback()
    with WriterProcess(dsn, tmp_path / "second.log") as second:
        async with httpx.AsyncClient(base_url=second.url, timeout=WAIT_SECONDS) as client:
            for start in range(0, 60, 20):
                assert (await append(client, f"{SESSIONS}/s", *events[start : start + 20])).is_success
    stored = await pool.fetch("SELECT id, sequence_num FROM events ORDER BY sequence_num")
    assert [tuple(row) for row in stored] == [(f"e{number}", number + 1) for number in range(60)]
    assert await harness.count(pool, "messages") == 60
    assert await pool.fetchval("SELECT max(upto_seq) FROM consolidation_jobs") == 60
    assert await pool.fetchval("SELECT count(*) FROM consolidation_jobs WHERE procrastinate_job_id IS NULL") == 0


async def killed_in_a_call(
    pool: asyncpg.Pool, workers: Workers, role: str, gemini: FakeGemini, operation: str
) -> tuple[WorkerProcess, UUID]:
    """Kill a worker during its call; return it, and the session's thread, after another worker has done the job."""
    gemini.script("hang", operation=operation)
    victim = await workers.start(role, module=PRODUCT, **gemini_settings(gemini))
    thread = await finalised_conversation(pool)
    await until(lambda: gemini.stats()["calls"].get(operation))
    victim.send(signal.SIGKILL)
    await workers.start(role, module=PRODUCT, **gemini_settings(gemini))
    done = "SELECT status = 'completed' AND attempts = 2 FROM consolidation_jobs WHERE job_type = $1"
    await until(lambda: pool.fetchval(done, role))
    return victim, thread


@pytest.mark.parametrize("role", ["fast_replay", "deep_reflection"])
async def test_a_killed_workers_job_is_done_once(pool: asyncpg.Pool, workers: Workers, role: str) -> None:
    async with FakeGemini() as gemini:
        victim, thread = await killed_in_a_call(pool, workers, role, gemini, "generateContent")
        learned = await pool.fetch("SELECT memory_type, from_seq, upto_seq FROM memories ORDER BY 1")
        facts = await pool.fetchval("SELECT count(*) FROM facts")
        if role == "fast_replay":
            assert [tuple(row) for row in learned] == [("episodic", 1, len(SAID)), ("summary", 1, len(SAID))]
        else:
            assert facts == await pool.fetchval("SELECT count(DISTINCT (fact_type, key)) FROM facts") > 0
            assert await harness.count(pool, "fact_versions") == facts
            assert len(learned) == len({tuple(row) for row in learned})
        watermark = "fast_upto_seq" if role == "fast_replay" else "deep_upto_seq"
        assert await pool.fetchval(f"SELECT {watermark} = last_seq FROM threads WHERE id = $1", thread)
        assert KEY not in victim.lines()


@pytest.mark.parametrize("role", ["fast_replay", "deep_reflection"])
async def test_what_a_killed_worker_has_paid_for_is_not_asked_again(
    pool: asyncpg.Pool, workers: Workers, role: str
) -> None:
    """Killed after the model's reply, while vectors are made: the next worker takes the reply, and asks for the
    vectors alone."""
    async with FakeGemini() as gemini:
        _, thread = await killed_in_a_call(pool, workers, role, gemini, "batchEmbedContents")
        assert gemini.stats()["calls"]["generateContent"] == 1
        assert await pool.fetchval("SELECT reused_replies FROM threads WHERE id = $1", thread) == 1


@pytest.mark.parametrize("role", ["fast_replay", "deep_reflection"])
async def test_vectors_that_a_killed_worker_has_paid_for_are_not_asked_for_again(
    pool: asyncpg.Pool, workers: Workers, role: str
) -> None:
    """Killed while it stores what it has derived: the next worker takes the reply and the vectors, and asks nothing."""
    done = "SELECT status = 'completed' AND attempts = 2 FROM consolidation_jobs WHERE job_type = $1"
    async with FakeGemini() as gemini:
        async with pool.acquire() as gate, gate.transaction():
            await gate.execute("LOCK TABLE memories, facts IN SHARE MODE")
            victim = await workers.start(role, module=PRODUCT, **gemini_settings(gemini))
            thread = await finalised_conversation(pool)
            await until(lambda: waits_for_a_lock(pool))
            victim.send(signal.SIGKILL)
            await victim.ended()
            kept = await pool.fetchrow("SELECT thread_id, vectors IS NOT NULL AS has_vectors FROM model_replies")
        await workers.start(role, module=PRODUCT, **gemini_settings(gemini))
        await until(lambda: pool.fetchval(done, role))
        assert gemini.stats()["calls"] == {"generateContent": 1, "batchEmbedContents": 1}
    assert kept == (thread, True)
    assert await harness.count(pool, "model_replies") == 0
    rows = "memories" if role == "fast_replay" else "facts"
    assert await pool.fetchval(f"SELECT count(*) > 0 AND bool_and(embedding IS NOT NULL) FROM {rows}")


async def test_a_killed_cleanup_leaves_each_memory_in_place_or_archived(pool: asyncpg.Pool, workers: Workers) -> None:
    """Killed while a batch waits for the archive; the next run continues: each weak one archived
    once, no strong one."""
    await pool.execute(
        """INSERT INTO memories (app_name, user_id, content, initial_score, last_accessed_at, created_at)
           SELECT 'app', 'user', n::text, CASE WHEN n <= 1500 THEN 0.5 ELSE 1 END,
                  now() - make_interval(days => CASE WHEN n <= 1500 THEN 90 ELSE 1 END), now() - interval '90 days'
           FROM generate_series(1, 2000) AS n"""
    )
    victim = await workers.start("retention", module=PRODUCT)
    async with pool.acquire() as gate:
        held = gate.transaction()
        await held.start()
        await gate.execute("LOCK TABLE memories_archive IN SHARE MODE")
        await run_retention(pool)
        await until(lambda: waits_for_a_lock(pool))
        victim.send(signal.SIGKILL)
        await victim.ended()
        await held.rollback()
    await workers.start("retention", module=PRODUCT)

    async def cleaned() -> bool:
        """Rows locked by another task are left to the next run, as in production."""
        live = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'retention' AND status IN ('todo', 'doing')"
        if not await pool.fetchval(live):
            await run_retention(pool)
        return bool(await pool.fetchval("SELECT count(*) = 500 FROM memories"))

    await until(cleaned)
    archived = await pool.fetchrow(
        """SELECT count(*) AS rows, count(DISTINCT content) AS contents, max(content::int) AS last
           FROM memories_archive"""
    )
    assert archived is not None
    assert tuple(archived) == (1500, 1500, 1500)


async def run_retention(pool: asyncpg.Pool) -> None:
    await pool.execute(
        """SELECT procrastinate_defer_jobs_v1(ARRAY[ROW('maintenance', 'retention', 0, 'retention', NULL,
                                              '{}'::jsonb, NULL)::procrastinate_job_to_defer_v1])"""
    )


async def waits_for_a_lock(pool: asyncpg.Pool) -> bool:
    return bool(
        await pool.fetchval(
            """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""
        )
    )
