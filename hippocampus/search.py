"""Search over a user's messages and what was extracted from them: exact BM25 and vectors, fused in one statement.

The statement is the SQL function ``search_memory``, which defines what counts as a match and how the parts are weighed.
If the query's embedding fails, text alone is searched: the response states the reason in `degraded`, and the
`on_degraded` hook is called with the name of the error's class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args
from uuid import UUID

import structlog

from hippocampus.errors import BY_SQLSTATE, EmbeddingDimensionError, ProviderError
from hippocampus.memory_types import MEMORY_TYPES
from hippocampus.names import check_names, check_word, check_zones, moment_asked
from hippocampus.providers.embedding_chunks import normalise
from hippocampus.records import DIMENSIONS_MAX, MemoryType, Vector, has_direction
from hippocampus.rerank import RERANK_SECONDS, Reranker, Reranking
from hippocampus.text.time_cues import time_cues
from pulse.errors import InvalidInputError
from pulse.postgres.json_values import escape_state, unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements, without_secrets
from pulse.tracing.manager import spanned

if TYPE_CHECKING:
    import asyncpg

    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool
    from pulse.postgres.replica import ReplicaReads

Source: TypeAlias = Literal["memory", "fact", "message"]
#: ``all``: every turn; ``recent``: those that fast_replay has not reached yet; ``none``.
MessageScope: TypeAlias = Literal["all", "recent", "none"]

SOURCES: tuple[Source, ...] = ("memory", "fact", "message")
LIMIT_MAX = 1000
QUERY_LENGTH_MAX = 32_768

#: The parts of a score, in the order of ``search_memory``: those of `SearchWeights`; `answered`, the words of the
#: question that a turn follows; `moved`, by the times that the query names and by what has changed since. Their sum is
#: the score, or below 0 where the score is 0.
SCORE_PARTS = (
    "bm25",
    "context_bm25",
    "similarity",
    "context_similarity",
    "answered",
    "moved",
    "author",
    "question",
    "recency",
    "retention",
)

#: A memory that is returned with at least this relevance counts as used.
USED_RELEVANCE_MIN = 0.2

_STATEMENTS = Statements("hippocampus", "search.sql", errors=BY_SQLSTATE)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWeights:
    """How much each part of a match counts. Not negative; only their ratios matter.

    The defaults were tuned on conversations of two people over months; they equal ``default_search_weights()``.
    """

    bm25: float = 0.1  # the row's own words
    context_bm25: float = 1.0  # its words and, fading, those of the four turns before and after it
    similarity: float = 0.7  # cosine similarity of the vectors
    context_similarity: float = 0.4  # the same over the turns around it
    author: float = 0.5  # the query names the speaker
    recency: float = 0.05  # 1 now, a half for each 30 days
    retention: float = 0.1  # memories: strength; facts: confidence
    question: float = 0.15  # subtracted from a turn that ends in a question: it seldom holds an answer

    def __post_init__(self) -> None:
        weights = astuple(self)
        if min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise InvalidInputError(
                f"search weights must be finite and not negative, and at least one of them above 0, not {self}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """Which rows may match; None and the defaults do not narrow the search.

    Attributes:
        sources: any of memory, fact, message.
        messages: which turns are searched.
        memory_types: only memories of these types, so neither facts nor messages.
        session_id: only what belongs to this session, or was extracted from it.
        since, until: the time of the conversation, `until` exclusive.
        as_of, known_at: facts as they were true at the first time, and recorded at the second; None: now.
        metadata: rows whose metadata contain this (JSONB containment); of a fact, those of a turn that it was extracted
            from.
        min_relevance: 0 to 1, see `SearchMemoryResult.relevance_score`.
    """

    sources: Collection[Source] = SOURCES
    messages: MessageScope = "all"
    memory_types: Collection[MemoryType] | None = None
    session_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    metadata: Mapping[str, Any] | None = None
    min_relevance: float = 0.0
    as_of: datetime | None = None
    known_at: datetime | None = None

    def __post_init__(self) -> None:
        _check_words("sources", self.sources, SOURCES)
        check_word("messages", self.messages, get_args(MessageScope))
        if not 0 <= self.min_relevance <= 1:
            raise InvalidInputError(f"min_relevance must be from 0 to 1, not {self.min_relevance}")
        if self.memory_types is not None:
            _check_words("memory_types", self.memory_types, MEMORY_TYPES)
        check_zones(since=self.since, until=self.until, as_of=self.as_of, known_at=self.known_at)


def _check_words(what: str, words: Collection[str], allowed: Collection[str]) -> None:
    if isinstance(words, str) or not words or not set(words) <= set(allowed):
        raise InvalidInputError(f"{what} must be one or more of {', '.join(allowed)}, not {words!r}")


EVERYTHING = SearchFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchScores:
    """Why a row matched. Text scores are BM25; similarities are cosines, None if a vector is missing.

    `text_rank` and `vector_rank` are the row's ranks by each score alone, from 1; None if it has no such score. `parts`
    is what each of `SCORE_PARTS` adds to the score, weighted; None unless the search was asked to explain.
    """

    bm25: float
    context_bm25: float
    similarity: float | None
    context_similarity: float | None
    author_match: bool
    recency: float
    retention: float
    text_rank: int | None
    vector_rank: int | None
    matched_terms: tuple[str, ...]
    parts: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMemoryResult:
    """One row that matches.

    Attributes:
        memory_id: the id of the memory, the fact or the message.
        memory_type: episodic, semantic or summary; of a fact its type; of a message its role.
        relevance_score: 0 to 1, the same whatever else matches: the cosine similarity, or the weighted part of the
            query's words that the row holds, whichever is greater.
        score: 0 to 1, by which results are ordered: the weighted parts, normalised among the rows.
        thread_id, session_id: where it was said; None if that session was deleted.
        source_seqs: the turn itself, or the turns that it was extracted from; `from_seq` to `upto_seq` is their range.
    """

    memory_id: UUID
    content: str
    memory_type: str
    relevance_score: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Source
    score: float
    why: MatchScores
    thread_id: UUID | None = None
    session_id: str | None = None
    from_seq: int | None = None
    upto_seq: int | None = None
    source_seqs: tuple[int, ...] = ()
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMemoryResponse:
    """What a search found, the best first.

    Turns, the slice that holds them and its summary are the same evidence: a slice is not searched where every turn is,
    and a summary is left out if one of its turns is in the list.

    Attributes:
        total_count: how many rows match, of which `memories` are the best; over 5,000 memories, how many were scored.
        degraded: why text alone was searched although there is an embedder; None if nothing failed.
        reranked: whether a reranker ordered the first 50; scores stay those of the search.
        rerank_failure: why not, although there is one: it failed, or took too long. The search's own order stands.
    """

    memories: tuple[SearchMemoryResult, ...]
    total_count: int
    query: str
    degraded: str | None = None
    reranked: bool = False
    rerank_failure: str | None = None


class QueryVector(NamedTuple):
    """A query's vector, None if text alone is searched; and the reason, if the embedder failed."""

    vector: Vector | None = None
    degraded: str | None = None


