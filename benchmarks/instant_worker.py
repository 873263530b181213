"""A fast_replay worker whose model answers at once: it reads the job, then finishes it in one fenced transaction."""

from __future__ import annotations

import dataclasses
import os
import sys
from uuid import UUID

import asyncpg

from benchmarks import options
from workers.queue import services
from workers.queue.claims import JobClaim
from workers.settings import Settings
from workers.telemetry.metrics import Metrics
from workers.worker import main_worker

RECORDS_STARTS = not os.environ.get("BENCH_QUIET")


def build(settings: Settings, pool: asyncpg.Pool, metrics: Metrics, role: str) -> services.Services:
    async def consolidate(job_id: UUID, claim: JobClaim) -> None:
        if RECORDS_STARTS:
            await pool.execute("INSERT INTO bench_starts VALUES ($1, statement_timestamp())", job_id)
        thread = await pool.fetchval("SELECT thread_id FROM consolidation_jobs WHERE id = $1", job_id)
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT FROM threads WHERE id = $1 FOR NO KEY UPDATE", thread)
            await claim.fence(connection)
            await connection.execute("UPDATE threads SET fast_upto_seq = last_seq WHERE id = $1", thread)
            await claim.finish(connection, {})

    return dataclasses.replace(services.build(settings, pool, metrics, role), consolidate=consolidate)


if __name__ == "__main__":
    options.parser().parse_known_args()  # a test names the role
    sys.exit(main_worker("fast_replay", build_services=build))
