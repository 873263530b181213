"""Drawing slices anew after something in them was forgotten, from the turns that are left.

As consolidation does it: one statement reads, no connection is held while a model is asked, one transaction stores, and
stores nothing where something of the session was forgotten meanwhile; the slice then waits for the next run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from hippocampus.consolidation import effects
from hippocampus.consolidation.effects import Effects
from hippocampus.consolidation.slices import SLICE_TURNS_MAX, turn_of
from hippocampus.errors import from_postgres
from hippocampus.providers.protocols import Embedder, Generator
from hippocampus.records import ConversationSlice, Turn
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

_QUERIES = load_queries("hippocampus", "forgetting.sql")


@dataclass(frozen=True, slots=True)
class _Remainder:
    """What is left of a slice."""

    turns: tuple[Turn, ...]

    @property
    def conversation(self) -> ConversationSlice:
        return ConversationSlice(turns=self.turns)


async def redraw_slices(pool: Pool, generator: Generator, embedder: Embedder) -> int:
    """Draw every slice that waits anew; return how many parts were stored.

    One generate call and one embedding call for each part of at most SLICE_TURNS_MAX turns. It ends when each slice was
    stored, or was overtaken once by another erasure; what is left waits for the next run.

    Raises:
        ProviderError: a model could not answer; what was stored before stays, the rest waits.
        EmbeddingDimensionError: the embedder's vectors don't fit the columns.
    """
    stored, overtaken = 0, list[UUID]()
    while rows := await pool.fetch(_QUERIES["next_redraw"], overtaken, SLICE_TURNS_MAX):
        if await _redraw(pool, generator, embedder, rows):
            stored += 1
        else:
            overtaken.append(rows[0]["redraw_id"])
    return stored


async def _redraw(pool: Pool, generator: Generator, embedder: Embedder, rows: list[asyncpg.Record]) -> bool:
    first = rows[0]
    turns = tuple(turn_of(row) for row in rows if row["sequence_num"] is not None)
    # The whole of a summary's slice is one part, however few turns are left of it.
    is_whole = len(turns) < SLICE_TURNS_MAX
    from_seq = first["from_seq"]
    upto_seq = first["upto_seq"] if is_whole else turns[-1].sequence_num
    drawn = await _draw(generator, embedder, first["stage"], turns)
    origin: tuple[Any, ...] = (None, from_seq, upto_seq, None, None, None)
    if drawn.origin is not None:
        origin = (None, from_seq, upto_seq, drawn.origin.prompt_hash, drawn.origin.model, drawn.embedding_model)
    memories = [] if first["stage"] == "facts" else drawn.memories
    try:
        is_stored: bool = await pool.fetchval(
            _QUERIES["store_redraw"],
            first["redraw_id"],
            first["erasures"],
            origin,
            memories,
            drawn.facts,
            upto_seq,
            drawn.vectorless,
        )
    except asyncpg.PostgresError as error:
        raise from_postgres(error) or error from error
    return is_stored


async def _draw(generator: Generator, embedder: Embedder, stage: str, turns: tuple[Turn, ...]) -> Effects:
    if not turns:
        return Effects()
    draw = effects.replay if stage == "fast" else effects.reflect
    return await draw(generator, embedder, _Remainder(turns))
