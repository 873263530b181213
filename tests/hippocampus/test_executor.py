"""The executor: steps, limits, confirmation, cancellation, and going on after a kill at every step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hippocampus.errors import TransientProviderError
from hippocampus.mind.conversation import read_conversation
from hippocampus.mind.executor import AgentExecutor, Budget, ExecutionResult
from hippocampus.providers.anthropic.provider import AnthropicGenerator
from hippocampus.providers.gemini.provider import GeminiConnection, GeminiGenerator
from hippocampus.providers.http_client import HttpConnection
from hippocampus.providers.openai.provider import OpenAIGenerator
from hippocampus.providers.spoken import turns_as_messages
from hippocampus.providers.tool_calls import ModelTurn, ResultTurn, UserTurn
from hippocampus.records import Usage
from pulse.errors import InvalidInputError
from pulse.model_messages import written
from pulse.runs.service import RunService
from pulse.sandbox.records import SandboxRequest
from pulse.sandbox.service import Sandbox
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.tools.records import FrontendTool
from pulse.tools.registry import ToolRegistry
from pulse.tracing.manager import TracingManager
from tests.support import executor_process
from tests.support.executor_kills import killed
from tests.support.fake_tool_models import ToolAnthropic, ToolGemini, ToolOpenAI
from tests.support.scripted_model import Reply, ScriptedModel
from tests.support.waiting import WAIT_SECONDS

KEY = SessionKey("shop", "ann", "s")


@pytest.fixture
async def registry(pool: asyncpg.Pool) -> AsyncIterator[ToolRegistry]:
    sessions = OpenSessionService(pool)
    await sessions.create_session(KEY.app_name, KEY.user_id, session_id=KEY.session_id)
    async with ToolRegistry(pool, "shop") as opened:
        await opened.register_tool("add", lambda a, b: a + b, openapi_schema=NUMBERS, description="Add.")
        yield opened
    await sessions.close()


NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


async def events_of(pool: asyncpg.Pool) -> list[tuple[str, Any]]:
    rows = await pool.fetch("SELECT event_type, content FROM events ORDER BY sequence_num")
    return [(row["event_type"], json.loads(row["content"])) for row in rows]


async def execute(
    pool: asyncpg.Pool, registry: ToolRegistry, script: Any, message: str | None = "go", **options: Any
) -> ExecutionResult:
    resume = options.pop("resume", ())
    usage = options.pop("usage", None)
    executor = AgentExecutor(ScriptedModel(script, usage=usage), registry, **options)
    return await executor.run(pool, KEY, message, resume=resume)


def sum_then_answer(results: list[ResultTurn], question: str) -> Reply:
    if len(results) < 2:
        return [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": "x"})]
    return f"{question}: {results[0].text}"


async def test_a_run_is_thoughts_calls_and_observations_and_an_answer(
    pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """Calls are stored before they are made, results in their order; the run's row has the steps."""
    found = await execute(pool, registry, sum_then_answer)
    assert (found.status, found.answer, found.steps, found.tool_calls) == ("completed", "go: 3", 2, 2)
    assert (found.prompt_tokens, found.output_tokens) == (20, 10)
    events = await events_of(pool)
    assert [kind for kind, _ in events] == [
        "user_message", "thought", "act", "act", "observe", "observe", "assistant_message", "complete",
    ]  # fmt: skip
    assert [content["tool_call_id"] for kind, content in events if kind == "act"] == [
        content["tool_call_id"] for kind, content in events if kind == "observe"
    ]
    assert events[5][1]["observation"]["error"]["code"] == "invalid_arguments"
    run = await RunService(pool).get("shop", "ann", found.run_id)
    assert (len(run.thinking_steps), len(run.tool_calls)) == (1, 2)
    rows = await registry.executions(run_id=run.id)
    assert sorted(each.status for each in rows) == ["refused", "succeeded"]
    # The next question sees the former turns, with their calls and results.
    model = ScriptedModel(lambda _results, question: f"again {question}")
    again = await AgentExecutor(model, registry).run(pool, KEY, "more")
    assert again.answer == "again more"
    kinds = [type(turn) for turn in model.asked[0][0]]
    assert kinds == [UserTurn, ModelTurn, ResultTurn, ResultTurn, ModelTurn, UserTurn]


