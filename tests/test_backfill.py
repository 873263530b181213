"""Backfill: each text that lacks a vector gets one, once, and nothing else is touched."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from hippocampus.backfill import backfill_embeddings
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import EmbeddingDimensionError, TransientProviderError
from hippocampus.providers.local import LocalGenerator
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.queue_claims import work_off
from tests.scripted_provider import Gate, ScriptedEmbedder

VECTORLESS = """
SELECT (SELECT count(*) FROM memories WHERE embedding IS NULL) AS memories,
       (SELECT count(*) FROM facts WHERE embedding IS NULL) AS facts,
       (SELECT count(*) FROM messages WHERE embedding IS NULL) AS messages
"""


async def talk_without_vectors(pool: asyncpg.Pool, said: int = 3) -> None:
    """A consolidated conversation whose embedding failed; then one more turn, and a blank one within."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    sessions = OpenSessionService(pool)
    session = await sessions.create_session("app", "mei")
    texts = [*(f"My name is Mei and I like tea {n}." for n in range(said)), "blank"]
    await sessions.append("app", "mei", session.id, [Event(author="user", content={"text": text}) for text in texts])
    # Whoever appends by plain SQL may append this.
    await pool.execute("UPDATE messages SET content = E' \n' WHERE content = 'blank'")
    broken = ScriptedEmbedder(failure=TransientProviderError("down"))
    worker = MemoryConsolidationWorker(pool, LocalGenerator(), broken)
    await worker.consolidate(session.thread_id, wait=False)
    await work_off(pool, worker)
    await sessions.append("app", "mei", session.id, [Event(author="user", content={"text": "not yet consolidated"})])


async def vectorless(pool: asyncpg.Pool) -> tuple[int, int, int]:
    row = await pool.fetchrow(VECTORLESS)
    assert row is not None
    return row["memories"], row["facts"], row["messages"]


async def test_everything_that_may_have_a_vector_gets_one_and_then_nothing_is_left(pool: asyncpg.Pool) -> None:
    """Unconsolidated and blank messages keep none: the first are for fast_replay, the second say nothing."""
    await talk_without_vectors(pool)
    memories, facts, messages = await vectorless(pool)
    assert memories >= 2
    assert facts >= 1
    assert messages == 5
    embedder = ScriptedEmbedder()
    assert await backfill_embeddings(pool, embedder) == memories + facts + 3
    assert await vectorless(pool) == (0, 0, 2)
    assert await pool.fetchval("SELECT array_agg(DISTINCT embedding_model) FROM memories") == ["scripted-embedding"]
    (batch,) = embedder.batches
    assert "not yet consolidated" not in batch
    assert await backfill_embeddings(pool, embedder) == 0
    assert len(embedder.batches) == 1


async def test_each_vector_is_that_of_its_own_text(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool)
    await backfill_embeddings(pool, ScriptedEmbedder())
    rows = await pool.fetch(
        "SELECT content, embedding FROM memories UNION ALL SELECT content, embedding FROM facts"
        " UNION ALL SELECT content, embedding FROM messages WHERE embedding IS NOT NULL"
    )
    for row in rows:
        (expected,) = await ScriptedEmbedder().embed([row["content"]], "document")
        assert row["embedding"].to_list() == pytest.approx(expected, abs=1e-6)


async def test_batches_are_bounded_and_come_to_an_end(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool, said=20)
    embedder = ScriptedEmbedder()
    total = sum(await vectorless(pool)) - 2
    done = []
    while count := await backfill_embeddings(pool, embedder, limit=7):
        done.append(count)
    assert sum(done) == total
    assert max(done) == 7
    assert await vectorless(pool) == (0, 0, 2)
    texts = [text for batch in embedder.batches for text in batch]
    assert len(texts) == total


async def test_what_changed_during_the_call_is_left_alone_and_no_connection_is_held(dsn: str) -> None:
    """A pool of one connection serves the rival; its text and its vector stand."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as pool:
        await talk_without_vectors(pool)
        gate = Gate()
        running = asyncio.create_task(backfill_embeddings(pool, ScriptedEmbedder(during=gate)))
        await gate.reached.wait()
        changed = await pool.fetchval(
            "UPDATE memories SET content = 'changed' WHERE memory_type = 'summary' RETURNING id"
        )
        (other,) = await ScriptedEmbedder().embed(["other"], "document")
        given = await pool.fetchval(
            "UPDATE memories SET embedding = $1, embedding_model = 'other' WHERE memory_type = 'episodic' RETURNING id",
            other,
        )
        gate.open.set()
        await running
        assert await pool.fetchval("SELECT embedding IS NULL FROM memories WHERE id = $1", changed)
        assert await pool.fetchval("SELECT embedding_model FROM memories WHERE id = $1", given) == "other"


async def test_a_failed_or_misfit_embedding_is_an_error_and_writes_nothing(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool)
    before = await vectorless(pool)
    with pytest.raises(TransientProviderError):
        await backfill_embeddings(pool, ScriptedEmbedder(failure=TransientProviderError("down")))
    with pytest.raises(EmbeddingDimensionError, match=r"768.*1536"):
        await backfill_embeddings(pool, ScriptedEmbedder(dimensions=768))
    with pytest.raises(ValueError, match="limit"):
        await backfill_embeddings(pool, ScriptedEmbedder(), limit=0)
    assert await vectorless(pool) == before


async def test_two_runs_at_once_agree(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool)
    await asyncio.gather(*(backfill_embeddings(pool, ScriptedEmbedder()) for _ in range(2)))
    assert await vectorless(pool) == (0, 0, 2)


async def test_a_row_that_somebody_holds_is_not_waited_for(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """A job that holds a fact and wants a memory can't meet a backfill that waits for that fact."""
    await talk_without_vectors(pool)
    async with conn.transaction():
        await conn.execute("SELECT FROM facts FOR UPDATE")
        await asyncio.wait_for(backfill_embeddings(pool, ScriptedEmbedder()), timeout=10)
        memories, facts, messages = await vectorless(pool)
        assert (memories, messages) == (0, 2)
        assert facts > 0
    assert await backfill_embeddings(pool, ScriptedEmbedder()) == facts
    assert await vectorless(pool) == (0, 0, 2)
