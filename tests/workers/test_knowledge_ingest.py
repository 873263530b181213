"""Ingest of documents by real workers that are killed, and whose embedder fails: no chunk is lost or doubled."""

from __future__ import annotations

import signal
from collections import Counter

import asyncpg

from hippocampus import Chunking
from hippocampus.knowledge.service import KnowledgeService
from tests.support.fake_openai import FakeOpenAI
from tests.support.real_worker import PRODUCT
from tests.support.waiting import until
from tests.support.worker_harness import WorkerProcess, Workers

SENTENCES = [f"The sluice numbered {n} opens on day {n * 7} of the year." for n in range(450)]


async def start(workers: Workers, fake: FakeOpenAI) -> WorkerProcess:
    return await workers.start(
        "retention",
        module=PRODUCT,
        embedder="openai:text-embedding-3-small",
        generator="local",
        provider_api_key="sk-test-0123456789",
        provider_base_url=fake.url,
        provider_attempts_max="1",
    )


def sent(fake: FakeOpenAI) -> list[list[str]]:
    """The texts of each call that was received, answered or not, but for that which a worker begins with."""
    calls = [request.body["input"] for request in fake.requests if request.operation == "embeddings"]
    return [texts for texts in calls if texts != ["Hello."]]


async def waits_to_store(pool: asyncpg.Pool) -> bool:
    return bool(
        await pool.fetchval(
            """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
               AND query LIKE '%stage_chunks%' AND pid <> pg_backend_pid()"""
        )
    )


async def test_an_ingest_survives_its_embedder_and_its_workers(pool: asyncpg.Pool, workers: Workers) -> None:
    """The first call fails twice; one worker dies while its third batch is embedded, one while it stores that batch.

    Each chunk is there once with its vector, and was embedded once, but for the batch whose answer died with a worker.
    The same document again, and one with a changed sentence, cost nothing and that sentence.
    """
    service = KnowledgeService(pool, "shop")
    await service.put_corpus("handbook", chunking=Chunking(chunker="sentence", tokens=24, tokens_min=0))
    async with FakeOpenAI() as fake:
        first = await start(workers, fake)
        await until(lambda: fake.requests)
        fake.script("status", code=503, operation="embeddings", times=2)
        fake.script("none", operation="embeddings", times=2)
        fake.script("hang", operation="embeddings")
        added = await service.add("handbook", "\n\n".join(SENTENCES), source_uri="a.txt")
        await until(lambda: len(sent(fake)) == 5)
        shown = await service.document(added.document_id)
        assert (shown.status, shown.chunks_done, shown.version) == ("running", 200, 0)
        assert (await service.search("sluice")).hits == ()
        first.send(signal.SIGKILL)
        await first.ended()
        async with pool.acquire() as gate:
            held = gate.transaction()
            await held.start()
            await gate.execute("LOCK TABLE knowledge_vectors IN SHARE MODE")
            second = await start(workers, fake)
            await until(lambda: waits_to_store(pool))
            second.send(signal.SIGKILL)
            await second.ended()
            # What the dead worker sent is stored now, while the next one begins.
            await held.rollback()
        await start(workers, fake)

        async def ready() -> bool:
            return (await service.document(added.document_id)).status == "ready"

        await until(ready)
        shown = await service.document(added.document_id)
        batches = sent(fake)
        assert batches[0] == batches[1] == batches[2]
        assert batches[4] == batches[5]
        answered = Counter(text for batch in (*batches[2:4], *batches[5:]) for text in batch)
        assert len(answered) == shown.chunks == shown.chunks_done == len(SENTENCES)
        assert {text for text, times in answered.items() if times > 1} <= set(batches[5])
        assert max(answered.values()) <= 2
        rows = await pool.fetch(
            """SELECT b.content, b.chunk_index, v.model
               FROM knowledge_base AS b LEFT JOIN knowledge_vectors AS v USING (id) ORDER BY b.chunk_index"""
        )
        assert [row["chunk_index"] for row in rows] == list(range(shown.chunks))
        assert {row["model"] for row in rows} == {"text-embedding-3-small"}
        assert " ".join(row["content"] for row in rows).split() == " ".join(SENTENCES).split()
        assert shown.without_vector == 0
        fake.requests.clear()
        again = await service.add("handbook", "\n\n".join(SENTENCES), source_uri="a.txt")
        changed = [*SENTENCES[:200], "A heron stands in the reeds.", *SENTENCES[201:]]
        assert not again.is_new
        assert (await service.add("handbook", "\n\n".join(changed), source_uri="a.txt")).is_new
        await until(ready)
        assert (await service.document(added.document_id)).version == 2
        (only,) = sent(fake)
        assert len(only) <= 3
        assert any("heron" in text for text in only)
