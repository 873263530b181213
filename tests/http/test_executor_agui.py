"""An executor over a provider's model, served over AG-UI: its stream, a question to a person, and cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from hippocampus.mind.executor import AgentExecutor
from hippocampus.providers.tool_calls import ResultTurn
from pulse.runs.service import RunService
from pulse.tools.registry import ToolRegistry
from tests.support.live_writer import LiveWriter, serving
from tests.support.scripted_model import Reply, ScriptedModel
from tests.support.stream_client import asked, run_agent
from tests.support.waiting import WAIT_SECONDS


def script(results: list[ResultTurn], question: str) -> Reply:
    """Call the tool that the user names, then say what came back."""
    return f"It said {results[-1].text}." if results else [(question, {"n": 4})]


class Tools:
    """What was called."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.hanging = asyncio.Event()

    def pay(self, n: int) -> str:
        self.paid.append(n)
        return "paid"

    async def hang(self, n: int) -> None:
        self.hanging.set()
        await asyncio.sleep(600)


@pytest.fixture
async def tools(registry: ToolRegistry) -> Tools:
    made = Tools()
    await registry.register_tool("double", lambda n: 2 * n, openapi_schema={"type": "object"})
    await registry.register_tool("pay", made.pay, permissions={"requires_confirmation": True})
    await registry.register_tool("hang", made.hang)
    return made


@pytest.fixture
async def writer(dsn: str, registry: ToolRegistry) -> AsyncIterator[LiveWriter]:
    async with serving(dsn, {"default": AgentExecutor(ScriptedModel(script), registry)}) as opened:
        yield opened


async def test_a_step_is_streamed_as_it_is_made(client: httpx.AsyncClient, tools: Tools) -> None:
    """The thought, the call, its result and the answer are messages of the protocol, and the tokens come at the end."""
    page = await run_agent(client, asked("t", "r1", "double"))
    thought, called, result, answer = page.reducer.messages[1:]
    assert (thought["role"], thought["content"]) == ("reasoning", "I need 1 tools.")
    (call,) = called["toolCalls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("double", {"n": 4})
    assert (result["role"], result["toolCallId"], result["content"]) == ("tool", call["id"], "8")
    assert (answer["role"], answer["content"]) == ("assistant", "It said 8.")
    assert page.reducer.ends[0]["type"] == "RUN_FINISHED"


async def test_a_person_is_asked_and_answers_by_resume(
    client: httpx.AsyncClient, registry: ToolRegistry, tools: Tools
) -> None:
    """The run ends with an interrupt; the next one's `resume` decides, once, and the model goes on."""
    page = await run_agent(client, asked("t", "r1", "pay"))
    (interrupt,) = page.reducer.ends[0]["outcome"]["interrupts"]
    assert interrupt["reason"] == "confirmation"
    assert tools.paid == []
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    page = await run_agent(client, asked("t", "r2", messages=page.reducer.messages, resume=[answer]))
    assert page.reducer.messages[-1]["content"] == "It said paid."
    assert "outcome" not in page.reducer.ends[0] or page.reducer.ends[0]["outcome"]["type"] == "success"
    assert tools.paid == [4]
    assert [each.status for each in await registry.executions()] == ["succeeded"]


async def test_a_run_is_cancelled_with_its_calls(
    client: httpx.AsyncClient, pool: asyncpg.Pool, registry: ToolRegistry, tools: Tools
) -> None:
    """The stream ends, the call is recorded as cancelled, and the next run tells the model of it."""
    following = asyncio.create_task(run_agent(client, asked("t", "r1", "hang")))
    async with asyncio.timeout(WAIT_SECONDS):
        await tools.hanging.wait()
    assert (await client.post("/api/runs/r1/cancel")).status_code == 202
    page = await following
    assert page.is_over
    assert (await RunService(pool).get("shop", "mei", "r1")).status == "cancelled"
    assert [each.status for each in await registry.executions()] == ["cancelled"]
    page = await run_agent(client, asked("t", "r2", "double"))
    told = [message for message in page.reducer.messages if message["role"] == "tool"]
    assert "may have happened" in told[0]["content"]
