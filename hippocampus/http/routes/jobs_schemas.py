"""The bodies of the routes of consolidation jobs."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus.http.routes.provenance_schemas import DrawnView
from hippocampus.records import JobStatus
from pulse.http.edge.schemas import Body, Escaped, EscapedObject, Id, NextCursor, View


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


class JobTurnView(View):
    """A turn that a job read, or is to read."""

    id: uuid.UUID
    sequence_num: int
    role: str
    author: str
    content: str
    occurred_at: datetime


class JobEffectsView(View):
    """What a job read, and what is stored of it."""

    session_id: str
    from_seq: Annotated[
        int | None, Field(description="The slice; of a job that has not succeeded, what it is to read.")
    ]
    upto_seq: int | None
    turns: Annotated[list[JobTurnView], Field(description="The first 200 turns of the slice.")]
    turn_count: Annotated[int, Field(description="Of the whole slice.")]
    written: Annotated[list[DrawnView], Field(description="Up to 500 memories, statements of facts and proposals.")]


class MemoryReplayInput(Body):
    """What to extract again."""

    session_id: Annotated[Id | None, Field(description="null: all of the user's sessions.")] = None
    apply: Annotated[bool, Field(description="Swap the memories; otherwise nothing is changed.")] = False
    slices: Annotated[
        int, Field(ge=1, le=20, description="At most this many slices are sent to the model by this call.")
    ] = 5
    model_config = ConfigDict(json_schema_extra={"examples": [{"session_id": "order-17"}]})


class ReplayChangeView(View):
    """What happens to one memory, or to one statement of a fact."""

    change: Literal["added", "dropped", "kept"]
    kind: Literal["summary", "episodic", "semantic", "fact"]
    thread_id: uuid.UUID
    key: str | None
    content: str


class FactChangeView(View):
    """The value of a key before and after; null: no value."""

    fact_type: str
    key: str
    before: Escaped
    after: Escaped


class MemoryReplayView(View):
    """What a replay changed, or would change."""

    replay_id: uuid.UUID
    applied: bool
    is_complete: Annotated[
        bool, Field(description="Whether every slice has its answer. If not, nothing is compared yet: call again.")
    ]
    slices: Annotated[int, Field(description="Slices that were sent to the model by this call.")]
    reused: Annotated[int, Field(description="Slices that had an answer.")]
    changes: list[ReplayChangeView]
    facts: list[FactChangeView]


class JobPageView(View):
    """A page of jobs, newest first."""

    jobs: list[JobView]
    next_cursor: NextCursor
