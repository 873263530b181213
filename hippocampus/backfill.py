"""Backfill: vectors for what was stored without, because the embedding failed when it was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippocampus.effects import check_vectors
from pulse.sql import load_queries

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool

_QUERIES = load_queries("hippocampus")
_GIVE_VECTORS = {
    "memories": _QUERIES["give_memory_vectors"],
    "facts": _QUERIES["give_fact_vectors"],
    "messages": _QUERIES["give_message_vectors"],
}


async def backfill_embeddings(pool: Pool, embedder: Embedder, *, limit: int = 100) -> int:
    """Embed one batch of memories, facts and messages that have no vector; call it until it returns 0.

    One embedding call, during which no connection is held. A row whose text was changed, or that was given a vector,
    meanwhile is left alone; one that somebody holds right now waits for a later batch. Messages that fast_replay has
    not reached yet are left to it, as are blank ones.

    Returns:
        How many rows of the batch were looked at, at most `limit`; 0 where nothing is left.

    Raises:
        ProviderError: the embedding failed; nothing was written.
        EmbeddingDimensionError: the embedder's vectors don't fit the columns; nothing was written.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    rows = await pool.fetch(_QUERIES["list_vectorless"], limit)
    if not rows:
        return 0
    texts = [row["content"] for row in rows]
    vectors = await embedder.embed(texts, "document")
    check_vectors(vectors, texts, embedder.model)
    async with pool.acquire() as connection, connection.transaction():
        for source, statement in _GIVE_VECTORS.items():
            given = [
                (row["id"], row["content"], vector)
                for row, vector in zip(rows, vectors, strict=True)
                if row["source"] == source
            ]
            await connection.execute(statement, given, embedder.model)
    return len(rows)
