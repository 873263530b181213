"""Registered tools in an ADK agent behind AG-UI: permissions, the log under its run, changes, and confirmation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest
from google.adk.models import LlmRequest
from google.genai import types

from hippocampus.mind.executor import AgentExecutor, Budget, ExecutionResult
from pulse.adk import PostgresSessionService
from pulse.adk.agent import AdkAgent
from pulse.adk.toolset import RegistryToolset
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.tools.registry import ToolRegistry
from tests.support.adk import scripted
from tests.support.live_writer import serving
from tests.support.stream_client import OWNER, asked, run_agent
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning")


def script(request: LlmRequest) -> scripted.Reply:
    """Say what came back; else call the tool that the user names, or list the tools."""
    said = request.contents[-1].parts or []
    if answers := [part.function_response for part in said if part.function_response]:
        return types.Part(text=", ".join(json.dumps(each.response, sort_keys=True) for each in answers))
    name = scripted.last_text(request)
    if name == "list":
        return types.Part(text=" ".join(sorted(request.tools_dict)))
    return types.Part(function_call=types.FunctionCall(name=name, args={"n": 4}))


@pytest.fixture
async def registry(pool: asyncpg.Pool) -> AsyncIterator[ToolRegistry]:
    async with ToolRegistry(pool, "shop") as opened:
        yield opened


@pytest.fixture
async def client(dsn: str, registry: ToolRegistry) -> AsyncIterator[httpx.AsyncClient]:
    agent = scripted.agent(script, tools=[RegistryToolset(registry)])
    async with (
        PostgresSessionService(dsn) as sessions,
        serving(dsn, {"default": AdkAgent(agent, sessions, interrupts=True)}) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as opened,
    ):
        yield opened


async def test_an_adk_agent_calls_registered_tools_under_its_run(
    pool: asyncpg.Pool, registry: ToolRegistry, client: httpx.AsyncClient
) -> None:
    """A call is a row of the run; one that fails is a result; a change is seen by the next call of the model."""
    await registry.register_tool("double", lambda n: 2 * n, openapi_schema={"type": "object"})
    rules = {"allowed_users": ["ben"]}
    await registry.register_tool("bens", lambda n: n, openapi_schema={"type": "object"}, permissions=rules)
    page = await run_agent(client, asked("t", "r1", "double"))
    assert "8" in str(page.reducer.messages[-1]["content"])
    row = (await registry.executions())[0]
    assert (row.tool_name, row.user_id, row.status) == ("double", "mei", "succeeded")
    assert row.run_id == await pool.fetchval("SELECT id FROM runs WHERE run_id = 'r1'")
    page = await run_agent(client, asked("t", "r2", "list"))
    assert page.reducer.messages[-1]["content"] == "double"
    await registry.set_active("double", is_active=False)
    page = await run_agent(client, asked("t", "r3", "list"))
    assert page.reducer.messages[-1]["content"] != "double"


async def test_adk_asks_a_person_and_makes_the_call_once(registry: ToolRegistry, client: httpx.AsyncClient) -> None:
    """The run ends with an interrupt; the answer of the next run decides."""
    paid: list[int] = []

    def pay(n: int) -> None:
        paid.append(n)

    await registry.register_tool("pay", pay, permissions={"requires_confirmation": True})
    page = await run_agent(client, asked("t", "r1", "pay"))
    (interrupt,) = page.reducer.ends[0]["outcome"]["interrupts"]
    assert paid == []
    assert [each.status for each in await registry.executions()] == ["waiting"]
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"confirmed": True}}
    await run_agent(client, asked("t", "r2", messages=page.reducer.messages, resume=[answer]))
    assert [each.status for each in await registry.executions()] == ["succeeded"]
    assert paid == [4]


async def test_the_executor_runs_adks_runner_within_its_limits(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """Statuses, steps, budget and time are the executor's; each step is events and the run's columns."""
    key = SessionKey("shop", "mei", "s")
    engine = OpenSessionService(pool)
    await engine.create_session(*key[:2], session_id=key.session_id)
    began = asyncio.Event()
    paid: list[int] = []

    async def hang(n: int) -> None:
        began.set()
        await asyncio.sleep(600)

    def pay(n: int) -> str:
        paid.append(n)
        return "paid"

    await registry.register_tool("double", lambda n: 2 * n, openapi_schema={"type": "object"})
    await registry.register_tool("hang", hang)
    await registry.register_tool("pay", pay, permissions={"requires_confirmation": True})
    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1000, candidates_token_count=100)

    async with PostgresSessionService(dsn) as sessions:

        async def execute(
            message: str | None, answer: Any = script, resume: Any = (), **options: Any
        ) -> ExecutionResult:
            model = scripted.ScriptedLlm(answer=answer, usage=usage)
            agent = scripted.agent(tools=[RegistryToolset(registry)], model=model)
            executor = AgentExecutor(AdkAgent(agent, sessions, interrupts=True), registry, **options)
            return await executor.run(pool, key, message, resume=resume)

        def endless(_request: LlmRequest) -> scripted.Reply:
            return types.Part(function_call=types.FunctionCall(name="double", args={"n": 4}))

        found = await execute("double")
        assert (found.status, found.steps, found.tool_calls) == ("completed", 2, 1), found
        assert "8" in found.answer
        assert (found.prompt_tokens, found.output_tokens) == (2000, 200)
        events = await pool.fetch("SELECT event_type FROM events WHERE event_type IN ('act', 'observe') ORDER BY 1")
        assert len(events) == 2
        steps = await execute("go", endless, max_steps=3)
        assert (steps.status, steps.steps, steps.error_code) == ("max_steps_reached", 3, "max_steps_reached")
        spent = await execute("go", endless, budget=Budget(tokens=2000))
        assert (spent.status, spent.steps, spent.error_code) == ("failed", 2, "budget_exceeded")
        paid_for = await execute("go", endless, budget=Budget(money=0.003, prompt_price=1.0, output_price=10.0))
        assert (paid_for.error_code, paid_for.cost) == ("budget_exceeded", pytest.approx(0.004))
        seconds = 0.5
        # A busy machine may take longer than the limit until it calls the tool.
        while not began.is_set() and seconds < WAIT_SECONDS:
            assert (await execute("hang", timeout_seconds=seconds)).status == "timeout"
            seconds *= 2
        assert (await registry.executions(name="hang"))[0].status == "cancelled"
        invented = await execute("nothing")
        assert (invented.status, "nothing" in invented.answer) == ("completed", True), invented
        assert await registry.executions(name="nothing") == []
        waiting = await execute("pay")
        assert (waiting.status, paid) == ("waiting", [])
        answer = {"interruptId": waiting.interrupts[0]["id"], "status": "resolved", "payload": {"confirmed": True}}
        done = await execute(None, resume=[answer])
        assert (done.status, paid) == ("completed", [4]), done
    await engine.close()
