"""What an AG-UI client changed of its copy of a session: its state counts, a changed conversation is refused, and a run
that it left does not block the next."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar
from urllib.parse import quote

import asyncpg
import httpx
import pytest

from pulse.events import Event, EventActions
from pulse.process.counts import COUNTS
from pulse.runs import client_view
from pulse.runs.agents import RunContext
from pulse.runs.sent_messages import same
from tests.support.live_writer import LiveWriter, serving
from tests.support.lock_gates import WAITING
from tests.support.stream_client import Page, asked, follow, frames_of, run_agent
from tests.support.waiting import until
from tests.support.writer_process import problem


async def tell(run: RunContext) -> None:
    """Say what the agent knows: the stored conversation, and the state."""
    history = [message.get("content") for message in await run.history() if message["role"] in ("user", "assistant")]
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


async def change(run: RunContext) -> None:
    """Set the count, before a message, after it or without one, in a run that may wait for its cancellation."""
    if run.last_user_text == "told":
        await run.set_state({"count": 4.5})
        async with run.text(f"a-{run.run.run_id}") as text:
            await text.push("done")
    await run.set_state({"count": 5})
    if run.last_user_text in ("tell", "wait"):
        async with run.text(f"a-{run.run.run_id}") as text:
            await text.push("still here")
            if run.last_user_text == "wait":
                await asyncio.Event().wait()


#: Arguments that are no object, or no JSON, and a result that is a string of JSON: by what the user says.
ODD_ARGUMENTS = {"broken": '{"city": "Par",}', "list": "[1, 2]", "text": "Paris"}
ODD_RESULTS = {"quoted": "sunny", "quoted JSON": '{"sky": "clear"}'}


async def odd_tools(run: RunContext) -> None:
    """Call a tool as the user says."""
    said, name = str(run.last_user_text), f"c-{run.run.run_id}"
    if said in ODD_ARGUMENTS or said == "cut":
        async with run.streamed_call("weather", tool_call_id=name) as streamed:
            await streamed.push(ODD_ARGUMENTS.get(said, '{"city": "Par'))
            if said == "cut":
                raise ValueError("the model ended the call")
        await run.tool_result(name, said)
    elif said in ODD_RESULTS:
        await run.call_tool("weather", {}, tool_call_id=name)
        await run.tool_result(name, json.dumps(ODD_RESULTS[said]))
    elif said == "masked":
        secrets = {"n": 1.0, "big": 2**53 + 1, "AKIAABCDEFGHIJKLMNOP": [{"key": "is AKIAABCDEFGHIJKLMNOP"}]}
        await run.call_tool("weather", secrets, tool_call_id=name)
        await run.tool_result(name, secrets)
    async with run.text() as text:
        await text.push("{}")


async def use_tools(run: RunContext) -> None:
    """Call tools, whole and streamed, with results that are JSON and text."""
    call = await run.call_tool("weather", {"city": "Lisbon", "days": [1, 2.0]}, tool_call_id=f"c-{run.run.run_id}")
    await run.tool_result(call, {"sky": "clear", "degrees": 21.0, "odd": "a\0b"})
    async with run.streamed_call("search", tool_call_id=f"s-{run.run.run_id}") as streamed:
        await streamed.push('{"query": "parcel", ')
        await streamed.push('"key": "AKIAABCDEFGHIJKLMNOP"}')
    await run.tool_result(streamed.message_id, "nothing found for AKIAABCDEFGHIJKLMNOP")
    nothing = await run.call_tool("now", None, tool_call_id=f"n-{run.run.run_id}")
    await run.tool_result(nothing, None)
    async with run.text() as text:
        await text.push(json.dumps({"history": len(await run.history())}))


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[LiveWriter]:
    async with serving(
        dsn, {"default": tell, "change": change, "alone": Alone(), "tools": use_tools, "odd": odd_tools}
    ) as opened:
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


CONFLICT = [("hippocampus:state_conflict", {"keys": ["count"]})]


@pytest.mark.parametrize(
    ("text", "count", "conflict"),
    [("tell", 4, []), ("wait", 4, []), ("tell", 6, CONFLICT), ("say nothing", 4, CONFLICT)],
)
async def test_a_client_that_left_a_run_undoes_nothing_of_it(
    client: httpx.AsyncClient, writer: LiveWriter, text: str, count: int, conflict: list[Any]
) -> None:
    """It has its own message alone, and an older state. What it changed, too, is a conflict. Without any message of the
    run it cannot be told from a client that set the value of before: then the older value is a conflict, too."""
    browser = Browser(client)
    browser.state = {"count": 4}
    await browser.say("r1")
    body = browser.input("r2", text)
    async with client.stream("POST", "/agui/change", json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for _ in frames_of(response):
            break
    if text == "wait":

        async def has_begun() -> bool:
            return (await stored(writer))["count"] == 5 and bool(await writer.pool.fetchval("TABLE live_messages"))

        await until(has_begun, "the run has begun its answer")
        assert (await client.post("/api/runs/r2/cancel")).status_code == 202

    async def is_over() -> bool:
        return bool((await client.get("/api/runs/r2")).json()["status"] != "running")

    await until(is_over, "the run ends")
    browser.messages, browser.state = body["messages"], {"count": count}
    assert (await browser.say("r3"))["state"] == {"count": 5} == await stored(writer)
    assert browser.customs == conflict


@pytest.mark.parametrize("text", ["tell", "told", "say nothing"])
async def test_a_client_that_followed_a_run_has_what_it_did(
    client: httpx.AsyncClient, writer: LiveWriter, text: str
) -> None:
    """Also after the run's last message, and if it has none: an edit is no conflict."""
    browser = Browser(client)
    browser.state = {"count": 4}
    await browser.say("r1")
    browser.messages, browser.state = (await run_agent(client, browser.input("r2", text), "change")).shown
    assert browser.state == {"count": 5}
    browser.state = {"count": 6}
    assert (await browser.say("r3"))["state"] == {"count": 6} == await stored(writer)
    assert browser.customs == []


