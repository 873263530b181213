"""The routes of consolidation jobs: enqueue, look up, run again, cancel."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from hippocampus.http import problems as memory_problems
from hippocampus.http import schemas
from hippocampus.http.memory import Memories, PageLimit
from hippocampus.records import JobStatus, JobType
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.roles import require
from pulse.http.routes.schemas import AppName, Id, SessionId, UserId
from pulse.http.routes.sessions import PREFIX

router = APIRouter(
    prefix=PREFIX,
    tags=["jobs"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


@router.post(
    "/sessions/{session_id}/jobs",
    summary="Enqueue a consolidation",
    dependencies=[require("append")],
    status_code=202,
    response_model=schemas.EnqueuedView,
    responses=problems.documented(
        *problems.BODY, problems.SESSION_NOT_FOUND, memory_problems.UNKNOWN_JOB_TYPE, problems.INVALID_REQUEST
    ),
)
async def enqueue_job(
    app_name: AppName, user_id: UserId, session_id: SessionId, body: schemas.JobInput, memory: Memories
) -> Response:
    """Ask the workers to consolidate what is new in a session; joins a job of this type that waits already."""
    added = await memory.add_session_to_memory(app_name, user_id, session_id.strip(), body.job_type)
    return reply(schemas.EnqueuedView(job_id=uuid.UUID(added["job_id"]), status=JobStatus(added["status"])), 202)


@router.get(
    "/jobs",
    summary="List a user's jobs",
    dependencies=[require("read")],
    response_model=schemas.JobPageView,
    responses=problems.documented(problems.SESSION_NOT_FOUND),
)
async def list_jobs(
    app_name: AppName,
    user_id: UserId,
    memory: Memories,
    cursor: Cursor,
    session_id: Annotated[Id | None, Query(description="Only jobs of this session.")] = None,
    status: JobStatus | None = None,
    job_type: JobType | None = None,
    error_code: Annotated[Id | None, Query(description="Only jobs whose last attempt failed of this.")] = None,
    limit: PageLimit = 50,
) -> Response:
    """List jobs that are not yet archived, the newest first."""
    found = await memory.list_jobs(
        app_name=app_name,
        user_id=user_id,
        session_id=session_id,
        status=status,
        job_type=job_type,
        error_code=error_code,
        before=cursor.read(uuid.UUID),
        limit=limit,
    )
    following = cursor.following(found, limit, lambda each: each.id)
    return reply(schemas.JobPageView(jobs=[schemas.JobView.of(job) for job in found], next_cursor=following))


@router.get(
    "/jobs/{job_id}",
    summary="Look a job up",
    dependencies=[require("read")],
    response_model=schemas.JobView,
    responses=problems.documented(memory_problems.JOB_NOT_FOUND),
)
async def get_job(app_name: AppName, user_id: UserId, job_id: uuid.UUID, memory: Memories) -> Response:
    """Read how a job stands, what it made, or what it failed of."""
    return reply(schemas.JobView.of(await memory.get_job(job_id, app_name=app_name, user_id=user_id)))


@router.post(
    "/jobs/{job_id}/retry",
    summary="Run a failed job again",
    dependencies=[require("admin")],
    response_model=schemas.JobView,
    responses=problems.documented(memory_problems.JOB_NOT_FOUND, memory_problems.JOB_NOT_FAILED),
)
async def retry_job(app_name: AppName, user_id: UserId, job_id: uuid.UUID, memory: Memories) -> Response:
    """Give a failed job all its tries again; for a cancelled one make another, and return that."""
    return reply(schemas.JobView.of(await memory.retry_job(job_id, app_name=app_name, user_id=user_id)))


@router.post(
    "/jobs/{job_id}/cancel",
    summary="Cancel a job",
    dependencies=[require("admin")],
    response_model=schemas.JobView,
    responses=problems.documented(memory_problems.JOB_NOT_FOUND),
)
async def cancel_job(app_name: AppName, user_id: UserId, job_id: uuid.UUID, memory: Memories) -> Response:
    """Cancel a job: at once where it waits, soon where it runs; one that has ended stays as it ended."""
    return reply(schemas.JobView.of(await memory.cancel_job(job_id, app_name=app_name, user_id=user_id)))
