"""The routes of consolidation jobs: enqueue, read, retry, cancel, replay."""

from __future__ import annotations

import uuid
from typing import Annotated

import asyncpg
from fastapi import Query
from starlette.responses import Response

from hippocampus.consolidation.job_effects import job_effects
from hippocampus.consolidation.replay import MemoryReplay
from hippocampus.http import problems as memory_problems
from hippocampus.http.routes import jobs_schemas as schemas
from hippocampus.http.routes.memories import Memories
from hippocampus.records import JobStatus, JobType
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner, PathSession
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.schemas import Id
from pulse.http.edge.services import service

router = make_router("jobs", USER_PATH)


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
async def enqueue_job(key: PathSession, body: schemas.JobInput, memory: Memories) -> Response:
    """Enqueue the consolidation of a session's new events. If a job of this type already waits, return that one."""
    added = await memory.add_session_to_memory(key.app_name, key.user_id, key.session_id.strip(), body.job_type)
    return reply(schemas.EnqueuedView(job_id=uuid.UUID(added["job_id"]), status=JobStatus(added["status"])), 202)


@router.get(
    "/jobs",
    summary="List a user's jobs",
    dependencies=[require("read")],
    response_model=schemas.JobPageView,
    responses=problems.documented(problems.SESSION_NOT_FOUND),
)
async def list_jobs(
    owner: PathOwner,
    memory: Memories,
    page: Annotated[Page, page_of(50)],
    session_id: Annotated[Id | None, Query(description="Only jobs of this session.")] = None,
    status: JobStatus | None = None,
    job_type: JobType | None = None,
    error_code: Annotated[Id | None, Query(description="Only jobs whose last attempt failed with this code.")] = None,
) -> Response:
    """List the jobs that are not yet archived, newest first."""
    found = await memory.list_jobs(
        app_name=owner.app_name,
        user_id=owner.user_id,
        session_id=session_id,
        status=status,
        job_type=job_type,
        error_code=error_code,
        before=page.start(uuid.UUID),
        limit=page.limit,
    )
    following = page.next_cursor(found, lambda each: each.id)
    return reply(schemas.JobPageView(jobs=[schemas.JobView.of(job) for job in found], next_cursor=following))


@router.get(
    "/jobs/{job_id}",
    summary="Read a job",
    dependencies=[require("read")],
    response_model=schemas.JobView,
    responses=problems.documented(memory_problems.JOB_NOT_FOUND),
)
async def get_job(owner: PathOwner, job_id: uuid.UUID, memory: Memories) -> Response:
    """Read the status of a job, and its result or its error."""
    return reply(schemas.JobView.of(await memory.get_job(job_id, app_name=owner.app_name, user_id=owner.user_id)))


@router.get(
    "/jobs/{job_id}/effects",
    summary="Read what a job read and wrote",
    dependencies=[require("read")],
    response_model=schemas.JobEffectsView,
    responses=problems.documented(memory_problems.JOB_NOT_FOUND),
)
async def get_job_effects(
    owner: PathOwner, job_id: uuid.UUID, pool: Annotated[asyncpg.Pool, service(asyncpg.Pool)]
) -> Response:
    """Read the turns of a job's slice, and what is stored of them by this job, in force or not."""
    return reply(schemas.JobEffectsView.of(await job_effects(pool, *owner, job_id)))


@router.post(
    "/replays",
    summary="Compare with memories that are extracted again",
    dependencies=[require("admin")],
    response_model=schemas.MemoryReplayView,
    responses=problems.documented(
        *problems.BODY,
        problems.SESSION_NOT_FOUND,
        problems.INVALID_REQUEST,
        memory_problems.REPLAY_OVERTAKEN,
        memory_problems.MODEL_REFUSED,
        memory_problems.MODEL_UNAVAILABLE,
    ),
)
async def replay_memories(
    owner: PathOwner, body: schemas.MemoryReplayInput, replay: Annotated[MemoryReplay, service(MemoryReplay)]
) -> Response:
    """Extract the memories of a session, or of a user, again with the current prompts and model, and compare or swap.

    A call sends at most `slices` slices to the model; what was extracted is kept. Until `is_complete`, call again with
    the same body.
    """
    found = await replay.replay(*owner, body.session_id, apply=body.apply, slices_max=body.slices)
    return reply(schemas.MemoryReplayView.of(found))


@router.post(
    "/jobs/{job_id}/retry",
    summary="Retry a failed job",
    dependencies=[require("admin")],
    response_model=schemas.JobView,
    responses=problems.documented(memory_problems.JOB_NOT_FOUND, memory_problems.JOB_NOT_FAILED),
)
async def retry_job(owner: PathOwner, job_id: uuid.UUID, memory: Memories) -> Response:
    """Run a failed job again, with all its attempts; for a cancelled job, enqueue and return a new one."""
    return reply(schemas.JobView.of(await memory.retry_job(job_id, app_name=owner.app_name, user_id=owner.user_id)))


@router.post(
    "/jobs/{job_id}/cancel",
    summary="Cancel a job",
    dependencies=[require("admin")],
    response_model=schemas.JobView,
    responses=problems.documented(memory_problems.JOB_NOT_FOUND),
)
async def cancel_job(owner: PathOwner, job_id: uuid.UUID, memory: Memories) -> Response:
    """Cancel a job: at once if it waits, soon if it runs. A job that has ended is not changed."""
    return reply(schemas.JobView.of(await memory.cancel_job(job_id, app_name=owner.app_name, user_id=owner.user_id)))
