"""Deriving memories from turns: the one pipeline behind consolidation, replay and re-derivation.

    read      a slice of turns, in one statement; the connection goes back to the pool
    derive    one generate call, one embedding call; the provider checks the reply (`hippocampus.providers.extraction`).
              A message that is too long for one call is read in parts (`hippocampus.consolidation.parts`)
    end       consolidation stores the effects; replay compares them with what is stored; re-derivation stores them
              again, without what was erased

The three ends are `hippocampus.consolidation_worker`, `.replay` and `.rederive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hippocampus.consolidation.effects import (
    Effects,
    FactInput,
    MemoryInput,
    MessageVector,
    ProposalInput,
    check_vectors,
)
from hippocampus.consolidation.parts import cut
from hippocampus.consolidation.slices import Stage, format_conversation
from hippocampus.errors import ProviderError
from hippocampus.facts import elements, keys
from hippocampus.facts.elements import Element
from hippocampus.memory_types import initial_score
from hippocampus.providers.protocols import Embedder, Generator
from hippocampus.records import (
    ConversationSlice,
    ExtractedFact,
    ExtractedInsight,
    KnownInsight,
    Summary,
    Turn,
    Vector,
)
from pulse.postgres.json_values import clean_text, escape_state

Turns = tuple[Turn, ...]

#: Authors that are roles, and so no names that a key may begin with.
_ROLES = frozenset(("user", "model", "agent", "assistant", "tool"))
#: Between two statements of one time; `end_fact` puts an end one microsecond after what was stated at its moment.
_MOMENT = timedelta(microseconds=2)


async def derive(
    generator: Generator,
    embedder: Embedder,
    stage: Stage,
    turns: Turns,
    styles: keys.Styles | None = None,
    known_facts: tuple[ExtractedFact, ...] = (),
    known_insights: tuple[KnownInsight, ...] = (),
    *,
    slice_tokens: int,
) -> Effects:
    """Have the models derive a stage's effects from turns. Without turns no model is called and nothing is derived.

    Args:
        styles: the app's policy on which keys hold many values; only the deep stage uses it.
        known_facts: what is known of the user before these turns, for the deep stage.
        known_insights: insights of the user that the deep stage may find again in other words.
        slice_tokens: estimated tokens of one generate call. Longer turns take several.

    Raises:
        ProviderError: the generator failed. A failed embedding is not an error: see `Effects.vectorless`.
        EmbeddingDimensionError: the embedder's vectors are too long, or not of its model's dimensions.
    """
    if not turns:
        return Effects()
    if stage is Stage.FAST:
        return await _replay(generator, embedder, turns, slice_tokens)
    parts = [
        ConversationSlice(turns=part, known_facts=known_facts, known_insights=known_insights)
        for part in cut(turns, slice_tokens)
    ]
    return await _reflect(generator, embedder, parts, styles)


async def keep_text(embedder: Embedder, stage: Stage, turns: Turns, code: str) -> Effects:
    """Return what is kept of turns that the generator refuses: in the fast stage their text, in the deep stage nothing.

    Args:
        code: the code of the refusal.

    Raises:
        EmbeddingDimensionError: as `derive`.
    """
    if stage is Stage.DEEP:
        return Effects(skipped=code)
    whole = format_conversation(turns)
    vectors = await _embed(embedder, [whole, *(turn.text for turn in turns)])
    return Effects(
        embedding_model=embedder.model,
        memories=[_fast_memory("episodic", whole, vectors[0], turns)],
        message_vectors=_message_vectors(turns, vectors[1:]),
        vectorless=None in vectors,
        skipped=code,
    )


async def _replay(generator: Generator, embedder: Embedder, turns: Turns, slice_tokens: int) -> Effects:
    """Derive a summary, the text of the slice, and the vectors of both and of the slice's messages."""
    summary = await _summarize(generator, turns, slice_tokens)
    text, whole = clean_text(summary.text), format_conversation(turns)
    vectors = await _embed(embedder, [text, whole, *(turn.text for turn in turns)])
    return Effects(
        origin=summary.origin,
        embedding_model=embedder.model,
        memories=[
            _fast_memory("summary", text, vectors[0], turns),
            _fast_memory("episodic", whole, vectors[1], turns),
        ],
        message_vectors=_message_vectors(turns, vectors[2:]),
        vectorless=None in vectors,
    )


async def _summarize(generator: Generator, turns: Turns, slice_tokens: int) -> Summary:
    """Return one summary: of several parts, the summary of their summaries."""
    parts = cut(turns, slice_tokens)
    summaries = await generator.summarize([ConversationSlice(turns=part) for part in parts])
    if len(parts) == 1:
        return summaries[0]
    said = tuple(replace(part[0], text=summary.text) for part, summary in zip(parts, summaries, strict=True))
    if len(cut(said, slice_tokens)) < len(parts):
        return await _summarize(generator, said, slice_tokens)
    return replace(summaries[-1], text="\n".join(turn.text for turn in said))


