"""Claims on the queue's own rows, as a worker holds them, without a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import JobFencedError
from hippocampus.records import ConsolidationJob

QUEUES = ["fast_replay", "deep_reflection", "embedding"]


@dataclass
class RowClaim:
    """A job that the queue's own fetch function gave to a registered worker."""

    queued_id: int
    worker_id: int
    attempts: int
    task: str
    job_id: UUID | None
    is_last_attempt: bool = False

    async def fence(self, connection: asyncpg.Connection) -> None:
        held = await connection.fetchval(
            """SELECT true FROM procrastinate_jobs
               WHERE id = $1 AND status = 'doing' AND worker_id = $2 AND attempts = $3 FOR UPDATE""",
            self.queued_id,
            self.worker_id,
            self.attempts,
        )
        if not held:
            raise JobFencedError(f"job {self.job_id} runs elsewhere")

    async def finish(self, connection: asyncpg.Connection, result: Mapping[str, Any]) -> None:
        await connection.execute(
            "UPDATE consolidation_jobs SET result = $2 WHERE procrastinate_job_id = $1", self.queued_id, dict(result)
        )
        await connection.execute("SELECT procrastinate_finish_job_v1($1, 'succeeded', false)", self.queued_id)


async def claim_next(pool: asyncpg.Pool, queues: list[str] | None = None) -> RowClaim | None:
    """Fetch the next runnable job as a new worker; None if there is none."""
    worker_id = await pool.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    row = await pool.fetchrow("SELECT * FROM procrastinate_fetch_job_v2($1, $2)", queues or QUEUES, worker_id)
    if row is None or row["id"] is None:
        return None
    job_id = row["args"].get("job_id")
    return RowClaim(row["id"], worker_id, row["attempts"], row["task_name"], UUID(job_id) if job_id else None)


async def work_off(
    pool: asyncpg.Pool, worker: MemoryConsolidationWorker, *, deleted_ok: bool = False
) -> list[ConsolidationJob]:
    """Claim and run consolidation jobs, including follow-up jobs, until none is waiting."""
    done = []
    while claim := await claim_next(pool, ["fast_replay", "deep_reflection"]):
        if claim.job_id is None:
            continue  # The job has no row of its own, for example slices to re-extract.
        job = await worker.run(claim.job_id, claim)
        if job is None and deleted_ok:
            continue
        assert job is not None
        done.append(job)
    return done
