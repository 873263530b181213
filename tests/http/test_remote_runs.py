"""Runs over HTTP: an agent in another process executes a run, and followers see it as any other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import plain_agent
from tests.support.live_writer import LiveWriter, serving
from tests.support.stream_client import Page, follow
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import problem

HOLDER = "worker-1"


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[LiveWriter]:
    async with serving(dsn, {}) as opened:
        yield opened


async def test_an_agent_in_another_process_drives_a_run_that_clients_follow(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """Live text arrives before it is stored, the end is the run's, and a late client sees the same."""
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(plain_agent.__file__)),
        *(writer.url, "t", "run-1"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert agent.stdin is not None
    assert agent.stdout is not None

    async def reaches(step: str) -> None:
        assert agent.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await agent.stdout.readline()).decode().strip() == step

    await reaches("started")
    page = Page()
    following = asyncio.create_task(follow(client, "run-1", page))
    await until(lambda: len(page.frames) >= 3, "the client follows")
    agent.stdin.write(b"\n")
    await reaches("streamed")
    await until(lambda: page.reducer.messages[-1].get("content") == "".join(plain_agent.WORDS), "the text is live")
    assert await writer.pool.fetchval("SELECT count(*) FROM events WHERE event_type = 'assistant_message'") == 0
    agent.stdin.write(b"\n")
    await reaches("completed")
    await following
    assert await agent.wait() == 0
    page.rules.end()
    roles = [message["role"] for message in page.reducer.messages]
    assert roles == ["user", "reasoning", "assistant", "tool", "assistant"]
    assert page.reducer.messages[-1] == {"id": "a1", "role": "assistant", "content": "".join(plain_agent.WORDS)}
    assert page.reducer.state == {"eta": "tomorrow"}
    late = Page()
    await follow(client, "run-1", late)
    assert late.shown == page.shown
    assert await writer.pool.fetchval("SELECT count(*) FROM live_messages") == 0
    (run,) = (await client.get("/api/threads/t/runs")).json()["runs"]
    assert (run["run_id"], run["status"], run["first_sequence_num"], run["last_sequence_num"]) == (
        "run-1", "completed", 1, 6,
    )  # fmt: skip
    assert (await client.get("/api/runs/run-1")).json() == run


async def start(client: httpx.AsyncClient, run: str = "run-1", **body: Any) -> httpx.Response:
    return await client.post("/api/runs", json={"thread_id": "t", "run_id": run, "holder": HOLDER, **body})


