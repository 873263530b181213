"""Consolidation jobs: enqueue, wait for, look up. What runs them is elsewhere."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from hippocampus.errors import JobNotFoundError, from_postgres
from hippocampus.names import check_names, require_session
from hippocampus.records import ConsolidationJob, JobStatus, JobType
from pulse.errors import SessionNotFoundError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

_POLL_SECONDS_MIN = 0.01
_POLL_SECONDS_MAX = 0.25
_ENDED = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})
_QUERIES = load_queries("hippocampus")


async def enqueue(pool: Pool, thread_id: UUID, job_type: JobType | str) -> ConsolidationJob:
    """Ask the workers to consolidate a thread; joins a job of this type that waits already.

    Raises:
        UnknownJobTypeError: no such type.
        SessionNotFoundError: no such thread.
    """
    try:
        job_id = await pool.fetchval(_QUERIES["enqueue_consolidation"], thread_id, str(job_type))
    except asyncpg.PostgresError as error:
        known = from_postgres(error)
        if known is None:
            raise
        raise known from error
    row = await pool.fetchrow(_QUERIES["get_job"], job_id)
    if row is None:
        raise SessionNotFoundError(f"thread {thread_id} was deleted just after its job was enqueued")
    return from_row(row)


async def enqueue_session(
    pool: Pool, app_name: str, user_id: str, session_id: str, job_type: JobType | str
) -> ConsolidationJob:
    """Ask the workers to consolidate a session; else as `enqueue`."""
    check_names(app_name=app_name, user_id=user_id, session_id=session_id)
    try:
        job_id = await pool.fetchval(_QUERIES["enqueue_session"], app_name, user_id, session_id, str(job_type))
    except asyncpg.PostgresError as error:
        known = from_postgres(error)
        if known is None:
            raise
        raise known from error
    row = None if job_id is None else await pool.fetchrow(_QUERIES["get_job"], job_id)
    if row is None:
        raise SessionNotFoundError(f"there is no session {session_id!r} for app {app_name!r} and user {user_id!r}")
    return from_row(row)


async def get(pool: Pool, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None) -> ConsolidationJob:
    """Look a job up, also among the archived ones.

    Args:
        app_name: only a job of this app.
        user_id: only a job of this user, which an archived one is not known to be.

    Raises:
        JobNotFoundError: no such job.
    """
    check_names(app_name=app_name, user_id=user_id)
    row = await pool.fetchrow(_QUERIES["find_job"], job_id, app_name, user_id)
    if row is None:
        raise _no_job(job_id)
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
        error_code: of the last attempt: an HTTP status, or a word such as ``timeout`` or ``malformed``.
        before: the id of the last job of the page before.

    Raises:
        InvalidInputError: a name that cannot be stored.
        SessionNotFoundError: no such session.
    """
    check_names(app_name=app_name, user_id=user_id, session_id=session_id)
    rows = await pool.fetch(
        _QUERIES["list_jobs"], app_name, user_id, session_id, status, job_type, error_code, before, limit
    )
    if session_id is not None and not rows:
        await require_session(pool, app_name, user_id, session_id)
    return [from_row(row) for row in rows]


async def retry(
    pool: Pool, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
) -> ConsolidationJob:
    """Run a failed job again, with all its tries; return it as it waits. A cancelled one has ended: another is made.

    Raises:
        JobNotFoundError: no such job.
        JobNotFailedError: it waits, runs, or ended well; nothing was changed.
        SessionNotFoundError: it was cancelled, and its session was deleted since.
    """
    job = await get(pool, job_id, app_name=app_name, user_id=user_id)
    if job.status is JobStatus.CANCELLED:
        return await enqueue(pool, job.thread_id, job.job_type)
    try:
        await pool.fetchval(_QUERIES["retry_job"], job_id)
    except asyncpg.PostgresError as error:
        raise from_postgres(error) or error from error
    return await get(pool, job_id, app_name=app_name, user_id=user_id)


async def cancel(
    pool: Pool, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
) -> ConsolidationJob:
    """Cancel a job: at once where it waits; where it runs, its worker is told to stop.

    Returns:
        The job as it is then; one that had ended is left as it ended.

    Raises:
        JobNotFoundError: no such job.
    """
    await get(pool, job_id, app_name=app_name, user_id=user_id)
    await pool.fetchval(_QUERIES["cancel_job"], job_id)
    return await get(pool, job_id, app_name=app_name, user_id=user_id)


async def wait(pool: Pool, job: ConsolidationJob, *, timeout_seconds: float) -> ConsolidationJob:
    """Wait until workers have ended a job and the follow-ups that it asked for; return the last of them.

    Holds no connection between two looks. A thread that is deleted meanwhile ends it as cancelled.

    Raises:
        TimeoutError: no worker ended it in time. It stays enqueued.
    """
    deadline = time.monotonic() + timeout_seconds
    pause_seconds = _POLL_SECONDS_MIN
    while True:
        row = await pool.fetchrow(_QUERIES["get_job"], job.id)
        if row is None:
            return _cancelled(job)
        job = from_row(row)
        follow_up = job.result.get("follow_up") if job.status is JobStatus.COMPLETED else None
        if follow_up is not None:
            job = ConsolidationJob(id=UUID(follow_up), thread_id=job.thread_id, job_type=job.job_type)
            pause_seconds = _POLL_SECONDS_MIN
            continue
        if job.status in _ENDED:
            return job
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"job {job.id} is still {job.status} after {timeout_seconds:g} s: it stays enqueued;"
                f" check that a worker runs for {job.job_type}"
            )
        await asyncio.sleep(min(pause_seconds, max(deadline - time.monotonic(), 0)))
        pause_seconds = min(pause_seconds * 1.5, _POLL_SECONDS_MAX)


def _no_job(job_id: UUID) -> JobNotFoundError:
    return JobNotFoundError(f"there is no job {job_id}; list the jobs to see those that there are")


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


def _cancelled(job: ConsolidationJob) -> ConsolidationJob:
    return ConsolidationJob(id=job.id, thread_id=job.thread_id, job_type=job.job_type, status=JobStatus.CANCELLED)
