"""Search by meaning beside what peers do: times and recall@10 on the same rows, in the same server and run.

    python -m benchmarks.peers FILE.npz [--rows 100000] [--queries 200]

FILE has real sentences and their vectors (`python -m benchmarks.sentences` makes it). The peers are LangGraph's own
PostgresStore (pgvector's HNSW, as its `setup` creates it), mem0's table with its statement (HNSW, and a filter on the
payload), Honcho's way (HNSW on its documents, filtered by workspace, observer and observed peer, each with an index of
its own), and the exact scan of a scope. Recall is against the true nearest ten of the scope. Each query goes to all in
turn, so that a busy machine slows all of them alike. Only ours searches the words too, except in 'vectors alone'.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import asyncpg
import numpy as np
from langgraph.store.postgres import AsyncPostgresStore
from numpy.typing import NDArray
from pgvector.asyncpg import register_vector

from benchmarks import options
from benchmarks.search import APP, MODEL, VECTORS_ALONE, Query, Sentences, line, load
from benchmarks.server import fresh_server
from hippocampus.search import MemorySearch, SearchFilter
from pulse import database

Find = Callable[[Query], Awaitable[list[str]]]
SCOPE = 1_000
#: Who observes the users, for Honcho's way.
AGENT = "agent"


class Truth:
    """The rows of one number of scopes, in the order in which `load` stores them, and their true neighbours."""

    def __init__(self, path: Path, *, rows: int, scopes: int) -> None:
        corpus = Sentences(path)
        self.vectors = corpus.vectors(rows)
        self.texts = [corpus.text() for _ in range(rows)]
        self.users = [f"user-{number % scopes}" for number in range(rows)]
        self._of_user: dict[str, NDArray[np.int64]] = {
            f"user-{scope}": np.arange(scope, rows, scopes) for scope in range(scopes)
        }

    def nearest(self, query: Query) -> set[str]:
        own = self._of_user[query.user]
        order = np.argsort(-(self.vectors[own] @ np.array(query.vector, dtype=np.float32)))[:10]
        return {self.texts[own[number]] for number in order}


def ours(pool: database.Pool, *, alone: bool) -> Find:
    search = MemorySearch(pool, weights=VECTORS_ALONE) if alone else MemorySearch(pool)

    async def find(query: Query) -> list[str]:
        found = await search.search(
            app_name=APP,
            user_id=query.user,
            query=query.text,
            narrow=SearchFilter(sources=("memory",)),
            query_embedding=query.vector,
            embedding_model=MODEL,
            record_access=False,
        )
        return [result.content for result in found.memories]

    return find


def exact(pool: database.Pool) -> Find:
    async def find(query: Query) -> list[str]:
        rows = await pool.fetch(
            "SELECT content FROM memories WHERE app_name = $1 AND user_id = $2 ORDER BY embedding <=> $3 LIMIT 10",
            APP,
            query.user,
            query.vector,
        )
        return [row["content"] for row in rows]

    return find


async def mem0(connection: asyncpg.Connection, truth: Truth) -> Find:
    """Fill a table as mem0 creates it, and return its search."""
    size = truth.vectors.shape[1]
    await connection.execute(
        f"""DROP TABLE IF EXISTS mem0;
            CREATE TABLE mem0 (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), vector vector({size}), payload jsonb)"""
    )
    rows = zip(truth.texts, truth.users, truth.vectors, strict=True)
    records = [(vector, json.dumps({"data": text, "user_id": user})) for text, user, vector in rows]
    await connection.copy_records_to_table("mem0", records=records, columns=["vector", "payload"])
    await connection.execute("CREATE INDEX ON mem0 USING hnsw (vector vector_cosine_ops)")
    await connection.execute("VACUUM ANALYZE mem0")

    async def find(query: Query) -> list[str]:
        rows = await connection.fetch(
            """SELECT id, vector <=> $1 AS distance, payload FROM mem0 WHERE payload->>'user_id' = $2
               ORDER BY distance LIMIT 10""",
            query.vector,
            query.user,
        )
        return [json.loads(row["payload"])["data"] for row in rows]

    return find


async def honcho(connection: asyncpg.Connection, truth: Truth) -> Find:
    """Fill a table with the columns and indexes that Honcho's search by meaning reads, and return its way of searching.

    A document belongs to who observes whom. Where a user is observed by the app's one agent, that is a user's scope.
    """
    size = truth.vectors.shape[1]
    await connection.execute(
        f"""DROP TABLE IF EXISTS documents;
            CREATE TABLE documents (id text PRIMARY KEY, workspace_name text NOT NULL, observer text NOT NULL,
                                    observed text NOT NULL, content text NOT NULL, embedding vector({size}),
                                    created_at timestamptz NOT NULL DEFAULT now(), deleted_at timestamptz)"""
    )
    records = [
        (f"{number:021}", APP, AGENT, user, text, vector)
        for number, (user, text, vector) in enumerate(zip(truth.users, truth.texts, truth.vectors, strict=True))
    ]
    columns = ["id", "workspace_name", "observer", "observed", "content", "embedding"]
    await connection.copy_records_to_table("documents", records=records, columns=columns)
    await connection.execute(
        "CREATE INDEX ON documents USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64)"
    )
    for column in ("workspace_name", "observer", "observed", "created_at", "deleted_at"):
        await connection.execute(f"CREATE INDEX ON documents ({column})")
    await connection.execute("VACUUM ANALYZE documents")

    async def find(query: Query) -> list[str]:
        rows = await connection.fetch(
            """SELECT id, content FROM documents
               WHERE workspace_name = $1 AND observer = $2 AND observed = $3
                 AND embedding IS NOT NULL AND deleted_at IS NULL
               ORDER BY embedding <=> $4 LIMIT 10""",
            APP,
            AGENT,
            query.user,
            query.vector,
        )
        return [row["content"] for row in rows]

    return find


async def langgraph(connection: asyncpg.Connection, store: AsyncPostgresStore, truth: Truth) -> Find:
    """Fill LangGraph's tables, and return its store's search."""
    definition = await connection.fetchval(
        "SELECT indexdef FROM pg_indexes WHERE indexname = 'store_vectors_embedding_idx'"
    )
    await connection.execute("DROP INDEX store_vectors_embedding_idx; TRUNCATE store CASCADE")
    prefixes = [f"{APP}.{user}" for user in truth.users]
    items = [
        (prefix, str(number), json.dumps({"text": text}))
        for number, (prefix, text) in enumerate(zip(prefixes, truth.texts, strict=True))
    ]
    await connection.copy_records_to_table("store", records=items, columns=["prefix", "key", "value"])
    vectors = [
        (prefix, str(number), "text", vector)
        for number, (prefix, vector) in enumerate(zip(prefixes, truth.vectors, strict=True))
    ]
    await connection.copy_records_to_table(
        "store_vectors", records=vectors, columns=["prefix", "key", "field_name", "embedding"]
    )
    await connection.execute(definition)
    await connection.execute("VACUUM ANALYZE store, store_vectors")

    async def find(query: Query) -> list[str]:
        items = await store.asearch((APP, query.user), query=query.text, limit=10)
        return [str(item.value["text"]) for item in items]

    return find


async def compare(name: str, peers: dict[str, Find], queries: list[Query], truth: Truth) -> None:
    """Print how long each takes, and how many of the true nearest it finds."""
    took: dict[str, list[float]] = {peer: [] for peer in peers}
    hits = dict.fromkeys(peers, 0)
    returned = dict.fromkeys(peers, 0)
    for query in queries[: max(len(queries) // 10, 1)]:
        for find in peers.values():
            await find(query)
    for query in queries:
        wanted = truth.nearest(query)
        for peer, find in peers.items():
            start = perf_counter()
            found = await find(query)
            took[peer].append((perf_counter() - start) * 1000)
            hits[peer] += len(wanted & set(found))
            returned[peer] += len(found)
    for peer in peers:
        note = f"recall@10 {hits[peer] / 10 / len(queries):.3f}, {returned[peer] / len(queries):.1f} results"
        line(f"{name}: {peer}", took[peer], note)


async def main() -> None:
    parser = options.parser()
    parser.add_argument("file", type=Path, help="what `python -m benchmarks.sentences` wrote")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    with np.load(arguments.file) as file:
        vectors_of = dict(zip(file["query_texts"].tolist(), file["query_vectors"].tolist(), strict=True))
        dimensions = file["vectors"].shape[1]
    async with (
        fresh_server(maintenance_work_mem="2GB") as server,
        await database.create_pool(server.dsn, min_size=1, max_size=1) as pool,
    ):
        await pool.execute("CREATE DATABASE peers")
        dsn = server.dsn.replace("/hippocampus?", "/peers?")
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE EXTENSION vector")
        await register_vector(connection)
        index = {"dims": dimensions, "embed": lambda texts: [vectors_of[text] for text in texts], "fields": ["text"]}
        async with AsyncPostgresStore.from_conn_string(dsn, index=index) as store:
            await store.setup()
            for scopes in (max(arguments.rows // SCOPE, 1), 1):
                truth = Truth(arguments.file, rows=arguments.rows, scopes=scopes)
                corpus = Sentences(arguments.file)
                queries = await load(pool, corpus, scopes=scopes, rows=arguments.rows, queries=arguments.queries)
                peers = {
                    "ours, words and vectors": ours(pool, alone=False),
                    "ours, vectors alone": ours(pool, alone=True),
                    "LangGraph's store": await langgraph(connection, store, truth),
                    "mem0's statement": await mem0(connection, truth),
                    "Honcho's way": await honcho(connection, truth),
                    "exact scan": exact(pool),
                }
                await compare(f"{arguments.rows:,} in {scopes}", peers, queries, truth)
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
