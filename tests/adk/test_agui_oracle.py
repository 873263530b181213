"""ag-ui-adk on our sessions compared with our own bridge, for the same agent."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from ag_ui.core import RunAgentInput

from pulse.adk import PostgresSessionService
from pulse.adk.agent import AdkAgent
from tests.support.adk.oracle_agent import scripted
from tests.support.agui_rules import Reducer
from tests.support.live_writer import serving
from tests.support.stream_client import OWNER, asked, run_agent
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL:UserWarning")

TURNS = ["Lisbon", "里斯本"]


def plain(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Messages without ids, which each side generates."""
    found: list[tuple[Any, ...]] = []
    for message in messages:
        if message["role"] == "tool":
            found.append(("tool", json.loads(message["content"])))
            continue
        if message.get("content"):
            found.append((message["role"], message["content"]))
        for call in message.get("toolCalls", ()):
            found.append(("call", call["function"]["name"], json.loads(call["function"]["arguments"])))
    return found


async def over_ag_ui_adk(service: PostgresSessionService) -> Reducer:
    from ag_ui_adk import ADKAgent

    bridge = ADKAgent(
        adk_agent=scripted(),
        app_name="oracle",
        user_id="ann",
        session_service=service,
        use_thread_id_as_session_id=True,
        delete_session_on_cleanup=False,
    )
    page = Reducer()
    for number, text in enumerate(TURNS):
        page.messages.append({"id": f"u-{number}", "role": "user", "content": text})
        given = {**asked("t", f"run-{number}"), "messages": page.messages, "state": {}, "tools": [], "context": []}
        async for event in bridge.run(RunAgentInput.model_validate({**given, "forwardedProps": {}})):
            emitted = json.loads(event.model_dump_json(by_alias=True, exclude_none=True))
            if emitted["type"] == "TOOL_CALL_START":
                # A call that names no message gets an id of its own.
                emitted.setdefault("parentMessageId", emitted["toolCallId"])
            page.event(emitted)
    await bridge.close()
    return page


async def over_our_bridge(url: str) -> Reducer:
    messages: list[dict[str, Any]] = []
    state: Any = {}
    async with httpx.AsyncClient(base_url=url, headers=OWNER, timeout=WAIT_SECONDS) as client:
        for number, text in enumerate(TURNS):
            messages.append({"id": f"u-{number}", "role": "user", "content": text})
            page = await run_agent(client, {**asked("t", f"run-{number}"), "messages": messages})
            messages, state = page.shown
    reducer = Reducer()
    reducer.messages, reducer.state = messages, state
    return reducer


async def test_both_bridges_show_the_same_conversation_and_state(dsn: str) -> None:
    """After two turns with a tool, state and text, the client's messages and state are equal."""
    async with PostgresSessionService(dsn) as service:
        theirs = await over_ag_ui_adk(service)
        async with serving(dsn, {"default": AdkAgent(scripted(), service)}) as writer:
            ours = await over_our_bridge(writer.url)
    assert plain(ours.messages) == plain(theirs.messages)
    assert plain(ours.messages)[:4] == [
        ("user", "Lisbon"),
        ("call", "look_up", {"place": "Lisbon"}),
        ("tool", {"found": "Lisbon", "stars": 3}),
        ("assistant", "Three stars, 你好 🦊: Lisbon"),
    ]
    mine = {key: value for key, value in theirs.state.items() if not key.startswith("_ag_ui")}
    assert ours.state == mine == {"place": {"name": "里斯本", "seen": 1}, "user:last": "里斯本"}
