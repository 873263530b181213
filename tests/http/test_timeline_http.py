"""The timeline of a conversation and the state of a session over HTTP, under both of their paths."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.writer_process import append, problem, say

TURN: list[dict[str, Any]] = [
    {"author": "user", "content": {"content": "Where is it?", "message_id": "m1"}},
    {"author": "model", "event_type": "thought", "content": {"content": "Look it up"}},
    {"author": "model", "event_type": "thought", "content": {"content": "  "}},
    {"author": "model", "event_type": "act", "content": {"tool_name": "parcels", "tool_input": {"id": 7}}},
    {"author": "system", "event_type": "state_update", "actions": {"state_delta": {"parcel": 7, "user:seen": None}}},
    {"author": "tool", "event_type": "observe", "content": {"tool_name": "parcels", "observation": ["tomorrow"]}},
    {"author": "model", "content": {"content": "Tomorrow.", "message_id": None}},
    {"author": "system", "event_type": "complete", "content": {}},
]


async def test_a_timeline_is_read_page_by_page_on_both_paths(
    client: httpx.AsyncClient, session: str, user: str, app: str
) -> None:
    """Messages, thoughts and tool calls in sequence, and nothing else. Blank thoughts are left out."""
    await append(client, session, *({"timestamp": 1700000000.5, **event} for event in TURN))
    path = f"{user}/conversations/s1/messages"
    whole = (await client.get(path)).json()
    stamp = 1700000000500
    assert whole == {
        "conversationId": "s1",
        "timeline": [
            {"id": "m1", "sequenceNumber": 1, "timestamp": stamp, "type": "user_message", "content": "Where is it?"},
            {"id": "thought-2", "sequenceNumber": 2, "timestamp": stamp, "type": "thought", "content": "Look it up"},
            {
                "id": "act-4",
                "sequenceNumber": 4,
                "timestamp": stamp,
                "type": "tool_call",
                "toolName": "parcels",
                "toolInput": {"id": 7},
            },
            {
                "id": "observe-6",
                "sequenceNumber": 6,
                "timestamp": stamp,
                "type": "tool_result",
                "toolName": "parcels",
                "toolOutput": ["tomorrow"],
                "isError": False,
            },
            {
                "id": "assistant_message-7",
                "sequenceNumber": 7,
                "timestamp": stamp,
                "type": "assistant_message",
                "content": "Tomorrow.",
            },
        ],
        "total": 5,
        "nextCursor": None,
        "previousSequence": None,
    }  # fmt: skip
    found: list[Any] = []
    query: dict[str, Any] | None = {"limit": 2}
    while query is not None:
        page = (await client.get(path, params=query)).json()
        assert page["total"] == len(page["timeline"])
        found += page["timeline"]
        query = {"limit": 2, "cursor": page["nextCursor"]} if page["nextCursor"] else None
    assert found == whole["timeline"]

    short = "/conversations/s1/messages"
    assert (await client.get(short, params={"app_name": app, "user_id": "ann"})).json() == whole
    assert (await client.get(short, headers={"X-App-Name": app, "X-User-Id": "%61nn"})).json() == whole


async def test_a_timeline_shows_any_stored_value(client: httpx.AsyncClient, session: str, user: str) -> None:
    """Odd characters, odd types, deep values: never a server error. Tool values use the escape."""
    odd = "\0\ud800"
    events: list[dict[str, Any]] = [
        {"event_type": "thought", "content": {"thought": odd}},
        {"event_type": "act", "content": {"tool_name": odd, "tool_input": {odd: [1e22, odd]}}},
        {"event_type": "act", "content": {"tool_name": {"a": 1}, "tool_input": None}},
        {"event_type": "observe", "content": {"tool_name": None, "observation": -0.0, "is_error": "yes"}},
        {"event_type": "observe", "content": [1, 2]},
        {"event_type": "assistant_message", "content": {"parts": [{"text": odd}], "message_id": [odd]}},
        {"event_type": "user_message", "content": 7},
    ]
    await append(client, session, *({"author": "model", **event} for event in events))
    shown = await client.get(f"{user}/conversations/s1/messages")
    assert shown.status_code == 200
    items = shown.json()["timeline"]
    assert [item["type"] for item in items] == [
        "thought", "tool_call", "tool_call", "tool_result", "tool_result", "assistant_message", "user_message",
    ]  # fmt: skip
    assert items[1]["toolInput"] == {
        r"$hippocampus:\u0000\ud800": [
            {"$hippocampus": ["float", "1e+22"]},
            {"$hippocampus": ["text", r"\u0000\ud800"]},
        ]
    }
    assert items[3]["isError"] is True


async def test_the_short_paths_require_one_owner_and_hide_other_users_threads(
    client: httpx.AsyncClient, session: str, app: str
) -> None:
    owner = {"app_name": app, "user_id": "ann"}
    for path in ("/conversations/s1/messages", "/api/threads/s1/state", "/api/threads/s1/state/history"):
        assert (await client.get(path, params=owner)).status_code == 200
        ownerless = await client.get(path)
        assert ownerless.status_code == 422
        assert "X-App-Name" in problem(ownerless)["detail"]
        two = await client.get(path, params=owner, headers={"X-User-Id": "bob"})
        assert two.status_code == 422
        assert "differ" in problem(two)["detail"]
        garbled = await client.get(path, params={"app_name": app}, headers={"X-User-Id": "%ff"})
        assert garbled.status_code == 422
        stranger = await client.get(path, params={**owner, "user_id": "bob"})
        assert stranger.status_code == 404
        assert problem(stranger)["type"] == "/problems/session-not-found"
        assert (await client.get(path, params=owner, headers={"Authorization": ""})).status_code == 401


async def test_state_is_shown_by_scope_with_the_events_that_set_it(
    client: httpx.AsyncClient, user: str, app: str
) -> None:
    """Keys by scope, a selection of keys, changes since a version, and all changes, newest first, by cursor."""
    first = {"session_id": "s1", "state": {"step": 0, "user:lang": "en", "app:model": "flash"}}
    assert (await client.post(f"{user}/sessions", json=first)).status_code == 201
    session = f"{user}/sessions/s1"
    for step in range(1, 4):
        delta = {"step": step, "text": "a\0b"} if step < 3 else {"user:lang": "zh"}
        await append(client, session, {**say(str(step), id=f"e{step}"), "actions": {"state_delta": delta}})
    state = (await client.get(f"{session}/state")).json()
    assert (state["version"], state["user_version"], state["app_version"]) == (3, 2, 1)
    assert state["session"] == {"step": 2, "text": {"$hippocampus": ["text", r"a\u0000b"]}}
    assert (state["user"], state["app"]) == ({"lang": "zh"}, {"model": "flash"})
    owner = {"app_name": app, "user_id": "ann"}
    assert (await client.get("/api/threads/s1/state", params=owner)).json() == state
    some = (await client.get(f"{session}/state", params={"key": ["step", "user:lang", "nothing"]})).json()
    assert (some["session"], some["user"], some["app"]) == ({"step": 2}, {"lang": "zh"}, {})

    seen = {"since_version": 2, "since_user_version": 1, "since_app_version": 1}
    changes = (await client.get(f"{session}/state/changes", params=seen)).json()
    assert changes == {
        "state": {"user:lang": "zh"}, "is_whole": False, "version": 3, "user_version": 2, "app_version": 1,
        "sequence_num": 3,
    }  # fmt: skip
    assert (await client.get(f"{session}/state/changes", params={"since_version": 9})).status_code == 422

    found, cursor = [], None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await client.get("/api/threads/s1/state/history", params={**owner, **query})).json()
        found += page["changes"]
        if (cursor := page["next_cursor"]) is None:
            break
    assert [(each["sequence_num"], each["event_id"], each["version"]) for each in found] == [
        (3, "e3", 3), (2, "e2", 2), (1, "e1", 1),
    ]  # fmt: skip
    assert [each["delta"].get("step") for each in found] == [None, 2, 1]
    assert found == (await client.get(f"{session}/state/history")).json()["changes"]


async def test_pieces_of_a_stream_are_refused_as_events(client: httpx.AsyncClient, session: str) -> None:
    for piece in ("text_start", "text_delta", "text_end", "thought_delta", "act_delta"):
        refused = await append(client, session, {"author": "model", "event_type": piece, "content": {"text": "a"}})
        assert refused.status_code == 422
        assert "whole message" in problem(refused)["detail"]
    assert (await client.get(session)).json()["version"] == 0
