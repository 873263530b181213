"""Reranking by a setting: a real writer, a model that ranks, fails, talks nonsense and is slow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from hippocampus.client import HippocampusClient, NewEvent
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.rerank import RERANK_DEPTH
from pulse import database
from tests.support.fake_openai import FakeOpenAI
from tests.support.mcp_scene import answer, over_http
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, WriterProcess

APP, USER, QUERY = "shop", "ann", "violin lesson"
QUOTED = "violin lesson and violin lesson: piano, cello, flute, harp, drum, "
ANSWER = "At 16:30 in the old school house by the river, violin in hand, as is each lesson"
SECONDS = 5.0


def rankings(fake: FakeOpenAI) -> list[str]:
    """What the model was asked to rank."""
    asked = [request.body["messages"][-1]["content"] for request in fake.requests if "messages" in request.body]
    return [content for content in asked if content.startswith("BEGIN TEXTS")]


async def test_what_is_found_is_reranked_by_the_setting(dsn: str, tmp_path: Path) -> None:
    """Searches, windows, recall, answers, documents and MCP; after a failure of any kind the first order stands."""
    async with FakeOpenAI() as fake:
        settings = {
            "generator": "local", "embedder": "local", "api_key": KEY, "breaker_failures": "4",
            "breaker_open_seconds": "600",
            "reranker": "openai:gpt-5.4-mini", "reranker_base_url": fake.url, "rerank_seconds": f"{SECONDS:g}",
        }  # fmt: skip
        with WriterProcess(dsn, tmp_path / "log", **settings) as writer:
            headers = {"Authorization": f"Bearer {KEY}"}
            async with (
                HippocampusClient(writer.url, KEY, app_name=APP) as client,
                httpx.AsyncClient(
                    base_url=f"{writer.url}/v1/apps/{APP}/users/{USER}", headers=headers, timeout=WAIT_SECONDS
                ) as http,
                await database.create_pool(dsn) as pool,
                over_http(writer, KEY, f"?app_name={APP}&user_id={USER}") as mcp,
            ):
                await client.create_session(USER, "s1")
                turns = [QUOTED + word for word in ("organ", "guitar", "trumpet", "tuba", "oboe")]
                turns += [*(f"a lesson of another kind {'and more ' * number}" for number in range(60)), ANSWER]
                await client.append(USER, "s1", [NewEvent(author="user", content={"text": text}) for text in turns])
                await client.put_corpus("book")
                for name, text in (("a.md", "Violin lesson, violin lesson."), ("b.md", f"{ANSWER}.")):
                    added = await client.add_document("book", name, text)
                    await KnowledgeService(pool, APP, LocalEmbedder()).ingest(UUID(added.document_id))

                async def post(path: str, **body: Any) -> dict[str, Any]:
                    response = await http.post(path, json=body)
                    assert response.status_code == 200, response.text
                    found: dict[str, Any] = response.json()
                    return found

                async def search() -> dict[str, Any]:
                    return await post("/search", query=QUERY)

                async def reranked(ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
                    """Ask until the model was in time, which it may not be on a busy machine."""
                    for _ in range(10):
                        found = await ask()
                        if found["reranked"]:
                            return found
                        assert "timeout" in found["rerank_failure"] or "took longer" in found["rerank_failure"]
                    raise AssertionError(found)

                def contents(found: dict[str, Any]) -> list[str]:
                    return [each["content"] for each in found["results"]]

                found = await reranked(search)
                assert contents(found)[0] == ANSWER
                assert (len(found["results"]), found["total_count"], found["rerank_failure"]) == (10, 66, None)
                assert f"\n{RERANK_DEPTH} " in rankings(fake)[-1]
                assert f"\n{RERANK_DEPTH + 1} " not in rankings(fake)[-1]

                fake.script("status", code=500)
                plain = await search()
                assert contents(plain)[0].startswith(QUOTED)
                assert (plain["reranked"], plain["rerank_failure"]) == (
                    False, "the reranker failed (TransientProviderError, 500)",
                )  # fmt: skip
                fake.script("text", text='{"best": [1, 999]}')
                nonsense = await search()
                assert (contents(nonsense), nonsense["reranked"]) == (contents(plain), False)
                assert "breaks the schema" in nonsense["rerank_failure"]
                fake.script("hang")
                slow = await search()
                assert (contents(slow), slow["reranked"]) == (contents(plain), False)
                assert "timeout" in slow["rerank_failure"] or "took longer" in slow["rerank_failure"]

                for path in ("/context", "/recall"):
                    window = await reranked(lambda path=path: post(path, query=QUERY, max_tokens=60))
                    assert ANSWER in window["text"]
                hits = await reranked(lambda: post("/knowledge/search", query=QUERY))
                assert [hit["source_uri"] for hit in hits["hits"]] == ["b.md", "a.md"]
                asked = len(rankings(fake))
                await client.ask(USER, "When is the violin lesson?")
                assert len(rankings(fake)) == asked + 1

                fake.script("status", code=500)
                told = await answer(mcp, "search_memory", {"query": QUERY})
                assert told["results"][0]["content"].startswith(QUOTED)
                assert "reranker failed" in told["note"]
                fake.script("status", code=500)
                hits = await post("/knowledge/search", query=QUERY)
                assert ([hit["source_uri"] for hit in hits["hits"]], hits["reranked"]) == (["a.md", "b.md"], False)
                fake.script("status", code=500)
                window = await post("/recall", query=QUERY, max_tokens=60)
                assert ANSWER not in window["text"]
                assert "TransientProviderError, 500" in window["rerank_failure"]

                fake.script("status", code=500)
                record = await client.context(USER, QUERY, max_tokens=60)
                assert not record.reranked
                assert "the reranker failed" in str(record.rerank_failure)

                fake.script("status", code=500, times=20)
                while "breaker" not in (found := await search())["rerank_failure"]:
                    assert contents(found) == contents(plain)
                calls = len(rankings(fake))
                held = await search()
                assert (contents(held), len(rankings(fake))) == (contents(plain), calls)
            address = writer.metrics_address
            metrics = httpx.get(f"http://{address}/metrics", timeout=WAIT_SECONDS).text
    assert 'model_requests_total{code="500",operation="rerank",provider="openai"}' in metrics
    assert 'model_tokens_total{kind="prompt",operation="rerank",provider="openai"}' in metrics
