"""Consolidation jobs: enqueued, waited for, looked up. Workers run them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE, JobNotFoundError
from hippocampus.names import PAGE_SIZE_MAX, check_names, check_word, require_session
from hippocampus.records import ConsolidationJob, JobStatus, JobType
from pulse.errors import SessionNotFoundError
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.session_key import SessionKey

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from pulse.database import Pool

_POLL_SECONDS_MIN = 0.01
_POLL_SECONDS_MAX = 0.25
_ENDED = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})
_STATEMENTS = Statements("hippocampus", "jobs.sql", errors=BY_SQLSTATE)


async def enqueue(pool: Pool, thread_id: UUID, job_type: JobType | str) -> ConsolidationJob:
    """Ask the workers to consolidate a thread; joins a job of this type that waits already.

    Raises:
        UnknownJobTypeError: no such type.
        SessionNotFoundError: no such thread.
    """
    job_id = await _STATEMENTS.fetchval(pool, "enqueue_consolidation", thread_id, str(job_type))
    job = await _find(pool, job_id)
    if job is None:
        raise SessionNotFoundError(f"thread {thread_id} was deleted just after its job was enqueued")
    return job


async def enqueue_session(
    pool: Pool, app_name: str, user_id: str, session_id: str, job_type: JobType | str
) -> ConsolidationJob:
    """Ask the workers to consolidate a session; else as `enqueue`."""
    check_names(app_name=app_name, user_id=user_id, session_id=session_id)
    key = SessionKey(app_name, user_id, session_id)
    job_id = await _STATEMENTS.fetchval(pool, "enqueue_session", *key, str(job_type))
    job = None if job_id is None else await _find(pool, job_id)
    if job is None:
        raise key.not_found()
    return job


async def get(pool: Pool, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None) -> ConsolidationJob:
    """Return a job, archived or not.

    Args:
        app_name: only a job of this app.
        user_id: only a job of this user; the archive does not keep whose a job was.

    Raises:
        JobNotFoundError: no such job.
    """
    check_names(app_name=app_name, user_id=user_id)
    row = await _STATEMENTS.fetchrow(pool, "find_job", job_id, app_name, user_id)
    if row is None:
        raise JobNotFoundError(f"there is no job {job_id}; list the jobs to see those that exist")
    return from_row(row)


async def list_jobs(
    pool: Pool,
    *,
    app_name: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    status: JobStatus | None = None,
    job_type: JobType | None = None,
    error_code: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[ConsolidationJob]:
    """List jobs that are not yet archived, the newest first; None does not narrow.

    Args:
        error_code: how the last attempt failed: an HTTP status, or a word such as ``timeout`` or ``malformed``.
        before: the id of the last job of the page before.

    Raises:
        InvalidInputError: `limit` is not 1 to 1,000, there is no such status or type, or a name cannot be stored.
        SessionNotFoundError: no such session.
    """
    check_limit(limit, PAGE_SIZE_MAX)
    check_word("status", status, tuple(JobStatus))
    check_word("job_type", job_type, tuple(JobType))
    check_names(app_name=app_name, user_id=user_id, session_id=session_id)
    rows = await _STATEMENTS.fetch(
        pool, "list_jobs", app_name, user_id, session_id, status, job_type, error_code, before, limit
    )
    if session_id is not None and not rows:
        await require_session(pool, app_name, user_id, session_id)
    return [from_row(row) for row in rows]


async def retry(
    pool: Pool, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
) -> ConsolidationJob:
    """Run a failed job again, with all its attempts; return it as it waits. A cancelled job is replaced by a new one.

    Raises:
        JobNotFoundError: no such job.
        JobNotFailedError: it waits, runs, or ended well; nothing was changed.
        SessionNotFoundError: it was cancelled, and its session was deleted afterwards.
    """
    job = await get(pool, job_id, app_name=app_name, user_id=user_id)
    if job.status is JobStatus.CANCELLED:
        return await enqueue(pool, job.thread_id, job.job_type)
    await _STATEMENTS.execute(pool, "retry_job", job_id)
    return await get(pool, job_id, app_name=app_name, user_id=user_id)


async def cancel(
    pool: Pool, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
) -> ConsolidationJob:
    """Cancel a job: at once if it waits; if it runs, its worker is asked to stop.

    Returns:
        The job as it is afterwards; a job that had ended is unchanged.

    Raises:
        JobNotFoundError: no such job.
    """
    await get(pool, job_id, app_name=app_name, user_id=user_id)
    await _STATEMENTS.execute(pool, "cancel_job", job_id)
    return await get(pool, job_id, app_name=app_name, user_id=user_id)


async def wait(
    pool: Pool,
    job: ConsolidationJob,
    *,
    timeout_seconds: float,
    on_poll: Callable[[ConsolidationJob], None] = lambda _: None,
) -> ConsolidationJob:
    """Wait until workers have ended a job and its follow-ups; return the last of them.

    Holds no connection between two polls. If the thread is deleted meanwhile, the job counts as cancelled.

    Args:
        on_poll: gets the job at each poll that finds it waiting or running.

    Raises:
        TimeoutError: no worker ended it in time; it stays enqueued.
    """
    deadline = time.monotonic() + timeout_seconds
    pause_seconds = _POLL_SECONDS_MIN
    while True:
        found = await _find(pool, job.id)
        if found is None:
            return dataclasses.replace(job, status=JobStatus.CANCELLED)
        job = found
        follow_up = job.result.get("follow_up") if job.status is JobStatus.COMPLETED else None
        if follow_up is not None:
            job = ConsolidationJob(id=UUID(follow_up), thread_id=job.thread_id, job_type=job.job_type)
            pause_seconds = _POLL_SECONDS_MIN
            continue
        if job.status in _ENDED:
            return job
        on_poll(job)
        if time.monotonic() >= deadline:
            advice = f"it failed last by {job.error}" if job.error else f"check that a worker runs for {job.job_type}"
            raise TimeoutError(
                f"job {job.id} is still {job.status} after {timeout_seconds:g} s: it stays enqueued; {advice}"
            )
        await asyncio.sleep(min(pause_seconds, max(deadline - time.monotonic(), 0)))
        pause_seconds = min(pause_seconds * 1.5, _POLL_SECONDS_MAX)


async def _find(pool: Pool, job_id: UUID) -> ConsolidationJob | None:
    row = await _STATEMENTS.fetchrow(pool, "get_job", job_id)
    return None if row is None else from_row(row)


def from_row(row: asyncpg.Record) -> ConsolidationJob:
    """Return a row of ``consolidation_jobs`` as a record."""
    return ConsolidationJob(
        id=row["id"],
        thread_id=row["thread_id"],
        job_type=JobType(row["job_type"]),
        status=JobStatus(row["status"]),
        attempts=row["attempts"],
        result=row["result"],
        error=row["error"],
        error_code=row["error_code"],
        raw_reply=row["raw_reply"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        created_at=row["created_at"],
    )


def from_slice_row(row: asyncpg.Record) -> ConsolidationJob:
    """Return the job that a row of a slice names."""
    return ConsolidationJob(
        id=row["job_id"],
        thread_id=row["thread_id"],
        job_type=JobType(row["job_type"]),
        status=JobStatus(row["status"]),
        attempts=row["attempts"],
        result=row["result"],
        started_at=row["started_at"],
        created_at=row["created_at"],
    )
