"""How fast search, time slices and context windows are, and how much the vector index misses.

python -m benchmarks.search [--rows 100000] [--queries 200] [--no-giant] [--sentences FILE.npz]

Memories have texts of words by Zipf's law and random vectors of 1,536 dimensions in clusters, or with --sentences
real sentences and their vectors (`python -m benchmarks.sentences` makes the file). They are loaded before an
index is built. The baseline is pgvector's exact scan over the same scope, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import fresh_server, percentile
from hippocampus.consolidation.vector_copies import update_vector_indexes
from hippocampus.context_assembler import ContextAssembler
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import MemorySearch, SearchFilter, SearchWeights
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService

Vectors = NDArray[np.float32]
MODEL = "benchmark"
APP = "bench"
CLUSTERS = 500
DIMENSIONS = 1536
WORDS = 20_000
WORDS_PER_MEMORY = 40
VECTORS_ALONE = SearchWeights(
    bm25=0, context_bm25=0, similarity=1, context_similarity=0, author=0, recency=0, retention=0, question=0
)


@dataclass(frozen=True, slots=True)
class Query:
    user: str
    text: str
    vector: list[float]


class Corpus:
    """Texts and vectors from one seed."""

    def __init__(self, seed: int = 7) -> None:
        self._random = np.random.default_rng(seed)
        self._centres = _unit(self._random.standard_normal((CLUSTERS, DIMENSIONS), dtype=np.float32))
        syllables = ["ba", "de", "ki", "lo", "mu", "na", "po", "ru", "sa", "te", "vi", "zo", "gar", "hel", "fin", "tor"]
        self._words = np.array(
            ["".join(syllables[(i // 16**k) % 16] for k in range(4)) for i in range(WORDS)], dtype=object
        )

    def vectors(self, count: int) -> Vectors:
        near = self._centres[self._random.integers(0, CLUSTERS, count)]
        noise = self._random.standard_normal((count, DIMENSIONS), dtype=np.float32)
        return _unit(near + noise * np.float32(1.2 / DIMENSIONS**0.5))

    def text(self) -> str:
        return " ".join(self._words[(self._random.zipf(1.3, WORDS_PER_MEMORY) * 37) % WORDS])

    def query(self, user: str, text: str, vector: Vectors) -> Query:
        words = self._random.choice(text.split(), 6)
        noise = self._random.standard_normal(DIMENSIONS, dtype=np.float32)
        near = _unit((vector + noise * np.float32(0.6 / DIMENSIONS**0.5))[None])[0]
        return Query(user, " ".join(words), near.tolist())


class Sentences:
    """Real sentences, their vectors, and queries that are not among them."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self._texts: list[str] = file["texts"].tolist()
            self._vectors: Vectors = file["vectors"]
            self._queries = itertools.cycle(zip(file["query_texts"].tolist(), file["query_vectors"], strict=True))
        self._vectors_given = self._texts_given = 0

    def vectors(self, count: int) -> Vectors:
        wanted = np.arange(self._vectors_given, self._vectors_given + count) % len(self._vectors)
        self._vectors_given += count
        given: Vectors = self._vectors[wanted]
        return given

    def text(self) -> str:
        self._texts_given += 1
        return self._texts[(self._texts_given - 1) % len(self._texts)]

    def query(self, user: str, _text: str, _vector: Vectors) -> Query:
        text, vector = next(self._queries)
        return Query(user, text, vector.tolist())


def _unit(rows: Vectors) -> Vectors:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