class MemorySearch:
    """Searches memories, facts and messages of one user of one app.

    Args:
        pool: made by `pulse.database.create_pool`.
        embedder: turns queries into vectors; without one, and without a given vector, only the text is searched.
        weights: the weights of the parts of a match.
        on_degraded: called with the name of the error's class when a query's embedding fails.
        reranker: reorders the best results; None: the order of the search.
        rerank_seconds: after which the order of the search stands.
        reads: runs what only reads, such as on a replica; None: `pool`.
    """

    def __init__(
        self,
        pool: Pool,
        embedder: Embedder | None = None,
        *,
        weights: SearchWeights | None = None,
        on_degraded: Callable[[str], None] | None = None,
        reranker: Reranker | None = None,
        rerank_seconds: float = RERANK_SECONDS,
        reads: ReplicaReads | None = None,
    ) -> None:
        self._pool = pool
        self._reads: Any = reads or pool
        self._embedder = embedder
        self._weights = astuple(weights or SearchWeights())
        self._on_degraded = on_degraded
        self._reranking = Reranking(reranker, rerank_seconds)

    @spanned("search", operation="retrieval")
    async def search(
        self,
        *,
        app_name: str,
        user_id: str,
        query: str,
        limit: int = 10,
        narrow: SearchFilter = EVERYTHING,
        query_embedding: Sequence[float] | None = None,
        embedding_model: str | None = None,
        asked_at: datetime | None = None,
        time_zone: str | None = None,
        record_access: bool = True,
        weights: SearchWeights | None = None,
        explain: bool = False,
    ) -> SearchMemoryResponse:
        """Find what matches the query best.

        Args:
            limit: 1 to 1,000.
            query_embedding: the query's vector, by the model that `embedding_model` names (default: the embedder's).
                None: the embedder makes it.
            asked_at: against which the query's times are resolved, such as 'last Friday'. None: now.
            time_zone: whose days they mean, such as Asia/Tokyo. None: the zone of `asked_at`, or UTC.
            record_access: count memories that are returned with a relevance of at least `USED_RELEVANCE_MIN` as used.
            weights: for this search, instead of those of the object.
            explain: return the parts of each score.

        Raises:
            InvalidInputError: the query is blank, a name cannot be stored, an argument is out of its bounds, or a
                vector has no direction.
            EmbeddingDimensionError: the vector has other dimensions than the stored ones of its model, or too many.
            SessionNotFoundError: the filter's session is not one of this user and app.
        """
        check_names(app_name=app_name, user_id=user_id, session_id=narrow.session_id, embedding_model=embedding_model)
        text = clean_query(query)
        check_limit(limit, LIMIT_MAX)
        asked = moment_asked(asked_at, time_zone)
        vector, degraded = await self.embed_query(text, query_embedding, app_name=app_name)
        model = embedding_model or (self._embedder.model if self._embedder else None)
        if query_embedding is not None and model is None:
            raise InvalidInputError("a query_embedding needs embedding_model: two models are never mixed in one search")
        rows = await _STATEMENTS.fetch(
            self._reads,
            "search_memory",
            app_name,
            user_id,
            text,
            vector,
            model,
            self._reranking.depth(limit),
            list(narrow.sources),
            narrow.messages,
            None if narrow.memory_types is None else list(narrow.memory_types),
            narrow.session_id,
            narrow.since,
            narrow.until,
            None if narrow.metadata is None else escape_state(narrow.metadata, where="metadata"),
            narrow.min_relevance,
            self._weights if weights is None else astuple(weights),
            narrow.as_of,
            narrow.known_at,
            *cue_arguments(text, asked),
            explain,
        )
        found = await self._reranking.order(
            self._pool, app_name, text, [_result(row) for row in rows], lambda result: result.content
        )
        results = tuple(found.results[:limit])
        if record_access:
            await self.record_access(
                (r.memory_id for r in results if r.source == "memory" and r.relevance_score >= USED_RELEVANCE_MIN),
                app_name=app_name,
                user_id=user_id,
            )
        return SearchMemoryResponse(
            memories=results,
            total_count=rows[0]["total"] if rows else 0,
            query=query,
            degraded=degraded,
            reranked=found.is_reranked,
            rerank_failure=found.failure,
        )

    async def record_access(
        self, memory_ids: Iterable[UUID], *, app_name: str | None = None, user_id: str | None = None
    ) -> int:
        """Count one use of each memory of a user, in one statement; return how many there were. None: of any."""
        ids = sorted(set(memory_ids))
        if not ids:
            return 0
        counted: int = await _STATEMENTS.fetchval(self._pool, "record_memory_access", ids, app_name, user_id)
        return counted

    async def embed_query(self, text: str, given: Sequence[float] | None, *, app_name: str) -> QueryVector:
        """Return the query's vector: the given one, or the embedder's, which is not sent what the app's policy masks.

        Raises:
            EmbeddingDimensionError: as `search`.
        """
        if given is not None:
            vector = _checked(given)
            # Angles are compared, whatever its length. Only doubles out of the range of the column's floats are scaled.
            return QueryVector(vector if 1e-6 < math.hypot(*vector) < 1e6 else normalise(vector))
        if self._embedder is None:
            return QueryVector()
        try:
            sent = await without_secrets(self._pool, app_name, [text])
            (vector,) = await self._embedder.embed(sent, "query")
        except ProviderError as error:
            return QueryVector(degraded=self._degraded(type(error).__name__, error.code))
        if not has_direction(vector):
            return QueryVector(degraded=self._degraded("VectorWithoutDirection", None))
        return QueryVector(_checked(vector))

    def _degraded(self, error: str, code: str | None) -> str:
        """Report a query without a vector; return the reason in words."""
        _log.warning("query_embedding_failed", error=error, code=code)
        if self._on_degraded is not None:
            self._on_degraded(error)
        cause = error if code is None else f"{error}, {code}"
        return f"the query could not be embedded ({cause}): text alone was searched"


