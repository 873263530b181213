"""A real model behind a real server of OpenAI's API: SmolLM2-135M, by llama.cpp. Few and short calls."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import jsonschema
import pytest

from hippocampus.client import HippocampusClient, NewEvent
from hippocampus.errors import MalformedReplyError
from hippocampus.providers import extraction
from hippocampus.providers.features import Features
from hippocampus.providers.generation import Answer, Message, Task
from hippocampus.providers.openai import provider
from hippocampus.providers.openai.provider import OpenAIGenerator
from hippocampus.providers.protocols import Generator
from hippocampus.providers.registry import ModelConfig
from tests.support import one_fact_worker, real_worker
from tests.support.paths import ROOT
from tests.support.provider_conformance import ENGLISH, GeneratorConformance
from tests.support.real_model import NAME
from tests.support.waiting import until, until_sync
from tests.support.worker_harness import Workers
from tests.support.writer_process import KEY, WriterProcess

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

CALL_SECONDS_MAX = 300.0
#: What llama.cpp understands.
EVERYTHING: Features = frozenset({"json_schema", "schema_bounds", "temperature"})


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has loaded the model."""
    address = tmp_path_factory.mktemp("model") / "address"
    server = subprocess.Popen([sys.executable, "-m", "tests.support.real_model", str(address)], cwd=ROOT)

    def is_ready() -> bool:
        assert server.poll() is None, "the server ended: see its error above"
        if not address.exists():
            return False
        try:
            with urllib.request.urlopen(f"{address.read_text()}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    try:
        until_sync(is_ready)
        yield f"{address.read_text()}/v1"
    finally:
        server.kill()
        server.wait()


def config(url: str, **options: Any) -> ModelConfig:
    return ModelConfig(model=NAME, base_url=url, timeout_seconds=CALL_SECONDS_MAX, attempts=1, **options)


async def test_the_probe_finds_what_the_server_accepts(model_url: str) -> None:
    """llama.cpp constrains the reply by the schema and its bounds; it lists its model."""
    generator = provider.make_generator(config(model_url))
    await generator.check()
    assert await generator._features.find(generator._probe) == EVERYTHING
    await generator.close()


class OneFactGenerator(OpenAIGenerator):
    """The product's, whose server is asked for one short fact that cites a turn of the slice, and for nothing else.

    By the whole schema this model lists facts until its tokens end (docs/decisions.md).
    """

    async def _answer(self, task: Task, messages: Sequence[Message]) -> Answer:
        if task.operation == "reflect":
            turns = [int(number) for number in re.findall(r"^(\d+) ", task.content, re.MULTILINE)]
            task = replace(task, schema=one_fact_worker.schema(turns))
        return await super()._answer(task, messages)


class TestGenerator(GeneratorConformance):
    """What holds for every generator. Calls beside each other share the server's cache, so that replies may vary."""

    deterministic = False

    @pytest.fixture
    async def generator(self, model_url: str) -> AsyncIterator[Generator]:
        made = config(model_url)
        generator = OneFactGenerator(provider.connection(made), model=NAME, features=EVERYTHING, output_tokens_max=200)
        yield generator
        await generator.close()

    async def test_what_a_reply_cost_is_counted(self, generator: Generator) -> None:
        (reflection,) = await generator.reflect([ENGLISH])
        assert reflection.usage.prompt_tokens > 500
        assert reflection.usage.output_tokens > 10


async def test_a_reflection_is_written_by_the_products_own_schema(model_url: str) -> None:
    """As far as it comes: this model does not end its lists. Nothing of a cut reply is taken, and it is kept."""
    generator = provider.make_generator(config(model_url, features=EVERYTHING, output_tokens_max=160))
    with pytest.raises(MalformedReplyError, match="cut off at the limit") as caught:
        await generator.reflect([ENGLISH])
    await generator.close()
    reply = str(caught.value.raw_reply)
    kinds = "|".join(extraction.MODEL_FACT_TYPES)
    assert re.match(rf'\{{\s*"facts":\s*\[\s*\{{\s*"type":\s*"({kinds})",\s*"key":\s*"', reply), reply
    for complete in re.findall(r"\{[^{}]*\}", reply[1:]):
        jsonschema.validate(json.loads(complete), extraction.REFLECTION_SCHEMA["properties"]["facts"]["items"])


async def test_a_ranking_is_one_of_the_texts_or_an_error_that_keeps_the_reply(model_url: str) -> None:
    """The schema bounds no number: a text that was not asked about is never ranked."""
    reranker = provider.make_generator(config(model_url, features=EVERYTHING))
    texts = ["tea", "milk", "salt"]
    (ranked,) = await asyncio.gather(reranker.rerank("tea?", texts), return_exceptions=True)
    await reranker.close()
    if isinstance(ranked, BaseException):
        assert isinstance(ranked, MalformedReplyError)
        assert re.match(r'\{\s*"best":\s*\[', str(ranked.raw_reply))
    else:
        assert len(ranked) == len(texts)
        assert all(0 <= score <= len(texts) for score in ranked)


@pytest.mark.timeout(1800)
async def test_a_conversation_over_http_becomes_memories_and_nonsense_loses_nothing(
    pool: asyncpg.Pool, dsn: str, workers: Workers, tmp_path: Path, model_url: str
) -> None:
    """Workers store a summary and a fact of the model; the client reads them.

    A reply that breaks the schema fails its job, which keeps the reply and runs again later.
    """
    model = {
        "generator": f"openai:{NAME}",
        "generator_base_url": model_url,
        "generate_timeout_seconds": str(CALL_SECONDS_MAX),
        "embedder": "local",
    }
    with WriterProcess(dsn, tmp_path / "writer.log", api_key=KEY) as writer:
        async with HippocampusClient(writer.url, KEY, app_name="app") as client:
            await client.create_session("user", "s1")
            said = [NewEvent(author="user", content={"text": text}) for text in real_worker.SAID]
            await client.append("user", "s1", said)
            jobs = await client.finalize_session("user", "s1")

            await workers.start("fast_replay", module="workers.worker", **model)

            async def is_over(job_id: str) -> bool:
                return (await client.job("user", job_id)).status in ("completed", "failed")

            await until(lambda: is_over(jobs["fast_replay"]), seconds=600)
            (summary,) = [each async for each in client.memories("user") if each.memory_type == "summary"]
            assert 1 <= len(summary.content) <= extraction.SUMMARY_CHARACTERS_MAX
            assert await pool.fetchval("SELECT model FROM memories WHERE memory_type = 'summary'") == NAME

            # Thirty-two tokens are too few for a reply, also for the repaired one.
            short = {**model, "generator_output_tokens_max": "32"}
            worker = await workers.start("deep_reflection", module="workers.worker", **short)
            await until(lambda: is_over(jobs["deep_reflection"]), seconds=600)
            job = UUID(jobs["deep_reflection"])
            failed = await pool.fetchrow(
                "SELECT status, error_code, raw_reply FROM consolidation_jobs WHERE id = $1", job
            )
            assert tuple(failed)[:2] == ("failed", "malformed")
            assert failed["raw_reply"]
            assert [each async for each in client.facts("user")] == []
            assert any("bookbinder" in each.content for each in await client.search("user", "bookbinder"))
            worker.popen.terminate()
            await worker.ended()

            await workers.start("deep_reflection", module="tests.support.one_fact_worker", **model)
            await pool.execute("SELECT retry_failed_job($1)", job)
            await until(
                lambda: pool.fetchval("SELECT status = 'completed' FROM consolidation_jobs WHERE id = $1", job),
                seconds=600,
            )
            (fact,) = [each async for each in client.facts("user")]
            assert fact.value in (True, False)
            assert 3 <= len(fact.key) <= 12
            assert await pool.fetchval("SELECT model FROM facts") == NAME
            assert [each.content async for each in client.list_events("user", "s1")] == [each.content for each in said]
