"""A real worker process whose consolidation is a stand-in: `python -m tests.support.worker_process POOL`.

The stand-in writes one row into `attempts_made` for each attempt, waits while the advisory lock (77, 1) is held, then
writes one row into `effects` in the fenced transaction that finishes its job. A row of `scripted` makes an attempt fail
instead. Everything else is the product's own.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import sys
import time
from uuid import UUID

import asyncpg
from procrastinate import utils

from hippocampus.errors import MalformedReplyError, PermanentProviderError, RateLimitedError, TransientProviderError
from workers import worker
from workers.queue import liveness, services
from workers.queue.claims import JobClaim
from workers.settings import Settings
from workers.telemetry import queue_gauges
from workers.telemetry.metrics import Metrics

TABLES = """
CREATE TABLE IF NOT EXISTS attempts_made (job_id uuid, pid integer, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE IF NOT EXISTS effects (job_id uuid, pid integer, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE IF NOT EXISTS scripted (id serial, fault text);
CREATE TABLE IF NOT EXISTS upkeep_runs (name text, pid integer);
"""
SECRET = "the vault code is 4711-PELICAN"
FAULTS = {
    "429": RateLimitedError(SECRET, retry_after_seconds=0.2, raw_reply=SECRET),
    "daily": RateLimitedError(SECRET, daily=True),
    "503": TransientProviderError(SECRET, code="503"),
    "400": PermanentProviderError(SECRET, code="400", raw_reply=f'{{"said": "{SECRET}"}}'),
    "malformed": MalformedReplyError(SECRET, code="malformed", raw_reply="half a \x00 reply"),
    "bug": KeyError(SECRET),
}


def build(settings: Settings, pool: asyncpg.Pool, metrics: Metrics, role: str) -> services.Services:
    async def consolidate(job_id: UUID, claim: JobClaim) -> None:
        await pool.execute("INSERT INTO attempts_made VALUES ($1, $2)", job_id, os.getpid())
        fault = await pool.fetchval("DELETE FROM scripted WHERE id = (SELECT min(id) FROM scripted) RETURNING fault")
        if fault == "memory":
            bytearray(1 << 60)
        elif fault:
            raise FAULTS[fault]
        async with pool.acquire() as connection:
            await connection.execute("SELECT pg_advisory_lock_shared(77, 1)")
            await connection.execute("SELECT pg_advisory_unlock_shared(77, 1)")
            async with connection.transaction():
                await claim.fence(connection)
                await connection.execute("INSERT INTO effects VALUES ($1, $2)", job_id, os.getpid())
                await claim.finish(connection, {"said": "done"})

    async def note(name: str) -> None:
        await pool.execute("INSERT INTO upkeep_runs VALUES ($1, $2)", name, os.getpid())

    async def backfill() -> None:
        await note("backfill")

    async def retention() -> None:
        await note("retention")

    base = services.build(settings, pool, metrics, role)
    return dataclasses.replace(base, consolidate=consolidate, backfill=backfill, retention=retention)


def set_clock_ahead(seconds: float) -> None:
    """Make this process believe in another time."""
    clock, now = time.time, utils.utcnow
    time.time = lambda: clock() + seconds
    utils.utcnow = lambda: now() + datetime.timedelta(seconds=seconds)


if __name__ == "__main__":
    set_clock_ahead(float(os.environ.get("CLOCK_AHEAD_SECONDS", "0")))
    worker.CLOSE_SECONDS_MAX = float(os.environ.get("CLOSE_SECONDS_MAX", worker.CLOSE_SECONDS_MAX))
    liveness.POLL_SECONDS = float(os.environ.get("GUARD_POLL_SECONDS", liveness.POLL_SECONDS))
    queue_gauges.READ_SECONDS = float(os.environ.get("QUEUE_READ_SECONDS", queue_gauges.READ_SECONDS))
    sys.exit(worker.main_worker(sys.argv[1], build_services=build))
