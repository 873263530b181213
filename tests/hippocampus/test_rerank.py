"""Reranking: the best results in a model's order, and the search's own order where the model fails or is late."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence

import asyncpg
import pytest

from hippocampus.errors import MalformedReplyError
from hippocampus.providers.transcript import format_ranking
from hippocampus.rerank import RERANK_DEPTH, PromptReranker, Reranker, ScorerReranker
from hippocampus.search import MemorySearch, SearchMemoryResponse
from pulse.errors import InvalidInputError
from tests.support.memory_rows import APP, add_memory
from tests.support.waiting import WAIT_SECONDS

MEI = "mei"
QUERY = "violin lesson"


def overlap(pairs: list[tuple[str, str]]) -> list[float]:
    """A small cross-encoder: how many letter triples of the query the text has, and twice for an answer in figures."""
    return [
        sum(query[i : i + 3] in text for i in range(len(query) - 2)) * (2 if any(c.isdigit() for c in text) else 1)
        for query, text in pairs
    ]


async def find(pool: asyncpg.Pool, reranker: Reranker | None, limit: int = 10, **more: float) -> SearchMemoryResponse:
    search = MemorySearch(pool, reranker=reranker, **more)
    return await search.search(app_name=APP, user_id=MEI, query=QUERY, limit=limit, record_access=False)


@pytest.fixture
async def lessons(conn: asyncpg.Connection) -> None:
    await add_memory(conn, MEI, "violin violin lesson lesson", embedded=False)
    await add_memory(conn, MEI, "The violin lesson is at 16:30 in the old school house by the river", embedded=False)
    for number in range(60):
        await add_memory(conn, MEI, f"a lesson of another kind {'and more ' * (number % 7)}", embedded=False)


async def test_the_models_order_stands(pool: asyncpg.Pool, lessons: None) -> None:
    plain = await find(pool, None)
    reranked = await find(pool, ScorerReranker(overlap), rerank_seconds=WAIT_SECONDS)
    assert plain.memories[0].content == "violin violin lesson lesson"
    assert not plain.reranked
    assert reranked.memories[0].content.startswith("The violin lesson is at 16:30")
    assert reranked.reranked
    assert reranked.rerank_failure is None
    assert reranked.total_count == plain.total_count
    assert len(reranked.memories) == 10


async def test_only_the_best_fifty_are_read_and_the_rest_follow(pool: asyncpg.Pool, lessons: None) -> None:
    seen: list[int] = []

    class Reverse:
        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            seen.append(len(texts))
            return [float(place) for place in range(len(texts))]

    plain = [result.memory_id for result in (await find(pool, None, limit=62)).memories]
    found = [result.memory_id for result in (await find(pool, Reverse(), limit=62)).memories]
    assert seen == [RERANK_DEPTH]
    assert found == plain[:RERANK_DEPTH][::-1] + plain[RERANK_DEPTH:]
    few = [result.memory_id for result in (await find(pool, Reverse(), limit=3)).memories]
    assert few == found[:3]


async def test_a_late_reranker_is_not_waited_for(pool: asyncpg.Pool, lessons: None) -> None:
    class Endless:
        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            await asyncio.Event().wait()
            return []

    found = await find(pool, Endless(), rerank_seconds=0.05)
    assert [r.memory_id for r in found.memories] == [r.memory_id for r in (await find(pool, None)).memories]
    assert not found.reranked
    assert found.rerank_failure == "the reranker took longer than 0.05 s"


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([1.0], "50 finite scores"),
        ([float("nan")] * 50, "50 finite scores"),
        (None, "numbers"),
        (["x"] * 50, "numbers"),
    ],
)
async def test_bad_scores_leave_the_first_order(
    pool: asyncpg.Pool, lessons: None, scores: list[float] | None, reason: str
) -> None:
    class Bad:
        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            return scores  # type: ignore[return-value]

    found = await find(pool, Bad())
    assert [r.memory_id for r in found.memories] == [r.memory_id for r in (await find(pool, None)).memories]
    assert found.rerank_failure is not None
    assert reason in found.rerank_failure


async def test_a_prompt_is_answered_with_one_number_per_text() -> None:
    prompts: list[str] = []

    async def complete(prompt: str) -> str:
        prompts.append(prompt)
        return "Here you are:\n```json\n[0, 10, 2.5]\n```"

    scores = await PromptReranker(complete).rerank("Where is the key?", ["tea\nand milk", "under the fern", "x" * 5000])
    assert scores == [0, 10, 2.5]
    assert "1. tea and milk\n2. under the fern\n3. xxx" in prompts[0]
    assert len(prompts[0]) < 2000


async def test_a_long_text_is_not_split_to_show_its_beginning() -> None:
    prompts: list[str] = []

    async def complete(prompt: str) -> str:
        prompts.append(prompt)
        return "[1]"

    text = "ab \n" * 250_000
    tracemalloc.start()
    try:
        await PromptReranker(complete).rerank("q", [text])
        prompts.append(format_ranking("q", [text]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(text)
    assert [prompt.count("ab ab") > 50 for prompt in prompts] == [True, True]


@pytest.mark.parametrize("reply", ["", "no idea", "[1, 2]", "[1, 2, null]", '[1, 2, "high"]', "[1, 2, NaN]", "{}"])
async def test_a_reply_that_is_not_one_number_per_text_is_refused(reply: str) -> None:
    async def complete(prompt: str) -> str:
        return reply

    with pytest.raises(MalformedReplyError):
        await PromptReranker(complete).rerank("q", ["a", "b", "c"])


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_the_time_limit_is_over_zero(pool: asyncpg.Pool, seconds: float) -> None:
    with pytest.raises(InvalidInputError, match="rerank_seconds"):
        MemorySearch(pool, rerank_seconds=seconds)
