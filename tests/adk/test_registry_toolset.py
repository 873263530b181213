"""Registered tools in an ADK agent behind AG-UI: permissions, the log under its run, changes, and confirmation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest
from google.adk.agents import SequentialAgent
from google.adk.events import Event
from google.adk.models import LlmRequest
from google.genai import types

from hippocampus.mind.executor import AgentExecutor, Budget, ExecutionResult
from pulse.adk import PostgresSessionService
from pulse.adk.agent import AdkAgent
from pulse.adk.run_sessions import RunSessions
from pulse.adk.toolset import RegistryToolset
from pulse.runs.agents import RunContext, RunInput
from pulse.runs.events import user_message
from pulse.runs.service import RunService
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.streams.deltas import PgDeltaCarrier
from pulse.tools.registry import ToolRegistry
from pulse.tracing.manager import TracingManager
from tests.support.adk import scripted
from tests.support.live_writer import LiveWriter, serving
from tests.support.stream_client import asked, run_agent
from tests.support.waiting import WAIT_SECONDS, until

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning")


def script(request: LlmRequest) -> scripted.Reply:
    """Say what came back; else call the tool that the user names, or list the tools."""
    said = request.contents[-1].parts or []
    if answers := [part.function_response for part in said if part.function_response]:
        return types.Part(text=", ".join(json.dumps(each.response, sort_keys=True) for each in answers))
    name = scripted.last_text(request)
    if name == "list":
        return types.Part(text=" ".join(sorted(request.tools_dict)))
    return [
        types.Part(text=f"I need {name}.", thought=True),
        types.Part(function_call=types.FunctionCall(name=name, args={"n": 4})),
    ]


@pytest.fixture
async def writer(dsn: str, registry: ToolRegistry) -> AsyncIterator[LiveWriter]:
    agent = scripted.agent(script, tools=[RegistryToolset(registry)])
    async with (
        PostgresSessionService(dsn) as sessions,
        serving(dsn, {"default": AdkAgent(agent, sessions, interrupts=True)}) as opened,
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


async def test_a_cancelled_run_over_adk_cancels_its_calls_at_once(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """The next run tells the model that the call may have happened; nobody has to answer for it."""
    engine = OpenSessionService(pool)
    await engine.create_session("shop", "mei", session_id="s")
    began = asyncio.Event()

    async def hang(n: int) -> None:
        began.set()
        await asyncio.sleep(600)

    await registry.register_tool("hang", hang)
    key = SessionKey("shop", "mei", "s")
    async with PostgresSessionService(dsn) as sessions:
        agent = AdkAgent(scripted.agent(script, tools=[RegistryToolset(registry)]), sessions, interrupts=True)
        executor = AgentExecutor(agent, registry)
        task = asyncio.create_task(executor.run(pool, key, "hang", run_id="r1"))
        async with asyncio.timeout(WAIT_SECONDS):
            await began.wait()
        await RunService(pool).request_cancel("shop", "mei", "r1")
        assert (await task).status == "cancelled"
        assert [each.status for each in await registry.executions(name="hang")] == ["cancelled"]
        told = await executor.run(pool, key)
    assert (told.status, "may have happened" in told.answer) == ("completed", True), told
    assert len(await registry.executions(name="hang")) == 1
    await engine.close()


async def test_an_answer_of_adk_that_was_cut_is_no_completed_one(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    engine = OpenSessionService(pool)
    await engine.create_session("shop", "mei", session_id="s")
    model = scripted.ScriptedLlm(answer=lambda _: types.Part(text="The first"), finish=types.FinishReason.MAX_TOKENS)
    async with PostgresSessionService(dsn) as sessions:
        executor = AgentExecutor(AdkAgent(scripted.agent(model=model), sessions), registry)
        key = SessionKey("shop", "mei", "s")
        for message in ("go", None):
            found = await executor.run(pool, key, message)
            assert (found.status, found.error_code, found.answer) == ("failed", "answer_cut", "The first")
        whole = AgentExecutor(AdkAgent(scripted.agent(lambda _: types.Part(text="All of it")), sessions), registry)
        found = await whole.run(pool, key)
    assert (found.status, found.answer) == ("completed", "All of it")
    await engine.close()


@pytest.mark.parametrize("sdk", [False, True])
async def test_adks_calls_of_models_and_tools_are_in_the_trace_of_the_run(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry, sdk: bool
) -> None:
    """Each in its step, by the conventions; a model that fails is a failed call. Content only where it is asked for."""
    engine = OpenSessionService(pool)
    await engine.create_session("shop", "mei", session_id="s")
    await registry.register_tool("double", lambda n: 2 * n, openapi_schema={"type": "object"})
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=1000, candidates_token_count=100, thoughts_token_count=5
    )
    fields: dict[str, Any] = {"usage": usage, "version": "scripted-7", "finish": types.FinishReason.STOP}
    key = SessionKey("shop", "mei", "s")

    def fail(_request: LlmRequest) -> scripted.Reply:
        raise RuntimeError("no model")

    async with PostgresSessionService(dsn) as sessions:
        for answer, content in ((script, True), (script, False), (fail, False)):
            model = scripted.ScriptedLlm(answer=answer, **fields)
            agent = AdkAgent(scripted.agent(tools=[RegistryToolset(registry)], model=model), sessions)
            with TracingManager("test", dsn, content=content, sdk=sdk) as tracing:
                found = await AgentExecutor(agent, registry, name="helper").run(pool, key, "double")
                assert tracing.flush(WAIT_SECONDS)
            assert found.status == ("failed" if answer is fail else "completed")
            spans = await pool.fetch("SELECT * FROM traces ORDER BY start_time, duration_ns DESC")
            await pool.execute("DELETE FROM traces")
            (run,) = (span for span in spans if span["operation_name"] == "invoke_agent")
            assert run["attributes"]["gen_ai.agent.name"] == "helper"
            assert {span["trace_id"] for span in spans if span["run_id"] == found.run_id} == {run["trace_id"]}
            names = {span["span_id"]: span["operation_name"] for span in spans}
            calls = [span for span in spans if span["operation_name"] == "generate_content scripted"]
            tree = [
                (span["operation_name"], names.get(span["parent_span_id"]))
                for span in spans
                if span["operation_name"].startswith(("agent_step", "generate_content", "execute_tool"))
            ]
            if answer is fail:
                assert sorted(tree) == [("agent_step", "invoke_agent"), ("generate_content scripted", "agent_step")]
                assert (calls[0]["status_code"], calls[0]["attributes"]["error.type"]) == ("error", "RuntimeError")
                continue
            assert sorted(tree) == [
                ("agent_step", "invoke_agent"),
                ("agent_step", "invoke_agent"),
                ("execute_tool double", "agent_step"),
                ("generate_content scripted", "agent_step"),
                ("generate_content scripted", "agent_step"),
            ]
            for call in calls:
                assert (call["span_kind"], call["user_id"]) == ("client", "mei")
                assert call["attributes"]["gen_ai.response.model"] == "scripted-7"
                assert call["attributes"]["gen_ai.response.finish_reasons"] == ["stop"]
                assert call["attributes"]["gen_ai.usage.input_tokens"] == 1000
                assert call["attributes"]["gen_ai.usage.output_tokens"] == 105
                assert ("gen_ai.input.messages" in call["attributes"]) is content
            if content:
                said = [json.loads(call["attributes"]["gen_ai.output.messages"]) for call in calls]
                assert said[0][0]["parts"][0]["name"] == "double"
                asked = json.loads(calls[1]["attributes"]["gen_ai.input.messages"])
                assert asked[-1]["role"] == "tool"
    await engine.close()


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
        events = await pool.fetch("SELECT event_type, content FROM events ORDER BY sequence_num")
        kinds = [row["event_type"] for row in events]
        assert [kind for kind in kinds if kind in ("thought", "act", "observe", "assistant_message")] == [
            "thought", "act", "observe", "assistant_message",
        ]  # fmt: skip
        assert "I need double." in events[kinds.index("thought")]["content"]
        run = await RunService(pool).get(*key[:2], found.run_id)
        assert len(run.thinking_steps) == 1
        (called,) = run.tool_calls
        assert (called["tool_name"], called["is_error"]) == ("double", False)
        assert called["result_sequence_num"] > called["sequence_num"]
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


async def test_a_call_is_not_taken_for_another_one_with_its_id(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """A model repeats its ids: a lost call has not the result of another session's call, nor of an earlier one."""
    engine = OpenSessionService(pool)
    sent: list[int] = []

    def send(n: int) -> str:
        sent.append(n)
        return "sent"

    def ask_once(request: LlmRequest) -> scripted.Reply:
        if request.contents[-1].parts and request.contents[-1].parts[0].function_response:
            return script(request)
        return types.Part(function_call=types.FunctionCall(id="functions.send:0", name="send", args={"n": 4}))

    await registry.register_tool("send", send)
    async with PostgresSessionService(dsn) as sessions:
        agent = AdkAgent(scripted.agent(ask_once, tools=[RegistryToolset(registry)]), sessions, interrupts=True)
        executor = AgentExecutor(agent, registry)
        for session in ("a", "b"):
            await engine.create_session("shop", "mei", session_id=session)
        assert "sent" in (await executor.run(pool, SessionKey("shop", "mei", "a"), "go")).answer
        for n, session in enumerate("bab"):
            key = SessionKey("shop", "mei", session)
            await lose_a_call(pool, sessions, key, f"lost-{n}", "functions.send:0", "send")
            told = await executor.run(pool, key)
            assert (told.status, "lost before it made this call" in told.answer) == ("completed", True), told
    assert sent == [4]
    await engine.close()