async def test_a_run_is_one_trace_from_its_steps_to_the_code_that_a_tool_runs(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry
) -> None:
    """Every call, also a refused one, has its span below its step, and its row names the span."""
    sandbox = Sandbox(pool, "shop")

    async def calculate(code: str) -> str:
        return (await sandbox.execute(SandboxRequest(code=code), user_id="ann")).stdout

    await registry.register_tool("calculate", calculate)
    with TracingManager("test", dsn) as tracing:
        found = await execute(
            pool,
            registry,
            lambda results, question: question if results else [("calculate", {"code": "print(6)"}), ("add", {})],
        )
        assert tracing.flush(WAIT_SECONDS)
    await sandbox.close()
    assert found.status == "completed"
    spans = await pool.fetch("SELECT * FROM traces ORDER BY start_time")
    (run,) = (span for span in spans if span["operation_name"] == "invoke_agent")
    assert {span["trace_id"] for span in spans if span["run_id"] == str(found.run_id)} == {run["trace_id"]}
    parents = {span["span_id"]: span["operation_name"] for span in spans}
    above = {span["operation_name"]: parents.get(span["parent_span_id"]) for span in spans}
    assert above["agent_step"] == "invoke_agent"
    assert above["execute_tool calculate"] == above["execute_tool add"] == "agent_step"
    assert above["run_code"] == "execute_tool calculate"
    failed = [span["operation_name"] for span in spans if span["status_code"] == "error"]
    assert failed == ["execute_tool add"]
    calls = await pool.fetch("SELECT tool_name, trace_id, span_id FROM tool_executions")
    assert {(call["trace_id"], parents[call["span_id"]]) for call in calls} == {
        (run["trace_id"], f"execute_tool {call['tool_name']}") for call in calls
    }


@pytest.mark.parametrize("content", [False, True])
async def test_each_call_of_the_model_is_a_span_of_its_step(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry, content: bool
) -> None:
    """With tokens, the model that answered, why it ended and, only if asked for, what was said, without secrets."""
    key = "sk-" + "a1B2c3D4" * 5
    async with ToolOpenAI() as fake:
        model = openai_model(fake)
        with TracingManager("test", dsn, content=content) as tracing:
            found = await AgentExecutor(model, registry, name="adder").run(pool, KEY, f"What is 1 + 2? {key}")
            assert tracing.flush(WAIT_SECONDS)
        await model.close()
    assert found.status == "completed"
    spans = await pool.fetch("SELECT * FROM traces ORDER BY start_time")
    (run,) = (span for span in spans if span["operation_name"] == "invoke_agent")
    assert run["attributes"]["gen_ai.agent.name"] == "adder"
    steps = [span["span_id"] for span in spans if span["operation_name"] == "agent_step"]
    calls = [span for span in spans if span["operation_name"] == "chat m"]
    assert [(call["parent_span_id"], call["trace_id"]) for call in calls] == [(step, run["trace_id"]) for step in steps]
    for call in calls:
        assert (call["span_kind"], call["run_id"]) == ("client", found.run_id)
        assert call["attributes"]["gen_ai.usage.output_tokens"] == 5
        assert call["attributes"]["gen_ai.response.model"] == "m"
        assert call["attributes"]["gen_ai.response.finish_reasons"] == ["stop"]
    said = [
        (json.loads(call["attributes"][name]) if content else call["attributes"].get(name))
        for call in calls
        for name in ("gen_ai.input.messages", "gen_ai.output.messages")
    ]
    if not content:
        assert said == [None] * 4
        return
    asked, called, shown, answered = said
    assert [each["role"] for each in asked] == ["system", "user"]
    assert asked[1]["parts"][0]["content"].startswith("What is 1 + 2?")
    assert key not in str([span["attributes"] for span in spans])
    assert called[0]["parts"][0]["name"] == "add"
    assert [each["role"] for each in shown] == ["system", "user", "assistant", "tool", "tool"]
    assert answered == [{"role": "assistant", "parts": [{"type": "text", "content": "it is 3"}]}]


def test_a_result_is_shown_with_its_keys_so_that_a_secret_in_it_is_hidden() -> None:
    turns = [ResultTurn(call_id="c1", name="log_in", text='{"token": "opal-9", "user": "ann"}'),
             ResultTurn(call_id="c2", name="log_in", text="{no JSON")]  # fmt: skip
    shown = json.loads(written(turns_as_messages(turns, "")))
    responses = [each["parts"][0]["response"] for each in shown]
    assert responses[0]["user"] == "ann"
    assert responses[1] == "{no JSON"
    assert "opal-9" not in str(shown)


