"""A process whose database is cut while it starts: it says so and ends, or it starts all the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import asyncpg
import pytest

from tests import worker_harness as harness
from tests.worker_harness import Workers
from tests.writer_process import WriterProcess

WAITERS = """SELECT pid FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""


async def cut_waiter(pool: asyncpg.Pool) -> None:
    """Cut the connection of whoever waits for a lock."""
    pid = await harness.until(lambda: pool.fetchval(WAITERS))
    assert await pool.fetchval("SELECT pg_terminate_backend($1)", pid)


@pytest.mark.parametrize("role", ["fast_replay", "writer"])
async def test_a_connection_cut_at_the_first_look_is_refused_in_words(
    dsn: str, pool: asyncpg.Pool, workers: Workers, tmp_path: Path, role: str
) -> None:
    """Exit code 2 and a sentence, as when the database is away: whoever started it starts it again."""
    async with pool.acquire() as gate:
        held = gate.transaction()
        await held.start()
        await gate.execute("LOCK TABLE hippocampus_migrations")
        if role == "writer":
            writer = WriterProcess(dsn, tmp_path / "writer.log")
            process: subprocess.Popen[bytes] = writer.start()
            log = writer.log_path
        else:
            worker = workers.spawn(role, module="workers.worker")
            process, log = worker.popen, worker.log
        await cut_waiter(pool)
        await harness.until(lambda: process.poll() is not None)
        await held.rollback()
    assert process.returncode == 2
    said = log.read_text()
    assert "lost the database while it started" in said
    assert "Traceback" not in said


async def test_a_worker_starts_without_telling_where_its_metrics_are(pool: asyncpg.Pool, workers: Workers) -> None:
    """The statement that tells of its metrics is cut: it works, and says that it could not tell."""
    async with pool.acquire() as gate:
        held = gate.transaction()
        await held.start()
        await gate.execute("LOCK TABLE metrics_targets IN SHARE MODE")
        worker = workers.spawn("fast_replay", module="workers.worker")
        await cut_waiter(pool)
        await harness.until(lambda: '"worker registered"' in worker.lines())
        await held.rollback()
    events = [json.loads(line)["event"] for line in worker.lines().splitlines() if line.startswith("{")]
    assert "metrics target not refreshed" in events
