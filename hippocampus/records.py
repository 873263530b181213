"""The records of the memory: the input and the output of providers, and what is stored."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self, TypeAlias
from uuid import UUID

#: The most dimensions that a stored vector may have. All vectors of one model have the same.
DIMENSIONS_MAX = 4000

#: An embedder's vector, L2-normalised.
Vector: TypeAlias = list[float]


def has_direction(vector: Sequence[float]) -> bool:
    """Whether a vector can be compared by its angle: finite, and not all zeros."""
    # The length of large doubles overflows.
    return 0 < math.hypot(*vector) < math.inf or (any(vector) and all(map(math.isfinite, vector)))


FactType: TypeAlias = Literal["preference", "rule", "profile", "custom"]
MemoryType: TypeAlias = Literal["episodic", "semantic", "summary"]
Importance: TypeAlias = Literal["high", "medium", "low"]


class JobType(enum.StrEnum):
    """What a consolidation job does. Each member has a consumer."""

    FAST_REPLAY = "fast_replay"  # slice -> episodic memory, summary, vectors of the slice's messages
    DEEP_REFLECTION = "deep_reflection"  # slice -> facts and insights
    FULL_CONSOLIDATION = "full_consolidation"  # both, in this order


class JobStatus(enum.StrEnum):
    """The status of a consolidation job; mirrored from the queue in the same transaction."""

    PENDING = "pending"  # -> running, cancelled
    RUNNING = "running"  # -> completed, failed, cancelled; pending again for a retry
    COMPLETED = "completed"  # end
    FAILED = "failed"  # -> pending, by hand
    CANCELLED = "cancelled"  # end


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a conversation, as a provider sees it."""

    sequence_num: int
    author: str  # 'user', 'model', 'tool', or a person's or agent's name
    role: Literal["user", "assistant", "tool"]
    text: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownInsight:
    """An insight of the user that is stored already, which a slice may repeat in other words."""

    id: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSlice:
    """Consecutive turns of one thread: the unit of consolidation."""

    turns: tuple[Turn, ...]  # ascending by sequence_num, never empty
    #: What is known of the user when the slice begins, the oldest first: what 'actually I'm not' may take back.
    known_facts: tuple[ExtractedFact, ...] = ()
    #: Insights of the user that are nearest in words, for a generator that compares meanings.
    known_insights: tuple[KnownInsight, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, as the provider counts them."""

    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The prompt and the model that made something."""

    provider: str  # 'gemini', 'local'
    model: str  # the version as the reply gives it
    prompt_hash: str  # SHA-256, hex, of the prompt's file; of the rules' text for a provider without prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A slice in at most 200 characters, third person."""

    text: str
    origin: Origin
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact:
    """A fact that a provider extracted from a slice; validated, not yet stored.

    Attributes:
        ended: what was stated is taken back: it no longer holds, or never did. What holds
            under the key ends, and its history stays. `value` is what ended; None: whatever holds, in a collection
            every element.
    """

    fact_type: FactType
    key: str  # 1 to 255 characters, snake_case English if the provider chooses it
    value: Any  # a JSON value that is neither null nor empty; None only if `ended`
    confidence: float  # 0.0 to 1.0
    source_seqs: tuple[int, ...]  # the turns that state it; ascending, within the slice, never empty
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedInsight:
    """A conclusion that a provider extracted from a slice; validated, not yet stored."""

    content: str  # never blank
    importance: Importance
    source_seqs: tuple[int, ...]  # as in ExtractedFact
    repeats: str | None = None  # the id of the known insight that it repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedProposal:
    """A change of the app's instructions that a user's feedback requests. It takes effect when it is approved."""

    key: str  # 1 to 255 characters, snake_case English if the provider chooses it
    content: str  # the instruction, one sentence that an agent can follow; never blank
    source_seqs: tuple[int, ...]  # as in ExtractedFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """What a deep reflection found in one slice. All may be empty: then there was nothing to find."""

    facts: tuple[ExtractedFact, ...]
    insights: tuple[ExtractedInsight, ...]
    proposals: tuple[ExtractedProposal, ...] = ()
    origin: Origin
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and the numbered passages of the memory that may answer it."""

    text: str
    passages: str  # one line each, of stored text as JSON strings; see `hippocampus.answers`
    asked_at: datetime
    tokens_max: int  # of the answer
    language: str | None = None  # its name in English; None: that of the question


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model replied to a question. Its citations are not yet checked."""

    text: str | None  # None: the passages do not answer it; never blank
    citations: tuple[int, ...]  # numbers of passages, in the model's order
    origin: Origin
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationJob:
    """A row of ``consolidation_jobs``."""

    id: UUID
    thread_id: UUID
    job_type: JobType
    status: JobStatus = JobStatus.PENDING
    attempts: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    error_code: str | None = None
    raw_reply: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A row of ``memories``. `retention_score` is computed by the database when it is read, or for `scored_at`."""

    id: UUID
    thread_id: UUID | None
    user_id: str
    app_name: str
    memory_type: MemoryType
    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    embedding: Vector | None = None
    retention_score: float = 1.0
    access_count: int = 0
    pinned: bool = False  # it never fades and is never cleaned up
    from_seq: int | None = None
    upto_seq: int | None = None
    created_at: datetime | None = None
    occurred_at: datetime | None = None
    scored_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPosition:
    """The end of a page of memories. Scores are compared as they were when the first page was read."""

    scored_at: datetime
    score: float
    created_at: datetime
    id: UUID

    @classmethod
    def of(cls, memory: Memory) -> Self:
        """Return the position of a memory that was listed.

        Raises:
            ValueError: the memory does not come from a list.
        """
        if memory.scored_at is None or memory.created_at is None:
            raise ValueError(f"the memory {memory.id} is not from a list")
        return cls(scored_at=memory.scored_at, score=memory.retention_score, created_at=memory.created_at, id=memory.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A current row of ``facts``."""

    id: UUID
    thread_id: UUID | None
    user_id: str
    app_name: str
    fact_type: FactType
    key: str
    value: Any
    confidence: float = 1.0
    source_seqs: tuple[int, ...] = ()
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    recorded_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVersion:
    """A statement in the history of a fact, and the time in which it held.

    Attributes:
        outcome: ``current``; ``superseded`` by a later statement; ``out_of_order``: superseded before it was recorded;
            ``candidate``: too unsure to replace what held, never current; ``retracted``: a replay did not extract it
            again.
        valid_from, valid_until: when it was true. recorded_at, superseded_at: when it was held to be true.
        superseded_by_thread_id, superseded_by_seq, superseded_by_event_id: the turn that ended it; None if none did, or
            if its session was deleted.
        written_by: who wrote it by hand, '' if that is not known; None: it was extracted.
        confirmed_by, confirmed_at: who confirmed it by hand last, and when; None: not confirmed.
        superseded_by: who ended it by hand; None: it was not.
    """

    fact_id: UUID
    value: Any
    confidence: float
    outcome: Literal["current", "superseded", "out_of_order", "candidate", "retracted"]
    valid_from: datetime
    valid_until: datetime | None
    recorded_at: datetime
    superseded_at: datetime | None
    thread_id: UUID | None
    source_seqs: tuple[int, ...]
    job_id: UUID | None
    prompt_hash: str | None
    model: str | None
    superseded_by_thread_id: UUID | None
    superseded_by_seq: int | None
    superseded_by_event_id: str | None
    written_by: str | None = None
    confirmed_by: str | None = None
    confirmed_at: datetime | None = None
    superseded_by: str | None = None

    @property
    def rank(self) -> int:
        """Its group in the history: 0 for what holds, 1 for what held or might have, 2 for what was retracted."""
        return {"current": 0, "retracted": 2}.get(self.outcome, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPosition:
    """The end of a page of a fact's history: after the first `passed` statements of one rank and these times."""

    rank: int
    valid_from: datetime
    recorded_at: datetime
    passed: int

    @classmethod
    def after(cls, page: Sequence[FactVersion], start: Self | None) -> Self:
        """Return the position after a page that began at `start`."""
        last = page[-1]
        position = (last.rank, last.valid_from, last.recorded_at)
        passed = sum((each.rank, each.valid_from, each.recorded_at) == position for each in page)
        if start is not None and (start.rank, start.valid_from, start.recorded_at) == position:
            passed += start.passed
        return cls(rank=last.rank, valid_from=last.valid_from, recorded_at=last.recorded_at, passed=passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidate:
    """A statement that was too unsure to replace what held. It becomes the fact if it is stated again, or promoted."""

    id: UUID
    fact_id: UUID
    fact_type: FactType
    key: str
    value: Any
    confidence: float
    held_value: Any  # what holds of the fact now
    held_confidence: float
    valid_from: datetime  # when it was stated
    recorded_at: datetime
    thread_id: UUID | None
    source_seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactMerge:
    """A key that was merged as another spelling of a fact's key."""

    id: UUID
    fact_id: UUID
    fact_type: FactType
    from_key: str
    to_key: str
    method: Literal["normal_form", "meaning"]
    similarity: float  # cosine of the two texts; 1 for a normal form
    embedding_model: str | None
    job_id: UUID | None
    merged_at: datetime
    undone_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One version of a procedural memory: a rule or template of an app for its agents."""

    id: UUID
    app_name: str
    key: str
    content: str
    version: int  # 1, 2, ...; the newest is in force
    metadata: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionProposal:
    """A proposed change of an instruction, undecided or decided."""

    id: UUID
    app_name: str
    key: str
    content: str
    status: Literal["proposed", "approved", "rejected"]
    base_version: int  # the newest when it was proposed; 0: there was none
    version: int | None  # what it became when it was approved
    user_id: str  # whose feedback it follows from
    thread_id: UUID | None
    source_seqs: tuple[int, ...]
    job_id: UUID | None
    prompt_hash: str | None
    model: str | None
    proposed_at: datetime
    decided_at: datetime | None
    decided_by: str | None
