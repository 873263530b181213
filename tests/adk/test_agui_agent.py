"""An ADK agent behind ``POST /agui``: one shared session, streamed, with the client's tools, and complete for ADK."""

from __future__ import annotations

import base64
import json
import runpy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import asyncpg
import httpx
import pytest
from ag_ui.core import AgentCapabilities
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools import ToolContext
from google.genai import types
from pydantic import Field

from pulse.adk import PostgresSessionService
from pulse.adk.agent import AdkAgent
from tests.support.live_writer import LiveWriter, serving
from tests.support.paths import EXAMPLES
from tests.support.stream_client import OWNER, Page, asked, follow, run_agent
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning")

Part = types.Part
USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=3, candidates_token_count=2, thoughts_token_count=1, total_token_count=6
)
EXAMPLE = EXAMPLES / "adk_agent"
NAMES = {"app_name": "shop", "user_id": "mei"}
CONFIRM = {
    "name": "confirm",
    "description": "Ask the person.",
    "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
}


class Model(BaseLlm):
    """Replies according to a script: a list of parts for each response, of which all but the last are partial."""

    model: str = "scripted"
    script: Callable[[LlmRequest], Sequence[Sequence[types.Part] | LlmResponse]]
    requests: list[LlmRequest] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append(llm_request)
        replies = self.script(llm_request)
        for number, reply in enumerate(replies, 1):
            if isinstance(reply, LlmResponse):
                yield reply
            else:
                content = types.Content(role="model", parts=list(reply))
                is_partial = number < len(replies)
                yield LlmResponse(content=content, partial=is_partial, usage_metadata=None if is_partial else USAGE)


def look_up(place: str, tool_context: ToolContext) -> dict[str, object]:
    """Look up a place."""
    tool_context.state["place"] = place
    tool_context.state["temp:step"] = 1
    return {"error": "unknown"} if place == "nowhere" else {"found": place}


def call(name: str, **arguments: Any) -> types.Part:
    return Part(function_call=types.FunctionCall(name=name, args=arguments))


def thought(text: str) -> types.Part:
    return Part(text=text, thought=True, thought_signature=b"\x00signed")


def script(request: LlmRequest) -> Sequence[Sequence[types.Part] | LlmResponse]:
    """Think and call two tools at once, then answer in pieces; call the client's tool; fail; or echo."""
    said = request.contents[-1].parts or []
    if answers := [part.function_response for part in said if part.function_response]:
        names = ", ".join(str(answer.response) for answer in answers)
        return [[Part(text="It ")], [Part(text="is ")], [Part(text=f"It is {names}")]]
    text = said[-1].text or ""
    if text == "ask":
        return [[call("confirm", question="Sure?")]]
    if text == "fail":
        return [LlmResponse(error_code="SAFETY", error_message="not with me")]
    if text == "lose":
        return [[call("look_up", place="nowhere")]]
    if text == "describe":
        blob = said[0].inline_data
        return [[Part(text=f"{blob.mime_type} {len(blob.data or b'')}" if blob else "nothing")]]
    if text == "look":
        whole = [
            thought("two places"),
            Part(text="A moment. "),
            call("look_up", place="Lisbon"),
            call("look_up", place="里斯本"),
        ]
        return [[thought("two ")], [thought("places")], [Part(text="A mom")], [Part(text="ent. ")], whole]
    return [[Part(text=f"[{len(request.contents)}] {text}")]]


MODEL = Model(script=script)
ROOT = LlmAgent(name="helper", model=MODEL, instruction="", tools=[look_up])


@pytest.fixture
async def sessions(dsn: str) -> AsyncIterator[PostgresSessionService]:
    async with PostgresSessionService(dsn) as service:
        yield service


@pytest.fixture
async def writer(dsn: str, sessions: PostgresSessionService) -> AsyncIterator[LiveWriter]:
    MODEL.requests.clear()
    async with serving(dsn, {"default": AdkAgent(ROOT, sessions)}) as opened:
        yield opened


def shown(page: Page) -> list[tuple[str, Any]]:
    """The texts, calls and results of a page, in order."""
    found: list[tuple[str, Any]] = []
    for message in page.reducer.messages:
        if message.get("content"):
            found.append((message["role"], message["content"]))
        for each in message.get("toolCalls", ()):
            found.append(("call", json.loads(each["function"]["arguments"])))
    return found


