"""Re-derivation: slices derived again, from the turns that are left, after something in them was erased.

One statement reads a slice, no connection is held during the model's call, and one transaction stores the effects. It
stores nothing if something else of the session was erased meanwhile; the slice then waits for the next run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from hippocampus.consolidation.derive import derive
from hippocampus.consolidation.slices import SLICE_TOKENS, SLICE_TURNS_MAX, Stage, read_known_facts, turns_of
from hippocampus.consolidation.statements import STATEMENTS
from hippocampus.facts import ledger
from hippocampus.providers.protocols import Embedder, Generator

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool


async def rederive_slices(
    pool: Pool, generator: Generator, embedder: Embedder, *, slice_tokens: int = SLICE_TOKENS
) -> int:
    """Derive every waiting slice again, and return how many pieces were stored.

    One generate call and one embedding call for each piece of at most SLICE_TURNS_MAX turns; more for a message of over
    `slice_tokens`. Returns when each slice
    was stored, or was overtaken once by another erasure.

    Raises:
        ProviderError: the generator failed; what was stored stays, the rest waits for the next run.
        EmbeddingDimensionError: the embedder's vectors are too long, or not of its model's dimensions.
    """
    stored, overtaken = 0, list[UUID]()
    while rows := await STATEMENTS.fetch(pool, "next_rederivation", overtaken, SLICE_TURNS_MAX):
        if await _rederive(pool, generator, embedder, rows, slice_tokens):
            stored += 1
        else:
            overtaken.append(rows[0]["redraw_id"])
    return stored


async def _rederive(
    pool: Pool, generator: Generator, embedder: Embedder, rows: list[asyncpg.Record], slice_tokens: int
) -> bool:
    first = rows[0]
    # A summary covers its whole slice, however few turns are left of it.
    is_whole = len(rows) < SLICE_TURNS_MAX
    upto_seq = first["upto_seq"] if is_whole else rows[-1]["sequence_num"]
    stage = Stage.FAST if first["stage"] == "fast" else Stage.DEEP
    deep = stage is Stage.DEEP
    turns = turns_of(rows)
    styles = await ledger.read_styles(pool, thread_id=first["thread_id"]) if deep else None
    known = await read_known_facts(pool, generator, first["thread_id"], turns[0].occurred_at) if deep and turns else ()
    derived = await derive(generator, embedder, stage, turns, styles, known, slice_tokens=slice_tokens)
    is_stored: bool = await STATEMENTS.fetchval(
        pool,
        "store_rederivation",
        first["redraw_id"],
        first["erasures"],
        derived.slice_origin(None, first["from_seq"], upto_seq),
        [] if first["stage"] == "facts" else derived.memories,
        derived.facts,
        upto_seq,
        derived.vectorless,
    )
    return is_stored
