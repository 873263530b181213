"""The bodies of the routes that pin, explain, archive and restore memories."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from pulse.http.edge.schemas import Body, NextCursor, View


class PinView(View):
    """Whether a memory is pinned, and whether the call changed that."""

    pinned: bool
    changed: bool


class ExplanationView(View):
    """A memory's curve, its parameters, and when it ends."""

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
    policy: Annotated[str, Field(description="The app whose policy applies, or '*'.")]
    now: datetime
    score: float
    falls_below_at: Annotated[datetime | None, Field(description="If it is not accessed again; null: never.")]
    cleaned_from: Annotated[datetime | None, Field(description="When it is below the threshold and old enough.")]
    scores_around: Annotated[
        list[float], Field(description="One day before falls_below_at, at that time, and one day after.")
    ]
    points: Annotated[
        list[tuple[float, float]], Field(description="Pairs of days from now and the score at that time.")
    ]


class ArchivedMemoryView(View):
    """A memory that a clean-up archived."""

    id: uuid.UUID
    memory_type: str
    content: str
    score: float | None
    archive_reason: str
    archived_at: datetime
    purged_after: Annotated[
        datetime | None,
        Field(description="It can be restored until this time; null: a person retired or corrected it, and it stays."),
    ]
    occurred_at: datetime
    created_at: datetime


class ArchivePageView(View):
    """A page of archived memories, by id."""

    memories: list[ArchivedMemoryView]
    next_cursor: NextCursor


class RestoreInput(Body):
    """Archived memories to restore."""

    memory_ids: Annotated[
        list[Annotated[uuid.UUID, Field(strict=False)]] | None,
        Field(min_length=1, max_length=1000, description="All of the user's by default."),
    ] = None
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"memory_ids": ["0197f6a2-c1d0-7d0b-8a7f-2d5b7c9e1f00"]}]}
    )


class RestoredView(View):
    """The memories that were restored."""

    memory_ids: list[uuid.UUID]


class WeakMemoryView(View):
    """A memory that a clean-up would archive now, and why."""

    id: uuid.UUID
    user_id: str
    memory_type: str
    content: str
    score: float
    threshold: float
    curve: str
    decay_rate: Annotated[float, Field(description="Per day.")]
    age_days: Annotated[float, Field(description="Since it was recorded.")]
    idle_days: Annotated[float, Field(description="Since its last access.")]
    access_count: int
    initial_score: float
    created_at: datetime


class DryRunView(View):
    """The memories that a clean-up of an app would archive now. Nothing was changed."""

    memories: list[WeakMemoryView]
    next_cursor: NextCursor


class VerdictView(View):
    """A memory that two policies treat differently."""

    id: uuid.UUID
    user_id: str
    memory_type: str
    content: str
    pinned: bool
    one: Annotated[bool, Field(description="Whether the current policy keeps it.")]
    one_score: float
    other: bool
    other_score: float


class ComparisonView(View):
    """Which of the same memories two policies would keep."""

    one: Annotated[dict[str, Any], Field(description="The current policy.")]
    other: dict[str, Any]
    days: float
    total: int
    kept_by_both: int
    only_by_one: int
    only_by_other: int
    kept_by_none: int
    differing: list[VerdictView]
    next_cursor: Annotated[
        str | None, Field(description="Where the next page of `differing` starts; null after the last page.")
    ]
