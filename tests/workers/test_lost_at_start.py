"""A process that is cut off or stopped during its start: it reports this and exits gracefully, or
starts all the same."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import asyncpg
import pytest

from tests.support.forked import ForkedProcess
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers
from tests.support.writer_process import WriterProcess

WAITERS = """SELECT pid FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""


async def waiter(pool: asyncpg.Pool) -> int:
    """The backend that waits for a lock."""
    return int(await until(lambda: pool.fetchval(WAITERS)))


async def cut_waiter(pool: asyncpg.Pool) -> None:
    """Terminate the connection that waits for a lock."""
    assert await pool.fetchval("SELECT pg_terminate_backend($1)", await waiter(pool))


def spawn(role: str, dsn: str, workers: Workers, tmp_path: Path) -> tuple[ForkedProcess, Path]:
    """Start a role as in production, and return its log."""
    if role == "writer":
        writer = WriterProcess(dsn, tmp_path / "writer.log")
        return writer.start(), writer.log_path
    worker = workers.spawn(role, module="workers.worker")
    return worker.popen, worker.log


@pytest.mark.parametrize("role", ["fast_replay", "writer"])
async def test_a_connection_cut_during_the_first_check_is_reported(
    dsn: str, pool: asyncpg.Pool, workers: Workers, tmp_path: Path, role: str
) -> None:
    """Exit code 2 and a sentence, as if the database is down: the process manager restarts it."""
    async with pool.acquire() as gate:
        held = gate.transaction()
        await held.start()
        await gate.execute("LOCK TABLE hippocampus_migrations")
        process, log = spawn(role, dsn, workers, tmp_path)
        await cut_waiter(pool)
        await until(lambda: process.poll() is not None)
        await held.rollback()
    assert process.returncode == 2
    said = log.read_text()
    assert "lost the database while it started" in said
    assert "Traceback" not in said


async def test_a_worker_starts_without_publishing_its_metrics_address(pool: asyncpg.Pool, workers: Workers) -> None:
    """The statement that publishes it is cut: the worker works, and logs that it could not publish it."""
    async with pool.acquire() as gate:
        held = gate.transaction()
        await held.start()
        await gate.execute("LOCK TABLE metrics_targets IN SHARE MODE")
        worker = workers.spawn("fast_replay", module="workers.worker")
        await cut_waiter(pool)
        await until(lambda: '"worker_registered"' in worker.lines())
        await held.rollback()
    events = [json.loads(line)["event"] for line in worker.lines().splitlines() if line.startswith("{")]
    assert "metrics_target_not_refreshed" in events


@pytest.mark.parametrize("role", ["fast_replay", "writer"])
@pytest.mark.parametrize(
    ("gate", "mode"), [("hippocampus_migrations", "ACCESS EXCLUSIVE"), ("metrics_targets", "SHARE")]
)
async def test_sigterm_during_the_start_exits_gracefully(
    dsn: str,
    pool: asyncpg.Pool,
    workers: Workers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    gate: str,
    mode: str,
) -> None:
    """Before the schema is checked, and while the metrics address is published: exit code 0, and no row is left."""
    monkeypatch.setenv("UNREGISTER_SECONDS", str(WAIT_SECONDS))  # otherwise half a second for removing its row
    async with pool.acquire() as holder:
        held = holder.transaction()
        await held.start()
        # Nothing reads the one, nothing writes the other.
        await holder.execute(f"LOCK TABLE {gate} IN {mode} MODE")
        process, log = spawn(role, dsn, workers, tmp_path)
        await waiter(pool)
        process.send_signal(signal.SIGTERM)
        if gate == "metrics_targets":
            await held.rollback()
        await until(lambda: process.poll() is not None)
        if gate != "metrics_targets":
            await held.rollback()
    assert process.returncode == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert await pool.fetchval("SELECT count(*) FROM metrics_targets") == 0
