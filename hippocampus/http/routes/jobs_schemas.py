"""The bodies of the routes of consolidation jobs."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus.records import JobStatus
from pulse.http.edge.schemas import Body, EscapedObject, NextCursor, View


class JobInput(Body):
    """A consolidation to enqueue."""

    job_type: Annotated[
        str,
        StringConstraints(max_length=64),
        Field(description="fast_replay, deep_reflection or full_consolidation; fast, deep and full for short."),
    ] = "full_consolidation"
    model_config = ConfigDict(json_schema_extra={"examples": [{"job_type": "full_consolidation"}]})


class JobView(View):
    """A consolidation job."""

    id: uuid.UUID
    thread_id: uuid.UUID
    job_type: str
    status: JobStatus
    attempts: int
    result: EscapedObject
    error: str | None
    error_code: Annotated[
        str | None, Field(description="Of the last attempt: an HTTP status, or a word such as timeout or malformed.")
    ]
    raw_reply: Annotated[str | None, Field(description="The model's reply, if the job failed because of it.")]
    created_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None


class EnqueuedView(View):
    """A job that was enqueued, or already waited."""

    job_id: uuid.UUID
    status: JobStatus


class JobPageView(View):
    """A page of jobs, newest first."""

    jobs: list[JobView]
    next_cursor: NextCursor
