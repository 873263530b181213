"""Knowledge: documents are chunked and ingested once, searched with citations that lead to the place, and removed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hippocampus import ErasureService
from hippocampus.context.templates import CONTEXT_TYPES, MARKDOWN, TEMPLATES
from hippocampus.context_assembler import ContextAssembler
from hippocampus.errors import (
    CorpusAccessError,
    CorpusNotFoundError,
    DocumentNotFoundError,
    EmbeddingDimensionError,
    JobNotFailedError,
    PermanentProviderError,
    TransientProviderError,
    UnreadableDocumentError,
)
from hippocampus.knowledge import readers
from hippocampus.knowledge.chunking import CHUNKERS, Chunking, chunk_document
from hippocampus.knowledge.ingest import WillRetry, backfill_chunks
from hippocampus.knowledge.reading import read_document
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import Reply, Vector
from hippocampus.text.tokens import count_tokens
from pulse.errors import InvalidInputError, SecretRefusedError
from tests.support import documents
from tests.support.pace import cpu_seconds
from tests.support.queue_rows import in_process
from tests.support.scripted_provider import ORIGIN, ScriptedAnswerer
from tests.support.waiting import until
from workers.queue.upkeep import Upkeep
from workers.settings import Settings

APP = "shop"
HANDBOOK = """# Returns

Goods may be returned within thirty days. The refund is paid within a week.

# Shipping

Parcels leave the warehouse on Fridays. Fragile goods travel in straw.

## Abroad

