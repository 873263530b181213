"""The bodies of the routes that search and list memories."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus.http.fields import AskedAt, Embedding, Moment, TimeZone
from hippocampus.records import MemoryType
from hippocampus.search import LIMIT_MAX, QUERY_LENGTH_MAX, SOURCES, SearchFilter, SearchWeights
from pulse.http.edge.schemas import Body, EscapedObject, Id, JsonObject, Name, NextCursor, View

Weight: TypeAlias = Annotated[float, Field(ge=0, le=1000)]
_WEIGHTS = SearchWeights()


class WeightsInput(Body):
    """How much each part of a match counts; only the ratios matter, and one of them is over 0."""

    bm25: Annotated[Weight, Field(description="The row's own words.")] = _WEIGHTS.bm25
    context_bm25: Annotated[Weight, Field(description="Its words and those of the turns around it.")] = (
        _WEIGHTS.context_bm25
    )
    similarity: Annotated[Weight, Field(description="The similarity of the vectors.")] = _WEIGHTS.similarity
    context_similarity: Annotated[Weight, Field(description="The same over the turns around it.")] = (
        _WEIGHTS.context_similarity
    )
    author: Annotated[Weight, Field(description="The query names the speaker.")] = _WEIGHTS.author
    recency: Annotated[Weight, Field(description="How recent it is.")] = _WEIGHTS.recency
    retention: Annotated[Weight, Field(description="The strength of a memory, the confidence of a fact.")] = (
        _WEIGHTS.retention
    )
    question: Annotated[Weight, Field(description="Subtracted from a turn that ends in a question.")] = (
        _WEIGHTS.question
    )


class SearchInput(Body):
    """A search."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=QUERY_LENGTH_MAX)]
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10
    sources: Annotated[
        tuple[Literal["memory", "fact", "message"], ...],
        Field(strict=False, min_length=1, max_length=3, description="Which kinds of rows to search."),
    ] = SOURCES
    messages: Annotated[
        Literal["all", "recent", "none"], Field(description="recent: turns that are not yet consolidated.")
    ] = "all"
    memory_types: Annotated[list[MemoryType] | None, Field(min_length=1, max_length=len(get_args(MemoryType)))] = None
    session_id: Annotated[Id | None, Field(description="Only rows of this session, or extracted from it.")] = None
    since: Annotated[Moment | None, Field(description="At this time or later.")] = None
    until: Annotated[Moment | None, Field(description="Before this time.")] = None
    metadata: Annotated[JsonObject | None, Field(description="Only rows whose metadata contains this object.")] = None
    as_of: Annotated[Moment | None, Field(description="Facts as they were true at this time.")] = None
    known_at: Annotated[Moment | None, Field(description="Facts as they were known at this time.")] = None
    asked_at: AskedAt = None
    time_zone: TimeZone = None
    min_relevance: Annotated[float, Field(ge=0, le=1)] = 0.0
    query_embedding: Embedding | None = None
    embedding_model: Annotated[
        Name | None, Field(description="The model of query_embedding; by default the server's.")
    ] = None
    weights: Annotated[WeightsInput | None, Field(description="Of the parts of a score; the default by default.")] = (
        None
    )
    explain: Annotated[
        bool, Field(description="For people who examine a search: return the parts of each score, and count no use.")
    ] = False
    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Where does Ann live?", "limit": 3}]})

    def narrow(self) -> SearchFilter:
        """Return the filter for `hippocampus.search`."""
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


class WhyView(View):
    """Why a row matched: the components of its score."""

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
    parts: Annotated[
        dict[str, float] | None,
        Field(description="With `explain`: what each part adds to the score. Their sum is the score, unless below 0."),
    ]


class ResultView(View):
    """A row that matches."""

    memory_id: Annotated[uuid.UUID, Field(description="The id of the memory, the fact or the message.")]
    source: Literal["memory", "fact", "message"]
    memory_type: Annotated[str, Field(description="The type of a memory or a fact, or the role of a message.")]
    content: str
    relevance_score: Annotated[float, Field(description="0 to 1, independent of the other results.")]
    score: Annotated[float, Field(description="0 to 1; results are ordered by it.")]
    why: WhyView
    metadata: EscapedObject
    thread_id: uuid.UUID | None
    session_id: str | None
    from_seq: int | None
    upto_seq: int | None
    source_seqs: Annotated[list[int], Field(description="The turns that it is, or was extracted from.")]
    occurred_at: datetime | None


class SearchView(View):
    """The results of a search, best first."""

    results: list[ResultView]
    total_count: Annotated[int, Field(description="The number of matching rows.")]
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null if nothing failed.")]
    reranked: Annotated[bool, Field(description="Whether a reranker ordered the first 50 of what was found.")]
    rerank_failure: Annotated[str | None, Field(description="Why not, although there is one: the first order stands.")]


class MemoryView(View):
    """A memory, without its embedding."""

    id: uuid.UUID
    thread_id: uuid.UUID | None
    memory_type: MemoryType
    content: str
    metadata: EscapedObject
    retention_score: Annotated[float, Field(description="Its current strength, 0 to 1.")]
    access_count: int
    pinned: Annotated[bool, Field(description="It never decays and is never cleaned up.")]
    from_seq: int | None
    upto_seq: int | None
    created_at: datetime | None
    occurred_at: datetime | None


class MemoryPageView(View):
    """A page of memories, strongest first."""

    memories: list[MemoryView]
    next_cursor: NextCursor
