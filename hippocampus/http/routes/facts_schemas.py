"""The bodies of the routes of facts, candidates and merged keys."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from hippocampus.records import FactType
from pulse.http.edge.schemas import ESCAPE_NOTE, Escaped, NextCursor, View


class FactView(View):
    """A fact about a user."""

    id: uuid.UUID
    thread_id: uuid.UUID | None
    fact_type: FactType
    key: str
    value: Annotated[Escaped, Field(description=ESCAPE_NOTE)]
    confidence: float
    source_seqs: list[int]
    valid_from: datetime | None
    valid_until: datetime | None
    recorded_at: datetime | None


class FactPageView(View):
    """A page of facts, by type and key."""

    facts: list[FactView]
    next_cursor: NextCursor


class FactVersionView(View):
    """A statement about a key, and its outcome."""

    fact_id: uuid.UUID
    value: Annotated[Escaped, Field(description=ESCAPE_NOTE)]
    confidence: float
    outcome: Literal["current", "superseded", "out_of_order", "candidate", "retracted"]
    valid_from: datetime
    valid_until: datetime | None
    recorded_at: datetime
    superseded_at: datetime | None
    thread_id: uuid.UUID | None
    source_seqs: list[int]
    job_id: uuid.UUID | None
    prompt_hash: str | None
    model: str | None
    superseded_by_thread_id: uuid.UUID | None
    superseded_by_seq: int | None
    superseded_by_event_id: str | None
    written_by: Annotated[
        str | None, Field(description="Who wrote it by hand, empty if that is not known; null: it was extracted.")
    ]
    confirmed_by: Annotated[str | None, Field(description="Who confirmed it by hand last.")]
    confirmed_at: datetime | None
    superseded_by: Annotated[str | None, Field(description="Who ended it by hand; null: it was not.")]


class FactHistoryView(View):
    """Statements about one key: the current one, then the others, newest first."""

    versions: list[FactVersionView]
    next_cursor: NextCursor


class CandidateView(View):
    """A statement that was too uncertain to replace the fact that was current when it was made."""

    id: uuid.UUID
    fact_id: uuid.UUID
    fact_type: FactType
    key: str
    value: Annotated[Escaped, Field(description=ESCAPE_NOTE)]
    confidence: float
    held_value: Annotated[Escaped, Field(description="The fact's current value.")]
    held_confidence: float
    valid_from: Annotated[datetime, Field(description="When it was stated.")]
    recorded_at: datetime
    thread_id: uuid.UUID | None
    source_seqs: list[int]


class CandidatePageView(View):
    """A page of candidates, by type and key."""

    candidates: list[CandidateView]
    next_cursor: NextCursor


class MergeView(View):
    """A key that was recognized as another spelling of a fact's key."""

    id: uuid.UUID
    fact_id: uuid.UUID
    fact_type: FactType
    from_key: str
    to_key: str
    method: Literal["normal_form", "meaning"]
    similarity: Annotated[float, Field(description="The cosine similarity of the two keys; 1 for a normal form.")]
    embedding_model: str | None
    job_id: uuid.UUID | None
    merged_at: datetime
    undone_at: datetime | None


class MergePageView(View):
    """A page of merges, newest first."""

    merges: list[MergeView]
    next_cursor: NextCursor


class FactIdView(View):
    """The fact that a change created or updated."""

    fact_id: Annotated[uuid.UUID | None, Field(description="Null if no statement under the key remains.")]