async def test_a_silent_agent_loses_its_run_and_a_cancelled_one_is_told(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """The reaper ends a run without a heartbeat; its text so far stays. A heartbeat reports a requested cancellation,
    which the agent answers."""
    assert (await start(client, lease_seconds=1)).status_code == 201
    piece = {"message_id": "m1", "offset": 0, "text": "I was about to"}
    await client.post("/api/runs/run-1/deltas", json={"holder": HOLDER, "deltas": [piece]})
    await writer.pool.execute("UPDATE runs SET lease_until = now() - interval '1 second'")
    assert await writer.live.runs.reap() == 1
    run = (await client.get("/api/runs/run-1")).json()
    assert (run["status"], run["error_code"]) == ("failed", "orphaned")
    (shown,) = (await client.get("/conversations/t/messages")).json()["timeline"]
    assert (shown["id"], shown["content"], shown["isPartial"]) == ("m1", "I was about to", True)
    late = await client.post("/api/runs/run-1/deltas", json={"holder": HOLDER, "deltas": [piece]})
    assert problem(late)["type"] == "/problems/run-ended"
    assert (await client.post("/api/runs/run-1/heartbeat", json={"holder": HOLDER})).json()["status"] == "failed"

    await start(client, "run-2")
    assert (await client.post("/api/runs/run-2/cancel")).status_code == 202
    lease = (await client.post("/api/runs/run-2/heartbeat", json={"holder": HOLDER, "lease_seconds": 60})).json()
    assert lease == {"status": "running", "cancel_requested": True}
    ended = await client.post("/api/runs/run-2/end", json={"holder": HOLDER, "status": "cancelled"})
    assert ended.json()["status"] == "cancelled"
    page = Page()
    await follow(client, "run-2", page)
    assert page.reducer.ends[0]["outcome"] == {"type": "cancelled"}


async def test_an_agent_that_streams_keeps_its_run(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """Without a heartbeat. A lease of which more than half is left is not written again with each piece."""
    await start(client)
    left = "SELECT extract(epoch FROM lease_until - now()) FROM runs"
    for offset, seconds, is_renewed in ((0, 20, False), (3, 5, True)):
        await writer.pool.execute("UPDATE runs SET lease_until = now() + make_interval(secs => $1)", float(seconds))
        piece = {"message_id": "m1", "offset": offset, "text": "one"}
        lease = await client.post("/api/runs/run-1/deltas", json={"holder": HOLDER, "deltas": [piece]})
        assert lease.json() == {"status": "running", "cancel_requested": False}
        assert (await writer.pool.fetchval(left) > 20) == is_renewed


async def test_events_that_are_not_stored_reach_those_who_follow_now(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """CUSTOM and ACTIVITY events, alone or with pieces of text; a later client does not get them."""
    await start(client)
    page = Page()
    following = asyncio.create_task(follow(client, "run-1", page))
    await until(lambda: writer.live.streams.followers == 1)
    await until(lambda: "RUN_STARTED" in str(page.frames))
    plan = {"message_id": "p1", "activity_type": "PLAN"}
    patch = [{"op": "add", "path": "/steps/-", "value": "say"}]
    transients = [
        {"event_type": "custom", "content": {"name": "shop:progress", "value": 0.5}},
        {"event_type": "activity", "content": {**plan, "content": {"steps": ["look"]}}},
        {
            "event_type": "activity_delta",
            "content": {**plan, "patch": patch},
        },
    ]
    piece = {"message_id": "m1", "offset": 0, "text": "Half"}
    url, held = "/api/runs/run-1/deltas", {"holder": HOLDER}
    sent = await client.post(url, json={**held, "deltas": [piece], "transients": transients[:1]})
    assert sent.json() == {"status": "running", "cancel_requested": False}
    assert (await client.post(url, json={**held, "transients": transients[1:]})).status_code == 200
    await until(lambda: '"ACTIVITY_DELTA"' in str(page.frames))
    shown = {each["id"]: each for each in page.reducer.messages}
    assert shown["p1"]["content"] == {"steps": ["look", "say"]}
    assert sum('"shop:progress"' in str(frame) for frame in page.frames) == 1
    for wrong in (
        {},
        {"transients": [{"event_type": "custom", "content": {"value": 1}}]},
        {"transients": [{"event_type": "message", "content": {"text": "x"}}]},
        {"transients": [{"event_type": "activity", "content": plan}]},
        {"transients": [{"event_type": "custom", "content": {"name": "shop:large", "value": "x" * 8000}}]},
    ):
        assert (await client.post(url, json={**held, **wrong})).status_code == 422
    assert (
        problem(await client.post(url, json={"holder": "another", "transients": transients}))["type"]
        == "/problems/run-fenced"
    )
    await client.post("/api/runs/run-1/end", json={**held, "status": "completed", "answer": "Done", "message_id": "m1"})
    await following
    late = Page()
    await follow(client, "run-1", late)
    assert "shop:progress" not in str(late.frames)
    assert [each["id"] for each in late.reducer.messages] == ["m1"]
    assert await writer.pool.fetchval("SELECT count(*) FROM events WHERE event_type IN ('custom', 'activity')") == 0


async def test_only_the_holder_writes_and_bad_calls_change_nothing(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """Another holder, another user, a run of the engine's own, a lost offset, an end among the events, bad bounds."""
    await start(client)
    again = await start(client, holder="worker-2")
    assert problem(again)["type"] == "/problems/run-fenced"
    body = {"holder": HOLDER, "events": [{"author": "model", "event_type": "thought", "content": "x"}]}
    path = "/api/runs/run-1/events"
    assert problem(await client.post(path, json={**body, "holder": "worker-2"}))["type"] == "/problems/run-fenced"
    eve = await client.post(path, json=body, headers={"X-User-Id": "eve"})
    assert problem(eve)["type"] == "/problems/run-not-found"
    end = {**body, "events": [{"author": "system", "event_type": "complete", "content": {}}]}
    assert (await client.post(path, json=end)).status_code == 422
    foreign = {**body, "events": [{"author": "model", "invocation_id": "run-2"}]}
    assert (await client.post(path, json=foreign)).status_code == 422
    lost = {"holder": HOLDER, "deltas": [{"message_id": "m1", "offset": 5, "text": "x"}]}
    assert problem(await client.post("/api/runs/run-1/deltas", json=lost))["type"] == "/problems/stream-lost"
    await writer.live.runs.start("shop", "mei", "t", "own")
    own = await client.post("/api/runs/own/end", json={"holder": writer.live.runs.holder, "status": "completed"})
    assert problem(own)["type"] == "/problems/run-fenced"
    assert (await start(client, "run-3", alone=True)).status_code == 409
    assert (await start(client, "run-3", lease_seconds=0.5)).status_code == 422
    assert await writer.pool.fetchval("SELECT count(*) FROM events") == 2
    assert (await client.get("/api/threads/nowhere/runs")).status_code == 404
    assert (await client.get("/api/runs/run-9")).status_code == 404
