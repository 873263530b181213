"""The conversation that a new client receives: bounded, with a pointer to the rest."""

from __future__ import annotations

import json
from typing import Any

import httpx

from pulse.events import Event
from pulse.runs.events import act, assistant_message, observe, user_message
from tests.support.live_writer import LiveWriter, serving
from tests.support.stream_agents import echo
from tests.support.stream_client import OWNER, Page, asked, follow, run_agent
from tests.support.waiting import WAIT_SECONDS

MESSAGES_MAX = 1000


async def snapshot(client: httpx.AsyncClient, thread: str) -> dict[str, Any]:
    """Run once, and return the conversation before that run as a late client receives it."""
    await run_agent(client, asked(thread, f"run-{thread}"), "echo")
    page = Page()
    await follow(client, f"run-{thread}", page)
    events = [json.loads(frame.split(b"data: ", 1)[1]) for frame in page.frames]
    (found,) = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    return dict(found)


async def append(writer: LiveWriter, thread: str, events: list[Event]) -> None:
    await writer.live.sessions.create_session("shop", "mei", session_id=thread)
    for begin in range(0, len(events), MESSAGES_MAX):
        await writer.live.sessions.append("shop", "mei", thread, events[begin : begin + MESSAGES_MAX])


async def test_a_long_conversation_is_cut_and_names_where_the_rest_begins(dsn: str) -> None:
    """The snapshot has the newest thousand messages or four megabytes. Its metadata name the sequence number before
    which a client reads on, page by page, back to the first. A result whose call is cut off is left out. A complete
    conversation has no metadata."""
    said = [user_message(f"{n}", f"m{n}") for n in range(1101)]
    said[100:102] = [
        act("look", {}, tool_call_id="cut", event_id="call"),
        observe("look", 1, tool_call_id="cut", event_id="answer"),
    ]
    async with (
        serving(dsn, {"echo": echo}) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
    ):
        await append(writer, "long", said)
        found = await snapshot(client, "long")
        ids = [message["id"] for message in found["messages"]]
        assert ids == [f"m{n}" for n in range(102, 1101)]
        assert found["metadata"] == {"hippocampus:history": {"isWhole": False, "beforeSequence": 102}}
        older: list[str] = []
        before = found["metadata"]["hippocampus:history"]["beforeSequence"]
        while before is not None:
            query = {"before_sequence": before, "limit": 40}
            answer = (await client.get("/conversations/long/messages", params=query)).json()
            assert answer["nextCursor"] is None
            older[:0] = [item["id"] for item in answer["timeline"]]
            before = answer["previousSequence"]
        assert older == [*(f"m{n}" for n in range(100)), "act-101"]

        await append(writer, "whole", said[:3])
        assert "metadata" not in await snapshot(client, "whole")
        large = [assistant_message("x" * 1_000_000, f"big{n}") for n in range(6)]
        await append(writer, "large", large)
        found = await snapshot(client, "large")
        assert [message["id"] for message in found["messages"]] == [f"big{n}" for n in range(2, 6)]
        assert found["metadata"]["hippocampus:history"]["beforeSequence"] == 3
        await append(writer, "huge", [assistant_message("x" * 5_000_000, "one")])
        found = await snapshot(client, "huge")
        assert [message["id"] for message in found["messages"]] == ["one"]
        assert "metadata" not in found
