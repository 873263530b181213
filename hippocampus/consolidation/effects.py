"""Effects: what the models drew from a slice, ready to be stored in one call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hippocampus.consolidation.slices import Slice, Stage, format_conversation
from hippocampus.errors import EmbeddingDimensionError, MalformedReplyError, ProviderError
from hippocampus.facts import elements, keys
from hippocampus.facts.elements import Element
from hippocampus.memory_types import initial_score
from hippocampus.providers.protocols import Embedder, Generator
from hippocampus.records import (
    EMBEDDING_DIMENSIONS,
    ConversationSlice,
    ExtractedInsight,
    Origin,
    Turn,
    Vector,
    has_direction,
)
from pulse.postgres.json_values import clean_text, escape_state

_CONTENT_PREVIEW_CHARACTERS = 100


class Drawable(Protocol):
    """Turns that something can be drawn from."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Ascending by sequence number, never empty."""

    @property
    def conversation(self) -> ConversationSlice:
        """The turns, as a provider takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a slice cost, in the order in which `record_cost` takes it; see the view ``memory_costs``."""

    generate_calls: int = 0
    embed_calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    reused_replies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The rows that a stage leaves, as the SQL types memory_input, message_vector, fact_input and so on take them.

    `vectorless` says that the embedding failed: texts are stored as they are, vectors follow by backfill. `skipped` is
    why the model was not asked for the slice's only turn: the code of its refusals.
    """

    origin: Origin | None = None
    embedding_model: str | None = None
    memories: list[tuple[Any, ...]] = field(default_factory=list)
    message_vectors: list[tuple[int, Vector]] = field(default_factory=list)
    facts: list[tuple[Any, ...]] = field(default_factory=list)
    proposals: list[tuple[Any, ...]] = field(default_factory=list)
    vectorless: bool = False
    skipped: str | None = None
    cost: Cost = field(default_factory=Cost)


async def replay(generator: Generator, embedder: Embedder, part: Drawable) -> Effects:
    """Draw a summary, keep the slice itself, and give vectors to both and to the slice's messages.

    One generate call, one embedding call.

    Raises:
        ProviderError: the summary failed. A failed embedding is no error here: see `Effects.vectorless`.
        EmbeddingDimensionError: the embedder's vectors don't fit the columns.
    """
    (summary,) = await generator.summarize([part.conversation])
    text, whole = clean_text(summary.text), format_conversation(part.turns)
    vectors = await _embed(embedder, [text, whole, *(turn.text for turn in part.turns)])
    seqs = [turn.sequence_num for turn in part.turns]
    when = part.turns[-1].occurred_at
    return Effects(
        origin=summary.origin,
        embedding_model=embedder.model,
        memories=[
            ("summary", text, vectors[0], {"source": "fast_replay"}, initial_score("summary"), seqs, when),
            ("episodic", whole, vectors[1], {"source": "fast_replay"}, initial_score("episodic"), seqs, when),
        ],
        message_vectors=[(seq, vector) for seq, vector in zip(seqs, vectors[2:], strict=True) if vector is not None],
        vectorless=None in vectors,
    )


async def keep_unread(embedder: Embedder, part: Slice, code: str) -> Effects:
    """What is kept of a turn that the generating model refuses: its text, where fast_replay passes it; else nothing.

    Args:
        code: of the refusal.

    Raises:
        EmbeddingDimensionError: as `replay`.
    """
    if part.stage is Stage.DEEP:
        return Effects(skipped=code)
    whole = format_conversation(part.turns)
    vectors = await _embed(embedder, [whole, *(turn.text for turn in part.turns)])
    seqs = [turn.sequence_num for turn in part.turns]
    when = part.turns[-1].occurred_at
    return Effects(
        embedding_model=embedder.model,
        memories=[("episodic", whole, vectors[0], {"source": "fast_replay"}, initial_score("episodic"), seqs, when)],
        message_vectors=[(seq, vector) for seq, vector in zip(seqs, vectors[1:], strict=True) if vector is not None],
        vectorless=None in vectors,
        skipped=code,
    )


async def reflect(
    generator: Generator, embedder: Embedder, part: Drawable, *, styles: keys.Styles | None = None
) -> Effects:
    """Draw facts, insights and proposals from a slice; one generate call, one embedding call, none for nothing found.

    Args:
        styles: the app's policy of which keys hold many values.

    Raises:
        ProviderError, EmbeddingDimensionError: as `replay`.
    """
    (reflection,) = await generator.reflect([part.conversation])
    facts = [element for fact in reflection.facts for element in elements.of_fact(fact, styles)]
    fact_texts = [clean_text(f"{fact.key}: {_value_text(fact.value)}") for fact in facts]
    insight_texts = [clean_text(insight.content) for insight in reflection.insights]
    vectors = await _embed(embedder, [*fact_texts, *insight_texts])
    fact_vectors, insight_vectors = vectors[: len(fact_texts)], vectors[len(fact_texts) :]
    return Effects(
        origin=reflection.origin,
        embedding_model=embedder.model,
        memories=[
            _insight_input(part, *item)
            for item in zip(reflection.insights, insight_texts, insight_vectors, strict=True)
        ],
        facts=[_fact_input(part, *item) for item in zip(facts, fact_texts, fact_vectors, strict=True)],
        proposals=[
            (clean_text(each.key), clean_text(each.content), list(each.source_seqs)) for each in reflection.proposals
        ],
        vectorless=None in vectors,
    )


def check_vectors(vectors: Sequence[Vector], texts: Sequence[str], model: str) -> None:
    """Raise where an embedder did not give one vector of the right size for each text.

    Raises:
        EmbeddingDimensionError: a vector has another number of dimensions than the columns.
        MalformedReplyError: there are more or fewer vectors than texts, or one cannot be compared with any other.
    """
    for vector in vectors:
        if len(vector) != EMBEDDING_DIMENSIONS:
            raise EmbeddingDimensionError(
                f"{model} gives vectors of {len(vector)} dimensions, but the columns hold {EMBEDDING_DIMENSIONS}:"
                f" choose a model, or an output dimensionality, of {EMBEDDING_DIMENSIONS}; nothing was written"
            )
    if len(vectors) != len(texts):
        raise MalformedReplyError(f"{model} gave {len(vectors)} vectors for {len(texts)} texts")
    if not all(map(has_direction, vectors)):
        raise MalformedReplyError(f"{model} gave a vector that is all zeros or not finite")


def summary_result(summary: str, memory_id: Any) -> dict[str, Any]:
    """Return what a job's result says about its summary: its id and its first 100 characters."""
    shown = summary[:_CONTENT_PREVIEW_CHARACTERS]
    return {"memory_id": str(memory_id), "content": shown + ("..." if len(summary) > len(shown) else "")}


