"""The bodies of the routes that trace memories and facts to their events."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from pulse.http.edge.schemas import View


class SourceEventView(View):
    """An event that something was extracted from."""

    id: str
    sequence_num: int
    event_type: str
    author: str
    text: Annotated[str | None, Field(description="null if it has no text, or was erased.")]
    occurred_at: datetime
    erased_at: datetime | None


class DrawnView(View):
    """Something that was extracted from events."""

    source: Literal["memory", "archived_memory", "fact", "fact_version", "proposal", "turn"]
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


class ProvenanceView(View):
    """A memory, or one statement of a fact, with its events."""

    drawn: DrawnView
    events: list[SourceEventView]


class OriginView(View):
    """The origin of a memory, or of every statement of a fact."""

    origins: list[ProvenanceView]


class ConsequencesView(View):
    """An event with everything that was extracted from it."""

    event: SourceEventView
    citing: Annotated[list[DrawnView], Field(description="What cites the event as its source.")]
    alongside: Annotated[list[DrawnView], Field(description="What was extracted from a slice that contains it.")]