async def test_a_decision_is_on_the_call_of_its_own_session(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """Two sessions wait with one id; the earlier one is confirmed, then the later one, and both are made."""
    engine = OpenSessionService(pool)
    paid: list[int] = []

    def ask(request: LlmRequest) -> scripted.Reply:
        said = request.contents[-1].parts or []
        if said and said[0].function_response:
            return script(request)
        n = int(scripted.last_text(request))
        return types.Part(function_call=types.FunctionCall(id="functions.pay:0", name="pay", args={"n": n}))

    def pay(n: int) -> None:
        paid.append(n)

    await registry.register_tool("pay", pay, permissions={"requires_confirmation": True})
    async with PostgresSessionService(dsn) as sessions:
        agent = AdkAgent(scripted.agent(ask, tools=[RegistryToolset(registry)]), sessions, interrupts=True)
        executor = AgentExecutor(agent, registry)
        asked = {}
        for n, session in enumerate("ab"):
            await engine.create_session("shop", "mei", session_id=session)
            found = await executor.run(pool, SessionKey("shop", "mei", session), str(n))
            asked[session] = found.interrupts[0]["id"]
        for session in "ab":
            answer = {"interruptId": asked[session], "status": "resolved", "payload": {"confirmed": session == "a"}}
            await executor.run(pool, SessionKey("shop", "mei", session), resume=[answer])
    assert paid == [0]
    statuses = {each.input_params["n"]: each.status for each in await registry.executions()}
    assert statuses == {0: "succeeded", 1: "refused"}
    await engine.close()


async def test_an_approved_call_that_was_begun_may_have_happened(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """It may be repeated, but only with a confirmation, which nobody is asked for: the model is told."""
    engine = OpenSessionService(pool)
    await engine.create_session("shop", "mei", session_id="s")
    key = SessionKey("shop", "mei", "s")
    began: list[int] = []

    async def pay(n: int) -> None:
        began.append(n)
        await asyncio.sleep(600)

    await registry.register_tool("pay", pay, nature="again", permissions={"requires_confirmation": True})
    async with PostgresSessionService(dsn) as sessions:
        agent = AdkAgent(scripted.agent(script, tools=[RegistryToolset(registry)]), sessions, interrupts=True)
        asked_for = await AgentExecutor(agent, registry).run(pool, key, "pay")
        answer = {"interruptId": asked_for.interrupts[0]["id"], "status": "resolved", "payload": {"confirmed": True}}
        task = asyncio.create_task(AgentExecutor(agent, registry).run(pool, key, run_id="r2", resume=[answer]))
        await until(lambda: bool(began))
        await RunService(pool).request_cancel("shop", "mei", "r2")
        assert (await task).status == "cancelled"
        told = await AgentExecutor(agent, registry).run(pool, key)
    assert (told.status, "may have happened" in told.answer) == ("completed", True), told
    assert [each.status for each in await registry.executions()] == ["refused", "cancelled"]
    assert began == [4]
    await engine.close()


@pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning")
async def test_a_workflow_that_was_lost_between_two_agents_is_no_completed_one(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """After the answer of an agent that stands alone there is nothing left to do; of several, one may be to follow."""
    engine = OpenSessionService(pool)

    def workflow() -> SequentialAgent:
        def broken(_request: LlmRequest) -> scripted.Reply:
            raise RuntimeError("lost")

        steps = [scripted.agent(lambda _: types.Part(text="one"), name="first"), scripted.agent(broken, name="second")]
        return SequentialAgent(name="both", sub_agents=steps)

    async with PostgresSessionService(dsn) as sessions:
        key = SessionKey("shop", "mei", "s")
        await engine.create_session("shop", "mei", session_id="s")
        executor = AgentExecutor(AdkAgent(workflow(), sessions), registry)
        assert (await executor.run(pool, key, "go")).status == "failed"
        told = await executor.run(pool, key)
        assert (told.status, told.error_code) == ("failed", "nothing_to_answer"), told
        assert "send a message" in (told.error or "")
        alone = AgentExecutor(AdkAgent(scripted.agent(), sessions), registry)
        assert (await alone.run(pool, key)).status == "completed"
    await engine.close()


async def lose_a_call(
    pool: asyncpg.Pool, sessions: PostgresSessionService, key: SessionKey, run_id: str, call_id: str, name: str
) -> None:
    """Leave a run that ended after its model had asked for a call."""
    runs = RunService(pool)
    run = (await runs.start(*key, run_id, user_message("go"), alone=True)).run
    context = RunContext(runs, PgDeltaCarrier(pool), run, RunInput(messages=[]))
    own = RunSessions(sessions, context, {}, dict)
    session = await own.get_session(app_name=key.app_name, user_id=key.user_id, session_id=key.session_id)
    assert session is not None
    call = types.Part(function_call=types.FunctionCall(id=call_id, name=name, args={"n": 4}))
    asked_for = Event(author="helper", invocation_id=run_id, content=types.Content(role="model", parts=[call]))
    await own.append_event(session, asked_for)
    await runs.fail(context.run, "its process was lost", code="orphaned")
    await runs.close()