async def test_an_appended_message_is_no_proof_of_what_came_before_it(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """A client that appends its message after another writer's change has an older value, not a new one. Another value
    is its edit: it may have read the change."""
    browser = Browser(client)
    browser.state = {"count": 4}
    await browser.say("r1")
    other = Event(author="model", event_type="state_update", actions=EventActions(state_delta={"count": 5}))
    own = Event(author="user", id="own", content={"content": "hi"})
    await writer.live.sessions.append("shop", "mei", "t", [other, own])
    browser.messages = [*browser.messages, {"id": "own", "role": "user", "content": "hi"}]
    assert (await browser.say("r2"))["state"] == {"count": 5} == await stored(writer)
    assert browser.customs == CONFLICT
    further = Event(author="model", event_type="state_update", actions=EventActions(state_delta={"count": 7}))
    own = Event(author="user", id="next", content={"content": "hi"})
    await writer.live.sessions.append("shop", "mei", "t", [further, own])
    browser.messages = [*browser.messages, {"id": "next", "role": "user", "content": "hi"}]
    browser.state = {"count": 8}
    assert (await browser.say("r3"))["state"] == {"count": 8} == await stored(writer)
    assert browser.customs == []


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


async def test_a_message_before_a_made_up_answer_is_stored(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """A client shows 'Something went wrong' for a message that did not arrive. The message is new; the answer and the
    results of its calls are not the session's. A client of whose messages none is stored begins after its
    last answer."""
    browser = Browser(client)
    await browser.say("r1", "first")
    answer = browser.messages[-1]["content"]
    call = {"id": "c1", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
    made_up = [
        {"id": "u-lost", "role": "user", "content": "lost"},
        {"id": "a-local", "role": "assistant", "content": "Sorry, something went wrong", "toolCalls": [call]},
        {"id": "t-lost", "role": "tool", "toolCallId": "c1", "content": "yes"},
        {"id": "a-local-2", "role": "assistant", "content": "Sorry"},
    ]
    browser.messages = [*browser.messages, *made_up]
    whole = [*browser.messages, {"id": "u-r2", "role": "user", "content": "second"}]
    assert (await browser.say("r2", "second"))["history"] == ["first", answer, "lost", "second"]
    events = await writer.live.sessions.list_events("shop", "mei", "t")
    ids = [each.id for each in events if each.event_type in ("user_message", "observe", "assistant_message")]
    assert ids == ["u-r1", "a-r1", "u-lost", "u-r2", "a-r2"]
    # What is stored is not stored again.
    assert browser.messages[: len(whole)] == whole
    assert (await browser.say("r3", "third"))["history"][-1] == "third"
    assert len(await writer.live.sessions.list_events("shop", "mei", "t")) == len(events) + 3

    renamed = Browser(client)
    renamed.messages = [{**each, "id": f"other-{each['id']}"} for each in browser.messages]
    told = await renamed.say("r4", "fourth")
    assert [each for each in told["history"] if each[0] != "{"] == ["first", "lost", "second", "third", "fourth"]


def part(kind: str, source: str, value: str, mime: str | None = None, **fields: Any) -> dict[str, Any]:
    given = {"type": source, "value": value} | ({} if mime is None else {"mimeType": mime})
    return {"type": kind, "source": given, **fields}


LOOK = {"type": "text", "text": "Look"}
#: In both alphabets of base64 these bytes have characters that the other has not, and padding.
BYTES = b"\xfb\xef\xff" * 40 + b"\xff"
IN_BASE64 = base64.b64encode(BYTES).decode()
IMAGE = part("image", "data", IN_BASE64, "image/png")
PAGES = part("document", "url", "https://files.example/a.pdf")
HANDLE = part("video", "file", "file-abc", "video/mp4", provider="google")
#: Over the size that clients receive.
LARGE = part("image", "data", base64.b64encode(BYTES * 13_000).decode(), "image/png")


class Viewer(Browser):
    """A browser whose messages have images and files."""

    def show(self, run: str, *content: dict[str, Any]) -> None:
        """Add a message, which the next run takes."""
        self.messages = [*self.messages, {"id": f"u-{run}", "role": "user", "content": list(content)}]

    def change(self, content: Any, position: int = 0) -> None:
        self.messages = [
            {**each, "content": content} if n == position else each for n, each in enumerate(self.messages)
        ]


async def test_an_edited_image_is_recognised(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """Changed, added or removed, with the same text; so is a text that is removed beside its image: 409, and nothing is
    stored. A branch takes the edited list, and `?history=server` the session's."""
    viewer = Viewer(client)
    viewer.show("r1", LOOK, IMAGE, PAGES, HANDLE)
    await viewer.say("r1", None)
    await viewer.say("r2")
    whole = viewer.messages
    events = await writer.pool.fetchval("SELECT count(*) FROM events")
    other = part("image", "data", base64.b64encode(BYTES + b"!").decode(), "image/png")
    for content in (
        [LOOK, other, PAGES, HANDLE],
        [LOOK, IMAGE, part("document", "url", "https://files.example/b.pdf"), HANDLE],
        [LOOK, IMAGE, PAGES, part("video", "file", "file-abd", "video/mp4")],
        [LOOK, IMAGE, PAGES, HANDLE, other],
        [LOOK, IMAGE, IMAGE, PAGES, HANDLE],
        [LOOK, PAGES, HANDLE],
        [LOOK, IMAGE],
        [LOOK],
        "Look",
        [IMAGE, PAGES, HANDLE],
    ):
        viewer.messages = whole
        viewer.change(content)
        assert await viewer.refused("r3", "next") == "/problems/history-changed", content
    viewer.messages = whole
    viewer.change([{"type": "text", "text": "hi"}, IMAGE], 2)
    assert await viewer.refused("r3", "next") == "/problems/history-changed"
    body = viewer.input("r3", "next")
    assert "'u-r2' has other images or files" in problem(await client.post("/agui/default", json=body))["detail"]
    assert await writer.pool.fetchval("SELECT count(*) FROM events") == events

    branch = Viewer(client, "branch")
    branch.show("b1", LOOK, other)
    assert (await branch.say("b1", None))["history"] == [[LOOK, other]]
    told = await viewer.say("r3", "next", "default?history=server")
    assert told["history"][0] == [LOOK, IMAGE, PAGES, HANDLE] == viewer.messages[0]["content"]
    assert len((await viewer.say("r4", "next"))["history"]) == 7


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (IMAGE, part("image", "url", f"data:image/png;base64,{IN_BASE64}")),
        (part("image", "url", f"DATA:image/png;Base64,{IN_BASE64}"), IMAGE),
        (part("image", "data", f"data:image/png;base64,{IN_BASE64}", "image/png"), IMAGE),
        (IMAGE, part("image", "data", base64.urlsafe_b64encode(BYTES).decode(), "image/png")),
        (part("image", "data", base64.urlsafe_b64encode(BYTES).decode(), "image/png"), IMAGE),
        (IMAGE, part("image", "data", base64.encodebytes(BYTES).decode(), "image/png")),
        (part("image", "data", base64.encodebytes(BYTES).decode().replace("\n", "\r\n"), "image/png"), IMAGE),
        (IMAGE, part("image", "data", IN_BASE64.rstrip("="), "image/png")),
        (IMAGE, part("image", "data", IN_BASE64, "IMAGE/PNG")),
        (IMAGE, part("document", "data", IN_BASE64, "application/octet-stream", metadata={"name": "a"}, id="p1")),
        (PAGES, part("document", "url", "https://files.example/a.pdf", "application/pdf")),
        (PAGES, part("document", "url", "https://files.example/a.pdf?X-Amz-Signature=2")),
        (part("document", "url", "https://files.example/a.pdf?sig=1#page=2"), PAGES),
        (HANDLE, part("video", "file", "file-abc")),
        (IMAGE, part("image", "url", "https://files.example/a.png")),
        (PAGES, part("document", "data", "QUJD", "application/pdf")),
        (PAGES, part("document", "file", "file-abc")),
        (IMAGE, part("image", "url", "data:image/png,%FB%EF")),
        (part("image", "url", f"data:image/png;base64,{quote(IN_BASE64)}"), IMAGE),
    ],
    ids="data-url url-data data-url-as-data urlsafe from-urlsafe wrapped from-wrapped unpadded mime type address-mime"
    " signed from-signed handle uploaded downloaded handed-over percent percent-base64".split(),
)
async def test_an_image_in_another_form_is_no_edit(
    client: httpx.AsyncClient, writer: LiveWriter, stored: dict[str, Any], sent: dict[str, Any]
) -> None:
    """Nor is one that cannot be compared. An edit of the image beside it is recognised."""
    viewer = Viewer(client)
    viewer.show("r1", LOOK, stored, IMAGE)
    await viewer.say("r1", None)
    viewer.change([LOOK, sent, IMAGE])
    await viewer.say("r2")
    viewer.change([LOOK, sent, part("image", "data", base64.b64encode(b"other").decode(), "image/png")])
    assert await viewer.refused("r3") == "/problems/history-changed"


async def test_images_that_cannot_be_read_and_those_of_long_ago_are_not_compared(
    client: httpx.AsyncClient, writer: LiveWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read: an address in which a secret was masked, and characters that PostgreSQL's text lacks."""
    await writer.pool.execute("""SELECT set_app_policy('shop', '{"redaction": "mask"}')""")
    viewer = Viewer(client)
    secret = part("document", "url", "https://ann:hunter2hunter2@files.example/a.pdf")
    for run, content in (("r1", IMAGE), ("r2", secret), ("r3", part("image", "data", "\0", "image/png"))):
        viewer.show(run, LOOK, content)
        await viewer.say(run, None)
    assert "[redacted:" in await writer.pool.fetchval("SELECT content::text FROM events WHERE id = 'u-r2'")
    viewer.change([LOOK, IMAGE], 4)
    await viewer.say("r4")
    whole = viewer.messages
    viewer.change([LOOK, secret, IMAGE], 2)
    assert await viewer.refused("r5") == "/problems/history-changed"
    viewer.messages = whole
    viewer.change([LOOK, PAGES, IMAGE])
    assert await viewer.refused("r5") == "/problems/history-changed"
    size = "SELECT sum(octet_length(content::text)) FROM events WHERE author = 'user'"
    monkeypatch.setattr(client_view, "MEDIA_BYTES_MAX", await writer.pool.fetchval(size) - 1)
    await viewer.say("r5")


async def test_a_client_may_send_back_what_it_received(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """In whichever form: a large image is named, ADK's forms are shown as AG-UI's, and what has no form there is left
    out. It may also send back what it sent."""
    inline = {"inlineData": {"data": base64.urlsafe_b64encode(BYTES).decode(), "mimeType": "image/png"}}
    linked = {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}}
    contents: dict[str, dict[str, Any]] = {
        "large": {"parts": [LARGE, LOOK, IMAGE]},
        "adk": {"parts": [{"text": "Look"}, inline, linked, {"text": "?"}]},
        "binary": {"parts": [LOOK, {"type": "binary", "mimeType": "image/png", "data": IN_BASE64}, PAGES]},
        "binary alone": {"parts": [LOOK, {"type": "binary", "mimeType": "image/png", "url": "https://f.example/a"}]},
        "untyped": {"parts": [LOOK, {"inlineData": {"data": IN_BASE64}}]},
        "two texts": {"text": "A title", "parts": [LOOK, IMAGE]},
        "other forms": {"parts": [LOOK, {"type": "image_url", "image_url": {}}, {"type": [1]}, 1, "s", IMAGE]},
        "null": {"parts": [{"type": "text", "text": "a\0b"}, IMAGE]},
        "surrogate": {"parts": [LOOK, {**IMAGE, "metadata": "\ud800"}]},
        "no list": {"parts": {"image": 1}, "text": "x"},
        "wordless": {"parts": [IMAGE]},
        "text parts": {"parts": [LOOK, {"type": "text", "text": "there"}]},
    }
    events = [Event(author="user", id=name, content=content) for name, content in contents.items()]
    await writer.live.sessions.create_session("shop", "mei", session_id="t")
    await writer.live.sessions.append("shop", "mei", "t", events)
    viewer = Viewer(client)
    # A client that has nothing gets the conversation.
    viewer.messages = [{"id": "first", "role": "user", "content": "hi"}]
    await viewer.say("r1", None, "default?history=server")
    received = viewer.messages
    shown = {each["id"]: each["content"] for each in received}
    name = f"[image of {len(LARGE['source']['value'])} bytes left out]"
    assert shown["large"] == [{"type": "text", "text": name}, LOOK, IMAGE]
    assert [each["type"] for each in shown["adk"]] == ["text", "image", "document", "text"]
    assert shown["binary"] == [LOOK, PAGES]
    as_text = [shown[each] for each in ("binary alone", "untyped", "no list", "null", "text parts")]
    assert as_text == ["Look", "Look", "x", "a\ufffdb", "Look\nthere"]
    await viewer.say("r2")
    received = viewer.messages
    sent_as = {
        "large": [LARGE, LOOK, IMAGE],
        "binary": [LOOK, IMAGE, PAGES],
        "binary alone": [LOOK, part("image", "url", "https://f.example/a")],
        "null": [{"type": "text", "text": "a\0b"}, IMAGE],
        "text parts": contents["text parts"]["parts"],
    }
    viewer.messages = [{**each, "content": sent_as.get(each["id"], each["content"])} for each in received]
    await viewer.say("r3")
    received = viewer.messages
    for changed in ("large", "adk", "binary", "binary alone", "two texts", "wordless"):
        content = shown[changed] if isinstance(shown[changed], list) else [LOOK]
        edited = [{**each, "content": [*content, IMAGE, IMAGE]} if each["id"] == changed else each for each in received]
        viewer.messages = edited
        assert await viewer.refused("r4") == "/problems/history-changed", changed
    for changed in ("large", "adk", "binary"):
        content = [each for each in shown[changed] if each["type"] == "text"]
        viewer.messages = [{**each, "content": content} if each["id"] == changed else each for each in received]
        assert await viewer.refused("r4") == "/problems/history-changed", changed


async def test_a_client_that_was_cut_before_the_images_has_not_removed_them(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """A message's text is streamed before the snapshot that has its images. A client with an answer to it has both."""
    viewer = Viewer(client)
    viewer.show("r1", LOOK, IMAGE)
    await viewer.say("r1", None)
    viewer.change("Look")
    assert await viewer.refused("r2", "next") == "/problems/history-changed"
    cut = Page()
    await follow(client, "r1", cut, at_most=6)
    assert cut.reducer.messages == [{"id": "u-r1", "role": "user", "content": "Look"}]
    late = Viewer(client)
    late.messages = cut.reducer.messages
    for run in ("r2", "r3"):
        await late.say(run)


async def test_edited_images_of_a_tools_result_are_recognised(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """If the client has the result as parts. Those who followed the run have it as text, and a list of other things is
    not compared."""
    call = {"id": "c1", "type": "function", "function": {"name": "photo", "arguments": "{}"}}
    viewer = Viewer(client)
    viewer.messages = [
        {"id": "u1", "role": "user", "content": "photo, please"},
        {"id": "a1", "role": "assistant", "toolCalls": [call]},
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": [LOOK, IMAGE]},
    ]
    await viewer.say("r1", "thanks")
    page = Page()
    await follow(client, "r1", page)
    (result,) = [each for each in page.reducer.messages if each["role"] == "tool"]
    assert json.loads(result["content"]) == [LOOK, IMAGE]
    viewer.change(result["content"], 2)
    await viewer.say("r2")
    viewer.change([LOOK, part("image", "url", f"data:image/png;base64,{IN_BASE64}")], 2)
    await viewer.say("r3")
    found = Event(author="tool", event_type="observe", id="t2", content={"observation": [{"title": "x"}]})
    await writer.live.sessions.append("shop", "mei", "t", [found])
    viewer.messages = [*viewer.messages, {"id": "t2", "role": "tool", "toolCallId": "c2", "content": [LOOK]}]
    await viewer.say("r4")
    for content in ([LOOK], [LOOK, IMAGE, IMAGE], [LOOK, part("image", "data", "QUJD", "image/png")]):
        viewer.change(content, 2)
        assert await viewer.refused("r5") == "/problems/history-changed"


async def test_a_secret_that_was_masked_is_no_edit(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """A client goes on with what it wrote. What stands around the masks is compared."""
    await writer.pool.execute("""SELECT set_app_policy('shop', '{"redaction": "mask"}')""")
    browser = Browser(client)
    one, other = "AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOQ"
    stored = (await browser.say("r1", f"one {one}, another {other}."))["history"]
    assert stored == ["one [redacted:aws_key], another [redacted:aws_key]."]
    assert browser.messages[0]["content"] == f"one {one}, another {other}."
    await browser.say("r2")
    whole = browser.messages
    for text in (f"{one}, another {other}.", f"one {one}, a {other}.", f"one {one}, another {other}", "one, another ."):
        browser.messages = [{**whole[0], "content": text}, *whole[1:]]
        assert await browser.refused("r3") == "/problems/history-changed"
    browser.messages = [{**whole[0], "content": stored[0]}, *whole[1:]]
    await browser.say("r3")


async def test_an_edit_among_many_masked_messages_is_recognised(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """However many messages differ from the stored ones in their secrets alone."""
    await writer.pool.execute("""SELECT set_app_policy('shop', '{"redaction": "mask"}')""")
    texts = {f"m{n}": f"key {n}: AKIAABCDEFGHIJKLMNOP" for n in range(250)}
    await writer.live.sessions.create_session("shop", "mei", session_id="t")
    events = [Event(author="user", id=name, content={"content": text}) for name, text in texts.items()]
    await writer.live.sessions.append("shop", "mei", "t", events)
    browser = Browser(client)
    browser.messages = [{"id": name, "role": "user", "content": text} for name, text in texts.items()]
    await browser.say("r1")
    whole = browser.messages
    for edited in (0, 99, 100, 249):
        browser.messages = [{**each, "content": "?"} if n == edited else each for n, each in enumerate(whole)]
        assert await browser.refused("r2") == "/problems/history-changed"
    browser.messages = whole
    await browser.say("r2")


def with_call(messages: list[dict[str, Any]], call_id: str, **function: str) -> list[dict[str, Any]]:
    """The messages with another call of this id."""

    def changed(call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "function": {**call["function"], **function}} if call["id"] == call_id else call

    return [
        {**each, "toolCalls": [changed(call) for call in each["toolCalls"]]} if each.get("toolCalls") else each
        for each in messages
    ]


def with_result(messages: list[dict[str, Any]], call_id: str, content: str) -> list[dict[str, Any]]:
    """The messages with another result of the call of this id."""
    return [{**each, "content": content} if each.get("toolCallId") == call_id else each for each in messages]


@pytest.mark.parametrize("policy", ["off", "mask"])
async def test_edited_arguments_and_results_are_recognised(
    client: httpx.AsyncClient, writer: LiveWriter, policy: str
) -> None:
    """409, and nothing is stored, also where a secret was masked. JSON that a client wrote again is no edit, nor is the
    beginning of arguments, nor a client that has only the end of the conversation."""
    await writer.pool.execute("SELECT set_app_policy('shop', $1)", {"redaction": policy})
    browser = Browser(client)
    await browser.say("r1", path="tools")
    await browser.say("r2", path="tools")
    received = json.loads(next(each["content"] for each in browser.messages if each.get("toolCallId") == "c-r1"))
    unchanged: tuple[Callable[[list[dict[str, Any]]], list[dict[str, Any]]], ...] = (
        lambda had: with_call(had, "c-r1", arguments='{ "days": [1.0, 2],\n "city": "Lisbon"}'),
        lambda had: with_call(had, "c-r1", arguments='{"city":"Lis'),
        lambda had: with_call(had, "c-r1", arguments="{}"),
        lambda had: with_call(had, "s-r2", arguments='{"key":"AKIAABCDEFGHIJKLMNOP","query":"parcel"}'),
        lambda had: with_call(had, "n-r1", arguments="{}"),
        lambda had: with_call(had, "n-r1", arguments=""),
        lambda had: with_result(had, "c-r2", json.dumps({**received, "degrees": 21}, sort_keys=True, indent=1)),
        lambda had: with_result(had, "s-r2", " nothing found\nfor AKIAABCDEFGHIJKLMNOP"),
        lambda had: had[-1:],
        lambda had: had[-4:],
    )
    late = Page()
    await follow(client, "r2", late)
    had = late.reducer.messages
    for number, written_again in enumerate(unchanged):
        browser.messages = written_again(had)
        await browser.say(f"again-{number}", path="tools")
        had = [*had, *browser.messages[-8:]]
    events = await writer.pool.fetchval("SELECT count(*) FROM events")
    for messages, found in (
        (with_call(had, "c-r1", arguments='{"city": "Porto", "days": [1, 2]}'), "other arguments of call 'c-r1'"),
        (with_call(had, "c-r1", arguments='{"city": "Lisbon", "days": [1]}'), "other arguments of call 'c-r1'"),
        (with_call(had, "c-r1", arguments='{"days": []}'), "other arguments of call 'c-r1'"),
        (with_call(had, "s-r2", arguments='{"query": "letter", "key": "AKIAABCDEFGHIJKLMNOP"}'), "call 's-r2'"),
        (with_call(had, "n-r2", arguments='{"zone": "UTC"}'), "other arguments of call 'n-r2'"),
        (with_result(had, "c-r1", json.dumps({**received, "sky": "cloudy"})), "another result"),
        (with_result(had, "c-r1", "clear"), "another result"),
        (with_result(had, "s-r1", "something found for AKIAABCDEFGHIJKLMNOP"), "another result"),
        (with_result(had, "n-r2", "12:00"), "another result"),
    ):
        browser.messages = messages
        refused = problem(await client.post("/agui/default", json=browser.input("r9", "next")))
        assert refused["type"] == "/problems/history-changed"
        assert found in refused["detail"]
    assert await writer.pool.fetchval("SELECT count(*) FROM events") == events
    await browser.say("r9", "next", "default?history=server")
    await browser.say("r10", "next")


async def test_a_client_may_send_what_it_made_of_arguments(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """`{}` in place of what is no object or was cut off, as CopilotKit sends it, and repaired JSON. Arguments of a call
    that was cut off are not compared."""
    browser = Browser(client)
    answers = {
        "cut": ("{}", '{"city": "Paris"}'),
        "broken": ("{}", '{"city":"Par"}'),
        "text": ("{}", '{"city":"Paris"}'),
    }
    for said in ("cut", *ODD_ARGUMENTS):
        page = await run_agent(client, browser.input(said, said), "odd")
        browser.messages, browser.state = page.shown
    for said in ("cut", *ODD_ARGUMENTS):
        for number, arguments in enumerate(answers.get(said, ("{}",))):
            had = browser.messages
            browser.messages = with_call(had, f"c-{said}", arguments=arguments)
            assert browser.messages != had, said
            await browser.say(f"{said}-{number}")
    whole = browser.messages
    for said, arguments in (("broken", '{"city": "Rome",}'), ("list", "[1, 3]"), ("text", "Rome")):
        browser.messages = with_call(whole, f"c-{said}", arguments=arguments)
        assert await browser.refused("r9") == "/problems/history-changed"


async def test_each_stored_call_is_read_once_however_many_are_sent(
    client: httpx.AsyncClient, writer: LiveWriter, conn: asyncpg.Connection
) -> None:
    """Of a message with a thousand calls, and of one for which a client invents as many."""
    browser = Browser(client)
    await browser.say("r0")
    calls = [
        Event(
            author="model",
            event_type="act",
            id=f"m/{n}" if n else "m",
            content={"tool_name": "look", "tool_args": '{"n": 1}', "tool_call_id": f"c{n}", "message_id": "m"},
        )
        for n in range(1000)
    ]
    await writer.live.sessions.append("shop", "mei", "t", calls[:500])
    await writer.live.sessions.append("shop", "mei", "t", calls[500:])
    thread = await conn.fetchval("SELECT id FROM threads WHERE session_id = 't'")
    used = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'shown_call_id'"
    for named, found in (("c", 1000), ("invented", 0)):
        async with conn.transaction():
            await conn.execute("SET LOCAL track_functions = 'all'")
            # It may also have those of the transaction before.
            before = await conn.fetchval(used) or 0
            names = [f"{named}{n}" for n in range(1000)]
            rows = await client_view._STATEMENTS.fetch(
                conn, "differing_calls", thread, ["m"] * 1000, names, ["-"] * 1000, [1000] * 1000, 8 << 20
            )
            assert len(rows) == found
            assert await conn.fetchval(used) - before == 1000
    sent = [
        {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}} for n in range(1000)
    ]
    browser.messages.append({"id": "m", "role": "assistant", "toolCalls": sent})
    await browser.say("r1")


async def test_two_calls_with_one_id_are_unchanged(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    browser = Browser(client)
    await browser.say("r0")
    arguments = ('{"n": 1}', '{"n": 2}')
    calls = [
        Event(
            author="model",
            event_type="act",
            id=name,
            content={"tool_name": "look", "tool_args": given, "tool_call_id": "c", "message_id": "m"},
        )
        for name, given in zip(("m", "m/1"), arguments, strict=True)
    ]
    await writer.live.sessions.append("shop", "mei", "t", calls)
    sent = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": given}} for given in arguments]
    browser.messages.append({"id": "m", "role": "assistant", "toolCalls": sent})
    await browser.say("r1")


async def test_a_client_may_send_a_result_that_is_a_string_of_json_without_its_quotes(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """And the other way round: as assistant-ui sends a string that it parsed, and others one that they did not."""
    browser = Browser(client)
    for number, (said, value) in enumerate(ODD_RESULTS.items()):
        await browser.say(f"r{number}", said, "odd")
        browser.messages = with_result(browser.messages, f"c-r{number}", value)
        await browser.say(f"r{number}-again", "go on")
        whole = browser.messages
        for other in ("cloudy", '"cloudy"', '{"sky": "cloudy"}', "{}"):
            browser.messages = with_result(whole, f"c-r{number}", other)
            assert await browser.refused("r9") == "/problems/history-changed"
        browser.messages = whole
    await browser.say("bare", path="tools")
    whole = browser.messages
    browser.messages = with_result(whole, "s-bare", json.dumps("nothing found for AKIAABCDEFGHIJKLMNOP"))
    await browser.say("r8")


async def test_json_with_masked_secrets_is_compared_as_json(client: httpx.AsyncClient, writer: LiveWriter) -> None:
    """Numbers beside a mask may be written as a client writes them, and a member's name may be masked. An edit beside a
    mask is recognised."""
    await writer.pool.execute("SELECT set_app_policy('shop', $1)", {"redaction": "mask"})
    browser = Browser(client)
    await browser.say("r1", "masked", "odd")
    whole = browser.messages
    secret = '"AKIAABCDEFGHIJKLMNOP":[{"key":"is AKIAABCDEFGHIJKLMNOP"}]'
    again = f'{{"n":1,"big":9007199254740992,{secret}}}'
    browser.messages = with_result(with_call(whole, "c-r1", arguments=again), "c-r1", again)
    await browser.say("r2")
    for changed in (again.replace(":1,", ":2,"), again.replace("is AKIA", "AKIA"), again.replace("key", "other")):
        for edited in (with_call(whole, "c-r1", arguments=changed), with_result(whole, "c-r1", changed)):
            browser.messages = edited
            assert await browser.refused("r3") == "/problems/history-changed"


async def test_edited_arguments_of_a_message_with_several_calls_are_recognised(
    client: httpx.AsyncClient, writer: LiveWriter
) -> None:
    """Whichever of its calls: of a message that a client brought, or that an agent of ADK stored in pieces."""

    def call(name: str) -> dict[str, Any]:
        return {"id": name, "type": "function", "function": {"name": "look", "arguments": f'{{"at": "{name}"}}'}}

    browser = Browser(client)
    browser.messages = [
        {"id": "u1", "role": "user", "content": "look around"},
        {"id": "a1", "role": "assistant", "content": "I look", "toolCalls": [call("one"), call("two")]},
        *({"id": f"t-{each}", "role": "tool", "toolCallId": each, "content": each} for each in ("one", "two")),
        {"id": "a2", "role": "assistant", "toolCalls": [call("three"), call("four")]},
        *({"id": f"t-{each}", "role": "tool", "toolCallId": each, "content": each} for each in ("three", "four")),
    ]
    await browser.say("r1", "thanks")
    pieces = [
        Event(
            author="model",
            event_type="act",
            id=own,
            content={
                "tool_name": "look",
                "tool_input": {"at": name},
                "tool_call_id": name,
                "message_id": "e.0",
            },
        )
        for own, name in (("e.0", "five"), ("e", "six"))
    ]
    await writer.live.sessions.append("shop", "mei", "t", pieces)
    browser.messages.append({"id": "e.0", "role": "assistant", "toolCalls": [call("five"), call("six")]})
    await browser.say("r2", "go on")
    whole = browser.messages
    for name in ("one", "two", "three", "four", "five", "six"):
        browser.messages = with_call(whole, name, arguments='{"at": "elsewhere"}')
        body = browser.input("r3", "next")
        assert f"other arguments of call '{name}'" in problem(await client.post("/agui/default", json=body))["detail"]
    # A call that the session does not have is not compared.
    browser.messages = [*whole[:-1], {**whole[-1], "toolCalls": [call("unknown")]}]
    await browser.say("r4", "next")


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
        ("change", "", False, {}),
        ("default", "", False, {}),
        ("odd", "", False, {}),
        ("tools", "", False, {}),
    ]
