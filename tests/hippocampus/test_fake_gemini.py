"""The fake Gemini as a separate process, and its random faults, on which the workers' tests rely."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hippocampus import errors
from hippocampus.providers.gemini import provider
from tests.support.fake_gemini import FakeGemini
from tests.support.provider_conformance import ENGLISH
from tests.support.waiting import WAIT_SECONDS


async def no_sleep(_seconds: float) -> None:
    return None


@contextlib.asynccontextmanager
async def generator_for(base_url: str) -> AsyncIterator[provider.GeminiGenerator]:
    connection = provider.GeminiConnection(api_key="k", base_url=base_url, timeout_seconds=WAIT_SECONDS)
    made = provider.GeminiGenerator(connection, sleep=no_sleep)
    try:
        yield made
    finally:
        await made.close()


async def admin(base_url: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()

    def call() -> Any:
        with urllib.request.urlopen(urllib.request.Request(base_url + path, data=data)) as reply:
            return json.load(reply)

    return await asyncio.to_thread(call)


async def test_it_runs_as_a_process() -> None:
    """It prints its address, answers the provider, is scripted over HTTP, and counts its calls."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.fake_gemini", "--seed", "7", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), WAIT_SECONDS)).decode()
        base_url = line.removeprefix("listening on ").strip()
        async with generator_for(base_url) as generator:
            assert (await generator.reflect([ENGLISH]))[0].facts
            await admin(base_url, "/__script", {"kind": "rate_limit", "operation": "generateContent"})
            with pytest.raises(errors.RateLimitedError):
                await generator.reflect([ENGLISH])
        stats = await admin(base_url, "/__stats")
        assert stats["calls"] == {"generateContent": 2}
        assert stats["faults"] == {"rate_limit": 1}
        assert len(await admin(base_url, "/__log")) == 2
        await admin(base_url, "/__reset", {})
        assert (await admin(base_url, "/__stats"))["calls"] == {}
    finally:
        process.terminate()
        await process.wait()


async def test_random_faults_never_cost_a_fact() -> None:
    """With a third of the calls failing, each job either succeeds or fails with a reason to retry it."""
    async with FakeGemini(seed=3) as server, generator_for(server.base_url) as generator:
        (expected,) = await generator.reflect([ENGLISH])
        server.fault_rate = 0.35
        done, failed = 0, 0
        for _ in range(60):
            try:
                (reflection,) = await generator.reflect([ENGLISH])
            except errors.ProviderError as error:
                failed += isinstance(error, errors.TransientProviderError | errors.MalformedReplyError)
            else:
                done += reflection.facts == expected.facts
        assert done + failed == 60
        assert done > 30
        assert failed > 0


async def test_the_same_seed_gives_the_same_faults() -> None:
    """A failing run can be repeated."""

    async def run() -> dict[str, Any]:
        async with FakeGemini(seed=11, fault_rate=0.5) as server, generator_for(server.base_url) as generator:
            for _ in range(15):
                with contextlib.suppress(errors.ProviderError):
                    await generator.summarize([ENGLISH])
            return server.stats()["faults"]

    first = await run()
    assert first == await run()
    assert first
