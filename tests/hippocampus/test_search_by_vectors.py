"""Search where nothing but the vectors of memories has a weight: the nearest are selected before they are scored."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import pytest

from hippocampus.search import MemorySearch, SearchFilter, SearchMemoryResponse, SearchWeights
from tests.support.memory_rows import APP, NOW, add_memory, days_ago, say

MEI = "mei"
ALONE = SearchWeights(bm25=0, context_bm25=0, context_similarity=0, author=0, recency=0, retention=0, question=0)


@pytest.fixture
async def scattered(conn: asyncpg.Connection) -> dict[UUID, float]:
    """Sixty memories whose vectors point anywhere; returns each one's similarity to [1, 1, …]."""
    vectors = np.random.default_rng(7).standard_normal((60, 24))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = {}
    for place, vector in enumerate(vectors):
        row = await add_memory(
            conn,
            MEI,
            f"tea number {place}",
            embedding=vector.tolist(),
            embedding_model="any",
            memory_type="summary" if place % 2 else "semantic",
            occurred_at=days_ago(place),
            metadata={"place": place % 3},
        )
        similar[row] = float(vector.sum()) / 24**0.5
    return similar


async def find_alone(pool: asyncpg.Pool, *, limit: int = 10, **narrow: object) -> SearchMemoryResponse:
    """Search by nothing but vectors, for the words of every memory."""
    return await MemorySearch(pool, weights=ALONE).search(
        app_name=APP,
        user_id=MEI,
        query="tea",
        query_embedding=[1.0] * 24,
        embedding_model="any",
        limit=limit,
        narrow=SearchFilter(sources=("memory",), **narrow),  # type: ignore[arg-type]
        record_access=False,
    )


@pytest.mark.parametrize("limit", [10, 20])
async def test_the_nearest_are_returned_and_no_words_are_compared(
    pool: asyncpg.Pool, scattered: dict[UUID, float], limit: int
) -> None:
    """By scores from the least similar memory to the most similar one; for few results or many."""
    found = await find_alone(pool, limit=limit)
    nearest = sorted(scattered, key=lambda row: -scattered[row])
    assert [result.memory_id for result in found.memories] == nearest[:limit]
    assert found.total_count == sum(similarity > 0 for similarity in scattered.values()) > limit
    far, near = min(scattered.values()), max(scattered.values())
    for rank, result in enumerate(found.memories, start=1):
        assert result.relevance_score == result.why.similarity == pytest.approx(scattered[result.memory_id], abs=1e-3)
        share = (scattered[result.memory_id] - far) / (near - far)
        assert result.score / found.memories[0].score == pytest.approx(share, abs=1e-3)
        assert (result.why.vector_rank, result.why.text_rank) == (rank, None)
        assert (result.why.bm25, result.why.matched_terms) == (0, ())


async def test_a_memory_without_a_vector_is_found_by_its_words(
    pool: asyncpg.Pool, conn: asyncpg.Connection, scattered: dict[UUID, float]
) -> None:
    """Also within filters; the others are judged as before."""
    before = {result.memory_id: result.relevance_score for result in (await find_alone(pool, limit=3)).memories}
    fresh = await add_memory(conn, MEI, "tea", embedded=False, memory_type="semantic", metadata={"place": 1})
    narrowed: list[dict[str, object]] = [{}, {"memory_types": ("semantic",)}, {"metadata": {"place": 1}}]
    for narrow in narrowed:
        after = {r.memory_id: r.relevance_score for r in (await find_alone(pool, limit=4, **narrow)).memories}
        assert after.pop(fresh) == 1
        if not narrow:
            assert after == before


