"""The bodies that the routes of the memory take and give."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from hippocampus.records import (
    EMBEDDING_DIMENSIONS,
    ConsolidationJob,
    Fact,
    FactType,
    FactVersion,
    JobStatus,
    Memory,
    MemoryType,
)
from hippocampus.retention_manager import WeakMemory
from hippocampus.search import (
    LIMIT_MAX,
    QUERY_LENGTH_MAX,
    SOURCES,
    SearchFilter,
    SearchMemoryResponse,
    SearchMemoryResult,
)
from pulse.http.routes.schemas import ESCAPE_NOTE, Body, Id, JsonObject, Name
from pulse.postgres.json_values import escape_state


def _written(moment: Any) -> Any:
    """Refuse a number: whether it counts seconds or milliseconds cannot be seen."""
    if not isinstance(moment, str):
        # A TypeError would not become an error of the field.
        raise ValueError("write it as a date, time and zone, such as 2026-05-01T00:00:00Z")  # noqa: TRY004 - see above
    return moment


def _storable(moment: datetime) -> datetime:
    """Refuse a time whose zone takes it out of the years 1 to 9999: the driver sends times in UTC."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("write a time within the years 1 to 9999 of UTC") from None


Moment = Annotated[
    AwareDatetime,
    BeforeValidator(_written),
    AfterValidator(_storable),
    Field(strict=False, examples=["2026-05-01T00:00:00Z"]),
]
Embedding = Annotated[
    list[Annotated[float, Field(allow_inf_nan=False)]],
    Field(
        min_length=EMBEDDING_DIMENSIONS,
        max_length=EMBEDDING_DIMENSIONS,
        description="Of the query; the server makes it where it is left out.",
    ),
]
Query = Annotated[str, StringConstraints(min_length=1, max_length=QUERY_LENGTH_MAX)]


class JobInput(Body):
    """A consolidation to enqueue."""

    job_type: Annotated[
        str,
        StringConstraints(max_length=64),
        Field(description="fast_replay, deep_reflection or full_consolidation; fast, deep and full for short."),
    ] = "full_consolidation"
    model_config = ConfigDict(json_schema_extra={"examples": [{"job_type": "full_consolidation"}]})


class JobView(BaseModel):
    """A consolidation job."""

    id: uuid.UUID
    thread_id: uuid.UUID
    job_type: str
    status: JobStatus
    attempts: int
    result: JsonObject
    error: str | None
    error_code: Annotated[
        str | None, Field(description="Of the last attempt: an HTTP status, or a word such as timeout or malformed.")
    ]
    raw_reply: Annotated[str | None, Field(description="What the model said, where the job failed of that.")]
    created_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None

    @classmethod
    def of(cls, job: ConsolidationJob) -> Self:
        """Describe a job."""
        fields = dataclasses.asdict(job)
        return cls(**{**fields, "result": escape_state(job.result)})


class EnqueuedView(BaseModel):
    """A job that waits, or waited already."""

    job_id: uuid.UUID
    status: JobStatus