async def test_an_answer_that_was_cut_is_no_completed_one(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    """The run fails with a code of its own; what there is of the answer is returned, and stored as partial."""

    class Cut(ScriptedModel):
        async def converse(self, *given: Any, **options: Any) -> Any:
            return replace(await super().converse(*given, **options), is_cut=True)

    found = await AgentExecutor(Cut(lambda _results, _question: "The first"), registry).run(pool, KEY, "go")
    assert (found.status, found.error_code, found.answer) == ("failed", "answer_cut", "The first")
    (stored,) = [content for kind, content in await events_of(pool) if kind == "assistant_message"]
    assert (stored["content"], stored["partial"]) == ("The first", True)


async def test_limits_end_a_run_with_their_codes(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    """Steps, time, tokens, money, and a model that fails; the last step is asked without tools."""
    asked: list[int] = []

    class Endless(ScriptedModel):
        async def converse(self, turns: Any, tools: Any, **options: Any) -> Any:
            asked.append(len(tools))
            return await super().converse(turns, tools, **options)

    model = Endless(lambda _results, _question: [("add", {"a": 1, "b": 1})])
    found = await AgentExecutor(model, registry, max_steps=3).run(pool, KEY, "go")
    assert (found.status, found.error_code, found.steps) == ("max_steps_reached", "max_steps_reached", 3)
    assert asked == [1, 1, 0]

    called = asyncio.Event()

    async def hang() -> None:
        called.set()
        await asyncio.sleep(600)

    await registry.register_tool("hang", hang)
    seconds = 0.25
    while not called.is_set():  # A busy machine may take longer than the limit until it calls the tool.
        late = await execute(pool, registry, lambda _r, _q: [("hang", {})], timeout_seconds=seconds)
        assert late.status == "timeout"
        seconds *= 2
    assert (await registry.executions(name="hang"))[0].status == "cancelled"

    def more(results: list[ResultTurn], _question: str) -> Reply:
        return [("add", {"a": len(results), "b": 1})]

    usage = Usage(prompt_tokens=1000, output_tokens=100)
    spent = await execute(pool, registry, more, budget=Budget(tokens=2000), usage=usage)
    assert (spent.status, spent.error_code, spent.steps) == ("failed", "budget_exceeded", 2)
    price = Budget(money=0.003, prompt_price=1.0, output_price=10.0)
    paid = await execute(pool, registry, more, budget=price, usage=usage)
    assert (paid.error_code, paid.steps, paid.cost) == ("budget_exceeded", 2, pytest.approx(0.004))
    down = await execute(pool, registry, lambda _r, _q: TransientProviderError("down", code="503"))
    assert (down.status, down.error_code) == ("failed", "model_failed")
    empty = await execute(pool, registry, lambda _r, _q: " ")
    assert empty.error_code == "model_failed"
    for wrong in ({"max_steps": 0}, {"timeout_seconds": 0}):
        with pytest.raises(InvalidInputError):
            AgentExecutor(model, registry, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        AgentExecutor(object(), registry)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        Budget(money=1)


async def test_calls_of_a_step_are_made_in_parallel(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    """Eight at once: each waits for all of them."""
    together = asyncio.Barrier(8)

    async def meet() -> str:
        await together.wait()
        return "met"

    await registry.register_tool("meet", meet)
    found = await execute(
        pool, registry, lambda results, _question: f"{len(results)} met" if results else [("meet", {})] * 8
    )
    assert found.answer == "8 met"


async def test_of_too_many_calls_the_model_is_told(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    """32 of a step are made, further ones are refused: each is a row, an event, and a result for the model."""

    def many(results: list[ResultTurn], _question: str) -> Reply:
        return f"{len(results)}" if results else [("add", {"a": n, "b": 0}) for n in range(35)]

    found = await execute(pool, registry, many)
    assert (found.status, found.answer, found.tool_calls) == ("completed", "35", 35)
    rows = await pool.fetch("SELECT status, error_code, count(*) AS n FROM tool_executions GROUP BY 1, 2 ORDER BY 1")
    assert [tuple(row) for row in rows] == [("refused", "rate_limited", 3), ("succeeded", None, 32)]
    observed = [content["observation"] for kind, content in await events_of(pool) if kind == "observe"]
    assert [each for each in observed if isinstance(each, dict)] == observed[32:]


async def test_what_nobody_confirmed_was_not_made(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    """The model is told so, and not that it may have happened; a lost call it is told of, if nobody is to be asked."""
    await registry.register_tool("pay", lambda amount: "paid", openapi_schema={"type": "object"}, permissions=ASKING)
    assert (await execute(pool, registry, pay_once)).status == "waiting"
    await pool.execute("UPDATE tool_executions SET expires_at = now() WHERE status = 'waiting'")
    await pool.fetchval("SELECT prune_tool_calls(interval '30 days')")
    found = await execute(pool, registry, lambda results, _q: results[0].text, None)
    assert "was not made" in found.answer
    assert "denied" in found.answer

    assert (await execute(pool, registry, pay_once)).status == "waiting"
    lost = "UPDATE tool_executions SET status = 'running', held_params = NULL WHERE status = 'waiting'"
    await pool.execute(lost)
    assert (await execute(pool, registry, pay_once, None)).interrupts[0]["reason"] == "outcome_unknown"
    told = await execute(pool, registry, lambda results, _q: results[0].text, None, on_unknown="tell")
    assert "may have happened" in told.answer


ASKING = {"requires_confirmation": True}


def pay_once(results: list[ResultTurn], _question: str) -> Reply:
    return f"said: {results[-1].text}" if results else [("pay", {"amount": 5}), ("add", {"a": 1, "b": 1})]


@pytest.mark.parametrize(
    ("answer", "said", "count"),
    [
        ({"status": "resolved", "payload": {"approved": True}}, "2", 1),
        ({"status": "resolved", "payload": {"approved": False}}, "denied", 0),
        ({"status": "cancelled"}, "denied", 0),
    ],
)
async def test_a_person_confirms_a_call_by_the_next_run(
    pool: asyncpg.Pool, registry: ToolRegistry, answer: dict[str, Any], said: str, count: int
) -> None:
    """The run ends with an interrupt; the other call's result is stored; the answer is used once."""
    paid: list[int] = []

    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    await registry.register_tool("pay", pay, permissions={"requires_confirmation": True})
    waiting = await execute(pool, registry, pay_once)
    assert (waiting.status, len(waiting.interrupts), paid) == ("waiting", 1, [])
    interrupt = waiting.interrupts[0]
    assert "pay" in interrupt["message"]
    assert interrupt["responseSchema"]["required"] == ["approved"]
    # The same run id again is not executed, and is reported as it ended.
    before = await AgentExecutor(ScriptedModel(pay_once), registry).run(pool, KEY, "go", run_id=waiting.run_id)
    assert (before.status, list(before.interrupts)) == ("waiting", list(waiting.interrupts))
    # Without an answer it waits on, whichever process goes on; an unclear or unknown one is refused.
    assert (await execute(pool, registry, pay_once, None)).status == "waiting"
    unclear = {"interruptId": interrupt["id"], "status": "resolved", "payload": "perhaps"}
    assert (await execute(pool, registry, pay_once, None, resume=[unclear])).error_code == "wrong_answer"
    unknown = {**unclear, "interruptId": "other"}
    assert (await execute(pool, registry, pay_once, None, resume=[unknown])).error_code == "unknown_interrupt"
    entry = {"interruptId": interrupt["id"], **answer}
    found = await execute(pool, registry, pay_once, None, resume=[entry])
    assert found.status == "completed"
    observed = [content["observation"] for kind, content in await events_of(pool) if kind == "observe"]
    assert len(observed) == 2
    assert said in json.dumps(observed)
    assert len(paid) == count
    again = await execute(pool, registry, pay_once, None, resume=[entry])
    assert again.error_code == "unknown_interrupt"
    assert len(paid) == count


async def test_a_tool_that_was_deleted_is_not_asked_about(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    """Its calls that wait, and those whose process was lost, get a result, and the run goes on."""
    rules = {"requires_confirmation": True}
    for status in ("waiting", "unknown"):
        await registry.register_tool("pay", lambda n: n, openapi_schema={"type": "object"}, permissions=rules)
        asked = await execute(pool, registry, lambda _results, _question: [("pay", {"n": 1})], message=status)
        assert asked.status == "waiting"
        if status == "unknown":
            await pool.execute(
                "UPDATE tool_executions SET status = 'unknown', held_params = NULL, ended_at = engine_now()"
                " WHERE status = 'waiting'"
            )
        await pool.execute("DELETE FROM tools WHERE name = 'pay'")
        model = ScriptedModel(lambda results, _question: results[-1].text)
        told = await AgentExecutor(model, registry).run(pool, KEY)
        assert told.status == "completed", told
        assert ("may have happened" if status == "unknown" else "any more") in told.answer


async def test_the_clients_own_tools_are_answered_by_the_next_run(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    form = FrontendTool(
        name="form",
        description="Ask.",
        parameters={"type": "object"},
        render_component="Form",
        requires_confirmation=True,
    )
    await registry.register_frontend_tool(form)

    def ask(results: list[ResultTurn], _question: str) -> Reply:
        return f"said {results[-1].text}" if results else [("form", {})]

    waiting = await execute(pool, registry, ask)
    assert waiting.interrupts[0]["metadata"] == {"renderComponent": "Form", "requiresConfirmation": True}
    entry = {"interruptId": waiting.interrupts[0]["id"], "status": "resolved", "payload": {"name": "Ann"}}
    found = await execute(pool, registry, ask, None, resume=[entry])
    assert found.answer == 'said {"name":"Ann"}'


async def test_a_cancelled_run_cancels_its_calls_at_once(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    began = asyncio.Event()

    async def hang() -> None:
        began.set()
        await asyncio.sleep(600)

    await registry.register_tool("hang", hang)
    model = ScriptedModel(lambda _results, _question: [("hang", {})])
    task = asyncio.create_task(AgentExecutor(model, registry).run(pool, KEY, "go", run_id="r1"))
    await began.wait()
    await RunService(pool).request_cancel("shop", "ann", "r1")
    assert (await task).status == "cancelled"
    assert (await registry.executions(name="hang"))[0].status == "cancelled"
    # Nobody has to answer for it: the model is told that it may have happened.
    told = await execute(pool, registry, lambda results, _q: results[0].text if results else "none", None)
    assert (told.status, "may have happened" in told.answer) == ("completed", True)


#: Where the process dies: around each statement that stores a step, and inside of each tool.
POINTS = [
    *(f"{when}:write_run:{number}" for number in range(1, 6) for when in ("before", "after")),
    *(f"{when}:{name}:{number}" for name in ("begin_tool_call", "end_tool_call") for number in (1, 2, 3)
      for when in ("before", "after")),
    "in:read:1", "in:read:2", "in:pay:1", "before:end_run:1", "after:start_run:1",
]  # fmt: skip


#: Those of every run of the suite; the others need as long as ten other tests.
FEW = ("in:pay:1", "after:end_tool_call:2", "before:write_run:4")


@pytest.mark.parametrize("points", [FEW, pytest.param(POINTS, marks=pytest.mark.system)], ids=["few", "all"])
async def test_a_kill_at_any_step_repeats_no_finished_call_and_leaves_none_open(
    pool: asyncpg.Pool, dsn: str, points: Sequence[str], tmp_path: Path
) -> None:
    """The process is killed at each point in turn, and this one goes on: `pay` is made at most once.

    `read` may be repeated if its end was not recorded: then with the same key. `pay` may not: if it was running, its
    result is asked for. Every call has one result, and the run ends with the answer.
    """
    await pool.execute(executor_process.EFFECTS)
    sessions = OpenSessionService(pool)
    asked = []
    for point in points:
        await sessions.create_session("shop", "ann", session_id="s")
        await killed(pool, executor_process.__name__, tmp_path, dsn, point, "go")
        ended_before = await executor_process.ended_calls(pool)
        found = await executor_process.execute(dsn, None)
        if found.status == "waiting":
            asked.append(point)
            (interrupt,) = found.interrupts
            assert interrupt["reason"] == "outcome_unknown"
            assert '{"n": 2}' in interrupt["message"]
            answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "paid 2, says the bank"}
            found = await executor_process.execute(dsn, None, [answer])
        assert found.status == "completed", (point, found)
        events = await events_of(pool)
        acts = [content["tool_call_id"] for kind, content in events if kind == "act"]
        observed = [content["tool_call_id"] for kind, content in events if kind == "observe"]
        assert sorted(acts) == sorted(observed), point
        await executor_process.check_effects(pool, ended_before, point)
        reads = await pool.fetchval("SELECT count(DISTINCT call) FROM effects WHERE tool = 'read'")
        assert reads == 2, point
        texts = [json.dumps(content["observation"]) for kind, content in events if kind == "observe"]
        assert sum("paid 2" in text for text in texts) == 1, (point, texts)
        await sessions.delete_session("shop", "ann", "s")
        await pool.execute("TRUNCATE effects")
    assert "in:pay:1" in asked
    await sessions.close()


async def test_waiting_and_its_answer_survive_a_kill(pool: asyncpg.Pool, dsn: str, tmp_path: Path) -> None:
    """A process dies once its run waits, another one once it has the answer: the call is not made unasked or twice."""
    await pool.execute(executor_process.EFFECTS)
    sessions = OpenSessionService(pool)
    await sessions.create_session("shop", "ann", session_id="s")
    await killed(pool, executor_process.__name__, tmp_path, dsn, "after:end_run:1", "go", "[]")
    (call,) = await pool.fetch("SELECT tool_call_id, held_params FROM tool_executions WHERE status = 'waiting'")
    assert call["held_params"] == {"n": 2}
    answer = {"interruptId": call["tool_call_id"], "status": "resolved", "payload": True}
    await killed(pool, executor_process.__name__, tmp_path, dsn, "after:decide_tool_call:1", "", json.dumps([answer]))
    # The confirmation that is sent again is not taken for the result.
    found = await executor_process.execute(dsn, None, [answer], confirmed=True)
    assert (found.status, found.interrupts[0]["reason"]) == ("waiting", "outcome_unknown")
    # That nobody knows is an answer, too: the model is told.
    unsure = {"interruptId": found.interrupts[0]["id"], "status": "cancelled"}
    found = await executor_process.execute(dsn, None, [unsure], confirmed=True)
    assert found.status == "completed"
    assert "may have happened" in found.answer
    assert await pool.fetchval("SELECT count(*) FROM effects WHERE tool = 'pay'") == 0
    await sessions.close()


def test_a_conversation_is_read_in_the_order_that_models_take() -> None:
    """Results follow their turn; calls of one turn are together; a result without its call is left out."""

    def call(name: str) -> dict[str, Any]:
        return {"id": name, "function": {"name": "t", "arguments": "{}"}}

    history = [
        {"role": "tool", "toolCallId": "gone", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "binary"}]},
        {"role": "reasoning", "content": "hm"},
        {"role": "assistant", "toolCalls": [call("a")]},
        {"role": "assistant", "toolCalls": [call("b")]},
        {"role": "assistant", "toolCalls": [call("open")]},
        {"role": "user", "content": "well?"},
        {"role": "tool", "toolCallId": "b", "content": "2", "error": "no"},
        {"role": "tool", "toolCallId": "a", "content": "1"},
        {"role": "assistant", "content": "so"},
    ]
    found = read_conversation(history)
    assert [each.id for each in found.open_calls] == ["open"]
    shown = [
        turn.text if isinstance(turn, UserTurn) else
        [each.id for each in turn.calls] or turn.text if isinstance(turn, ModelTurn) else (turn.call_id, turn.is_error)
        for turn in found.turns
    ]  # fmt: skip
    assert shown == ["hi", ["a", "b"], ("a", False), ("b", True), "well?", "so"]


def openai_model(fake: ToolOpenAI) -> Any:
    connection = HttpConnection(base_url=fake.url, headers={"authorization": "Bearer key"})
    return OpenAIGenerator(connection, model="m", features=frozenset())


def anthropic_model(fake: ToolAnthropic) -> Any:
    headers = {"x-api-key": "key", "anthropic-version": "2023-06-01"}
    return AnthropicGenerator(HttpConnection(base_url=fake.url, headers=headers), model="m", features=frozenset())


def gemini_model(fake: ToolGemini) -> Any:
    return GeminiGenerator(GeminiConnection(api_key="key", base_url=fake.base_url), model="m")


@pytest.mark.parametrize(
    ("api", "make"), [(ToolOpenAI, openai_model), (ToolAnthropic, anthropic_model), (ToolGemini, gemini_model)]
)
async def test_each_provider_calls_tools_by_its_own_api(
    pool: asyncpg.Pool, registry: ToolRegistry, api: Any, make: Any
) -> None:
    """Two parallel calls and an answer; the conversation that is sent back is one that the API accepts."""
    async with api() as fake:
        model = make(fake)
        try:
            found = await AgentExecutor(model, registry).run(pool, KEY, "What is 1 + 2?")
            assert (found.status, found.answer, found.tool_calls) == ("completed", "it is 3", 2), found
            assert found.output_tokens == 10
            again = await AgentExecutor(model, registry, max_steps=1).run(pool, KEY, "And without tools?")
            assert again.answer == "it is 3"
        finally:
            await model.close()
    assert ("thought", "thinking") in [(kind, content.get("content")) for kind, content in await events_of(pool)]
