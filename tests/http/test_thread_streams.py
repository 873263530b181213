"""Threads that are followed by many: what each client gets once, what it gets live, and how it comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from pulse.events import Event, EventActions
from pulse.http.edge.bodies import Admission, ReadAdmission, StreamAdmission
from pulse.postgres.statements import observe_statements
from pulse.runs.agents import RunContext
from tests.support.agui_rules import Reducer, StreamRules
from tests.support.live_writer import LiveWriter, serving
from tests.support.lock_gates import until_one_waits_for_a_lock
from tests.support.stream_agents import ask, echo, wait
from tests.support.stream_client import OWNER, Page, asked, follow, frames_of, run_agent
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import WriterProcess

SESSIONS = "/v1/apps/shop/users/mei/sessions"


class Alone:
    """Waits until it is cancelled; runs alone."""

    runs_alone = True

    async def __call__(self, run: RunContext) -> None:
        await wait(run)


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[LiveWriter]:
    async with serving(dsn, {"default": echo, "wait": wait, "ask": ask, "alone": Alone()}) as opened:
        yield opened


class ThreadPage(Page):
    """A page of a thread; it is over after this many runs."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self.runs = runs

    @property
    def is_over(self) -> bool:
        return len(self.reducer.ends) >= self.runs

    def kinds(self, kind: str) -> int:
        return sum(f'"type":"{kind}"'.encode() in frame for frame in self.frames)