async def test_the_only_memory_has_the_greatest_score_that_there_is(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Of equal similarities none is the least."""
    await add_memory(conn, MEI, "coffee", embedding=[1.0] * 24, embedding_model="any")
    (only,) = (await find_alone(pool)).memories
    for _ in range(60):
        await add_memory(conn, MEI, "cocoa", embedding=[1.0] * 24, embedding_model="any")
    assert {result.score for result in (await find_alone(pool)).memories} == {only.score}
    assert only.score > 0


QUERY = """SELECT * FROM search_memory($1, $2, $3, $4, 'any', $5, '{memory}', 'all', $6, $7, $8, $9, $10, $11, $12,
                                       NULL, NULL, $13, $14, $15, $16, $17, $18)"""


@asynccontextmanager
async def scoring_all(conn: asyncpg.Connection) -> AsyncIterator[None]:
    """While vectors are copied, all memories are scored."""
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("INSERT INTO vector_fill (table_name) VALUES ('memories')")
    yield
    await transaction.rollback()


async def test_what_is_selected_first_is_what_scoring_all_returns(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """Row by row and column by column, for any filters, limits and weights; memories of the same turns step back."""
    draw = random.Random(5)
    vectors = np.random.default_rng(5).standard_normal((90, 12))
    threads = []
    for name in ("s", "t"):
        await say(pool, MEI, name, *(f"turn {number}" for number in range(40)))
        threads.append(await conn.fetchval("SELECT id FROM threads WHERE session_id = $1", name))
    for place in range(150):
        first, last = place // 4 + 1, place // 4 + 1 + place % 3
        await add_memory(
            conn,
            MEI,
            f"tea {place} {draw.choice(['milk', 'sugar', 'lemon'])}",
            # Some are equally near.
            embedding=vectors[place % 90].tolist(),
            embedding_model="any",
            memory_type=["summary", "semantic"][place // 2 % 2],
            occurred_at=days_ago(draw.randrange(30)),
            metadata={"place": place % 3},
            thread_id=threads[place % 2],
            from_seq=first,
            upto_seq=last,
            source_seqs=list(range(first, last + 1)),
        )
    weights = [
        ALONE,
        SearchWeights(bm25=0, context_bm25=0, similarity=0, recency=0, retention=0),
        SearchWeights(bm25=0, context_bm25=0, recency=0, retention=0),
        SearchWeights(bm25=0, context_bm25=0, retention=0),
        SearchWeights(bm25=0, context_bm25=0, recency=0),
        SearchWeights(bm25=0, recency=0, retention=0),
    ]
    times = ([NOW - timedelta(days=9)], [NOW - timedelta(days=2)], ["'tea'"], [0.8])
    for number in range(120):
        asked: list[Any] = [
            APP,
            MEI,
            draw.choice(["tea", "milk and sugar", "?!"]),
            np.random.default_rng(number).standard_normal(12).tolist(),
            draw.choice([1, 3, 5, 12]),
            draw.choice([None, None, ["summary"], ["semantic"]]),
            draw.choice([None, None, "s"]),
            draw.choice([None, None, days_ago(20)]),
            draw.choice([None, None, days_ago(5)]),
            draw.choice([None, None, {"place": 1}]),
            draw.choice([0.0, 0.0, 0.2, 0.4]),
            astuple(weights[number % len(weights)]),
            *(times if number % 5 == 0 else [None] * 4),
            draw.random() < 0.5,
            draw.random() < 0.3,
        ]
        async with conn.transaction():  # one clock for both
            selected = await conn.fetch(QUERY, *asked)
            async with scoring_all(conn):
                scored = await conn.fetch(QUERY, *asked)
        for one, other in zip(selected, scored, strict=True):
            assert dict(one) == {
                name: pytest.approx(value) if name == "parts" or isinstance(value, float) else value
                for name, value in other.items()
            }, asked


@pytest.mark.parametrize("part", ["recency", "retention", "time"])
async def test_what_is_not_among_the_nearest_is_first_if_another_part_says_so(
    conn: asyncpg.Connection, scattered: dict[UUID, float], part: str
) -> None:
    """Only where nothing else counts are the nearest enough."""
    far = min((row for row in scattered if scattered[row] > 0), key=scattered.__getitem__)
    await conn.execute("UPDATE memories SET occurred_at = $2, last_accessed_at = $2 WHERE id <> $1", far, days_ago(400))
    await conn.execute("UPDATE memories SET occurred_at = $2, last_accessed_at = $2 WHERE id = $1", far, days_ago(1))
    weights = SearchWeights(
        bm25=0,
        context_bm25=0,
        recency=9 if part == "recency" else 0,
        retention=9 if part == "retention" else 0,
    )
    times = ([days_ago(2)], [days_ago(0)], [""], [5.0]) if part == "time" else [None] * 4
    asked = [APP, MEI, "tea", [1.0] * 24, 3, *[None] * 5, 0.0, astuple(weights), *times, False, False]
    found = await conn.fetch(QUERY, *asked)
    assert found[0]["id"] == far


@pytest.mark.parametrize("limit", [5, 20])
async def test_selecting_is_left_out_where_it_would_cost_more(
    conn: asyncpg.Connection, scattered: dict[UUID, float], limit: int
) -> None:
    """Of sixty memories five or fifteen are selected; for more results all are scored."""
    await conn.execute("ALTER FUNCTION nearest_of_scope RENAME TO nearest_before")
    asked = [APP, MEI, "tea", [1.0] * 24, limit, *[None] * 5, 0.0, astuple(ALONE), *[None] * 4, False, False]
    if limit == 20:
        assert len(await conn.fetch(QUERY, *asked)) == limit
    else:
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await conn.fetch(QUERY, *asked)
