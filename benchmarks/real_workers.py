"""Worker processes and a local fake of Gemini with a fixed latency, for benchmarks of whole paths."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import asyncpg

ROOT = Path(__file__).parent.parent
READY_SECONDS_MAX = 60.0


class Gemini:
    """A fake Gemini in a separate process; every call takes the same time."""

    def __init__(self, url: str) -> None:
        self.url = url

    def calls(self, operation: str) -> int:
        """The number of calls of an operation."""
        with urllib.request.urlopen(f"{self.url}/__stats") as answer:
            stats: dict[str, Any] = json.load(answer)
        return int(stats["calls"].get(operation, 0))


@contextlib.contextmanager
def gemini(latency_seconds: float) -> Iterator[Gemini]:
    """Run a fake Gemini."""
    command = [sys.executable, "-m", "tests.support.fake_gemini", "--latency-seconds", str(latency_seconds)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Gemini(process.stdout.readline().removeprefix("listening on ").strip())
    finally:
        process.kill()
        process.wait()


class Worker:
    """A fast_replay worker of the product."""

    def __init__(self, dsn: str, url: str, *, concurrency: int) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "DATABASE_URL": dsn,
            "GOOGLE_API_KEY": "AIza-not-a-key-0123456789",
            "HIPPOCAMPUS_PROVIDER_BASE_URL": url,
            "HIPPOCAMPUS_FAST_REPLAY_CONCURRENCY": str(concurrency),
            "HIPPOCAMPUS_DATABASE_POOL_SIZE": str(concurrency + 2),
        }
        command = [sys.executable, "-m", "workers.worker", "fast_replay"]
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=self._log)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def worker_id(self) -> int:
        """Wait until the worker has registered; return its id."""
        async with asyncio.timeout(READY_SECONDS_MAX):
            while True:
                self._log.seek(0)
                for line in self._log.read().splitlines():
                    if '"worker_registered"' in line:
                        return int(json.loads(line)["worker_id"])
                await asyncio.sleep(0.02)

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        self._process.kill()

    def stop(self) -> None:
        """Stop the process gracefully."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._log.close()


@contextlib.asynccontextmanager
async def workers(count: int, dsn: str, url: str, *, concurrency: int) -> AsyncIterator[list[Worker]]:
    """Run workers. The list may be changed; all workers in it at the end are stopped."""
    running = [Worker(dsn, url, concurrency=concurrency) for _ in range(count)]
    try:
        for worker in running:
            await worker.worker_id()
        yield running
    finally:
        await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in running))


async def talk(pool: asyncpg.Pool, sessions: int, prefix: str, turns: int = 5) -> list[UUID]:
    """Create sessions of some turns each, without enqueueing jobs; return their threads."""
    for number in range(sessions):
        await pool.execute("SELECT create_session('bench', 'user', $1)", f"{prefix}-{number}")
        for turn in range(turns):
            text = f"In turn {turn} of talk {number} we spoke of the harbour and of the long way home."
            await pool.execute(
                "SELECT append_event('bench', 'user', $1, NULL, $2, 'user', 'message', $3, 'user', $4,"
                " p_notify => false)",
                f"{prefix}-{number}",
                f"e{turn}",
                json.dumps({"text": text}),
                text,
            )
    rows = await pool.fetch("SELECT id FROM threads WHERE session_id LIKE $1 || '-%' ORDER BY id", prefix)
    return [row["id"] for row in rows]


async def enqueue(pool: asyncpg.Pool, threads: list[UUID]) -> None:
    """Enqueue the consolidation of all threads in one transaction."""
    await pool.execute(
        "SELECT count(*) FROM unnest($1::uuid[]) AS t, LATERAL enqueue_consolidation(t, 'fast_replay')", threads
    )


async def drained(pool: asyncpg.Pool) -> None:
    """Wait until no job is waiting or running."""
    while await pool.fetchval("SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"):
        await asyncio.sleep(0.02)
