"""Effects: what a stage derives from a slice, as rows that one call stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from hippocampus.errors import EmbeddingDimensionError, MalformedReplyError
from hippocampus.records import DIMENSIONS_MAX, ExtractedFact, FactType, MemoryType, Origin, Vector, has_direction

KnownFacts = tuple[ExtractedFact, ...]


class MemoryInput(NamedTuple):
    """The SQL type memory_input."""

    memory_type: MemoryType
    content: str
    embedding: Vector | None
    metadata: Mapping[str, Any]
    initial_score: float
    source_seqs: list[int]
    occurred_at: datetime


class FactInput(NamedTuple):
    """The SQL type fact_input. A retraction has the value None, and as content what ended: '' for whatever holds."""

    fact_type: FactType
    key: str
    value: Any  # None: the fact ends
    content: str
    embedding: Vector | None
    confidence: float
    source_seqs: list[int]
    valid_from: datetime | None  # None, by hand alone: now
    normal_key: str
    collection: str | None
    contrast: str


class ProposalInput(NamedTuple):
    """The SQL type proposal_input."""

    instruction_key: str
    content: str
    source_seqs: list[int]


class MessageVector(NamedTuple):
    """The SQL type message_vector."""

    sequence_num: int
    embedding: Vector


class SliceOrigin(NamedTuple):
    """The SQL type slice_origin: the provenance of everything that a slice leaves."""

    job_id: UUID | None
    from_seq: int | None
    upto_seq: int | None
    prompt_hash: str | None
    model: str | None
    embedding_model: str | None


class Cost(NamedTuple):
    """What a slice cost, in the order of `record_cost`'s arguments; see the view ``memory_costs``."""

    generate_calls: int = 0
    embed_calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    reused_replies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a stage derives from a slice.

    Attributes:
        vectorless: the embedding failed. The texts are stored without vectors, and the backfill adds them.
        skipped: the error code with which the model refused the slice's only turn; None if it was not refused.
        known_facts: what was known of the user, as the generator read it; None if it did not read it, or its reply was
            paid for.
    """

    origin: Origin | None = None
    embedding_model: str | None = None
    memories: list[MemoryInput] = field(default_factory=list)
    message_vectors: list[MessageVector] = field(default_factory=list)
    facts: list[FactInput] = field(default_factory=list)
    proposals: list[ProposalInput] = field(default_factory=list)
    vectorless: bool = False
    skipped: str | None = None
    cost: Cost = field(default_factory=Cost)
    known_facts: KnownFacts | None = None

    def slice_origin(self, job_id: UUID | None, from_seq: int | None, upto_seq: int | None) -> SliceOrigin:
        """Return the provenance of these effects, derived by a job from these turns."""
        prompt_hash, model = (None, None) if self.origin is None else (self.origin.prompt_hash, self.origin.model)
        return SliceOrigin(job_id, from_seq, upto_seq, prompt_hash, model, self.embedding_model)


def check_vectors(vectors: Sequence[Vector], texts: Sequence[str], model: str) -> None:
    """Check that an embedder returned one vector for each text, all of one size.

    Raises:
        EmbeddingDimensionError: the vectors differ in their dimensions, or have more than `DIMENSIONS_MAX`.
        MalformedReplyError: there are more or fewer vectors than texts, or a vector has no direction.
    """
    sizes = sorted({len(vector) for vector in vectors})
    if len(sizes) > 1:
        raise EmbeddingDimensionError(
            f"{model} returned vectors of different dimensions ({', '.join(map(str, sizes))}) in one call; nothing was"
            " written: check the embedder"
        )
    if sizes and sizes[0] > DIMENSIONS_MAX:
        raise EmbeddingDimensionError(
            f"{model} returned vectors of {sizes[0]} dimensions; at most {DIMENSIONS_MAX} can be stored: choose another"
            " model or output dimensionality; nothing was written"
        )
    if len(vectors) != len(texts):
        raise MalformedReplyError(f"{model} returned {len(vectors)} vectors for {len(texts)} texts")
    if not all(map(has_direction, vectors)):
        raise MalformedReplyError(f"{model} returned a vector that is all zeros or not finite")
