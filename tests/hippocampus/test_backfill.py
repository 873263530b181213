"""Backfill: each text without a vector gets one, once, and nothing else is touched."""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Sequence

import asyncpg
import pytest

from hippocampus.consolidation.backfill import Backfilled, backfill_embeddings, choose_model
from hippocampus.consolidation.isolation import HARMLESS
from hippocampus.consolidation.vector_copies import copy_vectors
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import EmbeddingDimensionError, PermanentProviderError, TransientProviderError
from hippocampus.providers.local.provider import LocalGenerator
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import Vector
from hippocampus.search import MemorySearch
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.queue_claims import work_off
from tests.support.scripted_provider import Gate, ScriptedEmbedder
from tests.support.waiting import WAIT_SECONDS, until
from workers.queue.upkeep import Upkeep
from workers.settings import Settings


class LongVectors(ScriptedEmbedder):
    """More dimensions than can be stored."""

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        return [[1.0] * 4001 for _ in texts]


VECTORLESS = """
SELECT (SELECT count(*) FROM memories WHERE embedding IS NULL) AS memories,
       (SELECT count(*) FROM facts WHERE embedding IS NULL) AS facts,
       (SELECT count(*) FROM messages WHERE embedding IS NULL) AS messages
"""


async def talk_without_vectors(pool: asyncpg.Pool, said: int = 3) -> None:
    """A consolidated conversation whose embedding failed, then one more turn, and a blank one between."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    sessions = OpenSessionService(pool)
    session = await sessions.create_session("app", "mei")
    texts = [*(f"My name is Mei and I like tea {n}." for n in range(said)), "blank"]
    await sessions.append("app", "mei", session.id, [Event(author="user", content={"text": text}) for text in texts])
    # Plain SQL may append this.
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


async def test_everything_eligible_gets_a_vector_and_nothing_is_left(pool: asyncpg.Pool) -> None:
    """Unconsolidated and blank messages get none: the former are left to fast_replay, the latter have no content."""
    await talk_without_vectors(pool)
    memories, facts, messages = await vectorless(pool)
    assert memories >= 2
    assert facts >= 1
    assert messages == 5
    embedder = ScriptedEmbedder()
    assert await backfill_embeddings(pool, embedder) == Backfilled(given=memories + facts + 3)
    assert await vectorless(pool) == (0, 0, 2)
    assert await pool.fetchval("SELECT array_agg(DISTINCT embedding_model) FROM memories") == ["scripted-embedding"]
    (batch,) = embedder.batches
    assert "not yet consolidated" not in batch
    assert await backfill_embeddings(pool, embedder) == Backfilled()
    assert len(embedder.batches) == 1


async def test_each_vector_belongs_to_its_own_text(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool)
    await backfill_embeddings(pool, ScriptedEmbedder())
    rows = await pool.fetch(
        "SELECT content, embedding FROM memories UNION ALL SELECT content, embedding FROM facts"
        " UNION ALL SELECT content, embedding FROM messages WHERE embedding IS NOT NULL"
    )
    for row in rows:
        (expected,) = await ScriptedEmbedder().embed([row["content"]], "document")
        assert row["embedding"].to_list() == pytest.approx(expected, abs=1e-6)


async def test_batches_are_bounded_and_terminate(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool, said=20)
    embedder = ScriptedEmbedder()
    total = sum(await vectorless(pool)) - 2
    done = []
    while count := (await backfill_embeddings(pool, embedder, limit=7)).settled:
        done.append(count)
    assert sum(done) == total
    assert max(done) == 7
    assert await vectorless(pool) == (0, 0, 2)
    texts = [text for batch in embedder.batches for text in batch]
    assert len(texts) == total


async def test_rows_changed_during_the_call_are_left_alone_and_no_connection_is_held(dsn: str) -> None:
    """A pool of one connection serves the concurrent writer; its text and its vector are kept."""
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


async def test_a_failed_or_mismatched_embedding_is_an_error_and_writes_nothing(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool)
    before = await vectorless(pool)
    with pytest.raises(TransientProviderError):
        await backfill_embeddings(pool, ScriptedEmbedder(failure=TransientProviderError("down")))
    with pytest.raises(EmbeddingDimensionError, match=r"4001.*4000"):
        await backfill_embeddings(pool, LongVectors())
    with pytest.raises(ValueError, match="limit"):
        await backfill_embeddings(pool, ScriptedEmbedder(), limit=0)
    assert await vectorless(pool) == before


async def test_two_concurrent_runs_agree(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool)
    await asyncio.gather(*(backfill_embeddings(pool, ScriptedEmbedder()) for _ in range(2)))
    assert await vectorless(pool) == (0, 0, 2)


async def test_a_locked_row_is_not_waited_for(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """A job that holds a fact and needs a memory does not deadlock with a backfill that needs that fact."""
    await talk_without_vectors(pool)
    async with conn.transaction():
        await conn.execute("SELECT FROM facts FOR UPDATE")
        await asyncio.wait_for(backfill_embeddings(pool, ScriptedEmbedder()), WAIT_SECONDS)
        memories, facts, messages = await vectorless(pool)
        assert (memories, messages) == (0, 2)
        assert facts > 0
    assert (await backfill_embeddings(pool, ScriptedEmbedder())).given == facts
    assert await vectorless(pool) == (0, 0, 2)


BACKFILLS = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'embedding_backfill' AND status = 'todo'"


class Picky(ScriptedEmbedder):
    """Refuses every batch that contains a given word."""

    word = "tea 1"

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        if any(self.word in text for text in texts):
            self.batches.append(list(texts))
            raise PermanentProviderError("no", code="400")
        return await super().embed(texts, task)


async def test_a_refused_text_blocks_no_other_and_is_sent_once(pool: asyncpg.Pool) -> None:
    """The others get theirs in one run; refused texts are recorded, and retried once they change."""
    await talk_without_vectors(pool, said=8)
    total = sum(await vectorless(pool)) - 2
    embedder = Picky()
    done = await backfill_embeddings(pool, embedder)
    refused = await pool.fetch("SELECT source, id, model, error_code FROM embedding_refusals")
    # The turn, and everything extracted from it: the raw slice, its summary, the fact.
    assert 1 <= len(refused) == done.refused <= 4
    assert {(row["model"], row["error_code"]) for row in refused} == {(embedder.model, "400")}
    assert done.given == total - done.refused
    assert len(embedder.batches) <= 2 + 10 * done.refused
    calls = len(embedder.batches)
    assert await backfill_embeddings(pool, embedder) == Backfilled()
    assert len(embedder.batches) == calls
    await pool.execute("UPDATE memories SET content = 'harmless' WHERE embedding IS NULL AND memory_type = 'episodic'")
    assert await backfill_embeddings(pool, embedder) == Backfilled(given=1)
    assert await pool.fetchval("SELECT count(*) FROM embedding_refusals") == done.refused - 1
    # Another model may accept it.
    assert (await backfill_embeddings(pool, ScriptedEmbedder(model="other"))).given >= done.refused - 1


class Stumbling(ScriptedEmbedder):
    """Rejects each text once."""

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        vectors = await super().embed(texts, task)
        return vectors if self.batches.count(list(texts)) > 1 else [[0.0] * len(vectors[0])] * len(vectors)


async def test_one_bad_response_is_not_a_refusal(pool: asyncpg.Pool) -> None:
    """Even a text in a batch of its own is retried before it counts as refused."""
    await talk_without_vectors(pool)
    embedder = Stumbling()
    await embedder.embed([HARMLESS], "document")
    total = sum(await vectorless(pool))
    assert await backfill_embeddings(pool, embedder, limit=1) == Backfilled(given=1)
    assert await pool.fetchval("SELECT count(*) FROM embedding_refusals") == 0
    assert sum(await vectorless(pool)) == total - 1


async def test_a_rejected_api_key_refuses_no_text(pool: asyncpg.Pool) -> None:
    await talk_without_vectors(pool)
    before = await vectorless(pool)
    embedder = ScriptedEmbedder(failure=PermanentProviderError("the key is not valid", code="400"))
    with pytest.raises(PermanentProviderError, match="key"):
        await backfill_embeddings(pool, embedder)
    assert len(embedder.batches) == 2
    assert await pool.fetchval("SELECT count(*) FROM embedding_refusals") == 0
    assert await vectorless(pool) == before


async def test_vectors_move_to_another_model_and_not_back(pool: asyncpg.Pool) -> None:
    """In batches, after texts without a vector, each once; a process started before the change leaves them alone."""
    await talk_without_vectors(pool, said=20)
    old, new = ScriptedEmbedder(model="old"), ScriptedEmbedder(model="new")
    await choose_model(pool, "old")
    total = (await backfill_embeddings(pool, old)).given
    await pool.execute("UPDATE procrastinate_jobs SET status = 'succeeded'")
    await Upkeep(pool, Settings()).find_vectorless("new")
    assert await pool.fetchval(BACKFILLS) == 0
    assert await backfill_embeddings(pool, new) == Backfilled()
    await choose_model(pool, "new")
    await Upkeep(pool, Settings()).find_vectorless("old")
    assert await pool.fetchval(BACKFILLS) == 0
    await Upkeep(pool, Settings()).find_vectorless("new")
    assert await pool.fetchval(BACKFILLS) == 1
    first = await pool.fetchval(
        "UPDATE facts SET embedding = NULL, embedding_model = NULL"
        " WHERE id = (SELECT id FROM facts LIMIT 1) RETURNING content"
    )
    assert await backfill_embeddings(pool, new, limit=7) == Backfilled(given=1)
    assert new.batches == [[first]]
    while (batch := await backfill_embeddings(pool, new, limit=7)).settled:
        assert batch.settled <= 7
    assert sum(len(texts) for texts in new.batches) == total
    for table in ("memories", "facts", "messages"):
        assert await pool.fetchval(f"SELECT array_agg(DISTINCT embedding_model) FROM {table} "
                                   "WHERE embedding IS NOT NULL") == ["new"]  # fmt: skip
    assert await backfill_embeddings(pool, old) == Backfilled()


async def test_searches_go_on_while_vectors_move_to_a_model_of_other_dimensions(pool: asyncpg.Pool) -> None:
    """Each query finds the turn, and compares vectors of its own model alone; in the end none of the old one is left.

    A worker that still has the old model runs meanwhile, and undoes nothing.
    """
    await talk_without_vectors(pool, said=30)
    old, new = ScriptedEmbedder(model="old"), ScriptedEmbedder(model="new", dimensions=384)
    await choose_model(pool, "old")
    while (await backfill_embeddings(pool, old)).settled:
        pass
    searched = {"old": 0, "new": 0}
    compared = {"old": 0, "new": 0}
    done = asyncio.Event()

    async def search(embedder: ScriptedEmbedder) -> None:
        service = MemorySearch(pool, embedder)
        while not done.is_set() or not compared["new"]:
            number = searched[embedder.model] % 30
            query = f"I like tea {number}."
            found = await service.search(app_name="app", user_id="mei", query=query, record_access=False)
            assert any(f"tea {number}." in result.content for result in found.memories)
            assert found.degraded is None
            (asked,) = await embedder.embed([query], "query")
            searched[embedder.model] += 1
            for result in found.memories:
                if result.why.similarity is not None:
                    (stored,) = await embedder.embed([result.content], "document")
                    assert result.why.similarity == pytest.approx(cosine(asked, stored), abs=1e-3)
                    compared[embedder.model] += 1

    async def work(embedder: ScriptedEmbedder) -> None:
        while (await backfill_embeddings(pool, embedder, limit=3)).settled:
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for embedder in (old, new):
            group.create_task(search(embedder))
        await until(lambda: compared["old"] > 0)
        await choose_model(pool, "new")
        await asyncio.gather(work(new), work(old))
        done.set()
    for table, copies in (("memories", "memory"), ("facts", "fact"), ("messages", "message")):
        assert await pool.fetch(
            f"SELECT embedding_model, vector_dims(embedding) FROM {table} WHERE embedding IS NOT NULL GROUP BY 1, 2"
        ) == [("new", 384)]
        assert await pool.fetch(
            f"SELECT v.model, vector_dims(v.embedding), count(*) = (SELECT count(embedding) FROM {table})"
            f" FROM {copies}_vectors AS v GROUP BY 1, 2"
        ) == [("new", 384, True)]


def cosine(one: Vector, other: Vector) -> float:
    return sum(map(operator.mul, one, other)) / math.hypot(*one) / math.hypot(*other)


FORMER_COPIES = """
DELETE FROM memory_vectors; DELETE FROM message_vectors; DELETE FROM fact_vectors;
INSERT INTO vector_fill (table_name) VALUES ('memories'), ('messages'), ('facts')
"""
COPIES = """
SELECT (SELECT count(*) FROM memory_vectors), (SELECT count(*) FROM message_vectors),
       (SELECT count(*) FROM fact_vectors)