async def load(pool: database.Pool, corpus: Corpus | Sentences, *, scopes: int, rows: int, queries: int) -> list[Query]:
    """Fill `memories` and return queries, each with the user of a memory."""
    wanted: list[Query] = []
    step = max(rows // queries, 1) | 1  # odd, so that every scope gets its turn
    async with pool.acquire() as connection:
        await connection.execute("TRUNCATE memories CASCADE")
        now = datetime.now(UTC)
        for start in range(0, rows, 2000):
            count = min(2000, rows - start)
            vectors = corpus.vectors(count)
            records = []
            for index in range(count):
                user, text = f"user-{(start + index) % scopes}", corpus.text()
                when = now - timedelta(minutes=rows - start - index)
                records.append((APP, user, "episodic", text, vectors[index], MODEL, when, when, when))
                if (start + index) % step == 0:
                    wanted.append(corpus.query(user, text, vectors[index]))
            await connection.copy_records_to_table(
                "memories",
                records=records,
                columns="app_name user_id memory_type content embedding embedding_model created_at occurred_at "
                "last_accessed_at".split(),
            )
        await connection.execute("VACUUM ANALYZE memories, memory_vectors")
    await update_vector_indexes(pool)
    return wanted


async def timed(calls: list[Callable[[], Awaitable[object]]]) -> list[float]:
    """Milliseconds per call, run one after another; a tenth of the calls warms up first."""
    for call in calls[: max(len(calls) // 10, 1)]:
        await call()
    took = []
    for call in calls:
        start = time.perf_counter()
        await call()
        took.append((time.perf_counter() - start) * 1000)
    return took


def line(name: str, took: list[float], note: str = "") -> None:
    ordered = sorted(took)
    p99 = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    print(f"{name:<44} p50 {statistics.median(took):8.1f} ms   p99 {p99:8.1f} ms   {note}", flush=True)


async def measure(pool: database.Pool, name: str, queries: list[Query], kind: str, *, is_real: bool = False) -> None:
    """Search, its vector part, and the raw exact scan over the same scopes.

    Args:
        is_real: these are sentences and vectors of a model, whose neighbours an index misses less often.
    """
    search = MemorySearch(pool)

    def run(query: Query) -> Callable[[], Awaitable[object]]:
        return lambda: search.search(
            app_name=APP,
            user_id=query.user,
            query=query.text,
            query_embedding=query.vector,
            embedding_model=MODEL,
            record_access=False,
        )

    searched = await timed([run(query) for query in queries])
    raw = await timed([lambda q=query: exact(pool, q) for query in queries[:50]])
    alone = MemorySearch(pool, weights=VECTORS_ALONE)
    asked = queries if is_real else queries[:50]
    hits = 0
    for query in asked:
        best = await alone.search(
            app_name=APP,
            user_id=query.user,
            query=query.text,
            narrow=SearchFilter(sources=("memory",)),
            query_embedding=query.vector,
            embedding_model=MODEL,
            record_access=False,
        )
        hits += len({result.memory_id for result in best.memories} & set(await exact(pool, query)))
    ratio = statistics.median(searched) / statistics.median(raw)
    recall = hits / 10 / len(asked)
    line(f"{name}: search, top 10", searched, f"{ratio:.2f} of the raw exact scan; vectors' recall@10 {recall:.3f}")
    line(f"{name}: raw exact vector scan", raw)
    if kind == "small":
        figure("search_small_p50", statistics.median(searched))
        figure("search_small_ratio", ratio)
    else:
        figure(f"search_{kind}_p50", statistics.median(searched))
        figure(f"search_{kind}_p99", percentile(searched, 0.99))
        figure(f"search_{kind}_recall{'_sentences' if is_real and kind == 'giant' else ''}", recall)


async def measure_index(pool: database.Pool, name: str, queries: list[Query]) -> None:
    """The index alone, one query after another."""
    took = await timed([lambda q=query: nearest(pool, q) for query in queries])
    hits = sum([len(set(await nearest(pool, q)) & set(await exact(pool, q))) for q in queries[:50]])
    recall = hits / 10 / min(len(queries), 50)
    one, two = 1000 / statistics.mean(took), await rate(pool, queries)
    note = f"recall@10 {recall:.3f}; {one:.0f} queries/s, by two clients {two:.0f}"
    line(f"{name}: ten nearest by the index", took, note)
    figure("vector_queries", two, "by two clients")


async def rate(pool: database.Pool, queries: list[Query]) -> float:
    """Queries per second of the index with two clients, each on its own connection."""

    async def ask(own: list[Query]) -> None:
        for query in own:
            await nearest(pool, query)

    start = time.perf_counter()
    await asyncio.gather(ask(queries[::2]), ask(queries[1::2]))
    return len(queries) / (time.perf_counter() - start)


async def exact(pool: database.Pool, query: Query) -> list[UUID]:
    async with pool.acquire() as connection, connection.transaction():
        rows = await connection.fetch(
            """SELECT id FROM memories WHERE app_name = $1 AND user_id = $2
               ORDER BY embedding <=> $3 LIMIT 10""",
            APP,
            query.user,
            query.vector,
        )
    return [row["id"] for row in rows]


async def nearest(pool: database.Pool, query: Query) -> list[UUID]:
    rows = await pool.fetch("SELECT id FROM nearest_memories($1, $2, $3, $4, 10)", APP, query.user, query.vector, MODEL)
    return [row["id"] for row in rows]


async def measure_time_slices(pool: database.Pool, name: str, queries: list[Query]) -> None:
    """The newest 50 slices of a user within windows from an hour to all time."""
    manager = MemoryRetentionManager(pool)
    now = datetime.now(UTC)
    widths = [timedelta(hours=1), timedelta(days=1), timedelta(days=30), timedelta(days=3650)]

    def run(query: Query, width: timedelta) -> Callable[[], Awaitable[object]]:
        end = now - timedelta(days=7)
        return lambda: manager.get_episodic_memories_by_time_slice(
            app_name=APP, user_id=query.user, start_time=end - width, end_time=end
        )

    calls = [run(query, widths[index % len(widths)]) for index, query in enumerate(queries)]
    line(f"{name}: time slice, newest 50", await timed(calls))


async def measure_visibility(pool: database.Pool) -> None:
    """From the commit of a memory until the next search finds it."""
    search = MemorySearch(pool)
    took = []
    for number in range(200):
        await pool.execute(
            "INSERT INTO memories (app_name, user_id, content) VALUES ($1, 'user-0', $2)", APP, f"fresh{number} memory"
        )
        start = time.perf_counter()
        found = await search.search(app_name=APP, user_id="user-0", query=f"fresh{number}", record_access=False)
        took.append((time.perf_counter() - start) * 1000)
        if found.total_count != 1:
            raise SystemExit(f"the next statement found {found.total_count} of 1 new memory")
    line("commit of a memory to its being found", took)


async def measure_context(pool: database.Pool, queries: list[Query]) -> None:
    """A window of 8,000 tokens over 1,000 memories and a session of 200 turns."""
    sessions = OpenSessionService(pool)
    user = queries[0].user
    await sessions.create_session(APP, user, session_id="talk")
    turns = [Event(author="user", content={"text": query.text * 4}) for query in queries[:200]]
    await sessions.append(APP, user, "talk", turns)
    assembler = ContextAssembler(pool)
    own = [query for query in queries if query.user == user] or queries[:1]
    calls = [
        lambda q=query: assembler.assemble(
            app_name=APP,
            user_id=user,
            session_id="talk",
            query=q.text,
            query_embedding=q.vector,
            system_prompt="You are kind.",
            max_tokens=8000,
            embedding_model=MODEL,
        )
        for query in (own * 200)[:200]
    ]
    # As in a writer, whose full collections do not look at what was loaded before it serves.
    gc.collect()
    gc.freeze()
    used = time.process_time()
    took = await timed(calls)
    used = (time.process_time() - used) / (len(calls) + len(calls) // 10)
    gc.unfreeze()
    line("context window of 8,000 tokens", took, f"{used * 1000:.1f} ms of processor time in the program")
    figure("window_p99", percentile(took, 0.99))


async def main() -> None:
    parser = options.parser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument(
        "--giant", action=argparse.BooleanOptionalAction, default=True, help="one scope of all rows too"
    )
    parser.add_argument("--sentences", type=Path, metavar="FILE.npz", help="real sentences and their vectors")
    arguments = parser.parse_args()
    corpus = Sentences(arguments.sentences) if arguments.sentences else Corpus()
    is_real = isinstance(corpus, Sentences)
    async with fresh_server() as server, await database.create_pool(server.dsn, max_size=2) as pool:
        small = await load(pool, corpus, scopes=1, rows=1000, queries=arguments.queries)
        await measure(pool, "1,000 memories", small, "small", is_real=is_real)
        many = await load(pool, corpus, scopes=100, rows=arguments.rows, queries=arguments.queries)
        await measure(pool, f"{arguments.rows:,} in 100 scopes", many, "scopes", is_real=is_real)
        await measure_time_slices(pool, f"{arguments.rows:,} in 100 scopes", many)
        await measure_context(pool, many)
        await measure_visibility(pool)
        if not arguments.giant:
            return
        giant = await load(pool, corpus, scopes=1, rows=arguments.rows, queries=arguments.queries)
        await measure(pool, f"one scope of {arguments.rows:,}", giant, "giant", is_real=is_real)
        await measure_index(pool, f"one scope of {arguments.rows:,}", giant)
        await measure_time_slices(pool, f"one scope of {arguments.rows:,}", giant)


if __name__ == "__main__":
    asyncio.run(main())