class CueArguments(NamedTuple):
    """The times that a query names, as four arguments of ``search_memory``; see `hippocampus.text.time_cues`."""

    said_since: list[datetime]
    said_until: list[datetime]
    words: list[str]
    weights: list[float]


def cue_arguments(query: str, asked_at: datetime | None = None) -> CueArguments:
    """Return the times that a query names, resolved against `asked_at` (None: now, in UTC)."""
    cues = time_cues(query, asked_at or datetime.now(UTC))
    return CueArguments(
        [cue.start for cue in cues],
        [cue.end for cue in cues],
        [cue.words for cue in cues],
        [cue.weight for cue in cues],
    )


def is_blank(query: str) -> bool:
    """Whether a query has no text: it is empty, or holds white space and U+0000 alone."""
    return not query.replace("\0", " ").strip()


def clean_query(query: str) -> str:
    """Return the query as the database can take it.

    Raises:
        InvalidInputError: it is blank, or longer than 32,768 characters.
    """
    if is_blank(query):
        raise InvalidInputError("the query is blank: say what to search for")
    text = query.replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()
    if len(text) > QUERY_LENGTH_MAX:
        raise InvalidInputError(f"the query has {len(text)} characters, over the limit of {QUERY_LENGTH_MAX}")
    return text


def _checked(vector: Sequence[float]) -> Vector:
    if len(vector) > DIMENSIONS_MAX:
        raise EmbeddingDimensionError(
            f"the query's vector has {len(vector)} dimensions; stored ones have at most {DIMENSIONS_MAX}"
        )
    # A cosine to such a vector is NaN, and one of them would make every score of the search NaN.
    if not has_direction(vector):
        raise InvalidInputError("the query's vector has no direction: it must be finite and not all zeros")
    return list(vector)


def _result(row: asyncpg.Record) -> SearchMemoryResult:
    return SearchMemoryResult(
        memory_id=row["id"],
        content=row["content"],
        memory_type=row["kind"],
        relevance_score=row["relevance"],
        metadata=unescape(row["metadata"]),
        source=row["source"],
        score=row["score"],
        why=MatchScores(
            bm25=row["bm25"],
            context_bm25=row["context_bm25"],
            similarity=row["similarity"],
            context_similarity=row["context_similarity"],
            author_match=row["author_match"],
            recency=row["recency"],
            retention=row["retention"],
            text_rank=row["text_rank"],
            vector_rank=row["vector_rank"],
            matched_terms=tuple(row["matched_terms"]),
            parts=None if row["parts"] is None else dict(zip(SCORE_PARTS, row["parts"], strict=True)),
        ),
        thread_id=row["thread_id"],
        session_id=row["session_id"],
        from_seq=row["from_seq"],
        upto_seq=row["upto_seq"],
        source_seqs=tuple(row["source_seqs"]),
        occurred_at=row["occurred_at"],
    )