async def test_a_run_is_streamed_stored_once_and_read_back_complete(
    writer: LiveWriter, client: httpx.AsyncClient, sessions: PostgresSessionService
) -> None:
    """A thought, a text, two parallel calls and an answer in pieces: each is one row, and the run looks the same live
    and to a late client. ADK reads back its own events, with signatures, also in the next turn."""
    page = await run_agent(client, asked("t", "r1", "look"))
    expected = [
        ("user", "look"),
        ("reasoning", "two places"),
        ("assistant", "A moment. "),
        ("call", {"place": "Lisbon"}),
        ("call", {"place": "里斯本"}),
        ("tool", '{"found":"Lisbon"}'),
        ("tool", '{"found":"里斯本"}'),
        ("assistant", "It is {'found': 'Lisbon'}, {'found': '里斯本'}"),
    ]
    assert shown(page) == expected
    assert page.reducer.state == {"place": "里斯本"}
    assert next(
        json.loads(frame.split(b"data: ")[1])["delta"] for frame in page.frames if b"REASONING_MESSAGE_CONTENT" in frame
    )
    assert page.reducer.ends[0]["usage"] == [
        {"inputTokens": 6, "outputTokens": 6, "totalTokens": 12, "reasoningTokens": 2}
    ]
    late = Page()
    await follow(client, "r1", late)
    assert late.shown == page.shown
    kinds = [
        row["event_type"] for row in await writer.pool.fetch("SELECT event_type FROM events ORDER BY sequence_num")
    ]
    assert " ".join(kinds) == (
        "user_message adk_event thought assistant_message act act observe observe assistant_message complete"
    )
    (run,) = await writer.live.runs.list_runs("shop", "mei", "t")
    assert [(each["tool_name"], each["is_error"]) for each in run.tool_calls] == [("look_up", False)] * 2
    assert len(run.thinking_steps) == 1
    timeline = (await client.get("/conversations/t/messages")).json()["timeline"]
    assert " ".join(item["type"] for item in timeline) == (
        "user_message thought assistant_message tool_call tool_call tool_result tool_result assistant_message"
    )
    assert await writer.pool.fetchval("SELECT count(*) FROM live_messages") == 0

    session = await sessions.get_session(**NAMES, session_id="t")
    assert session is not None
    asking, calling, answering, saying, ended = session.events
    assert (asking.author, asking.content) == ("user", types.Content(role="user", parts=[Part(text="look")]))
    assert calling.author == "helper"
    assert calling.content is not None
    first, *_ = parts = calling.content.parts or []
    assert (len(parts), first.thought, first.thought_signature) == (4, True, b"\x00signed")
    assert [each.name for each in calling.get_function_calls()] == ["look_up"] * 2
    assert [each.response for each in answering.get_function_responses()] == [{"found": "Lisbon"}, {"found": "里斯本"}]
    assert answering.actions.state_delta == {"place": "里斯本"}
    assert len({each.invocation_id for each in (asking, calling, answering, saying)}) == 1
    assert asking.invocation_id != ended.invocation_id == "r1"
    for limit in (1, 2, 4):
        newest = await sessions.get_session(**NAMES, session_id="t", config=GetSessionConfig(num_recent_events=limit))
        assert newest is not None
        assert newest.events == session.events[-limit:]

    messages = [*page.reducer.messages, {"id": "u2", "role": "user", "content": "and now?"}]
    again = await run_agent(client, asked("t", "r2", messages=messages))
    assert shown(again)[-1] == ("assistant", "[5] and now?")
    received = [part for content in MODEL.requests[-1].contents for part in content.parts or []]
    assert [part.function_call.name for part in received if part.function_call] == ["look_up"] * 2
    assert [part.text for part in received if part.text and not part.thought] == [
        "look", "A moment. ", expected[-1][1], "and now?",
    ]  # fmt: skip


async def test_the_next_run_brings_the_result_of_a_client_tool(
    client: httpx.AsyncClient, sessions: PostgresSessionService
) -> None:
    """The model is offered the tool with its schema. Its call ends the run; ADK continues with the client's result."""
    calling = await run_agent(client, asked("t", "r1", "ask", tools=[CONFIRM]))
    declared = {
        each.name: each for tool in MODEL.requests[-1].config.tools or [] for each in tool.function_declarations
    }
    assert declared["confirm"].parameters_json_schema == CONFIRM["parameters"]
    (pending,) = calling.reducer.ends[0]["outcome"]["pendingToolCallIds"]
    answer = {"id": "a1", "role": "tool", "toolCallId": pending, "content": "sure"}
    body = asked("t", "r2", messages=[*calling.reducer.messages, answer], tools=[CONFIRM])
    answered = await run_agent(client, body)
    assert shown(answered)[-2:] == [("tool", "sure"), ("assistant", "It is {'result': 'sure'}")]
    session = await sessions.get_session(**NAMES, session_id="t")
    assert session is not None
    (given,) = [each for event in session.events for each in event.get_function_responses()]
    assert (given.id, given.name, given.response) == (pending, "confirm", {"result": "sure"})