async def _embed(embedder: Embedder, texts: Sequence[str]) -> list[Vector | None]:
    if not texts:
        return []
    try:
        vectors = await embedder.embed(texts, "document")
        check_vectors(vectors, texts, embedder.model)
    except ProviderError:
        # The text is not lost for want of a vector: it is stored without, and the backfill comes back for it.
        return [None] * len(texts)
    return list(vectors)


def _insight_input(part: Drawable, insight: ExtractedInsight, text: str, vector: Vector | None) -> tuple[Any, ...]:
    return (
        "semantic",
        text,
        vector,
        {"source": "deep_reflection", "importance": insight.importance},
        initial_score("semantic", insight.importance),
        list(insight.source_seqs),
        _said_at(part, insight.source_seqs),
    )


def _fact_input(part: Drawable, fact: Element, text: str, vector: Vector | None) -> tuple[Any, ...]:
    return (
        fact.fact_type,
        clean_text(fact.key),
        escape_state(fact.value, where=f"the value of {fact.key!r}"),
        text,
        vector,
        fact.confidence,
        list(fact.source_seqs),
        _said_at(part, fact.source_seqs),
        keys.normal_key(fact.key),
        fact.collection,
        keys.contrast_of(fact.key, _speakers(part)),
    )


def _speakers(part: Drawable) -> set[str]:
    """The names of those who speak, as a key may begin with them."""
    return {turn.author for turn in part.turns if turn.author not in ("user", "model", "agent", "assistant", "tool")}


def _said_at(part: Drawable, seqs: Sequence[int]) -> Any:
    """When the last of these turns was said; the end of the slice where a provider names turns outside it."""
    times = [turn.occurred_at for turn in part.turns if turn.sequence_num in seqs]
    return times[-1] if times else part.turns[-1].occurred_at


def _value_text(value: Any) -> str:
    """A fact's value as it is searched: plain text where it is text, or a statement about somebody; JSON otherwise."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        subject = value.get("subject", "user")
        return value["text"] if subject == "user" else f"{subject} {value['text']}"
    return json.dumps(value, ensure_ascii=False)
