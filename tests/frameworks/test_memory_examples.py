"""The examples for LangGraph and for Anthropic's memory tool do what their first lines say."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from hippocampus import Hippocampus
from tests.support.fake_anthropic import FakeAnthropic
from tests.support.paths import EXAMPLES

LINES_MAX = 40


def load(name: str) -> ModuleType:
    path = EXAMPLES / name
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_langgraph_agent_remembers_in_other_threads(
    dsn: str, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph's own checkpointer, on the same database, keeps the threads; the store, what is known of the user."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    talk = load("langgraph_agent.py").main
    mail = "ann@example.com"
    assert await talk(mail, "monday", "I love plum jam.") == "In this thread: 1 messages. Of you I know: nothing yet"
    assert await talk(mail, "friday", "Which jam do I love?") == (
        "In this thread: 1 messages. Of you I know: I love plum jam."
    )
    assert "In this thread: 3 messages" in await talk(mail, "monday", "And now?")
    assert "nothing yet" in await talk("ben", "sunday", "Which jam do I love?")
    assert await pool.fetchval("SELECT count(DISTINCT thread_id) FROM checkpoints") == 3
    async with Hippocampus(pool, app="langgraph") as memory:
        assert (await memory.erasure.erase_user("langgraph", mail)).is_complete
    assert [row["user_id"] for row in await pool.fetch("SELECT user_id FROM store_items")] == ["ben"]


def message(stop_reason: str, *content: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "usage": usage}
    return {**fields, "stop_reason": stop_reason, "content": list(content)}


async def test_claude_keeps_files_about_a_user(dsn: str, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's own runner calls the tool, and sends its results back, errors as errors."""
    from hippocampus.integrations.anthropic_memory import HippocampusMemoryTool

    async with FakeAnthropic() as api:
        for name, value in (("DATABASE_URL", dsn), ("ANTHROPIC_BASE_URL", api.url), ("ANTHROPIC_API_KEY", "key")):
            monkeypatch.setenv(name, value)
        file = {"command": "create", "path": "/memories/food.txt", "file_text": "allergic to peanuts\n"}
        for stop, content in (
            ("tool_use", [{"type": "tool_use", "id": "t1", "name": "memory", "input": file}]),
            ("tool_use", [{"type": "tool_use", "id": "t2", "name": "memory", "input": file}]),
            ("end_turn", [{"type": "text", "text": "I'll remember."}]),
        ):
            api.script("raw", body=message(stop, *content), headers={"content-type": "application/json"})
        assert await load("anthropic_memory_tool.py").main("ann", "I'm allergic to peanuts.") == "I'll remember."
        first, second, third = (request.body for request in api.requests)
    assert first["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    (created,) = second["messages"][-1]["content"]
    assert "File created successfully at: /memories/food.txt" in str(created)
    (refused,) = third["messages"][-1]["content"]
    assert refused["is_error"]
    assert "File /memories/food.txt already exists" in str(refused)
    async with Hippocampus(pool, app="claude") as memory:
        tool = HippocampusMemoryTool(memory, "ann")
        shown = str(await tool.call({"command": "view", "path": "/memories/food.txt"}))
    assert shown.endswith("\tallergic to peanuts\n     2\t")
