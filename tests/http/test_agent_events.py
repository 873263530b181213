"""What agents emit, as clients receive it: every kind of event live, to late clients, in the timeline and after an end
before its time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import httpx
import pytest

from pulse.errors import InvalidInputError
from pulse.runs.agents import AgentError, RunContext, echo
from tests.support.live_writer import LiveWriter, serving
from tests.support.stream_agents import ARGUMENTS, emit
from tests.support.stream_client import Page, asked, follow, frames_of, run_agent
from tests.support.waiting import until


class Caller(Page):
    """The page that posts the run of `everything`, which sends the rest of a call when its beginning has arrived."""

    begun: ClassVar[set[str]] = set()

    def take(self, frame: bytes) -> None:
        super().take(frame)
        if b"TOOL_CALL_ARGS" in frame:
            self.begun.add(json.loads(frame.split(b"data: ")[1])["toolCallId"])


async def everything(run: RunContext) -> None:
    """Emit every kind of event that an agent can, and try what it cannot."""
    with pytest.raises(InvalidInputError):
        await run.custom("unprefixed")
    with pytest.raises(InvalidInputError):
        await run.custom("shop:large", "x" * 8000, transient=True)
    with pytest.raises(InvalidInputError):
        run.add_usage(words=3)
    await emit(run, lambda: until(lambda: f"call-{run.run.run_id}" in Caller.begun))


async def begin(run: RunContext) -> None:
    """Stream a thought and the start of an answer, then wait, fail, or be stopped."""
    async with run.thought() as thought:
        await thought.push("Hm.")
    async with run.text() as text:
        await text.push("I was about")
        await text.push(" to")
        if run.last_user_text == "fail":
            raise AgentError("no luck today", "no_luck")
        await asyncio.Event().wait()


async def call(run: RunContext) -> None:
    """Stream half of a call's arguments and wait; asked again, answer with the history."""
    if run.last_user_text != "begin":
        async with run.text() as text:
            await text.push(json.dumps(await run.history()))
        return
    async with run.streamed_call("search", tool_call_id="half") as streamed:
        await streamed.push(ARGUMENTS[:9])
        await asyncio.Event().wait()


AGENTS = {"default": everything, "begin": begin, "call": call, "echo": echo}


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[LiveWriter]:
    async with serving(dsn, AGENTS) as opened:
        yield opened


def events_of(page: Page) -> list[dict[str, Any]]:
    return [json.loads(frame.split(b"data: ")[1]) for frame in page.frames]


async def test_an_agent_emits_every_kind_of_event(client: httpx.AsyncClient) -> None:
    """The client that posted the run and a late one have the same messages; what is transient is sent once, live."""
    posted, late = await run_agent(client, asked("t", "run-1"), page=Caller()), Page()
    await follow(client, "run-1", late)
    assert late.shown == posted.shown
    thought, searching, failed, looking, found, activity, answer = posted.reducer.messages[1:]
    assert (thought["content"], thought["encryptedValue"]) == ("I look it up.", "opaque")
    assert searching["toolCalls"][0]["function"] == {"name": "search", "arguments": ARGUMENTS}
    assert (failed["content"], failed["metadata"]) == ("no such index", {"hippocampus:isError": True})
    assert looking["toolCalls"][0]["encryptedValue"] == "sealed"
    assert "metadata" not in found
    assert (activity["activityType"], activity["content"]) == ("PLAN", {"steps": ["look", "say"]})
    seen = events_of(posted)
    assert len([each for each in seen if each["type"] == "TOOL_CALL_ARGS" and each["toolCallId"] == "call-run-1"]) > 1
    (started,) = [each for each in seen if each["type"] == "SUBAGENT_STARTED"]
    assert (started["name"], started["description"]) == ("writer", "writes the answer")
    assert (answer["content"], answer["subagentRunId"]) == ("Three are left.", started["subagentRunId"])
    customs = [{each["name"]: each["value"] for each in events if each["type"] == "CUSTOM"} for events in (
        seen, events_of(late),
    )]  # fmt: skip
    assert customs == [{"shop:stock": {"left": 3}, "shop:progress": 0.5}, {"shop:stock": {"left": 3}}]
    assert posted.reducer.ends[0]["usage"] == [
        {"provider": "local", "model": "tiny", "inputTokens": 14, "outputTokens": 10},
        {"model": "other", "inputTokens": 1},
    ]
    (item,) = [each for each in await timeline(client) if each["type"] == "tool_call" and each["toolName"] == "search"]
    assert item["toolInput"] == json.loads(ARGUMENTS)


