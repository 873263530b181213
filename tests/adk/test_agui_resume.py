"""AG-UI runs of one session with an ADK agent: one at a time, and resumed when they wait for an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models import LlmRequest
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types

from pulse.adk import PostgresSessionService
from pulse.adk.agent import AdkAgent
from pulse.errors import RunActiveError
from pulse.http.edge import problems
from pulse.session_service import OpenSessionService
from tests.support.adk import scripted
from tests.support.live_writer import LiveWriter, serving
from tests.support.stream_client import OWNER, Page, asked, run_agent
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning")

NAMES = {"app_name": "shop", "user_id": "mei"}
_deleted: list[str] = []


def delete(file: str) -> dict[str, str]:
    """Delete a file."""
    _deleted.append(file)
    return {"deleted": file}


def approve(amount: int) -> None:
    """Request an approval."""


def order(amount: int) -> dict[str, str]:
    """Place an order that takes time."""
    return {"status": "ordered"}


def script(request: LlmRequest) -> scripted.Reply:
    """Call the tools that the user names, as often as they are named; report their results; otherwise echo."""
    said = request.contents[-1].parts or []
    if answers := [part.function_response for part in said if part.function_response]:
        return types.Part(text=", ".join(json.dumps(each.response, sort_keys=True) for each in answers))
    calls = {"delete": {"file": "a.txt"}, "approve": {"amount": 3}, "order": {"amount": 4}}
    named = [word for word in scripted.last_text(request).split() if word in calls]
    if not named:
        return scripted.echo(request)
    return [types.Part(function_call=types.FunctionCall(name=each, args=calls[each])) for each in named]


def agent() -> LlmAgent:
    tools = [
        FunctionTool(delete, require_confirmation=True),
        LongRunningFunctionTool(approve),
        LongRunningFunctionTool(order),
    ]
    return scripted.agent(script, tools=tools)


class Gate:
    """Blocks an agent's model until the test opens it, and records that the model was called."""

    def __init__(self) -> None:
        self.asked, self.opened = asyncio.Event(), asyncio.Event()

    async def hold(self, *_: Any, **__: Any) -> None:
        self.asked.set()
        await self.opened.wait()


@pytest.fixture
async def sessions(dsn: str) -> AsyncIterator[PostgresSessionService]:
    async with PostgresSessionService(dsn) as service:
        yield service


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def writer(dsn: str, sessions: PostgresSessionService, gate: Gate) -> AsyncIterator[LiveWriter]:
    _deleted.clear()
    resumable = App(name="elsewhere", root_agent=agent(), resumability_config=ResumabilityConfig(is_resumable=True))
    agents = {
        "default": AdkAgent(agent(), sessions),
        "interrupting": AdkAgent(agent(), sessions, interrupts=True),
        "resumable": AdkAgent(resumable, sessions, interrupts=True),
        "gated": AdkAgent(scripted.agent(before_model_callback=gate.hold), sessions),
    }
    async with serving(dsn, agents) as opened:
        yield opened


def answer(call: str, payload: Any = None, status: str = "resolved") -> dict[str, Any]:
    return {"interruptId": call, "status": status, "payload": payload}


def last(page: Page) -> Any:
    return page.reducer.messages[-1].get("content")