async def _reflect(
    generator: Generator, embedder: Embedder, parts: Sequence[ConversationSlice], styles: keys.Styles | None
) -> Effects:
    """Derive facts, insights and proposals; nothing is embedded if none was found."""
    turns = tuple(turn for part in parts for turn in part.turns)
    reflections = await generator.reflect(parts)
    found = [
        element
        for each in reflections
        for element in elements.in_order([one for fact in each.facts for one in elements.of_fact(fact, styles)])
    ]
    insights = [insight for each in reflections for insight in each.insights]
    fact_texts = [elements.fact_text(fact.key, fact.value) for fact in found]
    insight_texts = [clean_text(insight.content) for insight in insights]
    vectors = await _embed(embedder, [*fact_texts, *insight_texts])
    fact_vectors, insight_vectors = vectors[: len(fact_texts)], vectors[len(fact_texts) :]
    return Effects(
        origin=reflections[-1].origin,
        embedding_model=embedder.model,
        memories=[_insight_memory(turns, *item) for item in zip(insights, insight_texts, insight_vectors, strict=True)],
        facts=_one_after_another([_fact(turns, *item) for item in zip(found, fact_texts, fact_vectors, strict=True)]),
        proposals=[
            ProposalInput(clean_text(each.key), clean_text(each.content), list(each.source_seqs))
            for reflection in reflections
            for each in reflection.proposals
        ],
        vectorless=None in vectors,
    )


async def _embed(embedder: Embedder, texts: Sequence[str]) -> list[Vector | None]:
    if not texts:
        return []
    try:
        vectors = await embedder.embed(texts, "document")
        check_vectors(vectors, texts, embedder.model)
    except ProviderError:
        # The text is stored without a vector rather than lost, and the backfill adds one.
        return [None] * len(texts)
    return list(vectors)


def _fast_memory(memory_type: Any, content: str, vector: Vector | None, turns: Turns) -> MemoryInput:
    return MemoryInput(
        memory_type=memory_type,
        content=content,
        embedding=vector,
        metadata={"source": "fast_replay"},
        initial_score=initial_score(memory_type),
        source_seqs=[turn.sequence_num for turn in turns],
        occurred_at=turns[-1].occurred_at,
    )


def _insight_memory(turns: Turns, insight: ExtractedInsight, text: str, vector: Vector | None) -> MemoryInput:
    return MemoryInput(
        memory_type="semantic",
        content=text,
        embedding=vector,
        metadata={"source": "deep_reflection", "importance": insight.importance}
        | ({} if insight.repeats is None else {"repeats": insight.repeats}),
        initial_score=initial_score("semantic", insight.importance),
        source_seqs=list(insight.source_seqs),
        occurred_at=_said_at(turns, insight.source_seqs),
    )


def _fact(turns: Turns, fact: Element, text: str, vector: Vector | None) -> FactInput:
    speakers = {turn.author for turn in turns} - _ROLES
    return FactInput(
        fact_type=fact.fact_type,
        key=clean_text(fact.key),
        value=None if fact.ended else escape_state(fact.value, where=f"the value of {fact.key!r}"),
        content=_ended_text(fact) if fact.ended else text,
        embedding=vector,
        confidence=fact.confidence,
        source_seqs=list(fact.source_seqs),
        valid_from=_said_at(turns, fact.source_seqs),
        normal_key=keys.normal_key(fact.key),
        collection=fact.collection,
        contrast=keys.contrast_of(fact.key, speakers),
    )


def _one_after_another(facts: list[FactInput]) -> list[FactInput]:
    """Return facts in which, of a key that one of them ends, what follows a statement also follows it in time.

    The turns of an import may all have one time.
    """
    ended = {(fact.fact_type, fact.normal_key) for fact in facts if fact.value is None}
    said: dict[tuple[str, str], datetime] = {}
    following = []
    for fact in facts:
        identity, at = (fact.fact_type, fact.normal_key), fact.valid_from
        before = said.get(identity)
        if at is not None and before is not None and at <= before:
            at = before + _MOMENT
        if at is not None and fact.value is not None and identity in ended:
            said[identity] = at
        following.append(fact._replace(valid_from=at))
    return following


def _message_vectors(turns: Turns, vectors: Sequence[Vector | None]) -> list[MessageVector]:
    return [
        MessageVector(turn.sequence_num, vector)
        for turn, vector in zip(turns, vectors, strict=True)
        if vector is not None
    ]


def _said_at(turns: Turns, seqs: Sequence[int]) -> datetime:
    """Return the time of the last of these turns; the slice's end if a provider names only turns outside it."""
    return next((turn.occurred_at for turn in reversed(turns) if turn.sequence_num in seqs), turns[-1].occurred_at)


def _ended_text(fact: Element) -> str:
    """Return the text of the value that ended; empty if it was not named."""
    return "" if fact.value is None else clean_text(elements.value_text(fact.value))
