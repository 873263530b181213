"""Backfill: vectors for what was stored without, because the embedding failed, and for what has another model's.

One text that a model refuses must not keep the others without. A batch that is refused is halved until the text stands
alone; then it is noted, and not asked for again while it says the same (`embedding_refusals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hippocampus.consolidation.effects import check_vectors
from hippocampus.errors import PermanentProviderError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    import asyncpg

    from hippocampus.providers.protocols import Embedder
    from hippocampus.records import Vector
    from pulse.database import Pool

_QUERIES = load_queries("hippocampus")
_GIVE_VECTORS = {
    "memories": _QUERIES["give_memory_vectors"],
    "facts": _QUERIES["give_fact_vectors"],
    "messages": _QUERIES["give_message_vectors"],
}
#: What every model takes. One that refuses this refuses the key, or its own settings, and not a text.
_HARMLESS = "hello"
#: Nothing passes for refused by one bad answer.
_TRIES_ALONE = 2


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What became of a batch. Rows that somebody held, or that were changed meanwhile, are in neither number."""

    given: int = 0
    refused: int = 0

    @property
    def settled(self) -> int:
        """How many texts need not be looked at again."""
        return self.given + self.refused


async def choose_model(pool: Pool, model: str) -> None:
    """Say that vectors of other models are to be replaced by those of this one. The last word counts."""
    await pool.execute(_QUERIES["choose_embedding_model"], model)


async def backfill_embeddings(pool: Pool, embedder: Embedder, *, limit: int = 100) -> Backfilled:
    """Embed one batch of memories, facts and messages that have no vector, or one of another model than the chosen.

    Call it until nothing is settled. As a rule one embedding call, during which no connection is held. A row whose
    text was changed, or that was given a vector, meanwhile is left alone; one that somebody holds right now waits for a
    later run. Messages that fast_replay has not reached yet are left to it, as are blank ones.

    Returns:
        How many got a vector, and how many the model refused.

    Raises:
        ProviderError: the embedding failed, not for a text of the batch; nothing was written.
        EmbeddingDimensionError: the embedder's vectors don't fit the columns; nothing was written.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    await pool.execute(_QUERIES["prune_refusals"])
    rows = await pool.fetch(_QUERIES["list_vectorless"], embedder.model, limit)
    if not rows:
        return Backfilled()
    found = await _embed_apart(embedder, [row["content"] for row in rows])
    answers = list(zip(rows, found, strict=True))
    given = 0
    async with pool.acquire() as connection, connection.transaction():
        for source, statement in _GIVE_VECTORS.items():
            vectors = [
                _input(row, vector)
                for row, vector in answers
                if row["source"] == source and not isinstance(vector, PermanentProviderError)
            ]
            given += await connection.fetchval(statement, vectors, embedder.model)
            refusals = [
                (_input(row, None), error.code)
                for row, error in answers
                if row["source"] == source and isinstance(error, PermanentProviderError)
            ]
            if refusals:
                inputs, codes = [list(column) for column in zip(*refusals, strict=True)]
                await connection.execute(_QUERIES["refuse_texts"], source, inputs, embedder.model, codes)
    return Backfilled(given, sum(isinstance(each, PermanentProviderError) for each in found))


def _input(row: asyncpg.Record, vector: Vector | None) -> tuple[Any, ...]:
    """A row as the SQL type vector_input takes it."""
    return (row["id"], row["content"], row["former_model"], vector)


async def _embed_apart(embedder: Embedder, texts: Sequence[str]) -> list[Vector | PermanentProviderError]:
    """A vector for each text, or why there is none.

    Raises:
        ProviderError: it is not the texts that are refused.
    """
    try:
        return list(await _embed(embedder, texts))
    except PermanentProviderError as error:
        await _check_is_texts_fault(embedder, error)
        return await _halve(embedder, texts, error)


async def _check_is_texts_fault(embedder: Embedder, error: PermanentProviderError) -> None:
    try:
        await _embed(embedder, [_HARMLESS])
    except PermanentProviderError:
        raise error from None


async def _halve(
    embedder: Embedder, texts: Sequence[str], error: PermanentProviderError
) -> list[Vector | PermanentProviderError]:
    """Go on with the halves of texts that were refused together; with one alone, again."""
    if len(texts) == 1:
        return [await _embed_alone(embedder, texts, error)]
    middle = len(texts) // 2
    found: list[Vector | PermanentProviderError] = []
    for half in (texts[:middle], texts[middle:]):
        try:
            found.extend(await _embed(embedder, half))
        except PermanentProviderError as own:
            found.extend(await _halve(embedder, half, own))
    return found


async def _embed_alone(
    embedder: Embedder, texts: Sequence[str], error: PermanentProviderError
) -> Vector | PermanentProviderError:
    for _ in range(_TRIES_ALONE):
        try:
            return (await _embed(embedder, texts))[0]
        except PermanentProviderError as own:
            error = own
    return error


async def _embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
    vectors = await embedder.embed(texts, "document")
    check_vectors(vectors, texts, embedder.model)
    return vectors