async def test_a_second_run_of_a_session_is_refused_while_one_is_active(
    writer: LiveWriter, client: httpx.AsyncClient, sessions: PostgresSessionService, gate: Gate
) -> None:
    """It gets 409 and stores nothing, whether refused early or under the session's lock. The same run id follows the
    active run, another session is free, and the refused run succeeds later. An orphaned run blocks nothing."""
    first = asyncio.create_task(run_agent(client, asked("t", "r1", "one"), "gated"))
    async with asyncio.timeout(WAIT_SECONDS):
        await gate.asked.wait()
    rival = asked("t", "r2", "two")
    refused = await client.post("/agui/gated", json=rival)
    assert (refused.status_code, refused.json()["type"]) == (409, problems.RUN_ACTIVE.uri)
    assert "r1" in refused.json()["detail"]
    with pytest.raises(RunActiveError, match="run r1 of this session is still running"):
        await writer.live.runs.start("shop", "mei", "t", "r2", alone=True)
    again = asyncio.create_task(run_agent(client, asked("t", "r1", "one"), "gated"))
    gate.opened.set()
    elsewhere = await run_agent(client, asked("t2", "r3", "three"), "gated")
    assert last(elsewhere) == "[1] you said: three"
    assert last(await first) == last(await again) == "[1] you said: one"
    assert last(await run_agent(client, rival, "gated")) == "[3] you said: two"
    session = await sessions.get_session(**NAMES, session_id="t")
    assert session is not None
    texts = [part.text for event in session.events if event.content for part in event.content.parts or []]
    assert texts == ["one", "[1] you said: one", "two", "[3] you said: two"]

    await writer.live.runs.start("shop", "mei", "t", "dead")
    await writer.pool.execute("UPDATE runs SET lease_until = '2000-01-01' WHERE run_id = 'dead'")
    assert last(await run_agent(client, asked("t", "r4", "four"), "gated")) == "[5] you said: four"
    assert await writer.pool.fetchval("SELECT error_code FROM runs WHERE run_id = 'dead'") == "orphaned"


async def test_runs_that_start_together_do_not_interleave(
    client: httpx.AsyncClient, writer: LiveWriter, gate: Gate
) -> None:
    """At least one of five concurrent requests runs. The others are refused and leave no event."""
    gate.opened.set()
    await OpenSessionService(writer.pool).create_session("shop", "mei", session_id="t")

    async def post(number: int) -> int:
        async with client.stream("POST", "/agui/gated", json=asked("t", f"r{number}", f"say {number}")) as response:
            await response.aread()
            return response.status_code

    answered = await asyncio.gather(*(post(number) for number in range(1, 6)))
    ran = answered.count(200)
    assert ran >= 1
    assert set(answered) <= {200, 409}
    runs = await writer.pool.fetch(
        "SELECT invocation_id, max(sequence_num) - min(sequence_num) + 1 = count(*) AS is_together FROM events"
        " GROUP BY invocation_id"
    )
    assert len(runs) == ran
    assert all(row["is_together"] for row in runs)


@pytest.mark.parametrize("name", ["interrupting", "resumable"])
async def test_resume_answers_the_interrupts_of_a_run(client: httpx.AsyncClient, writer: LiveWriter, name: str) -> None:
    """A confirmation is granted, an approval is given while another tool still works, and a confirmation is refused:
    each answer reaches ADK. A run that answers no interrupt is refused."""
    asking = await run_agent(client, asked("t", "r1", "delete"), name)
    outcome = asking.reducer.ends[0]["outcome"]
    (interrupt,) = outcome["interrupts"]
    assert (outcome["type"], interrupt["reason"]) == ("interrupt", "confirmation")
    assert _deleted == []
    unanswered = await client.post(f"/agui/{name}", json=asked("t", "r2", "well?"))
    assert unanswered.json()["type"] == problems.INTERRUPT_OPEN.uri
    body = asked("t", "r3", messages=asking.reducer.messages, resume=[answer(interrupt["id"], {"approved": True})])
    granted = await run_agent(client, body, name)
    assert _deleted == ["a.txt"]
    assert last(granted) == '{"deleted": "a.txt"}'

    said = {"id": "u4", "role": "user", "content": "approve order"}
    waiting = await run_agent(client, asked("t", "r4", messages=[*granted.reducer.messages, said]), name)
    (interrupt,) = waiting.reducer.ends[0]["outcome"]["interrupts"]
    assert interrupt["reason"] == "tool_call"
    body = asked("t", "r5", messages=waiting.reducer.messages, resume=[answer(interrupt["id"], "fine")])
    assert '{"result": "fine"}' in last(await run_agent(client, body, name))

    refusing = await run_agent(client, asked("t", "r6", "delete"), name)
    (interrupt,) = refusing.reducer.ends[0]["outcome"]["interrupts"]
    body = asked("t", "r7", messages=[], resume=[answer(interrupt["id"], status="cancelled")])
    await run_agent(client, body, name)
    assert _deleted == ["a.txt"]


