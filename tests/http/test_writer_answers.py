"""Questions over HTTP: a writer without a model, and one with a model that answers, fails and is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from hippocampus.client import HippocampusClient, NewEvent, UnavailableError
from tests.support.fake_openai import FakeOpenAI
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, WriterProcess, append, problem, say


async def test_without_a_model_the_passages_answer(
    client: httpx.AsyncClient, user: str, session: str, app: str
) -> None:
    """They cite turns that the API traces; nobody else's memory answers."""
    await append(client, session, say("I play the cello."))
    answer = (await client.post(f"{user}/ask", json={"question": "Does she play the cello?"})).json()
    assert (answer["answered_by"], answer["is_known"], answer["model"]) == ("passages", True, None)
    assert "I play the cello." in answer["text"]
    (turn,) = answer["citations"]
    assert (turn["source"], turn["session_id"], turn["sequence_nums"]) == ("turn", "s1", [1])
    drawn = await client.get(f"{session}/events/{turn['sequence_nums'][0]}/drawn")
    assert drawn.json()["event"]["text"] == turn["text"]
    other = (await client.post(f"/v1/apps/{app}/users/bob/ask", json={"question": "Does he?"})).json()
    assert (other["text"], other["answered_by"], other["citations"]) == ("Not known.", None, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"question": ""},
        {"question": "  "},
        {"question": "x" * 4001},
        {"question": "x", "language": "fr"},
        {"question": "x", "max_tokens": 99},
        {"question": "x", "max_answer_tokens": 49},
        {"question": "x", "max_seconds": 601},
        {"question": "x", "user_id": "bob"},
    ],
)
async def test_a_wrong_question_is_a_problem(client: httpx.AsyncClient, user: str, wrong: dict[str, Any]) -> None:
    refused = await client.post(f"{user}/ask", json=wrong)
    assert refused.status_code == 422
    assert problem(refused)["type"] == "/problems/invalid-request"


async def test_a_model_answers_through_the_gate(dsn: str, tmp_path: Path) -> None:
    """Its calls are counted with their tokens; a failure is a problem, and opens the breaker; so is a slow model."""
    async with FakeOpenAI() as fake:
        settings = {
            "generator": "openai:gpt-5.4-mini", "generator_base_url": fake.url, "embedder": "local", "api_key": KEY,
            "generator_features": "json_schema", "provider_attempts_max": "1", "breaker_failures": "2",
            "breaker_open_seconds": "600",
        }  # fmt: skip
        with WriterProcess(dsn, tmp_path / "log", **settings) as writer:
            async with HippocampusClient(writer.url, KEY, app_name="shop") as client:
                await client.create_session("ann", "s1")
                await client.append("ann", "s1", [NewEvent(author="user", content={"text": "I play the cello."})])
                answer = await client.ask("ann", "Does she play the cello?")
                assert (answer.text, answer.answered_by) == ("I play the cello.", "model")
                assert answer.model == "gpt-5.4-mini-fake-001"
                assert [each.source for each in answer.citations] == ["turn"]
                fake.script("text", text='{"citations": [], "known": false, "answer": ""}')
                unknown = await client.ask("ann", "Which cello?", language="zh")
                assert (unknown.text, unknown.is_known, unknown.answered_by) == ("不知道。", False, "model")
                calls = len(fake.requests)
                assert (await client.ask("bob", "Does she play the cello?")).answered_by is None
                assert len(fake.requests) == calls
                fake.script("hang")
                seconds = 0.2
                while len(fake.requests) == calls:  # A busy machine may take longer until it asks the model.
                    with pytest.raises(UnavailableError):
                        await client.ask("ann", "Does she play the cello?", max_seconds=seconds)
                    seconds *= 2
                fake.script("status", code=500, times=2)
                for _ in range(3):
                    with pytest.raises(UnavailableError) as failed:
                        await client.ask("ann", "Does she play the cello?")
                assert failed.value.type == "/problems/model-unavailable"
                # The third was held back: the breaker is open.
                assert len(fake.requests) == calls + 3
            address = writer.metrics_address
            metrics = httpx.get(f"http://{address}/metrics", timeout=WAIT_SECONDS).text
    assert 'model_requests_total{code="200",operation="answer",provider="openai"} 2.0' in metrics
    assert 'model_tokens_total{kind="prompt",operation="answer",provider="openai"}' in metrics
