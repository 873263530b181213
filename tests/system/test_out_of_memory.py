"""A worker whose machine has no more memory for it, while it reads what needs more, and a while later has it again.

Promised: the attempt fails and not the job, the worker lives on, and what waited is done by itself.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.real_worker import PRODUCT, gemini_settings, say
from tests.support.waiting import until
from tests.support.worker_harness import Workers

pytestmark = pytest.mark.system

#: What a worker gets beyond what it has, and a message that takes more in each of its forms.
SPARE_BYTES = 2**20
MESSAGE_BYTES = 2 * 2**20
ATTEMPTS_MIN = 3
SENTENCE = "I walked along the canal, past the old mill and the bakery, and met nobody at all on the way home. "
LONG = "SELECT thread_id FROM append_event('app', 'user', 'long', NULL, 'e1', 'user', 'message', $1, 'user', $2)"


@contextmanager
def bounded(pid: int, spare_bytes: int) -> Iterator[None]:
    """Let a process that runs have no more memory than it has now and some to spare, inside the block."""
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    former = resource.prlimit(pid, resource.RLIMIT_AS, (used + spare_bytes, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, former)


async def test_a_worker_without_memory_loses_no_job(pool: asyncpg.Pool, workers: Workers) -> None:
    """A message of two megabytes, for a worker that gets one more, until it has failed three times."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    text = SENTENCE * (MESSAGE_BYTES // len(SENTENCE))
    async with FakeGemini() as gemini:
        worker = await workers.start(
            "fast_replay", module=PRODUCT, **gemini_settings(gemini), job_attempts_max="100", slice_tokens="200000"
        )
        # What it imports at its first job, and the connections that it opens, it has already.
        first = await harness.enqueue(pool, await say(pool))
        await harness.wait_for_status(pool, first, "completed")
        await pool.execute("SELECT create_session('app', 'user', 'long')")
        await pool.execute(LONG, json.dumps({"text": text}), text)
        thread = await pool.fetchval("SELECT id FROM threads WHERE session_id = 'long'")
        with bounded(worker.pid, SPARE_BYTES):
            job = await harness.enqueue(pool, thread)

            async def attempts() -> int:
                count: int = await pool.fetchval("SELECT attempts FROM consolidation_jobs WHERE id = $1", job)
                return count

            async def has_failed_enough() -> bool:
                return await attempts() > ATTEMPTS_MIN

            await until(has_failed_enough)
            assert worker.popen.poll() is None, worker.lines()
            assert await harness.status_of(pool, job) in ("pending", "running")
        await harness.wait_for_status(pool, job, "completed")
        assert worker.popen.poll() is None, worker.lines()
    assert "MemoryError" in worker.lines()
    assert await pool.fetch("SELECT id FROM consolidation_jobs WHERE status <> 'completed'") == []
    kept = "SELECT count(*) FROM memories WHERE memory_type = 'episodic' AND thread_id = $1 AND length(content) > $2"
    assert await pool.fetchval(kept, thread, len(text)) == 1