Customs duties are paid by the receiver, never by the shop.
"""
SECRET = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass
class CountingEmbedder:
    """The local model, which counts the texts that it embeds, and fails as `failures` says, one per call."""

    failures: list[Exception] = field(default_factory=list)
    refused: str | None = None
    model: str = "counting"
    texts: list[str] = field(default_factory=list)
    inner: LocalEmbedder = field(default_factory=LocalEmbedder)

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        if self.failures:
            raise self.failures.pop(0)
        if self.refused is not None and any(self.refused in text for text in texts):
            raise PermanentProviderError("refused", code="400")
        if task == "document":
            self.texts.extend(texts)
        return await self.inner.embed(texts, task)

    async def close(self) -> None: ...


class Half(LocalEmbedder):
    """A model that was exchanged under its name: its vectors have half of the dimensions."""

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        return [each[: len(each) // 2] for each in await super().embed(texts, task)]


class Slanted(LocalEmbedder):
    """Every query is at 60 degrees to every document."""

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        return [[1.0, 0.0] if task == "document" else [0.5, 0.75**0.5] for _ in texts]


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
async def service(pool: asyncpg.Pool, embedder: CountingEmbedder) -> KnowledgeService:
    made = KnowledgeService(pool, APP, embedder)
    await made.put_corpus("handbook", chunking=Chunking(chunker="structure", tokens=64))
    return made


def long_text(sentences: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    words = [f"{rng.choice('bcdfglmnprst')}{rng.choice('aeiou')}{rng.choice('lmnrst')}{n}" for n in range(400)]
    return [" ".join(rng.choices(words, k=9)) + f" number {n}." for n in range(sentences)]


@pytest.mark.parametrize("chunker", CHUNKERS)
def test_chunks_cover_the_text_within_their_size(chunker: Any) -> None:
    """Positions are exact, nothing but blanks is left out, and no chunk is over its size, in any script."""
    prose = HANDBOOK + "\n\n".join(long_text(40)) + "\n" + "衣柜里的灯笼明天修好。" * 60 + "x" * 3000 + "😀" * 200
    for size in (16, 64, 300):
        chunking = Chunking(chunker=chunker, tokens=size)
        chunks = chunk_document(prose, chunking, is_markdown=True, title="Book")
        covered = [False] * len(prose)
        for each in chunks:
            assert prose[each.start : each.upto] == each.content == each.content.strip()
            # The count of a piece is rounded up, that of a word's halves too.
            assert each.tokens <= size + 1
            covered[each.start : each.upto] = [True] * (each.upto - each.start)
        assert not "".join(c for c, seen in zip(prose, covered, strict=True) if not seen).strip()
        if not chunking.overlap:
            assert all(one.upto <= other.start for one, other in pairwise(chunks))
    assert len({(each.digest, each.nth) for each in chunks}) == len(chunks)


def test_chunks_know_their_headings_pages_and_language() -> None:
    """Sections are those of the text, not those of its code; a page begins where it says."""
    text = "# A\n\none two\n\n```\n# no heading\n```\n\n## B #\n\n衣柜里的灯笼明天修好。\n\n# C\n\nfour"
    chunks = chunk_document(text, Chunking(chunker="structure"), is_markdown=True, title="Book")
    assert [each.heading_path for each in chunks] == [("A",), ("A", "B"), ("C",)]
    assert [each.label for each in chunks] == ["Book › A", "Book › A › B", "Book › C"]
    assert [each.language for each in chunks] == ["en", "zh", "en"]
    paged = chunk_document("first page. " * 5 + "second page. " * 5, Chunking(chunker="structure"), pages=[0, 60])
    assert [each.page for each in paged] == [1, 2]
    assert chunk_document("same\n\nsame", Chunking(tokens=16, tokens_min=0)) != []
    for wrong in ({"chunker": "magic"}, {"tokens": 15}, {"overlap": 300}, {"chunker": "structure", "overlap": 3}):
        with pytest.raises(InvalidInputError):
            Chunking(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["# a" + " " * 5_000 + "b", "." * 200_000 + "x", "。" * 50_000 + ("?" * 50_000 + '"') * 2]
)
def test_chunking_is_linear(text: str) -> None:
    """No text makes a pattern try again what it took: these were minutes to hours."""

    def every_way() -> None:
        for chunker in CHUNKERS:
            assert chunk_document(text, Chunking(chunker=chunker), is_markdown=True)

    assert cpu_seconds(every_way) < 6
    (heading,) = chunk_document("# a" + " " * 5_000 + "b ## \t", Chunking(), is_markdown=True)[0].heading_path
    assert heading == "a" + " " * 199


async def test_files_of_every_kind_are_read() -> None:
    """Each keeps what its structure says: pages, headings, tables."""
    pdf = documents.pdf(["The lighthouse was built in 1812.", "It has a red lamp."], title="Lighthouses")
    assert documents.page_count(pdf) == 2
    html = b"<!doctype html><html><head><title>Kilns</title></head><body><nav>menu</nav><article><h1>Kilns</h1><p>" + (
        b"A kiln fires clay at great heat for many hours. " * 5 + b"</p></article></body></html>"
    )
    found = {
        name: await read_document(data, name=name)
        for name, data in (
            ("a.pdf", pdf), ("b", documents.word()), ("c", documents.slides()), ("d", documents.sheet()), ("e", html),
            ("f.md", HANDBOOK.encode()), ("g.txt", "灯笼".encode("utf-16")),
        )
    }  # fmt: skip
    assert [part.strip() for part in found["a.pdf"].parts] == [
        "The lighthouse was built in 1812.",
        "It has a red lamp.",
    ]
    assert (found["a.pdf"].title, found["a.pdf"].paged) == ("Lighthouses", True)
    assert "## Carrying over" in found["b"].parts[0]
    assert "| Porto | eleven holidays |" in found["b"].parts[0]
    assert [part.split("\n")[0] for part in found["c"].parts] == ["# Roadmap", "# Budget"]
    assert "Grouped guilders." in found["c"].parts[1]
    assert "lantern | 12.5" in found["d"].parts[0]
    assert "fires clay" in found["e"].parts[0]
    assert found["e"].title == "Kilns"
    assert (found["f.md"].is_markdown, found["g.txt"].parts) == (True, ("灯笼",))


async def test_what_cannot_be_read_says_why_and_stores_nothing(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """Hostile and broken files end with a reason, within bounds."""
    deep = b"<html>" + b"<div>" * 50_000 + b"x"
    wrong = {
        "encrypted": [documents.encrypted_pdf(), documents.locked_archive(), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 64],
        "empty": [documents.pdf(["", ""]), b"  \n ", deep],
        "broken": [b"%PDF-1.4 nothing", documents.word()[:4000], documents.with_entities(), b"caf\xe9 au lait"],
        "too_large": [documents.bomb(), b"x" * (51 << 20)],
        "unsupported": [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"],
    }
    for code, files in wrong.items():
        for data in files:
            name = "cut.docx" if data.startswith(b"PK") else "file"
            with pytest.raises(UnreadableDocumentError) as refused:
                await service.add("handbook", data, source_uri=name)
            assert refused.value.code == code, (data[:40], str(refused.value))
    with pytest.raises(UnreadableDocumentError, match="cannot be opened"):
        await service.add("handbook", Path("/nowhere/file.md"))
    assert await pool.fetchval("SELECT count(*) FROM knowledge_documents") == 0


async def test_text_waits_for_no_process(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """While other files are read, a text is added at once, and a file waits for its turn."""
    reads = asyncio.Semaphore(0)
    busy = KnowledgeService(pool, APP, reads=reads)
    pdf = documents.pdf(["The lighthouse was built in 1812."])
    waiting = asyncio.create_task(busy.add("handbook", pdf, source_uri="a.pdf"))
    assert (await busy.add("handbook", HANDBOOK, source_uri="a.md")).is_new
    assert not waiting.done()
    reads.release()
    assert (await waiting).is_new


def test_no_end_of_a_pdf_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with more text than is read is refused as a whole."""
    monkeypatch.setattr(readers, "TEXT_MAX", 40)
    with pytest.raises(readers.UnreadableError) as refused:
        readers._READERS["pdf"](documents.pdf(["A first page.", "A second page.", "A third page."]))
    assert refused.value.code == "too_large"


