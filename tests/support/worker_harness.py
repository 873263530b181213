"""Starting, stopping and watching real worker processes in tests."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from tests.support import least_privilege
from tests.support.forked import ForkedProcess
from tests.support.waiting import until
from tests.support.worker_process import TABLES


class WorkerProcess:
    """One worker process, with its log in a file."""

    def __init__(self, popen: ForkedProcess, log: Path) -> None:
        self.popen = popen
        self.log = log

    @property
    def pid(self) -> int:
        return self.popen.pid

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def lines(self) -> str:
        return self.log.read_text()

    async def ended(self) -> int:
        await until(lambda: self.popen.poll() is not None)
        return self.popen.wait()


class Workers:
    """Starts workers on one database, and stops all of them at the end."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.started: list[WorkerProcess] = []

    async def start(self, pool: str, *, module: str = "tests.support.worker_process", **settings: str) -> WorkerProcess:
        """Start a process and wait until it listens to its queues."""
        worker = self.spawn(pool, module=module, **settings)
        await until(lambda: '"worker_registered"' in worker.lines() or worker.popen.poll() is not None)
        assert worker.popen.poll() is None, worker.lines()
        return worker

    def spawn(self, pool: str, *, module: str = "tests.support.worker_process", **settings: str) -> WorkerProcess:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HIPPOCAMPUS_")},
            "DATABASE_URL": least_privilege.address_of(self.dsn, "worker"),
            "HIPPOCAMPUS_RETRY_BASE_SECONDS": "0.05",
            "HIPPOCAMPUS_RETRY_DELAY_SECONDS_MAX": "1",
            "HIPPOCAMPUS_DATABASE_POOL_SIZE": "12",
            **{"HIPPOCAMPUS_" + name.upper(): value for name, value in settings.items()},
        }
        log = self.folder / f"worker-{len(self.started)}.log"
        # The program itself, which knows of more roles than `workers.worker`.
        words = ("worker", pool) if module == "workers" else (pool,)
        worker = WorkerProcess(ForkedProcess(module, *words, environment=environment, log=log), log)
        self.started.append(worker)
        return worker

    def end(self) -> None:
        for worker in self.started:
            if worker.popen.poll() is None:
                worker.send(signal.SIGCONT)
                worker.popen.kill()
            worker.popen.wait()


@contextlib.contextmanager
def running_workers(dsn: str, folder: Path) -> Iterator[Workers]:
    workers = Workers(dsn, folder)
    try:
        yield workers
    finally:
        workers.end()


async def make_thread(pool: asyncpg.Pool, session_id: str = "s1") -> UUID:
    """A session with one event, which by itself enqueues nothing."""
    await pool.execute("SELECT create_session('app', 'user', $1)", session_id)
    await pool.execute(
        "SELECT append_event('app', 'user', $1, NULL, 'e1', 'user', 'message', '{}', 'user', 'hello')", session_id
    )
    thread: UUID = await pool.fetchval("SELECT id FROM threads WHERE session_id = $1", session_id)
    return thread


async def enqueue(pool: asyncpg.Pool, thread: UUID, job_type: str = "fast_replay") -> UUID:
    job: UUID = await pool.fetchval("SELECT job_id FROM enqueue_consolidation($1, $2)", thread, job_type)
    return job


async def status_of(pool: asyncpg.Pool, job: UUID) -> str:
    status: str = await pool.fetchval("SELECT status FROM consolidation_jobs WHERE id = $1", job)
    return status


async def wait_for_status(pool: asyncpg.Pool, job: UUID, status: str) -> None:
    async def reached() -> bool:
        return await status_of(pool, job) == status

    await until(reached)


async def count(pool: asyncpg.Pool, table: str) -> int:
    number: int = await pool.fetchval(f"SELECT count(*) FROM {table}")
    return number


@contextlib.asynccontextmanager
async def gate(pool: asyncpg.Pool) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """While closed, attempts of the stand-in wait before their effects. Yields a function that opens it early."""
    async with pool.acquire() as connection:
        await connection.execute("SELECT pg_advisory_lock(77, 1)")

        async def open_gate() -> None:
            await connection.execute("SELECT pg_advisory_unlock(77, 1)")

        try:
            yield open_gate
        finally:
            await connection.execute("SELECT pg_advisory_unlock_all()")


@pytest.fixture
async def tables(pool: asyncpg.Pool) -> asyncpg.Pool:
    """The test's pool, with the tables of the stand-in."""
    await pool.execute(TABLES)
    if least_privilege.is_on():
        await pool.execute("GRANT ALL ON attempts_made, effects, scripted, upkeep_runs TO hippocampus_worker")
    return pool


@pytest.fixture
def workers(dsn: str, tmp_path: Path) -> Iterator[Workers]:
    """Starts worker processes on the test's database; all are stopped at the end."""
    with running_workers(dsn, tmp_path) as running:
        yield running
