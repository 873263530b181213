"""An agent's process needs only the library and a DSN: no code of the workers or the queue."""

from __future__ import annotations

import subprocess
import sys

import asyncpg

from tests.support.paths import ROOT
from tests.support.real_worker import PRODUCT
from tests.support.waiting import until
from tests.support.worker_harness import Workers

AGENT = """
import asyncio, sys
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.local.provider import LocalEmbedder
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService

async def main():
    async with await database.create_pool(sys.argv[1]) as pool:
        sessions = OpenSessionService(pool)
        session = await sessions.create_session("app", "user", session_id="s")
        await sessions.append_event(session, Event(author="user", content={"text": "My name is Marguerite."}))
        memory = OpenMemoryService(pool, LocalEmbedder())
        job = await memory.add_session_to_memory("app", "user", "s")
        await sessions.close()
        print(job["job_id"], job["status"])

asyncio.run(main())
known = {name.partition(".")[0] for name in sys.modules}
print(sorted(known & {"workers", "procrastinate", "psycopg", "google", "click", "fastapi"}))
"""


async def test_a_job_that_an_agent_enqueues_is_completed(dsn: str, pool: asyncpg.Pool, workers: Workers) -> None:
    done = subprocess.run([sys.executable, "-c", AGENT, dsn], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    enqueued, imported = done.stdout.splitlines()
    job_id, status = enqueued.split()
    assert (status, imported) == ("pending", "[]")
    await workers.start("deep_reflection", module=PRODUCT)

    async def completed() -> bool:
        return (
            str(await pool.fetchval("SELECT status FROM consolidation_jobs WHERE id::text = $1", job_id)) == "completed"
        )

    await until(completed)
    assert await pool.fetchval("SELECT count(*) FROM facts") > 0
    assert await pool.fetchval("SELECT fast_upto_seq = 1 AND deep_upto_seq = 1 FROM threads")
