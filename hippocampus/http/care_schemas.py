"""The bodies of the routes that forget, trace, pin, restore and explain."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hippocampus.erasure.service import EVENTS_MAX, SAMPLE_ROWS_MAX
from pulse.http.routes.schemas import Body, Id, JsonObject

Number = Annotated[int, Field(ge=1, le=2**63 - 1)]


class ForgetInput(Body):
    """What to forget: name one of the fields, or none for the user."""

    session_id: Annotated[Id | None, Field(description="A session; with numbers or ids, those events of it.")] = None
    sequence_nums: Annotated[tuple[Number, ...], Field(strict=False, max_length=EVENTS_MAX)] = ()
    event_ids: Annotated[tuple[Id, ...], Field(strict=False, max_length=EVENTS_MAX)] = ()
    memory_id: Annotated[uuid.UUID | None, Field(strict=False, description="A memory or a fact.")] = None
    whole_user: Annotated[bool, Field(description="Say so, to forget everything of the user.")] = False
    dry_run: Annotated[bool, Field(description="Say what would go, and change nothing.")] = False
    limit: Annotated[int, Field(ge=0, le=SAMPLE_ROWS_MAX, description="Rows of each table that a dry run shows.")] = 10
    model_config = ConfigDict(json_schema_extra={"examples": [{"session_id": "order-17", "dry_run": True}]})


class _View(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ErasureView(_View):
    """A request to forget, and what became of it."""

    id: uuid.UUID
    scope: Literal["user", "session", "events", "memory", "fact"]
    thread_id: uuid.UUID | None
    sequence_nums: list[int]
    target_id: uuid.UUID | None
    counts: Annotated[dict[str, int], Field(description="Rows that went or were emptied, by table.")]
    remaining: Annotated[dict[str, int], Field(description="Rows that the request still finds, by table.")]
    requested_at: datetime
    finished_at: Annotated[datetime | None, Field(description="null: a worker goes on; ask again.")]


class TablePreviewView(_View):
    """What would be reached in one table."""

    table_name: str
    rows: int
    sample: list[JsonObject]


class ForgetView(BaseModel):
    """The outcome: of a dry run `would_forget`, else `erasure`."""

    erasure: ErasureView | None = None
    would_forget: list[TablePreviewView] | None = None


class SourceEventView(_View):
    """An event that something was drawn from."""

    id: str
    sequence_num: int
    event_type: str
    author: str
    text: Annotated[str | None, Field(description="null where it says nothing, or was forgotten.")]
    occurred_at: datetime
    erased_at: datetime | None


class DrawnView(_View):
    """Something that was drawn from events."""

    source: Literal["memory", "archived_memory", "fact", "fact_version", "proposal"]
    id: uuid.UUID
    row_id: uuid.UUID
    kind: str
    content: str
    thread_id: uuid.UUID | None
    session_id: str | None
    from_seq: int | None
    upto_seq: int | None
    source_seqs: list[int]
    job_id: uuid.UUID | None
    prompt_hash: str | None
    model: str | None
    recorded_at: datetime


class ProvenanceView(_View):
    """A memory, or one statement of a fact, with its events."""

    drawn: DrawnView
    events: list[SourceEventView]


class OriginView(BaseModel):
    """Where a memory or a fact comes from; of a fact every statement."""

    origins: list[ProvenanceView]


class ConsequencesView(_View):
    """An event with everything that was drawn from it."""

    event: SourceEventView
    citing: Annotated[list[DrawnView], Field(description="What names the event as its source.")]
    alongside: Annotated[list[DrawnView], Field(description="What was drawn from a slice that holds it.")]


class PinView(BaseModel):
    """Whether a memory is pinned now, and whether that is new."""

    pinned: bool
    changed: bool


class ArchivedMemoryView(_View):
    """A memory that a clean-up has put away."""

    id: uuid.UUID
    memory_type: str
    content: str
    score: float | None
    archive_reason: str
    archived_at: datetime
    purged_after: Annotated[datetime, Field(description="Until then it can be restored.")]
    occurred_at: datetime
    created_at: datetime


class ArchivePageView(BaseModel):
    """A page of archived memories, by id."""

    memories: list[ArchivedMemoryView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class RestoreInput(Body):
    """Archived memories to bring back."""

    memory_ids: Annotated[
        list[Annotated[uuid.UUID, Field(strict=False)]] | None,
        Field(min_length=1, max_length=1000, description="Left out: all of the user's."),
    ] = None
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"memory_ids": ["0197f6a2-c1d0-7d0b-8a7f-2d5b7c9e1f00"]}]}
    )


class RestoredView(BaseModel):
    """What was brought back."""

    memory_ids: list[uuid.UUID]


class ExplanationView(_View):
    """A memory's curve, what goes into it, and where it ends."""

    id: uuid.UUID
    memory_type: str
    content: str
    curve: str
    formula: str
    initial_score: float
    access_count: int
    last_accessed_at: datetime
    created_at: datetime
    pinned: bool
    decay_rate: float
    threshold: float
    min_age_days: float
    policy: Annotated[str, Field(description="Whose: the app's, or '*'.")]
    now: datetime
    score: float
    falls_below_at: Annotated[datetime | None, Field(description="If nobody uses it; null: never.")]
    cleaned_from: Annotated[datetime | None, Field(description="Below the threshold, and old enough.")]
    scores_around: Annotated[list[float], Field(description="The day before falls_below_at, then, and the day after.")]
    points: Annotated[list[tuple[float, float]], Field(description="Days from now, and the score then.")]


class VerdictView(_View):
    """A memory that two policies treat differently."""

    id: uuid.UUID
    user_id: str
    memory_type: str
    content: str
    pinned: bool
    one: Annotated[bool, Field(description="Whether the present policy keeps it.")]
    one_score: float
    other: bool
    other_score: float


class ComparisonView(_View):
    """What two policies would keep of the same memories."""

    one: Annotated[dict[str, Any], Field(description="The policy that stands.")]
    other: dict[str, Any]
    days: float
    total: int
    kept_by_both: int
    only_by_one: int
    only_by_other: int
    kept_by_none: int
    differing: list[VerdictView]
    next_cursor: Annotated[
        str | None, Field(description="Where the next page of `differing` starts; null after the last.")
    ] = None