"""


async def test_vectors_without_copies_are_searched_and_copied(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """As after an upgrade: the same results before, amid and after the copying; a locked row waits for the next run."""
    await talk_without_vectors(pool)
    await backfill_embeddings(pool, ScriptedEmbedder())
    service = MemorySearch(pool, ScriptedEmbedder())

    async def results() -> dict[str, float | None]:
        found = await service.search(app_name="app", user_id="mei", query="likes tea 2", record_access=False)
        return {result.content: result.why.similarity for result in found.memories}

    expected, copied = pytest.approx(await results(), abs=1e-3), await pool.fetchrow(COPIES)
    await pool.execute(FORMER_COPIES)
    await pool.execute("UPDATE procrastinate_jobs SET status = 'succeeded'")
    assert await results() == expected
    near = "SELECT count(similarity) FROM nearest_memories('app', 'mei', $1, 'scripted-embedding', 100)"
    (vector,) = await ScriptedEmbedder().embed(["likes tea 2"], "query")
    assert copied is not None
    assert await pool.fetchval(near, vector) == copied[0]
    await Upkeep(pool, Settings()).find_vectorless("scripted-embedding")
    assert await pool.fetchval(BACKFILLS) == 1
    assert await pool.fetchval("SELECT fill_vectors(1)") == 1
    assert await results() == expected
    async with conn.transaction():
        await conn.execute("SELECT FROM messages WHERE sequence_num = 1 FOR UPDATE")
        await copy_vectors(pool)
        assert await pool.fetch("SELECT table_name FROM vector_fill") == [("messages",)]
    assert await copy_vectors(pool) == 1
    assert await pool.fetchrow(COPIES) == copied
    assert await pool.fetchval("SELECT count(*) FROM vector_fill") == 0
    assert await results() == expected
    # A copy goes with its vector, and with its row.
    await pool.execute("UPDATE messages SET embedding = NULL, embedding_model = NULL; DELETE FROM memories")
    assert await pool.fetchrow(COPIES) == (0, 0, copied[2])


async def test_checking_for_missing_vectors_scans_no_table(pool: asyncpg.Pool) -> None:
    """If every text has a vector of the current model, ten thousand memories cost no more than ten."""
    await pool.execute(
        """INSERT INTO memories (app_name, user_id, content, embedding, embedding_model)
           SELECT 'app', 'mei', n::text, array_fill(1, ARRAY[1536])::vector, 'new'
           FROM generate_series(1, 300) AS n"""
    )
    await pool.execute("ANALYZE memories")
    before = await scans(pool, "memories")
    assert await backfill_embeddings(pool, ScriptedEmbedder(model="new")) == Backfilled()
    after = await scans(pool, "memories")
    assert after["seq_scan"] == before["seq_scan"]
    assert after["idx_tup_fetch"] - before["idx_tup_fetch"] < 10


async def scans(pool: asyncpg.Pool, table: str) -> asyncpg.Record:
    """The number of sequential scans, and of rows fetched through an index."""
    async with pool.acquire() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        row = await connection.fetchrow(
            "SELECT seq_scan, idx_scan, idx_tup_fetch FROM pg_stat_user_tables WHERE relname = $1", table
        )
    assert row is not None
    return row