async def follow_thread(client: httpx.AsyncClient, thread: str, page: ThreadPage, at_most: int | None = None) -> None:
    """Follow a thread over SSE until the page is over, or for at most this many frames."""
    headers = {} if page.last_id is None else {"Last-Event-ID": page.last_id}
    got = 0
    async with client.stream("GET", f"/api/threads/{thread}/events", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        async for frame in frames_of(response):
            page.take(frame)
            got += 1
            if page.is_over or got == at_most:
                return


async def say(writer: LiveWriter, thread: str, text: str, **delta: Any) -> None:
    event = Event(author="user", content={"text": text}, actions=EventActions(state_delta=delta))
    await writer.live.sessions.append("shop", "mei", thread, [event])


async def joined(writer: LiveWriter, count: int) -> None:
    await until(lambda: writer.live.streams.joined == count)


async def test_a_client_gets_the_conversation_and_the_state_once(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """However many events and runs follow: also for one that joins later, and for one that is cut after each frame.
    All end with the same messages and state."""
    await client.post(SESSIONS, json={"session_id": "t", "state": {"n": [0]}})
    await say(writer, "t", "before")
    page, late, cut = ThreadPage(7), ThreadPage(4), ThreadPage(7)

    async def cut_after_every_frame() -> None:
        while not cut.is_over:
            await follow_thread(client, "t", cut, at_most=1)

    following = [asyncio.create_task(follow_thread(client, "t", page))]
    await joined(writer, 1)
    following.append(asyncio.create_task(cut_after_every_frame()))
    await joined(writer, 2)
    for n in range(3):
        await say(writer, "t", f"message {n}", n=[0, n], **{"user:seen": n})
    await until(lambda: len(page.reducer.ends) == 3)
    following.append(asyncio.create_task(follow_thread(client, "t", late)))
    await joined(writer, 3)
    await run_agent(client, asked("t", "r1", "question"))
    for n in range(3, 6):
        await say(writer, "t", f"message {n}", n=[0, n])
    await asyncio.gather(*following)
    texts = ["before", "message 0", "message 1", "message 2", "question", "question "]
    texts += ["message 3", "message 4", "message 5"]
    for each in (page, late, cut):
        each.rules.end()
        assert [message["content"] for message in each.reducer.messages] == texts
        assert each.reducer.state == {"n": [0, 5], "user:seen": 2}
    for each in (page, late):
        assert (each.kinds("MESSAGES_SNAPSHOT"), each.kinds("STATE_SNAPSHOT")) == (1, 1)
    refused = await client.get("/api/threads/t/events", params={"offset": "99/98"})
    assert refused.status_code == 422
    assert (await client.get("/api/threads/nowhere/events")).status_code == 404


async def beginning(client: httpx.AsyncClient, **query: str) -> list[str]:
    """The first lines of a stream, which is cut then."""
    async with client.stream("GET", "/api/threads/t/events", params=query) as response:
        lines = response.aiter_lines()
        return [await anext(lines) for _ in range(3)]


async def test_a_client_that_is_cut_before_its_first_frame_loses_nothing(
    writer: LiveWriter, client: httpx.AsyncClient
) -> None:
    """Its stream begins with an id, from which the next connection sends what came in between, once."""
    await client.post(SESSIONS, json={"session_id": "t"})
    await say(writer, "t", "before")
    assert await beginning(client) == [": cursor 1/", "id: 1/", ": connected"]
    for text in ("one", "two"):
        await say(writer, "t", text)
    page = ThreadPage(2)
    page.last_id = "1/"
    await follow_thread(client, "t", page)
    assert [message["content"] for message in page.reducer.messages] == ["before", "one", "two"]
    assert page.kinds("RUN_STARTED") == 2
    # Where a run is active, that is where the stream begins, also after the run has ended.
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    # Not the number of followers: the streams before may still end.
    await until(lambda: writer.live.runner.running == 1)
    assert (await beginning(client))[0] == ": cursor 3/"
    assert (await client.post("/api/runs/r/cancel")).status_code == 202
    await posting
    late = ThreadPage(1)
    late.last_id = "3/"
    await follow_thread(client, "t", late)
    assert b'"runId":"r"' in late.frames[0].replace(b" ", b"")
    refused = await client.get("/api/threads/t/events", params={"offset": "99/"})
    assert refused.status_code == 422
    assert page.last_id is not None
    assert (await beginning(client, offset=page.last_id))[0] == ": connected"


async def test_a_socket_that_is_cut_before_its_first_frame_loses_nothing(
    writer: LiveWriter, client: httpx.AsyncClient
) -> None:
    """One that asks for positions gets the first before any event, and continues from there. Others get events alone,
    and so does one that has the offset of an event, or that follows a run."""
    await client.post(SESSIONS, json={"session_id": "t"})
    await say(writer, "t", "before")

    async def received(count: int, **query: str) -> list[Any]:
        url = f"{writer.url.replace('http', 'ws')}/ws/events/t?{httpx.QueryParams(query)}"
        async with websockets.connect(url, additional_headers=OWNER) as opened:
            return [json.loads(await asyncio.wait_for(opened.recv(), WAIT_SECONDS)) for _ in range(count)]

    assert await received(1, frames="positions") == [{"id": "1/"}]
    for text in ("one", "two"):
        await say(writer, "t", text)
    rules, reducer = StreamRules(), Reducer()
    position, *messages = await received(13, frames="positions", offset="1/")
    assert position == {"id": "1/"}
    for message in messages:
        rules.event(message["chunk"])
        reducer.event(message["chunk"])
    rules.end()
    assert [message["content"] for message in reducer.messages] == ["before", "one", "two"]
    assert messages == await received(12, frames="envelope", offset="1/")
    again = await received(1, frames="positions", offset=messages[0]["id"])
    assert again == messages[1:2]
    await run_agent(client, asked("t", "r", "hello"))
    assert await received(1, frames="positions", offset="-1") == [{"id": "3/"}]
    assert "chunk" in (await received(1, frames="envelope", offset="-1"))[0]
    assert (await received(1, frames="positions", run_id="r"))[0]["chunk"]["type"] == "RUN_STARTED"


async def test_a_client_joins_those_that_came_while_it_was_away(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """Its last run began before the others' position, and nothing has begun since: it gets the next one with them."""
    await client.post(SESSIONS, json={"session_id": "t"})
    back = ThreadPage(1)
    away = asyncio.create_task(follow_thread(client, "t", back))
    await joined(writer, 1)
    await run_agent(client, asked("t", "r", "hello"))
    await away
    fresh = ThreadPage(1)
    following = [asyncio.create_task(follow_thread(client, "t", fresh))]
    await joined(writer, 1)
    back.runs = 2
    following.append(asyncio.create_task(follow_thread(client, "t", back)))
    await joined(writer, 2)
    await say(writer, "t", "more")
    await asyncio.gather(*following)
    for each in (fresh, back):
        assert [message["content"] for message in each.reducer.messages] == ["hello", "hello ", "more"]


@pytest.mark.parametrize("kind", ["a run of an agent", "an event of no run"])
async def test_the_conversation_is_read_once_for_all_sockets_of_a_thread(
    writer: LiveWriter, client: httpx.AsyncClient, kind: str
) -> None:
    """Forty sockets wait together: what begins next is looked up, and the conversation before it read, once for all of
    them, and each gets the whole of it. From then on it is not read again."""
    sockets_max = 40
    await client.post(SESSIONS, json={"session_id": "t"})
    await say(writer, "t", "before")
    url = f"{writer.url.replace('http', 'ws')}/ws/events/t?{httpx.QueryParams(frames='envelope')}"

    async def received(opened: Any, reducer: Reducer, runs: int) -> None:
        while len(reducer.ends) < runs:
            reducer.event(json.loads(await asyncio.wait_for(opened.recv(), WAIT_SECONDS))["chunk"])

    ran: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        sockets = [
            (await stack.enter_async_context(websockets.connect(url, additional_headers=OWNER)), Reducer())
            for _ in range(sockets_max)
        ]
        await joined(writer, sockets_max)
        stack.callback(observe_statements(lambda name, _seconds, _is_done: ran.append(name)))
        for n in range(2):
            if kind == "a run of an agent":
                await run_agent(client, asked("t", f"r{n}", f"question {n}"))
            else:
                await say(writer, "t", f"question {n}")
            await asyncio.gather(*(received(*each, n + 1) for each in sockets))
    texts = ["before"]
    for n in range(2):
        texts += [f"question {n}", *([f"question {n} "] if kind == "a run of an agent" else [])]
    assert all([message["content"] for message in each.messages] == texts for _, each in sockets)
    assert ran.count("streams.conversation") == 1
    assert ran.count("streams.next_run") < sockets_max


async def test_changes_of_shared_state_by_other_sessions_arrive_live(
    writer: LiveWriter, client: httpx.AsyncClient, pool: asyncpg.Pool
) -> None:
    """A run's stream gets them as STATE_DELTA: of its user, of its app by another user, by a new session, and by plain
    SQL at the next poll. Another user's do not. A client that comes back has them, too."""
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    await until(lambda: writer.live.streams.followers == 1)
    page = Page()
    getting = asyncio.create_task(follow(client, "r", page))
    await until(lambda: "STATE_SNAPSHOT" in str(page.frames))
    sessions = writer.live.sessions
    await sessions.create_session("shop", "mei", {"user:new": 1}, session_id="second")
    await until(lambda: page.reducer.state == {"user:new": 1})
    await say(writer, "second", "hi", **{"user:lang": "pt", "own": 1})
    await sessions.create_session("shop", "eve", {"app:theme": "dark", "user:lang": "en"}, session_id="t")
    expected = {"user:new": 1, "user:lang": "pt", "app:theme": "dark"}
    await until(lambda: page.reducer.state == expected)
    await pool.execute(
        """UPDATE user_states SET state = '{"lang": "de"}', version = version + 1 WHERE user_id = 'mei'"""
    )
    writer.live.streams.shared._watched.mark_all()
    expected = {"user:lang": "de", "app:theme": "dark"}
    await until(lambda: page.reducer.state == expected)
    back = Page()
    await follow(client, "r", back, at_most=3)
    await pool.execute("""UPDATE user_states SET state = '{}', version = version + 1 WHERE user_id = 'mei'""")
    writer.live.streams.shared._watched.mark_all()
    returning = asyncio.create_task(follow(client, "r", back))
    await until(lambda: back.reducer.state == {"app:theme": "dark"})
    await client.post("/api/runs/r/cancel")
    for each in (await posting, page, back):
        await asyncio.gather(getting, returning)
        each.rules.end()
    assert writer.live.streams.shared.watchers == 0


class StartPage(ThreadPage):
    """A page that keeps the state with which each run begins, before the run's own first event."""

    def __init__(self, runs: int) -> None:
        super().__init__(runs)
        self.began_with: list[Any] = []

    def take(self, frame: bytes) -> None:
        opens = (b'"RUN_STARTED"', b'"MESSAGES_SNAPSHOT"', b'"STATE_SNAPSHOT"', b'"STATE_DELTA"')
        is_own = not any(b'"type":' + kind in frame for kind in opens)
        if is_own and len(self.began_with) == len(self.reducer.ends):
            self.began_with.append(dict(self.reducer.state))
        super().take(frame)


@pytest.mark.parametrize("kind", ["a run of an agent", "an event of no run"])
async def test_a_run_begins_with_what_other_sessions_changed_before_it(
    writer: LiveWriter, client: httpx.AsyncClient, kind: str
) -> None:
    """Between two runs there is no event for it: a follower has the user's and the app's state before the next
    run's own first event. So has one that comes meanwhile, one that returns before that run or after it, one that is
    cut after each frame, also if the state changes again within the run's beginning, and the client that starts it."""
    await client.post(SESSIONS, json={"session_id": "t", "state": {"own": 1, "user:lang": "en", "user:old": True}})
    live, back, late, cut, torn = StartPage(2), *(StartPage(1) for _ in range(4))
    following = [asyncio.create_task(follow_thread(client, "t", page)) for page in (live, back, late, cut, torn)]
    await joined(writer, 5)
    await run_agent(client, asked("t", "r1", "first"))
    await asyncio.gather(*following[1:])
    await until(lambda: bool(live.reducer.ends) and writer.live.streams.joined == 1)
    frames_before = len(torn.frames)
    sessions = writer.live.sessions
    await sessions.create_session("shop", "mei", {"user:lang": "pt"}, session_id="second")
    await sessions.create_session("shop", "eve", {"app:theme": "dark"}, session_id="theirs")
    await say(writer, "second", "hi", **{"user:old": None, "user:new": [1]})
    new = StartPage(1)
    back.runs = late.runs = cut.runs = torn.runs = 2
    following = following[:1] + [asyncio.create_task(follow_thread(client, "t", page)) for page in (new, back)]
    await joined(writer, 3)
    if kind == "a run of an agent":
        posted = await run_agent(client, asked("t", "r2", "second"))
    else:
        posted = None
        await say(writer, "t", "second")
    while not cut.is_over:
        await follow_thread(client, "t", cut, at_most=1)
    await follow_thread(client, "t", late)
    await asyncio.gather(*following)
    assert posted is None or posted.reducer.state == new.reducer.state
    await follow_thread(client, "t", torn, at_most=1)
    assert len(torn.frames) == frames_before + 1
    await say(writer, "second", "again", **{"user:new": [2]})
    await follow_thread(client, "t", torn)
    expected = {"own": 1, "user:lang": "pt", "user:new": [1], "user:old": None, "app:theme": "dark"}
    for page in (live, back, late, cut, new, torn):
        page.rules.end()
        if page is torn:
            expected["user:new"] = [2]
        assert page.began_with[-1] == page.reducer.state == expected
    for page in (live, back, late, cut, torn):
        assert page.began_with[0] == {"own": 1, "user:lang": "en", "user:old": True}


async def test_hundreds_that_come_back_at_once_are_all_served(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """150 clients of a run are cut and reconnect in the same moment: none is refused, and none gets a frame twice.
    Where of two other requests that wait one is refused, streams wait for each other. What has to be refused is an
    answer that an EventSource survives."""
    writer.services[Admission] = Admission(at_once=1, waiting_max=1)
    writer.services[ReadAdmission] = ReadAdmission(at_once=1, waiting_max=1)
    writer.services[StreamAdmission] = StreamAdmission(at_once=1, wait_seconds=10 * WAIT_SECONDS)
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    await until(lambda: writer.live.streams.followers == 1)
    pages = [Page() for _ in range(150)]
    await asyncio.gather(*(follow(client, "r", page, at_most=4) for page in pages))
    await until(lambda: writer.live.streams.followers == 1)
    coming = [asyncio.create_task(follow(client, "r", page)) for page in pages]
    await until(lambda: writer.live.streams.followers == 151)
    await client.post("/api/runs/r/cancel")
    assert {response.status_code for response in await asyncio.gather(*coming)} == {200}
    await posting
    for page in pages:
        page.rules.end()
        assert page.reducer.ends[0]["outcome"] == {"type": "cancelled"}
    writer.live.streams.begin_stop()
    survived = await client.get("/api/runs/r/events", headers={"Accept": "text/event-stream"})
    assert (survived.status_code, survived.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert survived.text.startswith(": /problems/ending\nretry: ")
    plain = await client.get("/api/runs/r/events")
    assert (plain.status_code, plain.headers["retry-after"]) == (503, "1")


async def test_more_streams_wait_than_other_requests_may() -> None:
    """With the writer's own bounds a thousand wait for the slots, and each gets one in its turn."""
    admission = StreamAdmission(at_once=40)
    held, served = asyncio.Event(), 0

    async def come_back() -> None:
        nonlocal served
        async with admission.slot():
            await held.wait()
            served += 1

    coming = [asyncio.create_task(come_back()) for _ in range(1000)]
    await until(lambda: admission.waiting == 960)
    held.set()
    await asyncio.gather(*coming)
    assert served == 1000


@pytest.mark.system
async def test_slow_readers_of_a_large_run_cost_little(dsn: str, pool: asyncpg.Pool) -> None:
    """Eight clients that read nothing of 48 MB: the process holds a page of each, not the run. Eight that follow live
    are disconnected when 16 MB wait for each of them."""

    ready = asyncio.Event()

    async def large(run: RunContext) -> None:
        await ready.wait()
        for n in range(24):
            body = {"n": n, "pad": "x" * 400_000}
            await run.write(*(Event(author="model", event_type="work_plan", content=body) for _ in range(5)))

    async with (
        serving(dsn, {"large": large}) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
    ):
        host, port = writer.url.removeprefix("http://").split(":")
        with contextlib.ExitStack() as stack:

            def slow() -> None:
                opened = stack.enter_context(socket.create_connection((host, int(port))))
                head = "".join(f"{name}: {value}\r\n" for name, value in OWNER.items())
                opened.sendall(f"GET /api/runs/r/events HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())

            async with client.stream("POST", "/agui/large", json=asked("t", "r")) as posted:
                for _ in range(8):
                    slow()
                await until(lambda: writer.live.streams.followers == 9)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                ready.set()
                async for _ in posted.aiter_raw():
                    pass
            assert writer.live.streams.disconnected == 8
            for _ in range(8):
                slow()
            await until(lambda: writer.live.streams.followers == 8)
            await client.get("/health")
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # KB


async def run_of(opened: ClientConnection) -> Reducer:
    """The next run that a socket sends, or what it refuses."""
    rules, reducer = StreamRules(), Reducer()
    while not reducer.ends:
        event = json.loads(await asyncio.wait_for(opened.recv(), WAIT_SECONDS))
        rules.event(event)
        reducer.event(event)
    return reducer


async def test_a_run_over_a_socket(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """A client sends inputs and gets their runs, one after the other; it aborts one; what is refused is reported
    between runs; the input of an ended run is answered with that run. A ticket is enough."""
    await client.post(SESSIONS, json={"session_id": "t"})
    issued = (await client.post("/api/tickets", json={"thread_id": "t", "may_run": True})).json()
    url = f"{writer.url.replace('http', 'ws')}/ws/agui?ticket={issued['ticket']}"

    async with websockets.connect(url) as opened:
        for n in range(2):
            await opened.send(json.dumps(asked("t", f"r{n}", f"hello {n}")))
        for n in range(2):
            assert (await run_of(opened)).messages[-1]["content"] == f"hello {n} "
        for wrong, code in (
            ("{", "invalid-request"),
            (json.dumps({"threadId": "t"}), "invalid-request"),
            (json.dumps(asked("another", "r9")), "wrong-ticket"),
            (json.dumps(asked(" ", "r9")), "invalid-request"),
            (json.dumps({"type": "abort", "runId": "nobody"}), "run-not-found"),
        ):
            await opened.send(wrong)
            assert (await run_of(opened)).ends[0]["code"] in (code, "invalid-json")
        await opened.send(json.dumps(asked("t", "r1", "hello 1")))
        assert (await run_of(opened)).messages[-1]["content"] == "hello 1 "
    async with websockets.connect(url.replace("/ws/agui", "/ws/agui/wait")) as opened:
        await opened.send(json.dumps(asked("t", "r2")))
        await until(lambda: writer.live.runner.running == 1)
        await opened.send(json.dumps({"type": "abort", "runId": "r2"}))
        assert (await run_of(opened)).ends[0]["outcome"] == {"type": "cancelled"}
    follows = (await client.post("/api/tickets", json={"thread_id": "t"})).json()
    async with websockets.connect(url.replace(issued["ticket"], follows["ticket"])) as opened:
        await opened.wait_closed()
        assert opened.close_code == 4401


def socket_address(writer: LiveWriter) -> str:
    return f"{writer.url.replace('http', 'ws')}/ws/agui"


async def abort(opened: ClientConnection, run: str) -> None:
    await opened.send(json.dumps({"type": "abort", "runId": run}))


async def begun(client: httpx.AsyncClient, run: str) -> None:
    async def has_begun() -> bool:
        return (await client.get(f"/api/runs/{run}")).status_code == 200

    await until(has_begun, "the run begins")


async def test_an_abort_is_read_whatever_waits(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """Thirty inputs that are sent during a run wait, and their runs are sent in order. The client aborts the run, and
    one that waits, which is not begun and stores nothing."""
    async with websockets.connect(f"{socket_address(writer)}/wait", additional_headers=OWNER) as opened:
        await opened.send(json.dumps(asked("t0", "r0")))
        await begun(client, "r0")
        for n in range(1, 31):
            await opened.send(json.dumps(asked(f"t{n}", f"r{n}")))
        await abort(opened, "r2")
        await abort(opened, "r0")
        for n in range(31):
            if n not in (0, 2):
                await begun(client, f"r{n}")
                await abort(opened, f"r{n}")
            (end,) = (await run_of(opened)).ends
            if n == 2:
                assert end["code"] == "run-ended"
            else:
                assert (end["runId"], end["outcome"]) == (f"r{n}", {"type": "cancelled"})
    threads = (await client.get("/api/threads", params={"limit": 100})).json()["threads"]
    assert {each["thread_id"] for each in threads} == {f"t{n}" for n in range(31) if n != 2}


async def test_inputs_without_room_hold_the_client_back(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """Of large inputs nine are read, and what follows, an abort too, when the next run begins: it ends a run that has
    begun, and is not one of an input that waits. No input is lost."""

    async def send_all(opened: ClientConnection) -> None:
        for n in range(1, 13):
            await opened.send(json.dumps(asked(f"t{n}", f"r{n}", "x" * 200_000)))
            if n == 9:
                await abort(opened, "r1")

    async with (
        websockets.connect(f"{socket_address(writer)}/wait", additional_headers=OWNER) as opened,
        asyncio.TaskGroup() as tasks,
    ):
        await opened.send(json.dumps(asked("t0", "r0")))
        await begun(client, "r0")
        tasks.create_task(send_all(opened))
        for n in range(13):
            if n != 1:
                await begun(client, f"r{n}")
                assert (await client.post(f"/api/runs/r{n}/cancel")).is_success
            (end,) = (await run_of(opened)).ends
            assert (end.get("runId"), end.get("outcome")) == (f"r{n}", {"type": "cancelled"}), end


async def test_an_abort_ends_a_run_that_is_being_begun(writer: LiveWriter) -> None:
    """The run is in no list yet when the abort arrives."""
    other = "SELECT cancel_requested_at IS NOT NULL FROM runs WHERE run_id = 'other'"
    async with (
        websockets.connect(f"{socket_address(writer)}/wait", additional_headers=OWNER) as opened,
        websockets.connect(f"{socket_address(writer)}/wait", additional_headers=OWNER) as beside,
        writer.pool.acquire() as holder,
    ):
        await beside.send(json.dumps(asked("beside", "other")))
        await until(lambda: writer.live.runner.running == 1)
        async with holder.transaction():
            await holder.execute("LOCK TABLE events IN SHARE MODE")
            await opened.send(json.dumps(asked("t", "r")))
            await until_one_waits_for_a_lock(writer.pool)
            await abort(opened, "r")
            await abort(opened, "other")
            await until(lambda: writer.pool.fetchval(other), "what follows the abort was read")
        assert (await run_of(opened)).ends[0]["outcome"] == {"type": "cancelled"}


async def test_a_socket_has_the_options_of_a_post(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """A client that disconnects ends its run if it asked for that, also one that is being begun; the next message ends
    the run that is active; and a client whose conversation differs takes the session's."""

    def connected(path: str) -> websockets.connect:
        return websockets.connect(socket_address(writer) + path, additional_headers=OWNER)

    async def ended(run: str) -> str | None:
        response = await client.get(f"/api/runs/{run}")
        status = response.json()["status"] if response.status_code == 200 else "running"
        return None if status == "running" else str(status)

    async def is_waiting() -> bool:
        return bool(await writer.pool.fetchval("SELECT count(*) FROM live_messages"))

    async with connected("/alone") as opened:
        await opened.send(json.dumps(asked("t", "r1")))
        await until(is_waiting, "the run is executed")
    async with connected("/alone") as opened:
        await opened.send(json.dumps(asked("t", "r2")))
        assert (await run_of(opened)).ends[0]["code"] == "run-active"
    async with connected("/alone?active_run=cancel&on_disconnect=cancel") as opened:
        await opened.send(json.dumps(asked("t", "r3")))
        assert await until(lambda: ended("r1"), "the active run is cancelled") == "cancelled"
        await until(is_waiting, "the run is executed")
    assert await until(lambda: ended("r3"), "the client's run is cancelled") == "cancelled"
    async with writer.pool.acquire() as holder:
        async with holder.transaction():
            await holder.execute("LOCK TABLE runs IN SHARE MODE")
            async with connected("/alone?on_disconnect=cancel") as opened:
                await opened.send(json.dumps(asked("t", "r4")))
                await until_one_waits_for_a_lock(writer.pool)
        assert await until(lambda: ended("r4"), "the run that was begun is cancelled") == "cancelled"

    changed = {**asked("t", "r5"), "messages": [{"id": "u-r1", "role": "user", "content": "another question"}]}
    changed["messages"] += asked("t", "r5", "now")["messages"]
    async with connected("") as opened:
        await opened.send(json.dumps(changed))
        assert (await run_of(opened)).ends[0]["code"] == "history-changed"
    async with connected("?history=server") as opened:
        await opened.send(json.dumps(changed))
        asks = [each["content"] for each in (await run_of(opened)).messages if each["role"] == "user"]
        assert asks == ["hi", "hi", "hi", "now"]


@asynccontextmanager
async def stopping(writer: WriterProcess) -> AsyncIterator[None]:
    assert writer.process is not None
    writer.process.send_signal(signal.SIGTERM)
    yield
    assert await asyncio.to_thread(writer.process.wait, WAIT_SECONDS) == 0


async def test_sigterm_lets_runs_and_their_streams_end(dsn: str, tmp_path: Path) -> None:
    """A run that ends within the grace ends as if nothing had happened, with its streams; no other begins. A stream of
    another process's run ends with a word on when to reconnect."""
    settings = {"shutdown_grace_seconds": "20", "stream_heartbeat_seconds": "0.2"}
    with WriterProcess(dsn, tmp_path / "log", module="tests.support.stream_agents", **settings) as writer:
        async with httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client:
            await client.post(SESSIONS, json={"session_id": "idle"})
            idle: list[bytes] = []

            async def hold() -> None:
                async with client.stream("GET", "/api/threads/idle/events") as response:
                    async for chunk in response.aiter_raw():
                        idle.append(chunk)

            holding = asyncio.create_task(hold())
            running = asyncio.create_task(run_agent(client, asked("t", "r")))
            await until(lambda: idle)
            while (await client.get("/api/runs/r/events", params={"offset": "x"})).status_code == 404:
                await asyncio.sleep(0.005)
            async with stopping(writer):
                page = await running
                await holding
    assert page.reducer.messages[4]["content"] == "".join(f"word{n} " for n in range(12))
    assert page.reducer.ends[0]["type"] == "RUN_FINISHED"
    assert b": this process is stopping\nretry: " in idle[-1]
