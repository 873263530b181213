"""10,000 jobs at once: 10,000 sessions become due in the same moment, and one of two workers is killed meanwhile.

Promised: a backlog costs no job, no job is done twice, a worker takes no more than its slots, and appends go on.
"""

from __future__ import annotations

import asyncio
import signal
import time

import asyncpg
import pytest

from pulse import Event, OpenSessionService
from tests.support.pace import at_this_pace
from tests.support.waiting import until
from tests.support.worker_harness import Workers

pytestmark = [pytest.mark.system, pytest.mark.timing]

JOBS = 10_000
SLOTS = 10
KILLED_AFTER = 300
#: All of them would take a minute of processor time: the rest waits when the workers stop.
DONE = 1_000
APPEND_SECONDS_MAX = 1.0
SESSIONS = """
INSERT INTO threads (app_name, user_id, session_id) SELECT 'shop', 'u' || g % 100, 's' || g
FROM generate_series(1, $1::integer) AS g
"""
ENQUEUED = "SELECT count(*) FROM threads AS t, enqueue_consolidation(t.id, 'fast_replay') WHERE t.app_name = 'shop'"
COMPLETED = "SELECT count(*) FROM consolidation_jobs WHERE status = 'completed'"
RUNNING = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'"
#: Without the job of the session that is appended to meanwhile.
STATUSES = """
SELECT j.status, count(*) FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id
WHERE t.app_name = 'shop' GROUP BY j.status
"""
NO_ORPHANS = "SELECT NOT EXISTS (SELECT FROM find_orphans(3600))"
#: How many jobs have ended, and the most ends of one.
ENDS = """
SELECT count(*) AS jobs, max(n) AS most FROM (
    SELECT count(*) AS n FROM procrastinate_events AS e
    JOIN consolidation_jobs AS j ON j.procrastinate_job_id = e.job_id JOIN threads AS t ON t.id = j.thread_id
    WHERE e.type = 'succeeded' AND t.app_name = 'shop' GROUP BY e.job_id) AS ends
"""


@pytest.mark.timeout(300)
async def test_ten_thousand_jobs_at_once(pool: asyncpg.Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "fast_replay_concurrency": str(SLOTS),
        "database_pool_size": str(SLOTS + 2),
        "queue_pool_size": str(SLOTS),
        "log_level": "warning",
    }
    monkeypatch.setenv("BENCH_QUIET", "1")
    await pool.execute(SESSIONS, JOBS)
    assert await pool.fetchval(ENQUEUED) == JOBS
    killed, kept = (workers.spawn("fast_replay", module="benchmarks.instant_worker", **settings) for _ in range(2))
    most_running = 0

    async def has_done(count: int) -> bool:
        nonlocal most_running
        most_running = max(most_running, await pool.fetchval(RUNNING))
        return bool(await pool.fetchval(COMPLETED) >= count)

    stop = asyncio.Event()
    appends = asyncio.create_task(append_until(stop, pool))
    try:
        await until(lambda: has_done(KILLED_AFTER), seconds=120)
        killed.send(signal.SIGKILL)
        await until(lambda: has_done(DONE), seconds=120)
        await until(lambda: pool.fetchval(NO_ORPHANS), "the dead worker's jobs are given back")
    finally:
        stop.set()
        waits = sorted(await appends)
    kept.send(signal.SIGTERM)
    assert await kept.ended() == 0
    statuses = {row["status"]: row["count"] for row in await pool.fetch(STATUSES)}
    assert set(statuses) == {"completed", "pending"}
    assert sum(statuses.values()) == JOBS
    assert tuple(await pool.fetchrow(ENDS)) == (statuses["completed"], 1)
    assert 0 < most_running <= 2 * SLOTS
    assert waits[int(len(waits) * 0.99)] < at_this_pace(APPEND_SECONDS_MAX)


async def append_until(stop: asyncio.Event, pool: asyncpg.Pool) -> list[float]:
    """Append one event after the other; return how long each took, in seconds."""
    service = OpenSessionService(pool)
    session = await service.create_session(app_name="live", user_id="mei", session_id="s")
    waits = []
    while not stop.is_set():
        began = time.perf_counter()
        await service.append_event(session, Event(author="user", content={"text": "hello"}))
        waits.append(time.perf_counter() - began)
        await asyncio.sleep(0.05)
    await service.close()
    return waits