async def test_resume_answers_a_pending_call_and_fails_when_nothing_is_pending(
    client: httpx.AsyncClient, sessions: PostgresSessionService
) -> None:
    """Without interrupts the call is pending, and can be resumed or abandoned. An answer to an unknown or answered
    call, or an unclear answer to a confirmation, is an error with a code and stores nothing."""
    asking = await run_agent(client, asked("t", "r1", "approve"))
    (call,) = asking.reducer.ends[0]["outcome"]["pendingToolCallIds"]
    resumed = await run_agent(
        client, asked("t", "r2", messages=asking.reducer.messages, resume=[answer(call, {"by": "li"})])
    )
    assert last(resumed) == '{"by": "li"}'
    session = await sessions.get_session(**NAMES, session_id="t")
    assert session is not None
    (given,) = [each for event in session.events for each in event.get_function_responses()]
    assert (given.id, given.name, given.response) == (call, "approve", {"by": "li"})
    for resume in ([answer(call, "again")], [answer("never", 1)]):
        failed = await run_agent(client, asked("t", f"again-{resume[0]['interruptId']}", messages=[], resume=resume))
        assert failed.reducer.ends[0]["code"] == "unknown_interrupt"

    asking = await run_agent(client, asked("t", "r3", "delete"))
    (call,) = asking.reducer.ends[0]["outcome"]["pendingToolCallIds"]
    unclear = await run_agent(client, asked("t", "r4", messages=[], resume=[answer(call, "perhaps")]))
    assert unclear.reducer.ends[0]["code"] == "wrong_answer"
    twice = await run_agent(client, asked("t", "twice", messages=[], resume=[answer(call, True), answer(call, False)]))
    assert twice.reducer.ends[0]["code"] == "wrong_answer"
    before = await sessions.get_session(**NAMES, session_id="t")
    assert before is not None
    said = {"id": "u5", "role": "user", "content": "something else"}
    body = asked("t", "r5", messages=[*asking.reducer.messages, said], resume=[answer(call, status="cancelled")])
    other = await run_agent(client, body)
    assert last(other).endswith("you said: something else")
    assert _deleted == []
    after = await sessions.get_session(**NAMES, session_id="t")
    assert after is not None
    new = [event for event in after.events[len(before.events) :] if event.get_function_responses()]
    assert [each.response for event in new for each in event.get_function_responses()] == [{"confirmed": False}]


def after_approval(request: LlmRequest) -> types.Part:
    """Request an approval, then report it."""
    if any(part.function_response for part in request.contents[-1].parts or []):
        return types.Part(text="approved")
    return types.Part(function_call=types.FunctionCall(name="approve", args={"amount": 1}))


@pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning")
@pytest.mark.parametrize("is_resumable", [True, False])
async def test_a_resumable_app_continues_with_the_steps_after_the_interrupt(
    dsn: str, sessions: PostgresSessionService, is_resumable: bool
) -> None:
    """In a resumable app, the steps after the one that waited run too. Otherwise only that step continues."""
    steps = [
        scripted.agent(after_approval, name="asker", tools=[LongRunningFunctionTool(approve)]),
        scripted.agent(lambda _: types.Part(text="sent"), name="sender"),
    ]
    app = App(
        name="elsewhere",
        root_agent=SequentialAgent(name="steps", sub_agents=steps),
        resumability_config=ResumabilityConfig(is_resumable=is_resumable),
    )
    async with (
        serving(dsn, {"default": AdkAgent(app, sessions, interrupts=True)}) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
    ):
        waiting = await run_agent(client, asked("t", "r1", "go"))
        (interrupt,) = waiting.reducer.ends[0]["outcome"]["interrupts"]
        body = asked("t", "r2", messages=waiting.reducer.messages, resume=[answer(interrupt["id"], True)])
        resumed = await run_agent(client, body)
    said = [each["content"] for each in resumed.reducer.messages if each["role"] == "assistant" and each.get("content")]
    assert said == (["approved", "sent"] if is_resumable else ["approved"])
