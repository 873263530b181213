"""How fast documents are ingested and searched, what an unchanged corpus costs, and how good the order is.

python -m benchmarks.knowledge [--chunks 100000] [--queries 100] [--cranfield FOLDER | --beir FOLDER]

The documents have texts of words by Zipf's law, and vectors of the provider `local`. The peers of a search are, in the
same run and on the same vectors, pgvector's exact scan and one query of its HNSW index. FOLDER holds the files of the
Cranfield collection: cran.all.1400, cran.qry and QRelsCorrectedforTRECeval. Its figures are nDCG@10 by binary
relevance, with words alone and with vectors of `local`; BM25 of another implementation reached 0.523 on these texts.
Any other set is given in the form of BEIR: corpus.jsonl, queries.jsonl and qrels/test.tsv; grades count as gains, as in
trec_eval, and `--published` is the figure of BM25 that the set's paper states. The exit code is 1 if a must is missed.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import asyncpg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.search import Corpus, line, timed
from benchmarks.server import fresh_server, percentile, row
from hippocampus.consolidation.vector_copies import update_vector_indexes
from hippocampus.knowledge.chunking import Chunking
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import Vector
from pulse import database

CHUNKS_OF_DOCUMENT = 1_000
#: Places that nDCG counts.
DEPTH = 10
#: Vectors that a search of a large corpus asks the index for.
NEAREST = 200

Call = Callable[[], Awaitable[object]]


class CountingEmbedder:
    """The local model, which counts the texts that it embeds."""

    def __init__(self) -> None:
        self._inner = LocalEmbedder()
        self.count = 0

    @property
    def model(self) -> str:
        return self._inner.model

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        self.count += len(texts)
        return await self._inner.embed(texts, task)

    async def close(self) -> None:
        await self._inner.close()


async def speed(pool: database.Pool, chunks: int, queries: int) -> bool:
    """Ingest, ingest again, search; return whether each figure reaches its must."""
    corpus = Corpus()
    embedder = CountingEmbedder()
    service = KnowledgeService(pool, "bench", embedder)
    await service.put_corpus("book", chunking=Chunking(chunker="structure", tokens=256))
    documents = [
        "\n".join(f"# {number}\n\n{corpus.text()}" for number in range(CHUNKS_OF_DOCUMENT))
        for _ in range(max(chunks // CHUNKS_OF_DOCUMENT, 1))
    ]
    started = time.perf_counter()
    for number, text in enumerate(documents):
        await service.add("book", text, source_uri=f"{number}.md", inline=True)
    met = figure("knowledge_ingest", embedder.count / (time.perf_counter() - started))
    embedder.count = 0
    started = time.perf_counter()
    for number, text in enumerate(documents):
        await service.add("book", text, source_uri=f"{number}.md", inline=True)
    print(f"the unchanged corpus again: {time.perf_counter() - started:.1f} s")
    met &= figure("knowledge_again", embedder.count)
    await pool.execute("VACUUM ANALYZE knowledge_base, knowledge_vectors, knowledge_documents, knowledge_versions")
    started = time.perf_counter()
    await update_vector_indexes(pool)
    row("the vector index", f"{time.perf_counter() - started:.1f} s")
    asked = []
    for number in range(queries):
        section = documents[number % len(documents)].split("\n# ")[number * 7 % CHUNKS_OF_DOCUMENT]
        asked.append(" ".join(section.split()[3:40:6]))
    vectors = await embedder.embed(asked, "query")
    given = list(zip(asked, vectors, strict=True))

    def search(text: str, vector: Vector) -> Call:
        return lambda: service.search(text, query_embedding=vector, embedding_model=embedder.model)

    searched = await timed([search(*each) for each in given])
    words = await timed([lambda text=text: KnowledgeService(pool, "bench").search(text) for text in asked])
    async with pool.acquire() as connection:
        await connection.execute(f"SET hnsw.ef_search = {NEAREST}")
        index = await timed([lambda v=v: nearest(connection, v, embedder.model, NEAREST) for v in vectors])
        await connection.execute("RESET hnsw.ef_search")
        scan = await timed([lambda v=v: exact(connection, v, embedder.model) for v in vectors[:30]])
    line("search, top 10", searched)
    line("the same by words alone", words)
    line(f"raw HNSW query, the {NEAREST} nearest", index, f"search takes {median(searched) / median(index):.2f} of it")
    line("raw exact vector scan", scan, f"search takes {median(searched) / median(scan):.2f} of it")
    met &= figure("knowledge_ratio", median(searched) / median(scan))
    met &= figure("knowledge_p50", median(searched))
    return figure("knowledge_p99", percentile(searched, 0.99)) and met


async def nearest(connection: asyncpg.Connection, vector: Vector, model: str, limit: int) -> list[asyncpg.Record]:
    """Return the ids of the nearest vectors by the index."""
    size = len(vector)
    return await connection.fetch(
        f"""SELECT id FROM knowledge_vectors WHERE model = '{model}' AND vector_dims(embedding) = {size}
            ORDER BY embedding::halfvec({size}) <#> $1::halfvec({size}) LIMIT {limit}""",
        vector,
    )