async def timeline(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    response = await client.get("/conversations/t/messages")
    shown: list[dict[str, Any]] = response.json()["timeline"]
    return shown


@pytest.mark.parametrize("end", ["fail", "cancel", "stop"])
async def test_text_of_a_run_that_ends_early_stays_and_is_marked(
    client: httpx.AsyncClient, writer: LiveWriter, end: str
) -> None:
    """An agent that fails, a cancelled run and a process that stops: whoever followed the run, joins later or reads the
    timeline has the text so far."""
    posting = asyncio.create_task(run_agent(client, asked("t", "run-1", end), "begin"))
    streamed = "SELECT count(*) FROM live_messages WHERE body = 'I was about to'"
    if end != "fail":
        await until(lambda: writer.pool.fetchval(streamed), "the text is streamed")
    if end == "cancel":
        await client.post("/api/runs/run-1/cancel")
    elif end == "stop":
        await writer.live.runner.stop()
    posted, late = await posting, Page()
    await follow(client, "run-1", late)
    assert posted.reducer.messages[-1]["content"] == "I was about to"
    assert posted.reducer.messages[-1]["metadata"] == {"hippocampus:partial": True}
    assert late.shown == posted.shown
    shown = await timeline(client)
    assert [(each["type"], each["content"], each.get("isPartial")) for each in shown[-2:]] == [
        ("thought", "Hm.", None),
        ("assistant_message", "I was about to", True),
    ]
    assert await writer.pool.fetchval("SELECT count(*) FROM live_messages") == 0
    assert posted.reducer.ends[0]["type"] == ("RUN_FINISHED" if end == "cancel" else "RUN_ERROR")


async def test_a_call_that_was_cut_off_is_shown_and_given_to_no_model(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """Clients have the half that was streamed, marked; the agent's history has no call with half of a JSON value, also
    in a branch that a client makes of what it has."""
    posting = asyncio.create_task(run_agent(client, asked("t", "run-1", "begin"), "call"))
    await until(lambda: writer.pool.fetchval("SELECT count(*) FROM live_messages WHERE body <> ''"), "it streams")
    await client.post("/api/runs/run-1/cancel")
    had = (await posting).reducer.messages
    (cut,) = had[-1]["toolCalls"]
    assert (cut["function"]["arguments"], cut["metadata"]) == (ARGUMENTS[:9], {"hippocampus:partial": True})
    for thread in ("t", "branch"):
        # What the agent says is no part of the branch.
        asks = {
            **asked(thread, f"run-{thread}", "go on"),
            "messages": [*had, asked(thread, "next", "go on")["messages"][0]],
        }
        page = await run_agent(client, asks, "call")
        given = json.loads(page.reducer.messages[-1]["content"])
        assert [(each["role"], each["content"]) for each in given] == [("user", "begin"), ("user", "go on")]
    listed = (await client.get("/api/runs/run-t/messages")).json()["messages"]
    assert [each["role"] for each in listed] == ["user", "user", "assistant"]


async def test_images_and_files_of_a_message_are_kept_for_joiners_and_timelines(client: httpx.AsyncClient) -> None:
    """While the run goes on, for the runs after it, and in the timeline; one that is too large is named."""
    image = {"type": "image", "source": {"type": "data", "value": "aGVsbG8=", "mimeType": "image/png"}}
    file = {"type": "document", "source": {"type": "url", "value": "https://files.example/a.pdf"}}
    large = {"type": "image", "source": {"type": "data", "value": "A" * (2 << 20) + "AAAA", "mimeType": "image/png"}}
    parts = [{"type": "text", "text": "Look"}, image, file, large]
    question = {"id": "u1", "role": "user", "content": parts}
    body = {**asked("t", "run-1"), "messages": [question]}
    kept = [*parts[:3], {"type": "text", "text": "[image of 2097156 bytes left out]"}]
    async with client.stream("POST", "/agui/begin", json=body) as response:
        async for _ in frames_of(response):
            break
        joined = Page()
        following = asyncio.create_task(follow(client, "run-1", joined))
        await until(lambda: "I was about to" in json.dumps(joined.reducer.messages), "the joiner follows")
        assert joined.reducer.messages[0] == {**question, "content": kept}
    await client.post("/api/runs/run-1/cancel")
    await following
    later = await run_agent(client, {**asked("t", "run-2"), "messages": []}, page=Caller())
    assert later.reducer.messages[0]["role"] == "reasoning"
    late = Page()
    await follow(client, "run-2", late)
    assert late.reducer.messages[0] == {**question, "content": kept}
    item = (await timeline(client))[0]
    assert (item["content"], item["parts"]) == ("Look", kept[1:])


async def test_an_agent_reads_the_text_beside_an_image(client: httpx.AsyncClient) -> None:
    """Not that of an older message."""
    image = {"type": "image", "source": {"type": "data", "value": "aGVsbG8=", "mimeType": "image/png"}}
    before = {"id": "u1", "role": "user", "content": "before"}
    parts = [image, {"type": "text", "text": "What is it?"}]
    body = {**asked("t", "run-1"), "messages": [before, {"id": "u2", "role": "user", "content": parts}]}
    posted = await run_agent(client, body, "echo", page=Caller())
    assert posted.reducer.messages[2]["content"] == "What is it? "