class JobPageView(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class SearchInput(Body):
    """A search."""

    query: Query
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10
    sources: Annotated[
        tuple[Literal["memory", "fact", "message"], ...],
        Field(strict=False, min_length=1, max_length=3, description="Where to look."),
    ] = SOURCES
    messages: Annotated[
        Literal["recent", "all", "none"], Field(description="recent: turns that are not yet consolidated.")
    ] = "recent"
    memory_types: Annotated[list[MemoryType] | None, Field(min_length=1, max_length=3)] = None
    session_id: Annotated[Id | None, Field(description="Only what was said in, or drawn from, this session.")] = None
    since: Annotated[Moment | None, Field(description="Said then or later.")] = None
    until: Annotated[Moment | None, Field(description="Said before then.")] = None
    metadata: Annotated[JsonObject | None, Field(description="Rows whose metadata contain this.")] = None
    as_of: Annotated[Moment | None, Field(description="Facts as they were true then.")] = None
    known_at: Annotated[Moment | None, Field(description="Facts as they were known by then.")] = None
    min_relevance: Annotated[float, Field(ge=0, le=1)] = 0.0
    query_embedding: Embedding | None = None
    embedding_model: Annotated[Name | None, Field(description="Of query_embedding; by default the server's.")] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Where does Ann live?", "limit": 3}]})

    def narrow(self) -> SearchFilter:
        """Return the filter of `hippocampus.search`."""
        return SearchFilter(
            sources=self.sources,
            messages=self.messages,
            memory_types=self.memory_types,
            session_id=self.session_id,
            since=self.since,
            until=self.until,
            metadata=self.metadata,
            min_relevance=self.min_relevance,
            as_of=self.as_of,
            known_at=self.known_at,
        )


class WhyView(BaseModel):
    """Why a row matched; see the parts of the search's weights."""

    bm25: float
    context_bm25: float
    similarity: float | None
    context_similarity: float | None
    author_match: bool
    recency: float
    retention: float
    text_rank: int | None
    vector_rank: int | None
    matched_terms: list[str]


class ResultView(BaseModel):
    """One row that matches."""

    memory_id: Annotated[uuid.UUID, Field(description="Of the memory, the fact or the message.")]
    source: Literal["memory", "fact", "message"]
    memory_type: Annotated[str, Field(description="Of a fact its type, of a message its role.")]
    content: str
    relevance_score: Annotated[float, Field(description="0 to 1, the same whatever else matches.")]
    score: Annotated[float, Field(description="0 to 1, by which results are ordered.")]
    why: WhyView
    metadata: JsonObject
    thread_id: uuid.UUID | None
    session_id: str | None
    from_seq: int | None
    upto_seq: int | None
    source_seqs: Annotated[list[int], Field(description="The turns that it is or was drawn from.")]
    occurred_at: datetime | None

    @classmethod
    def of(cls, result: SearchMemoryResult) -> Self:
        """Describe a result."""
        fields = dataclasses.asdict(result)
        return cls(**{**fields, "metadata": escape_state(result.metadata)})


class SearchView(BaseModel):
    """What a search found, the best first."""

    results: list[ResultView]
    total_count: Annotated[int, Field(description="How many rows match.")]
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null where nothing failed.")]

    @classmethod
    def of(cls, response: SearchMemoryResponse) -> Self:
        """Describe a search's outcome."""
        results = [ResultView.of(result) for result in response.memories]
        return cls(results=results, total_count=response.total_count, degraded=response.degraded)


class MemoryView(BaseModel):
    """A memory, without its vector."""

    id: uuid.UUID
    thread_id: uuid.UUID | None
    memory_type: MemoryType
    content: str
    metadata: JsonObject
    retention_score: Annotated[float, Field(description="Its strength now, 0 to 1.")]
    access_count: int
    pinned: Annotated[bool, Field(description="It never fades and is never cleaned up.")]
    from_seq: int | None
    upto_seq: int | None
    created_at: datetime | None
    occurred_at: datetime | None

    @classmethod
    def of(cls, memory: Memory) -> Self:
        """Describe a memory."""
        shown = {name: getattr(memory, name) for name in cls.model_fields}
        return cls(**{**shown, "metadata": escape_state(memory.metadata)})


class MemoryPageView(BaseModel):
    """A page of memories, the strongest first."""

    memories: list[MemoryView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class FactView(BaseModel):
    """What holds of a user."""

    id: uuid.UUID
    thread_id: uuid.UUID | None
    fact_type: FactType
    key: str
    value: Annotated[Any, Field(description=ESCAPE_NOTE)]
    confidence: float
    source_seqs: list[int]
    valid_from: datetime | None
    valid_until: datetime | None
    recorded_at: datetime | None

    @classmethod
    def of(cls, fact: Fact) -> Self:
        """Describe a fact."""
        shown = {name: getattr(fact, name) for name in cls.model_fields}
        return cls(**{**shown, "value": escape_state(fact.value), "source_seqs": list(fact.source_seqs)})


class FactPageView(BaseModel):
    """A page of facts, by type and key."""

    facts: list[FactView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class FactVersionView(BaseModel):
    """One statement about a key, and what became of it."""

    fact_id: uuid.UUID
    value: Annotated[Any, Field(description=ESCAPE_NOTE)]
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

    @classmethod
    def of(cls, version: FactVersion) -> Self:
        """Describe a statement."""
        shown = {name: getattr(version, name) for name in cls.model_fields}
        return cls(**{**shown, "value": escape_state(version.value), "source_seqs": list(version.source_seqs)})


class FactHistoryView(BaseModel):
    """Statements about one key: the current one, then the others, newest first."""

    versions: list[FactVersionView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class WeakMemoryView(BaseModel):
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

    @classmethod
    def of(cls, weak: WeakMemory) -> Self:
        """Describe a weak memory."""
        return cls(**{name: getattr(weak, name) for name in cls.model_fields})


class DryRunView(BaseModel):
    """What a clean-up of an app would do now. Nothing was changed."""

    memories: list[WeakMemoryView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]