async def test_a_search_leads_to_the_place(service: KnowledgeService) -> None:
    """Hits have their document, headings, page and exact range; filters and `read` agree with them."""
    book = await service.add("handbook", HANDBOOK, source_uri="docs/book.md", metadata={"team": "ops"}, inline=True)
    await service.add(
        "handbook",
        documents.pdf(["Nothing here.", "The refund desk opens at nine."]),
        source_uri="desk.pdf",
        inline=True,
    )
    found = await service.search("Who pays customs duties?", user_id="ann")
    best = found.hits[0]
    assert (best.source_uri, best.heading_path) == ("docs/book.md", ("Shipping", "Abroad"))
    assert best.score == pytest.approx(1.0)
    text = await service.read(best.document_id, char_from=best.char_from, char_upto=best.char_upto)
    assert text.content == best.content == HANDBOOK[best.char_from : best.char_upto]
    assert (await service.search("refund desk")).hits[0].page == 2
    assert {h.source_uri for h in (await service.search("refund", metadata={"team": "ops"})).hits} == {"docs/book.md"}
    assert {h.source_uri for h in (await service.search("refund", sources=["desk.pdf"])).hits} == {"desk.pdf"}
    one_each = await service.search("refund goods parcels", per_document=1)
    assert len({h.document_id for h in one_each.hits}) == len(one_each.hits) > 1
    by_ranks = await service.search("Who pays customs duties?", fusion="rrf")
    assert by_ranks.hits[0].id == best.id
    words_only = await KnowledgeService(service._pool, APP).search("customs")
    assert (words_only.hits[0].id, words_only.hits[0].similarity) == (best.id, None)
    shown = await service.document(book.document_id)
    assert (shown.status, shown.version, shown.title, shown.without_vector) == ("ready", 1, "book.md", 0)
    assert shown.chunks == shown.chunks_done == 3
    for wrong in (
        {"query": " "},
        {"query": "a", "limit": 0},
        {"query": "a", "fusion": "x"},
        {"query": "a", "corpora": []},
    ):
        with pytest.raises(InvalidInputError):
            await service.search(**wrong)  # type: ignore[arg-type]
    with pytest.raises(CorpusNotFoundError):
        await service.search("a", corpora=["handbook", "nothing"])


async def test_a_query_without_words_is_as_relevant_as_its_vector(pool: asyncpg.Pool) -> None:
    """No share of its words is found, not all of them."""
    service = KnowledgeService(pool, APP, Slanted())
    await service.put_corpus("handbook")
    await service.add("handbook", HANDBOOK, source_uri="book.md", inline=True)
    hits = (await service.search("?!")).hits
    assert hits
    for hit in hits:
        assert hit.relevance_score == hit.similarity == pytest.approx(0.5, abs=1e-3)


async def test_chinese_is_found_by_its_words(service: KnowledgeService) -> None:
    """A sentence of Chinese is not one token."""
    await service.add(
        "handbook",
        "# 退货\n\n商品可以在三十天内退货。\n\n# 发货\n\n包裹每周五从仓库发出。",
        source_uri="a.md",
        inline=True,
    )
    found = await KnowledgeService(service._pool, APP).search("包裹什么时候发出?")
    assert found.hits[0].heading_path == ("发货",)


async def test_unchanged_parts_are_not_embedded_again(
    service: KnowledgeService, embedder: CountingEmbedder, pool: asyncpg.Pool
) -> None:
    """The same document costs nothing, one changed sentence one chunk, and the former version is still found."""
    await service.put_corpus("handbook", chunking=Chunking(chunker="sentence", tokens=64))
    sentences = long_text(300)
    first = await service.add("handbook", "\n\n".join(sentences), source_uri="a.txt", inline=True)
    chunks = (await service.document(first.document_id)).chunks
    assert len(embedder.texts) == chunks > 150
    again = await service.add("handbook", "\n\n".join(sentences), source_uri="a.txt", metadata={"k": 1}, inline=True)
    assert (again.document_id, again.is_new, len(embedder.texts)) == (first.document_id, False, chunks)
    before = datetime.now(UTC)
    sentences[150] = "A heron stands in the reeds."
    changed = await service.add(
        "handbook", "\n\n".join(["A new beginning.", *sentences]), source_uri="a.txt", inline=True
    )
    assert changed.is_new
    assert len(embedder.texts) - chunks <= 3
    now = (await service.search("heron reeds")).hits[0]
    assert (now.content.endswith(sentences[150]), now.version) == (True, 2)
    last = (await service.search("number 299")).hits[0]
    assert (
        await service.read(last.document_id, char_from=last.char_from, char_upto=last.char_upto)
    ).content == last.content
    # What was searched then, as far as it is kept.
    assert "heron" not in (await service.search("heron reeds number 150", as_of=before)).hits[0].content
    was = (await service.search("number 150", as_of=before, limit=1)).hits[0]
    assert was.content.endswith("number 150.")
    assert (await service.search("number 150", as_of=before - timedelta(days=1))).hits == ()
    upkeep = Upkeep(pool, Settings(DATABASE_URL="postgresql://x/x", knowledge_keep_days=0))
    await upkeep.prune()
    assert [row["version"] for row in await pool.fetch("SELECT version FROM knowledge_versions")] == [2]
    assert not await pool.fetchval("SELECT count(*) FROM knowledge_base WHERE upto_version IS NOT NULL")