async def exact(connection: asyncpg.Connection, vector: Vector, model: str) -> list[asyncpg.Record]:
    """Return the ids of the ten nearest vectors, each compared."""
    return await connection.fetch(
        """SELECT id FROM (SELECT id, embedding <#> $1::halfvec AS distance FROM knowledge_vectors
                           WHERE model = $2 AND vector_dims(embedding) = $3 OFFSET 0) AS v
           ORDER BY distance LIMIT 10""",
        vector,
        model,
        len(vector),
    )


async def cranfield(pool: database.Pool, folder: Path) -> bool:
    """Report nDCG@10 on the Cranfield collection; return whether it reaches its must."""
    texts = {}
    for number, parts in _records(folder / "cran.all.1400"):
        if text := f"{parts['T']}\n\n{parts['W']}".strip():
            texts[number] = (" ".join(parts["T"].split())[:500], text)
    relevant: dict[str, dict[str, int]] = defaultdict(dict)
    for judged in (folder / "QRelsCorrectedforTRECeval").read_text().splitlines():
        question, _, document, grade = judged.split()
        if int(grade) > 0:
            relevant[question][document] = 1
    # The judgements number the questions by their order.
    asked = {
        str(place): " ".join(parts["W"].split()) for place, (_, parts) in enumerate(_records(folder / "cran.qry"), 1)
    }
    words, local = await quality(pool, texts, asked, relevant)
    return figure("cranfield_words", words) & figure("cranfield_local", local)


def beir(folder: Path) -> tuple[dict[str, tuple[str, str]], dict[str, str], dict[str, dict[str, int]]]:
    """Return documents (title, text), questions and grades of a set in the form of BEIR, by their ids."""
    texts, asked = {}, {}
    for stored in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(stored)
        title = str(each.get("title") or "")
        if text := f"{title}\n\n{each['text']}".strip():
            texts[each["_id"]] = (title[:500], text)
    relevant: dict[str, dict[str, int]] = defaultdict(dict)
    for judged in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question, document, grade = judged.split("\t")
        if int(grade) > 0:
            relevant[question][document] = int(grade)
    for stored in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(stored)
        if each["_id"] in relevant:
            asked[each["_id"]] = each["text"]
    return texts, asked, relevant


async def quality(
    pool: database.Pool,
    texts: Mapping[str, tuple[str, str]],
    asked: Mapping[str, str],
    relevant: Mapping[str, Mapping[str, int]],
) -> tuple[float, float]:
    """Return the mean nDCG@10 of questions, with words alone and with vectors of `local`."""
    service = KnowledgeService(pool, "quality", LocalEmbedder())
    await service.put_corpus("texts", chunking=Chunking(tokens=1024))
    for name, (title, text) in texts.items():
        await service.add("texts", text, source_uri=name, title=title or None, inline=True)
    means = []
    for searched in (KnowledgeService(pool, "quality"), service):
        scores = []
        for name, text in asked.items():
            found = await searched.search(text, limit=DEPTH, per_document=1)
            scores.append(ndcg([hit.source_uri for hit in found.hits], relevant[name]))
        means.append(sum(scores) / len(scores))
    return means[0], means[1]


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    for record in re.split(r"^\.I ", path.read_text(encoding="latin-1"), flags=re.MULTILINE)[1:]:
        number, _, rest = record.partition("\n")
        parts: dict[str, str] = defaultdict(str)
        for piece in re.split(r"^\.(?=[TABW]\s*$)", rest, flags=re.MULTILINE)[1:]:
            parts[piece[0]] += piece[1:].strip()
        yield str(int(number)), parts


def ndcg(found: Sequence[str], grades: Mapping[str, int]) -> float:
    """Return nDCG@10 of an order; a grade is its document's gain."""
    gain = sum(grades.get(each, 0) / math.log2(place + 2) for place, each in enumerate(found[:DEPTH]))
    ideal = sorted(grades.values(), reverse=True)[:DEPTH]
    best = sum(each / math.log2(place + 2) for place, each in enumerate(ideal))
    return gain / best if best else 0.0


async def main() -> bool:
    parser = options.parser()
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--cranfield", type=Path)
    parser.add_argument("--beir", type=Path)
    parser.add_argument("--published", type=float)
    given = parser.parse_args()
    # An index of 100,000 vectors is built in memory, as an operator of such a corpus would.
    settings = {"maintenance_work_mem": "1GB"}
    async with fresh_server(**settings) as server, await database.create_pool(server.dsn, max_size=4) as pool:
        if given.cranfield is not None:
            return await cranfield(pool, given.cranfield)
        if given.beir is not None:
            words, local = await quality(pool, *beir(given.beir))
            must = given.published or 0.0
            row("nDCG@10, words alone", f"{words:.3f}", "" if words >= must else "MISSED", f"must ≥ {must:g}")
            row("the same with vectors of local", f"{local:.3f}")
            return words >= must
        return await speed(pool, given.chunks, given.queries)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
