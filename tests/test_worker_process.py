"""Worker processes: each pool works off its own queues, drains when told to, and survives its database."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests import worker_harness as harness
from tests.worker_harness import Workers


@pytest.fixture
async def tables(pool: asyncpg.Pool) -> asyncpg.Pool:
    await harness.make_tables(pool)
    return pool


@pytest.fixture
def workers(dsn: str, tmp_path: Path) -> Iterator[Workers]:
    with harness.running_workers(dsn, tmp_path) as running:
        yield running


async def test_a_worker_works_off_an_enqueued_job_and_keeps_its_result(tables: asyncpg.Pool, workers: Workers) -> None:
    """A job that was enqueued by SQL alone is run once, and its row says so."""
    worker = await workers.start("fast_replay")
    thread = await harness.make_thread(tables)
    job = await harness.enqueue(tables, thread)
    await harness.wait_for_status(tables, job, "completed")
    row = await tables.fetchrow("SELECT * FROM consolidation_jobs WHERE id = $1", job)
    assert row["attempts"] == 1
    assert row["result"] == {"said": "done"}
    assert await harness.count(tables, "effects") == 1
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0