async def test_an_attempt_goes_on_where_the_one_before_ended(
    service: KnowledgeService, embedder: CountingEmbedder, pool: asyncpg.Pool
) -> None:
    """What was embedded before a failure is not embedded again, and nothing is found before all of it is stored."""
    await service.put_corpus("handbook", chunking=Chunking(chunker="sentence", tokens=16))
    added = await service.add("handbook", "\n\n".join(long_text(250)), source_uri="a.txt")
    calls = 0
    embed = embedder.inner.embed

    async def fail_at_second(texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise TransientProviderError("down", code="503")
        return await embed(texts, task)

    embedder.inner.embed = fail_at_second  # type: ignore[method-assign]
    with pytest.raises(TransientProviderError):
        await service.ingest(added.document_id, will_retry=lambda error: True)
    shown = await service.document(added.document_id)
    assert (shown.status, shown.chunks_done, shown.version) == ("running", 100, 0)
    assert (await service.search("number 3")).hits == ()
    embedder.texts.clear()
    done = await service.ingest(added.document_id)
    assert done is not None
    assert (done.kept, done.embedded) == (100, done.chunks - 100)
    assert (await service.search("number 3")).total_count > 0
    # A replacement while a job runs: the job ends, and stores nothing.
    await service.add("handbook", "A first text.", source_uri="b.txt")

    async def replace_first(texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        embedder.inner.embed = embed  # type: ignore[method-assign]
        await service.add("handbook", "A second text.", source_uri="b.txt")
        return await embed(texts, task)

    embedder.inner.embed = replace_first  # type: ignore[method-assign]
    document = (await service.documents(corpus="handbook", status="waiting"))[0]
    assert await service.ingest(document.id) is None
    assert await service.ingest(document.id) is not None
    assert (await service.search("second text", sources=["b.txt"])).hits[0].content == "A second text."


async def test_chunks_without_a_vector_get_one_later(
    service: KnowledgeService, embedder: CountingEmbedder, pool: asyncpg.Pool
) -> None:
    """A model that is down, or refuses a text, keeps nothing from being found; another model's vectors are replaced."""
    embedder.failures = [TransientProviderError("down", code="503")]
    added = await service.add("handbook", HANDBOOK, source_uri="a.md", inline=True)
    assert (await service.document(added.document_id)).without_vector == 3
    assert (await service.search("customs duties")).hits[0].heading_path == ("Shipping", "Abroad")
    embedder.refused = "straw"
    settled = await backfill_chunks(pool, embedder)
    assert (settled.given, settled.refused) == (2, 1)
    assert (await backfill_chunks(pool, embedder)).settled == 0
    other = CountingEmbedder(model="other")
    assert (await backfill_chunks(pool, other)).given == 3
    assert await pool.fetchval("SELECT count(*) FROM knowledge_vectors WHERE model = 'other'") == 3


async def test_the_backfill_masks_and_compares_as_the_ingest_does(
    service: KnowledgeService, embedder: CountingEmbedder, pool: asyncpg.Pool
) -> None:
    """By the policy of each app, and by the dimensions of each corpus."""
    await service.add("handbook", HANDBOOK, source_uri="a.md", inline=True)
    embedder.texts.clear()
    for app in ("closed", "open"):
        other = KnowledgeService(pool, app)
        await other.put_corpus("keys")
        await other.add("keys", f"The key is {SECRET}, keep it.", source_uri="k.txt", inline=True)
    await pool.execute("SELECT set_app_policy($1, $2)", "closed", {"redaction": "mask"})
    embedder.inner = Half()
    assert (await backfill_chunks(pool, embedder)).given == 2
    assert sorted(SECRET in text for text in embedder.texts) == [False, True]
    await KnowledgeService(pool, APP).add("handbook", "More.", source_uri="m.txt", inline=True)
    with pytest.raises(EmbeddingDimensionError):
        await backfill_chunks(pool, embedder)


async def test_a_worker_ingests_and_a_failure_is_told(
    service: KnowledgeService, dsn: str, pool: asyncpg.Pool, embedder: CountingEmbedder
) -> None:
    """Through the queue: progress ends in ready; a document that cannot be chunked fails with the reason."""

    async def ingest(document_id: UUID, will_retry: WillRetry) -> None:
        await service.ingest(document_id, will_retry=will_retry)

    app, worker = in_process(dsn, pool, queue="knowledge", ingest_document=ingest)
    async with app.open_async():
        task = asyncio.create_task(worker.run())
        added = await service.add("handbook", HANDBOOK, source_uri="a.md")

        async def ready() -> bool:
            return (await service.document(added.document_id)).status == "ready"

        await until(ready)
        # Vectors of other dimensions: no attempt follows, and the document says why.
        embedder.inner = Half()
        refused = await service.add("handbook", "A short text.", source_uri="b.md")

        async def failed_at_once() -> bool:
            return (await service.document(refused.document_id)).status == "failed"

        await until(failed_at_once)
        worker.stop()
        await task
    embedder.inner = LocalEmbedder()
    shown = await service.document(refused.document_id)
    assert shown.error_code == "EmbeddingDimensionError"
    assert "dimensions" in str(shown.error)
    # Nor does one that could not say why, such as after a crash, cost its embedding again.
    crashed = await service.add("handbook", "Another text.", source_uri="c.md")
    await pool.execute("UPDATE procrastinate_jobs SET status = 'failed' WHERE status = 'todo'")
    await Upkeep(pool, Settings(DATABASE_URL=dsn)).find_vectorless("counting")
    shown = await service.document(crashed.document_id)
    assert (shown.status, shown.error_code) == ("failed", "job_failed")
    assert not await pool.fetchval(
        "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND queue_name = 'knowledge'"
    )
    # One that failed can be ingested again, by who may write it; one that did not fail has nothing to repeat.
    await service.put_corpus("handbook", readers=["*"], writers=["user:ann"])
    with pytest.raises(CorpusAccessError):
        await service.retry(refused.document_id, user_id="bob")
    await service.retry(refused.document_id, user_id="ann")
    assert (await service.document(refused.document_id)).status == "waiting"
    await service.ingest(refused.document_id)
    shown = await service.document(refused.document_id)
    assert (shown.status, shown.error_code, shown.chunks_done) == ("ready", None, 1)
    with pytest.raises(JobNotFailedError):
        await service.retry(refused.document_id)
    # A lost job is enqueued again.
    waiting = await service.add("handbook", HANDBOOK + "more", source_uri="a.md")
    await pool.execute("UPDATE procrastinate_jobs SET status = 'cancelled' WHERE status = 'todo'")
    await Upkeep(pool, Settings(DATABASE_URL=dsn)).find_vectorless("counting")
    jobs = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND task_name = 'ingest_document'"
    assert await pool.fetchval(jobs) == 1
    # A document that is removed takes its job along.
    await service.remove("handbook", "a.md")
    assert await pool.fetchval(jobs) == 0
    assert await service.ingest(waiting.document_id) is None
    long = "\n\n".join(f"w{n} " * 20 for n in range(20_100))
    await service.put_corpus("handbook", chunking=Chunking(chunker="structure", tokens=16))
    failed = await service.add("handbook", long, source_uri="long.txt", inline=True)
    shown = await service.document(failed.document_id)
    assert (shown.status, shown.version) == ("failed", 0)
    assert "20,000 chunks" in str(shown.error)


async def test_who_reads_and_who_writes(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """By user and role; what a caller may not read is not there, in lists and counts too."""
    await service.put_corpus("pay", readers=["role:hr", "user:eve"], writers=["role:hr"])
    await service.put_corpus("diary", owner="ann")
    await service.add("pay", "The salary of a glassblower is paid monthly.", source_uri="pay.txt", inline=True)
    await service.add("diary", "A salary of dreams.", source_uri="d.txt", user_id="ann", inline=True)

    async def found(user: str | None, *roles: str) -> set[str]:
        hits = await service.search("salary", user_id=user, roles=roles)
        listed = await service.documents(user_id=user, roles=roles)
        assert {each.id for each in listed} == {hit.document_id for hit in hits.hits}
        assert hits.total_count == len(hits.hits)
        return {hit.corpus for hit in hits.hits}

    assert await found(None) == {"pay"}
    assert await found("ann") == {"diary"}
    assert await found("ann", "hr") == {"diary", "pay"}
    assert await found("eve") == {"pay"}
    assert await found("bob") == set()
    assert {each.name for each in await service.corpora(user_id="bob")} == {"handbook"}
    with pytest.raises(CorpusNotFoundError):
        await service.add("pay", "x", source_uri="x", user_id="bob")
    with pytest.raises(CorpusAccessError):
        await service.add("pay", "x", source_uri="x", user_id="eve")
    with pytest.raises(CorpusAccessError):
        await service.remove_corpus("pay", user_id="eve")
    await service.add("pay", "x", source_uri="x", user_id="bob", roles=["hr"])
    document = (await service.documents(corpus="pay"))[0]
    for reading in (service.document, service.read):
        with pytest.raises(DocumentNotFoundError):
            await reading(document.id, user_id="bob")
    with pytest.raises(InvalidInputError):
        await service.search("salary", roles=["hr"])
    assert await KnowledgeService(pool, "other").corpora() == []
    corpus = await service.corpus("pay")
    assert (corpus.readers, corpus.writers, corpus.documents) == (("role:hr", "user:eve"), ("role:hr",), 2)
    # Who no longer writes still reads.
    corpus = await service.put_corpus("pay", writers=[])
    assert (corpus.readers, corpus.writers) == (("role:hr", "user:eve"), ())
    with pytest.raises(CorpusAccessError):
        await service.add("pay", "x", source_uri="x", user_id="bob", roles=["hr"])
    assert "pay" in {each.name for each in await service.corpora(user_id="bob", roles=["hr"])}


async def test_a_name_means_one_corpus(service: KnowledgeService) -> None:
    """The caller's own, else the app's, else a shared one: to a search and a list as to an addition."""
    await service.put_corpus("handbook", owner="ann", readers=["user:bob"])
    await service.put_corpus("notes", owner="ann", readers=["user:bob"])
    await service.add("handbook", "Goods of the app.", source_uri="a.md", inline=True)
    await service.add("handbook", "Goods of ann.", source_uri="a.md", user_id="ann", inline=True)
    await service.add("notes", "Goods in notes.", source_uri="n.md", user_id="ann", inline=True)
    meant = {"ann": "Goods of ann.", "bob": "Goods of the app.", None: "Goods of the app."}
    for user, text in meant.items():
        found = await service.search("goods", corpora=["handbook"], user_id=user)
        assert [hit.content for hit in found.hits] == [text]
        listed = await service.documents(corpus="handbook", user_id=user)
        assert [each.id for each in listed] == [found.hits[0].document_id]
    assert len((await service.search("goods", user_id="bob")).hits) == 3
    assert len((await service.search("goods", corpora=["handbook", "notes"], user_id="bob")).hits) == 2


async def test_removal_and_erasure_reach_everything(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """No chunk, vector, version, job or name of a document, a corpus or a user is left; those of others stay."""
    tables = ("knowledge_documents", "knowledge_versions", "knowledge_base", "knowledge_vectors")

    async def left() -> set[int]:
        return {await pool.fetchval(f"SELECT count(DISTINCT corpus_id) FROM {table}") for table in tables}

    await service.put_corpus("diary", owner="ann")
    await service.put_corpus("shared", readers=["user:ann", "user:bob"])
    for corpus, user in (("diary", "ann"), ("shared", None), ("handbook", None)):
        await service.add(corpus, HANDBOOK, source_uri="a.md", user_id=user, inline=True)
    assert await left() == {3}
    await service.remove("handbook", "a.md")
    assert await left() == {2}
    with pytest.raises(DocumentNotFoundError):
        await service.remove("handbook", "a.md")
    await ErasureService(pool).erase_user(APP, "ann")
    assert await left() == {1}
    assert not await pool.fetchval("SELECT count(*) FROM corpus WHERE user_id IS NOT NULL")
    assert (await service.corpus("shared")).readers == ("user:bob",)
    assert await service.remove_corpus("shared") == 1
    assert await left() == {0}
    with pytest.raises(CorpusNotFoundError):
        await service.remove_corpus("shared")


async def test_adding_while_it_is_removed_and_twice(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """A document is added anew once its removal is over, a removed corpus is not there, and one job waits for each."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    async def blocked() -> bool:
        return bool(await pool.fetchval(waits))

    first = await service.add("handbook", HANDBOOK, source_uri="a.md", inline=True)
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("DELETE FROM knowledge_documents WHERE source_uri = 'a.md'")
            adding = asyncio.create_task(service.add("handbook", "Other goods.", source_uri="a.md"))
            await until(blocked)
        again = await adding
        assert (again.is_new, again.document_id != first.document_id) == (True, True)
        for number in range(3):
            await service.add("handbook", f"Other goods, {number}.", source_uri="a.md")
        jobs = "SELECT status::text FROM procrastinate_jobs WHERE task_name = 'ingest_document' ORDER BY id"
        assert [row["status"] for row in await pool.fetch(jobs)] == ["cancelled"] * 3 + ["todo"]
        async with connection.transaction():
            await connection.execute("DELETE FROM corpus")
            adding = asyncio.create_task(service.add("handbook", "Goods.", source_uri="b.md"))
            await until(blocked)
        with pytest.raises(CorpusNotFoundError):
            await adding


async def test_secrets_of_documents_are_masked_or_refused(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """Before anything is stored: the text, the title and the metadata; pages keep their places."""
    text = f"The key is {SECRET}, keep it."
    await pool.execute("SELECT set_app_policy($1, $2)", APP, {"redaction": "refuse"})
    with pytest.raises(SecretRefusedError):
        await service.add("handbook", text, source_uri="a.txt")
    assert await pool.fetchval("SELECT count(*) FROM knowledge_documents") == 0
    await pool.execute("SELECT set_app_policy($1, $2)", APP, {"redaction": "mask"})
    data = documents.pdf([text, "The second page."], title=SECRET)
    await service.add("handbook", data, source_uri="a.pdf", metadata={"k": SECRET}, inline=True)
    for table in ("knowledge_documents", "knowledge_versions", "knowledge_base"):
        assert not await pool.fetchval(f"SELECT count(*) FROM {table} AS t WHERE strpos(t::text, $1) > 0", SECRET)
    found = await service.search("second page")
    assert (found.hits[0].page, found.hits[0].content) == (2, "The second page.")


async def test_answers_cite_places_that_were_shown(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """A number that was not shown is dropped, and without a citation nothing is known."""
    await service.add("handbook", HANDBOOK, source_uri="a.md", inline=True)
    shown: list[str] = []

    def answering(text: str | None, *citations: int) -> KnowledgeService:
        def reply(question: Any) -> Reply:
            shown.append(question.passages)
            return Reply(text=text, citations=citations, origin=ORIGIN)

        return KnowledgeService(pool, APP, LocalEmbedder(), generator=ScriptedAnswerer(reply))

    answer = await answering("The receiver.", 1, 99, 1).ask("Who pays customs duties?", user_id="ann")
    (cited,) = answer.citations
    assert (answer.text, answer.answered_by, cited.heading_path) == ("The receiver.", "model", ("Shipping", "Abroad"))
    assert HANDBOOK[cited.char_from : cited.char_upto] == cited.text
    assert shown[0].startswith('1 document "a.md › Shipping › Abroad" ')
    assert not (await answering("Made up.", 99).ask("Who pays customs duties?")).is_known
    passages = await service.ask("Who pays customs duties?")
    assert (passages.answered_by, passages.is_known) == ("passages", True)
    assert "Customs duties" in passages.text
    nothing = await answering("x", 1).ask("xyzzy", corpora=["handbook"], metadata={"no": "such"})
    assert (nothing.is_known, nothing.answered_by, nothing.text) == (False, None, "Not known.")
    assert count_tokens(shown[0]) <= 4000


async def test_a_reranker_orders_the_best(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """One that fails leaves the order of the search, and the response says so."""
    await service.add("handbook", HANDBOOK, source_uri="a.md", inline=True)

    class Longest:
        fails = False

        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            if self.fails:
                raise ValueError("no")
            return [-len(text) for text in texts]

    reranker = Longest()
    ranked = KnowledgeService(pool, APP, LocalEmbedder(), reranker=reranker)
    plain = (await service.search("goods refund customs", limit=3)).hits
    found = await ranked.search("goods refund customs", limit=3)
    assert found.reranked
    assert [hit.id for hit in found.hits] == [hit.id for hit in sorted(plain, key=lambda hit: len(hit.content))]
    reranker.fails = True
    found = await ranked.search("goods refund customs", limit=3)
    assert (found.reranked, [hit.id for hit in found.hits]) == (False, [hit.id for hit in plain])
    assert "ValueError" in str(found.rerank_failure)


async def test_large_corpora_find_what_small_ones_do(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """Beyond 5,000 chunks only candidates are scored: the rarest words and the nearest vectors lead to them."""
    await service.put_corpus("handbook", chunking=Chunking(chunker="sentence", tokens=32))
    lean = KnowledgeService(pool, APP)
    text = [f"{('northern', 'southern')[n % 2]} {each}" for n, each in enumerate(long_text(5_200))]
    await lean.add("handbook", "\n\n".join(text), source_uri="long.txt", inline=True)
    await service.add("handbook", HANDBOOK, source_uri="a.md", metadata={"k": 1}, inline=True)
    found = await service.search("number of customs duties of the receiver")
    assert "Customs" in found.hits[0].content
    narrow = await service.search("number of customs duties of the receiver", metadata={"k": 1})
    assert narrow.hits[0].id == found.hits[0].id
    assert (await service.search("number 4711")).hits[0].content.endswith("number 4711.")
    # The order is that of a search which scores every chunk.
    source = await pool.fetchval("SELECT pg_get_functiondef('search_knowledge'::regproc)")
    exact = source.replace("search_knowledge(", "search_every_chunk(", 1).replace(":= 5000", ":= 5000000")
    assert exact.count("5000000") == 1
    await pool.execute(exact)
    same = 0
    asked = [" ".join(each.split()[:6]) for each in long_text(5_200)[::700]]
    for text, vector in zip(asked, await LocalEmbedder().embed(asked, "query"), strict=True):
        wanted = await pool.fetch(
            "SELECT id FROM search_every_chunk($1, NULL, '{}', $2, $3, 'counting')", APP, text, vector
        )
        got = await service.search(text)
        assert got.hits[0].id == wanted[0]["id"]
        same += len({hit.id for hit in got.hits} & {row["id"] for row in wanted})
    assert same >= 0.9 * 10 * len(asked)
    # Where rows are stored changes nothing: for rare words, for one that every chunk has, and for vectors.
    questions = [(lean, "number"), (lean, "number 4711 of the long text"), (service, "number"), (service, asked[0])]
    before = [await searched.search(question) for searched, question in questions]
    await pool.execute("UPDATE knowledge_base SET tokens = tokens WHERE chunk_index % 3 = 0")
    assert [await searched.search(question) for searched, question in questions] == before
    # No chunk has these frequent words together: some chunks that have one of them are worth scoring.
    apart = """
        SELECT cardinality(places) FROM chunk_candidates(
            ARRAY(SELECT id FROM corpus), NULL, 1e6, ARRAY[any_term('{northern}'), any_term('{southern}')],
            NULL, NULL, 10, true)"""
    assert await pool.fetchval(apart) >= 200
    with pytest.raises(DocumentNotFoundError):
        await service.document(uuid4())
    # What is superseded does not crowd out what is searched, by its words or by its vectors.
    await service.add("handbook", "Customs duties are paid by the sender.", source_uri="a.md", inline=True)
    await pool.execute("UPDATE knowledge_documents SET version = 2, last_version = 2 WHERE source_uri = 'long.txt'")
    await pool.execute("UPDATE knowledge_base SET upto_version = 1 WHERE label = 'long.txt' AND chunk_index >= 500")
    vector = (await LocalEmbedder().embed(["customs duties"], "query"))[0]
    worth = """
        SELECT b.upto_version IS NULL AS is_current, count(*)
        FROM chunk_candidates(
            ARRAY(SELECT id FROM corpus), NULL, 5200, ARRAY[any_term('{number}')], $1, 'counting', 10, $2) AS c
        JOIN knowledge_base AS b ON b.ctid = ANY (c.places) OR b.search @@ c.words
        GROUP BY 1 ORDER BY 1"""
    assert [row["is_current"] for row in await pool.fetch(worth, vector, False)] == [False, True]
    ((is_current, count),) = await pool.fetch(worth, vector, True)
    assert is_current
    matching = "SELECT count(*) FROM knowledge_base WHERE upto_version IS NULL AND search @@ any_term('{number}')"
    assert count == 1 + await pool.fetchval(matching) > 200
    assert "sender" in (await service.search("customs duties")).hits[0].content


async def test_documents_join_a_window_within_their_share(service: KnowledgeService, pool: asyncpg.Pool) -> None:
    """Off by default; then cited, within the budget, of what the user may read, and explained where left out."""
    await service.add("handbook", HANDBOOK, source_uri="handbook.md", title="The handbook", inline=True)
    await service.put_corpus("secret", readers=["role:boss"])
    await service.add("secret", "The refund of the boss is paid at once.", source_uri="secret.md", inline=True)
    assembler = ContextAssembler(pool, LocalEmbedder())
    asked: dict[str, Any] = {"app_name": APP, "user_id": "ann", "session_id": None, "query": "refund of goods?"}
    plain = await assembler.assemble(**asked, system_prompt="Be brief.")
    assert plain.text == "Be brief."
    assert {each.context_type for each in plain.account} == {*CONTEXT_TYPES} - {"document"}
    window = await assembler.assemble(**asked, system_prompt="Be brief.", documents=service.part(0.5))
    assert window.text.startswith(
        "Be brief.\n\n## Relevant documents\n- [The handbook › Returns (handbook.md)] # Returns\n  \n  Goods may be"
    )
    (first, *_) = window.items[1:]
    shown = await service.read(
        first.metadata["document_id"],
        char_from=first.metadata["char_from"],
        char_upto=first.metadata["char_upto"],
        version=first.metadata["version"],
        user_id="ann",
    )
    assert shown.content == first.content
    assert [each.share for each in window.account if each.context_type == "document"] == [4000]
    assert "boss" not in window.text
    # A role opens a corpus, a name narrows, and what is not there for the user is an error.
    told = await assembler.assemble(**asked, documents=service.part(0.5, corpora=["secret"], roles=["boss"]))
    assert [item.metadata["source_uri"] for item in told.items] == ["secret.md"]
    with pytest.raises(CorpusNotFoundError):
        await assembler.assemble(**asked, documents=service.part(0.5, corpora=["secret"]))
    for wrong in (-0.1, 0, 1.1, float("nan")):
        with pytest.raises(InvalidInputError, match="ratio of documents"):
            service.part(wrong)
    with pytest.raises(InvalidInputError, match="app 'shop'"):
        await assembler.assemble(**{**asked, "app_name": "other"}, documents=service.part(0.5))
    assert not (await assembler.assemble(**{**asked, "query": " "}, documents=service.part(0.5))).items
    # Whatever the budget and the way of writing, the window is within it, and says what it leaves out.
    for template in TEMPLATES.values():
        for tokens in (20, 60, 100):
            for stable in (False, True):
                small = await assembler.assemble(
                    **asked, max_tokens=tokens, template=template, stable=stable, documents=service.part(0.5)
                )
                assert count_tokens(small.text) == small.total_tokens <= tokens
                left = [each for each in small.left_out if each.item.context_type == "document"]
                assert len(left) + len(small.items) == 2
                assert all(each.item.metadata["source_uri"] == "handbook.md" for each in left)
    # The least budget that holds anything holds the beginning of the best, with the range that is shown.
    windows = [await assembler.assemble(**asked, max_tokens=each, documents=service.part(1)) for each in range(20, 50)]
    item = next(each for each in windows if each.items).items[0]
    assert item.metadata["truncated"]
    start, upto = item.metadata["char_from"], item.metadata["char_upto"]
    assert HANDBOOK[start:upto] + " […]" == item.content
    # A template of one's own that does not know documents still writes them.
    own = await assembler.assemble(**asked, template=replace(MARKDOWN, order=("system",)), documents=service.part(1))
    assert "Goods may" in own.text
