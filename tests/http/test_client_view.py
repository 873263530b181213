"""What an AG-UI client changed of its copy of a session: its state counts, a changed conversation is refused, and a run
that it left does not block the next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import httpx
import pytest

from pulse.counts import COUNTS
from pulse.events import Event, EventActions
from pulse.runs.agents import RunContext
from pulse.runs.client_view import same
from tests.support.live_writer import LiveWriter, serving
from tests.support.lock_gates import WAITING
from tests.support.stream_client import Page, asked, follow, frames_of, run_agent
from tests.support.waiting import until
from tests.support.writer_process import problem


async def tell(run: RunContext) -> None:
    """Say what the agent knows: the stored conversation, and the state."""
    history = [message["content"] for message in await run.history() if message["role"] in ("user", "assistant")]
    async with run.text(f"a-{run.run.run_id}") as text:
        await text.push(json.dumps({"history": history, "state": run.state}, sort_keys=True))
    if run.last_user_text == "count":
        await run.set_state({"count": run.state.get("count", 0) + 1})


class Alone:
    """Begins an answer and goes on until it is cancelled; runs alone."""

    runs_alone = True
    description = "waits"
    capabilities: ClassVar = {"transport": {"streaming": True}}

    async def __call__(self, run: RunContext) -> None:
        if run.last_user_text == "quick":
            return
        async with run.text() as text:
            await text.push("still here")
            await asyncio.Event().wait()


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[LiveWriter]:
    async with serving(dsn, {"default": tell, "alone": Alone()}) as opened:
        yield opened


class Browser:
    """A client that keeps its conversation and its state, as AG-UI's own does."""

    def __init__(self, client: httpx.AsyncClient, thread: str = "t") -> None:
        self.client = client
        self.thread = thread
        self.messages: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}
        self.customs: list[Any] = []

    def input(self, run: str, text: str | None, **fields: Any) -> dict[str, Any]:
        new = [] if text is None else [{"id": f"u-{run}", "role": "user", "content": text}]
        return asked(self.thread, run, messages=[*self.messages, *new], state=self.state, **fields)

    async def say(self, run: str, text: str | None = "hi", path: str = "default", **fields: Any) -> dict[str, Any]:
        """Run the agent, and return what it said."""
        page = await run_agent(self.client, self.input(run, text, **fields), path)
        self.messages, self.state = page.shown
        events = [json.loads(frame.split(b"data: ")[1]) for frame in page.frames]
        self.customs = [(each["name"], each["value"]) for each in events if each["type"] == "CUSTOM"]
        told: dict[str, Any] = json.loads(self.messages[-1]["content"])
        return told

    async def refused(self, run: str, text: str | None = "hi", path: str = "default") -> str:
        response = await self.client.post(f"/agui/{path}", json=self.input(run, text))
        return str(problem(response)["type"])


async def stored(writer: LiveWriter) -> dict[str, Any]:
    session = await writer.live.sessions.get_session("shop", "mei", "t")
    assert session is not None
    return session.state


