"""Backfill: vectors for texts that were stored without one, or whose vector is another model's.

One text that a model refuses must not keep the others back. A refused batch is halved until the refused text stands
alone (`hippocampus.consolidation.isolation`). Its refusal is recorded, and the text is not sent again until it changes
(`embedding_refusals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast
from uuid import UUID

from hippocampus.consolidation.effects import check_vectors
from hippocampus.consolidation.isolation import HARMLESS, check_answers, isolate
from hippocampus.consolidation.statements import STATEMENTS
from hippocampus.errors import PermanentProviderError, ProviderError

if TYPE_CHECKING:
    import asyncpg

    from hippocampus.providers.protocols import Embedder
    from hippocampus.records import Vector
    from pulse.database import Connection, Pool

    Outcome: TypeAlias = Vector | ProviderError

_GIVE_VECTORS = {
    "memories": "give_memory_vectors",
    "facts": "give_fact_vectors",
    "messages": "give_message_vectors",
}


class VectorInput(NamedTuple):
    """The SQL type vector_input: a row as it was read, with its vector."""

    id: UUID
    content: str
    former_model: str | None
    embedding: Vector | None


@dataclass(frozen=True, slots=True)
class Backfilled:
    """The outcome of a batch. Rows that another process had locked, or changed meanwhile, are in neither number."""

    given: int = 0
    refused: int = 0

    @property
    def settled(self) -> int:
        """How many texts need no further attempt."""
        return self.given + self.refused


async def choose_model(pool: Pool, model: str) -> None:
    """Choose the model whose vectors replace those of all others. The last call wins."""
    await STATEMENTS.execute(pool, "choose_embedding_model", model)


async def backfill_embeddings(pool: Pool, embedder: Embedder, *, limit: int = 100) -> Backfilled:
    """Embed one batch of memories, facts and messages that have no vector, or one of another model than the chosen.

    Call it until nothing is settled. As a rule this is one embedding call, during which no connection is held. A row
    whose text or vector was changed meanwhile is left alone; one that is locked waits for a later run. Messages that
    fast_replay has not reached yet are left to it. Blank ones are left out.

    Returns:
        How many texts got a vector, and how many the model refused.

    Raises:
        ProviderError: the embedding failed, but not because of a text of the batch; nothing was written.
        EmbeddingDimensionError: the embedder's vectors are too long, or not of the dimensions of those stored of its
            model; nothing was written.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    await STATEMENTS.execute(pool, "prune_refusals")
    rows = await STATEMENTS.fetch(pool, "list_vectorless", embedder.model, limit)
    if not rows:
        return Backfilled()
    outcomes = list(zip(rows, await embed_texts(embedder, [row["content"] for row in rows]), strict=True))
    given = 0
    with STATEMENTS.translating():
        async with pool.acquire() as acquired, acquired.transaction():
            connection = cast("Connection", acquired)
            for source in _GIVE_VECTORS:
                of_source = [(row, outcome) for row, outcome in outcomes if row["source"] == source]
                given += await _store(connection, embedder.model, source, of_source)
    return Backfilled(given, sum(isinstance(outcome, ProviderError) for _, outcome in outcomes))


async def _store(
    connection: Connection, model: str, source: str, outcomes: Iterable[tuple[asyncpg.Record, Outcome]]
) -> int:
    """Store the vectors and the refusals of one table, and return how many rows took a vector."""
    vectors, refused, codes = list[VectorInput](), list[VectorInput](), list[str]()
    for row, outcome in outcomes:
        read = VectorInput(row["id"], row["content"], row["former_model"], None)
        if isinstance(outcome, ProviderError):
            refused.append(read)
            codes.append(outcome.code)
        else:
            vectors.append(read._replace(embedding=outcome))
    given: int = await STATEMENTS.fetchval(connection, _GIVE_VECTORS[source], vectors, model)
    if refused:
        await STATEMENTS.execute(connection, "refuse_texts", source, refused, model, codes)
    return given


async def embed_texts(embedder: Embedder, texts: Sequence[str]) -> list[Outcome]:
    """Return a vector for each text, or the error with which it was refused.

    Raises:
        ProviderError: the embedding failed, but not because of a text.
    """

    async def ask(some: Sequence[str]) -> Sequence[Vector] | ProviderError:
        try:
            vectors = await embedder.embed(some, "document")
            check_vectors(vectors, some, embedder.model)
        except PermanentProviderError as refusal:
            return refusal
        return vectors

    outcome = await ask(texts)
    if not isinstance(outcome, ProviderError):
        return list(outcome)
    await check_answers(ask, HARMLESS, outcome)
    found: list[Outcome] = []
    async for _, answer in isolate(texts, ask, outcome):
        found.extend([answer] if isinstance(answer, ProviderError) else answer)
    return found
