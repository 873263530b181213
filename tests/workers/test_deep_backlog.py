"""A deep queue of reflections delays neither appends nor summaries: their jobs have processes of their own."""

from __future__ import annotations

import asyncpg

from pulse import Event, OpenSessionService
from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.pace import at_this_pace
from tests.support.real_worker import PRODUCT, gemini_settings
from tests.support.waiting import until
from tests.support.worker_harness import Workers

BACKLOG = 1_000
SUMMARIES = 10
SLOTS = 2
#: A job is fetched at its notification, within milliseconds. One that is not waits for a poll.
START_SECONDS_MAX = 0.25
SESSIONS = """
INSERT INTO threads (app_name, user_id, session_id)
SELECT 'deep', 'u', 's' || g FROM generate_series(1, $1::integer) AS g
"""
ENQUEUED = "SELECT count(*) FROM threads AS t, enqueue_consolidation(t.id, 'deep_reflection') WHERE t.app_name = 'deep'"
STATES = "SELECT status::text, count(*) FROM procrastinate_jobs WHERE queue_name = 'deep_reflection' GROUP BY status"
#: How long the jobs of a kind of session waited for their start, in seconds: the middle one.
WAITED = """
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started.at - deferred.at)::float)
FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
JOIN procrastinate_events AS deferred ON deferred.job_id = j.procrastinate_job_id AND deferred.type = 'deferred'
JOIN procrastinate_events AS started ON started.job_id = j.procrastinate_job_id AND started.type = 'started'
WHERE t.app_name = $1 AND j.job_type = 'fast_replay' AND j.status = 'completed'
"""


async def summarise(pool: asyncpg.Pool, app: str) -> float:
    """Append to new sessions and have each summarised; return how long their jobs waited for their start."""
    service = OpenSessionService(pool)
    for number in range(SUMMARIES):
        session = await service.create_session(app, "u", session_id=f"s{number}")
        await service.append_event(session, Event(author="user", content={"text": f"Hello {number}"}))
        job = await harness.enqueue(pool, session.thread_id)
        await harness.wait_for_status(pool, job, "completed")
    await service.close()
    return float(await pool.fetchval(WAITED, app))


async def test_a_deep_queue_delays_neither_appends_nor_summaries(pool: asyncpg.Pool, workers: Workers) -> None:
    """A model that answers no reflection, a thousand jobs behind those that wait for it: no limit of calls is set."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    async with FakeGemini() as gemini:
        gemini.script("hang", operation="generateContent", times=SLOTS)
        await workers.start("fast_replay", module=PRODUCT, provider="local")
        usual = await summarise(pool, "before")
        for number in range(SLOTS):
            await harness.enqueue(pool, await harness.make_thread(pool, f"s{number}"), "deep_reflection")
        await pool.execute(SESSIONS, BACKLOG)
        assert await pool.fetchval(ENQUEUED) == BACKLOG
        concurrency = {"deep_reflection_concurrency": str(SLOTS)}
        await workers.start("deep_reflection", module=PRODUCT, **gemini_settings(gemini), **concurrency)
        await until(lambda: gemini.stats()["calls"].get("generateContent") == SLOTS)
        beside = await summarise(pool, "after")
        assert dict(await pool.fetch(STATES)) == {"doing": SLOTS, "todo": BACKLOG}
    assert beside < max(3 * usual, at_this_pace(START_SECONDS_MAX))