async def test_a_clients_edit_of_the_state_counts(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """Also what the last run set after its last message. No snapshot undoes it, an older value is no edit, and keys of
    the user and the app are not the client's to set."""
    browser = Browser(client)
    browser.state = {"count": 1, "draft": "a"}
    assert (await browser.say("r1", "count"))["state"] == {"count": 1, "draft": "a"}
    assert browser.state == {"count": 2, "draft": "a"}
    browser.state = {**browser.state, "draft": "b", "new": [1.0, {"x": None}], "user:name": "Eve", "count": 10}
    told = await browser.say("r2")
    assert told["state"] == {"count": 10, "draft": "b", "new": [1.0, {"x": None}]}
    assert browser.state == await stored(writer) == told["state"]
    browser.state = {"new": {"$hippocampus": ["deleted"]}, "draft": None}
    assert (await browser.say("r3"))["state"] == {"count": 10, "draft": None}
    events = await writer.live.sessions.list_events("shop", "mei", "t")
    edits = [(each.author, each.invocation_id, each.actions.state_delta) for each in events if each.author == "user"]
    assert [delta for _, run, delta in edits if run == "r2"] == [{"count": 10, "draft": "b", "new": [1.0, {"x": None}]}]


async def test_a_conflict_comes_back_as_a_snapshot(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """A key that another writer changed since: its value stands, and the run names the key. A client that has nothing
    of the session sets only keys that are new; it can say which state it has."""
    browser = Browser(client)
    browser.state = {"a": 1, "b": 1, "c": 1}
    await browser.say("r1")
    other = Event(author="model", event_type="state_update", actions=EventActions(state_delta={"a": 5, "c": 5}))
    await writer.live.sessions.append("shop", "mei", "t", [other])
    browser.state = {"a": 2, "b": 2, "c": 1}
    assert (await browser.say("r2"))["state"] == {"a": 5, "b": 2, "c": 5}
    assert browser.state == {"a": 5, "b": 2, "c": 5}
    assert browser.customs == [("hippocampus:state_conflict", {"keys": ["a"]})]

    fresh = Browser(client)
    fresh.state = {"a": 0, "d": 0}
    assert (await fresh.say("r3"))["state"] == {"a": 5, "b": 2, "c": 5, "d": 0}
    assert fresh.customs == [("hippocampus:state_conflict", {"keys": ["a"]})]
    fresh.messages = []
    last = (await client.get("/api/runs/r3")).json()["last_sequence_num"]
    fresh.state["a"] = 6
    told = await fresh.say("r4", forwardedProps={"hippocampus:stateSequence": last})
    assert told["state"]["a"] == 6
    wrong = fresh.input("r5", "hi", forwardedProps={"hippocampus:stateSequence": 10**9})
    assert (await client.post("/agui/default", json=wrong)).status_code == 422


async def test_edits_of_many_clients_are_each_applied_once(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """Five clients with the same copy change a key each, at the same time: no edit is undone by another."""
    first = Browser(client)
    first.state = {"all": 0}
    await first.say("r0")
    bodies = [
        asked("t", f"r{n}", messages=[*first.messages, {"id": f"u{n}", "role": "user", "content": "x"}])
        | {"state": {"all": 0, f"k{n}": n}, "forwardedProps": {}}
        for n in range(1, 6)
    ]
    answers = await asyncio.gather(
        *(client.post("/agui/default", params={"history": "server"}, json=body) for body in bodies)
    )
    applied = {f"k{n}" for n, answer in enumerate(answers, 1) if answer.status_code == 200}
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert applied
    assert set(await stored(writer)) == {"all", *applied}


async def test_of_two_edits_of_a_key_the_second_sees_the_first(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """Under the check of the version: both are computed before either is stored. The one that comes second is computed
    again, and becomes a conflict, which its run names, instead of overwriting the first."""
    first = Browser(client)
    first.state = {"a": 0}
    await first.say("r0")

    async def edit(n: int) -> list[Any]:
        body = asked("t", f"r{n}", messages=[*first.messages, {"id": f"u{n}", "role": "user", "content": "x"}])
        answer = await client.post("/agui/default", params={"history": "server"}, json={**body, "state": {"a": n}})
        assert answer.status_code == 200, answer.text
        events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line[:5] == "data:"]
        return [each["value"] for each in events if each.get("name") == "hippocampus:state_conflict"]

    async def both_wait() -> bool:
        waiting: int = await writer.pool.fetchval(WAITING)
        return waiting >= 2

    retries = COUNTS.conflict_retries
    async with writer.pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM threads WHERE session_id = 't' FOR UPDATE")
        edits = [asyncio.create_task(edit(n)) for n in (1, 2)]
        await until(both_wait)
    told = await asyncio.gather(*edits)
    assert sorted(told) == [[], [{"keys": ["a"]}]]
    assert await stored(writer) == {"a": 1 + told.index([])}
    assert COUNTS.conflict_retries == retries + 1


def test_values_are_compared_as_a_client_has_them() -> None:
    """All numbers of a client are doubles; a truth value is not a number."""
    for one, other in ((1, 1.0), (2**53 + 1, float(2**53)), ([{"a": 0.0}], [{"a": -0.0}]), (10**400, 10**401)):
        assert same(one, other)
    for one, other in ((1, True), (0, False), ("1", 1), ({"a": 1}, {"a": 1, "b": None}), ([1], [1, 2]), (None, 0)):
        assert not same(one, other)
    assert same(float("nan"), float("nan"))


async def test_an_edited_message_is_recognised(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """A changed text, a changed answer, later turns that are left out, and an answered message that is sent again: 409,
    and nothing is stored. The list under a new thread is a branch; `?history=server` takes the session's."""
    browser = Browser(client)
    for run in ("r1", "r2"):
        await browser.say(run, f"question {run}")
    whole = browser.messages
    events = await writer.pool.fetchval("SELECT count(*) FROM events")

    def changed(position: int, text: str) -> list[dict[str, Any]]:
        return [{**each, "content": text} if n == position else each for n, each in enumerate(whole)]

    for messages, text in (
        (changed(0, "another question"), "next"),
        (changed(1, "another answer"), "next"),
        (whole[:2], "next"),
        (whole[:1], "next"),
        (whole[:3], None),
    ):
        browser.messages = messages
        assert await browser.refused("r3", text) == "/problems/history-changed"
    assert await writer.pool.fetchval("SELECT count(*) FROM events") == events

    branch = Browser(client, "branch")
    branch.messages = changed(2, "another question")[:3]
    told = await branch.say("b1", None)
    assert told["history"] == [*(each["content"] for each in whole[:2]), "another question"]

    browser.messages = changed(0, "another question")[:2]
    told = await browser.say("r4", "next", "default?history=server")
    assert told["history"] == [*(each["content"] for each in whole), "next"]
    assert [each["content"] for each in browser.messages[:-1]] == told["history"]
    # A client that has only the beginning of an answer, or blanks more, has not changed it.
    browser.messages = [
        *browser.messages[:-1],
        {**browser.messages[-1], "content": browser.messages[-1]["content"][:9]},
    ]
    assert len((await browser.say("r5", "next"))["history"]) == 7
    # An id that nothing can be stored under is no message of the session.
    browser.messages.append({"id": "a\0b", "role": "assistant", "content": "?"})
    assert len((await browser.say("r6", "next"))["history"]) == 9
    messages = (await client.get("/api/runs/r5/messages", params={"limit": 3})).json()["messages"]
    assert [each["role"] for each in messages] == ["assistant", "user", "assistant"]


async def leave(client: httpx.AsyncClient, run: str, path: str) -> None:
    """Post a run, and disconnect when the agent has begun."""
    async with client.stream("POST", f"/agui/{path}", json=asked("t", run)) as response:
        assert response.status_code == 200, await response.aread()
        page = Page()
        async for frame in frames_of(response):
            page.take(frame)
            if b"still here" in frame:
                return


async def test_the_next_message_works_after_the_last_run_was_left(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """A disconnected client's run goes on unless it asked for its end. The next one is refused, or cancels it, or waits
    for one that is being cancelled."""

    async def status(run: str) -> str:
        return str((await client.get(f"/api/runs/{run}")).json()["status"])

    async def is_over() -> bool:
        return await status("r1") != "running"

    await leave(client, "r1", "alone?on_disconnect=cancel")
    await until(is_over, "the run is cancelled")
    assert await status("r1") == "cancelled"

    await leave(client, "r2", "alone")
    quick = asked("t", "r3", "quick")
    refused = await client.post("/agui/alone", json=quick)
    assert problem(refused)["type"] == "/problems/run-active"
    assert (await client.post("/agui/alone", params={"active_run": "cancel"}, json=quick)).status_code == 200
    assert [await status("r2"), await status("r3")] == ["cancelled", "completed"]

    await leave(client, "r4", "alone")
    assert (await client.post("/api/runs/r4/cancel")).status_code == 202
    assert (await client.post("/agui/alone", json=asked("t", "r5", "quick"))).status_code == 200
    late = Page()
    await follow(client, "r5", late)
    partial = [each for each in late.reducer.messages if each.get("metadata") == {"hippocampus:partial": True}]
    assert [each["content"] for each in partial] == ["still here"] * 3
    agents = (await client.get("/api/agents")).json()["agents"]
    assert [(each["name"], each["description"], each["runs_alone"], each["capabilities"]) for each in agents] == [
        ("alone", "waits", True, {"transport": {"streaming": True}}),
        ("default", "", False, {}),
    ]