async def test_the_agent_gets_what_stands_before_an_answer_that_the_client_made_up(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """A message of the user, once, and the result of a client's tool."""
    page = await run_agent(client, asked("t", "r1", "hello"))
    made_up = {"id": "local", "role": "assistant", "content": "Something went wrong"}
    lost = [*page.reducer.messages, {"id": "lost", "role": "user", "content": "lost"}, made_up]
    second = [*lost, {"id": "second", "role": "user", "content": "second"}]
    await run_agent(client, asked("t", "r2", messages=second))
    told = [part.text for content in MODEL.requests[-1].contents for part in content.parts or ()]
    assert [each for each in told if each in ("lost", "second", "Something went wrong")] == ["lost", "second"]

    calling = await run_agent(client, asked("other", "r3", "ask", tools=[CONFIRM]))
    (pending,) = calling.reducer.ends[0]["outcome"]["pendingToolCallIds"]
    answer = {"id": "a1", "role": "tool", "toolCallId": pending, "content": "sure"}
    messages = [*calling.reducer.messages, answer, made_up]
    answered = await run_agent(client, asked("other", "r4", messages=messages, tools=[CONFIRM]))
    assert answered.reducer.messages[-1]["content"] == "It is {'result': 'sure'}"


async def test_images_reach_the_model_and_a_model_error_reaches_the_client(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """A message of several parts is passed on. A model's error ends the run with its code; so does an empty input. A
    tool's error is marked."""
    image = {"type": "data", "value": base64.b64encode(b"\xff\xfe\x00png").decode(), "mimeType": "image/png"}
    content = [{"type": "image", "source": image}, {"type": "text", "text": "describe"}]
    page = await run_agent(client, asked("t", "r1", messages=[{"id": "u", "role": "user", "content": content}]))
    assert page.reducer.messages[-1]["content"] == "image/png 6"
    failed = await run_agent(client, asked("t", "r2", "fail"))
    assert (failed.reducer.ends[0]["message"], failed.reducer.ends[0]["code"]) == ("not with me", "SAFETY")
    lost = await run_agent(client, asked("t", "r4", "lose"))
    assert [each.get("metadata") for each in lost.reducer.messages if each["role"] == "tool"] == [
        {"hippocampus:isError": True}
    ]
    nothing = await run_agent(client, asked("t", "r3", messages=[]))
    assert nothing.reducer.ends[0]["code"] == "nothing_to_answer"
    assert writer.live.runner.running == 0


async def test_erased_events_are_also_gone_for_adk(
    writer: LiveWriter, client: httpx.AsyncClient, sessions: PostgresSessionService, pool: asyncpg.Pool
) -> None:
    """What is stored for ADK alone keeps no copy of an erased message, or of an erased part of an event."""
    await run_agent(client, asked("t", "r1", "look"))
    found = await pool.fetch(
        "SELECT sequence_num FROM events WHERE event_type IN ('user_message', 'thought') OR content::text ~ '里斯本'"
    )
    numbers = [row["sequence_num"] for row in found]
    await pool.execute("SELECT erase_events('shop', 'mei', 't', $1::bigint[], '{}')", numbers)
    left = "SELECT count(*) FROM events WHERE concat(content, actions) ~ 'look[^_]|places|里斯本'"
    assert await pool.fetchval(left) == 0
    session = await sessions.get_session(**NAMES, session_id="t")
    assert session is not None
    parts = [part for event in session.events if event.content for part in event.content.parts or []]
    assert [part.text for part in parts if part.text] == ["A moment. "]
    assert [part.function_call.args for part in parts if part.function_call] == [{"place": "Lisbon"}]


async def test_an_app_runs_with_its_plugins(dsn: str, sessions: PostgresSessionService) -> None:
    """An App runs under the run's app name. A plugin that changes the user's message changes it only for ADK."""

    class Shouting(BasePlugin):
        async def on_user_message_callback(self, *, invocation_context: Any, user_message: types.Content) -> Any:
            return types.Content(role="user", parts=[Part(text=(user_message.parts or [Part()])[0].text.upper())])

    app = App(name="elsewhere", root_agent=ROOT, plugins=[Shouting(name="shouting")])
    async with (
        serving(dsn, {"default": AdkAgent(app, sessions)}) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
    ):
        page = await run_agent(client, asked("t", "r1", "hello"))
    assert shown(page) == [("user", "hello"), ("assistant", "[1] HELLO")]
    session = await sessions.get_session(**NAMES, session_id="t")
    assert session is not None
    assert session.events[0].content is not None
    assert session.events[0].content.parts == [Part(text="HELLO")]


async def test_the_example_serves_its_agent(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The companion behind `POST /agui`, with its memory: a later run answers from what an earlier one received."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    agents = runpy.run_path(str(EXAMPLE / "serve.py"), run_name="serve")["agents"]()
    async with (
        serving(dsn, agents) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
    ):
        remembered = await run_agent(client, asked("t", "r1", "I love plum jam."))
        answered = await run_agent(client, asked("t2", "r2", "Which jam do I love?"))
        (listed,) = (await client.get("/api/agents")).json()["agents"]
    # By the protocol's names: a misspelt one would be an extra field.
    declared = AgentCapabilities.model_validate(listed["capabilities"])
    named = [getattr(declared, each) for each in declared.model_fields_set]
    assert len(named) == 4
    assert [each.model_extra for each in [declared, *named]] == [{}] * 5
    assert shown(remembered)[-1] == ("assistant", "I'll remember that.")
    assert shown(answered)[-1] == ("assistant", "You told me: I love plum jam.")
