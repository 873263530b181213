"""`hippocampus ask` with a model that answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.support.cli_commands import Run
from tests.support.fake_openai import FakeOpenAI

QUESTION = "what is she allergic to?"


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as fake:
        monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "openai:gpt-5.4-mini")
        monkeypatch.setenv("HIPPOCAMPUS_GENERATOR_BASE_URL", fake.url)
        yield fake


async def test_a_models_answer_is_printed_with_its_citations(cli: Run, model: FakeOpenAI) -> None:
    """The answer alone on standard output; each citation below, with its session, its turn and its words."""
    code, out, err = await asyncio.to_thread(cli, "ask", QUESTION)
    assert code == 0, err
    assert "allergic to peanuts" in out
    assert "No model is set" not in err
    answer = json.loads((await asyncio.to_thread(cli, "ask", QUESTION, "--json"))[1])
    assert (answer["text"], answer["answered_by"]) == (out.rstrip("\n"), "model")
    assert answer["model"] == "gpt-5.4-mini-fake-001"
    (turn,) = [each for each in answer["citations"] if each["source"] == "turn" and "allergic" in each["text"]]
    assert f"[turn {turn['id']}] {turn['session_id']} {turn['sequence_nums'][0]}: My name is Ada." in err
    assert err.count("\n") == len(answer["citations"])


async def test_what_the_model_does_not_find_is_not_known(cli: Run, model: FakeOpenAI) -> None:
    """Whatever it cites or says; in the requested language. It is an answer: exit code 0."""
    for known, citations in ((False, [1]), (True, [])):
        reply = json.dumps({"citations": citations, "known": known, "answer": "To cats."})
        # Each command first finds what the server accepts; that reply is not read.
        model.script("text", text=reply, operation="chat/completions", times=4)
        for words, said in (((), "Not known.\n"), (("--language", "zh"), "不知道。\n")):
            code, out, err = await asyncio.to_thread(cli, "ask", QUESTION, *words)
            assert (code, out, err) == (0, said, "")


async def test_an_answer_that_takes_too_long_is_given_up(cli: Run, model: FakeOpenAI) -> None:
    """By the time of the option, which is for everything; the error names the limit and what to do."""
    model.script("hang", operation="chat/completions", times=10)
    code, out, err = await asyncio.to_thread(cli, "ask", QUESTION, "--seconds", "0.5")
    assert (code, out) == (1, "")
    assert err.startswith("hippocampus: there was no answer within 0.5 s: allow more time, or try again")
