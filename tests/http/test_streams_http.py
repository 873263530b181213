"""Streams of a real writer with real agents, over SSE, WebSocket and POST: cut, resumed, joined, refused, cancelled."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest
import websockets

from pulse import database
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from tests.conftest import dsn_of
from tests.support.agui_rules import Reducer, StreamRules
from tests.support.listener_drill import kill_listener
from tests.support.pace import at_this_pace, slowdown
from tests.support.stream_client import OWNER, Page, asked, follow, frames_of, run_agent
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess, problem
from workers.embedded.server import EmbeddedServer

HEADERS = {"Authorization": f"Bearer {KEY}", **OWNER}


@pytest.fixture(scope="module")
def streams_dsn(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> Iterator[str]:
    admin.execute(f'CREATE DATABASE "test-streams" TEMPLATE "{template}" STRATEGY FILE_COPY')
    yield dsn_of(server, "test-streams")
    admin.execute('DROP DATABASE "test-streams" WITH (FORCE)')


@pytest.fixture(scope="module")
def writer(streams_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    """One writer for all tests; each test has its own runs."""
    log = tmp_path_factory.mktemp("streams") / "log"
    settings = {
        "api_key": KEY,
        "stream_heartbeat_seconds": "0.2",
        "stream_origins": "https://page.example",
        "test_routes": "true",
    }
    with WriterProcess(streams_dsn, log, module="tests.support.stream_agents", **settings) as process:
        yield process


@pytest.fixture
async def client(writer: WriterProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=writer.url, headers=HEADERS, timeout=WAIT_SECONDS) as opened:
        yield opened


@pytest.fixture
async def rows(streams_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await database.connect(streams_dsn)
    yield connection
    await connection.close()


@pytest.fixture
def thread() -> str:
    return f"thread {uuid.uuid4().hex[:6]}/ä"


@pytest.fixture
def run() -> str:
    return f"run-{uuid.uuid4().hex[:8]}"


async def start(client: httpx.AsyncClient, thread: str, run: str, agent: str = "default") -> Page:
    """Start a run, and disconnect once it has begun."""
    page = Page()
    async with client.stream("POST", f"/agui/{agent}", json=asked(thread, run)) as response:
        assert response.status_code == 200, await response.aread()
        async for frame in frames_of(response):
            page.take(frame)
            break
    return page


async def finished(client: httpx.AsyncClient, run: str) -> Page:
    page = Page()
    await follow(client, run, page)
    page.rules.end()
    return page


async def test_a_run_looks_the_same_live_and_to_late_clients(
    client: httpx.AsyncClient, thread: str, run: str, rows: asyncpg.Connection
) -> None:
    """The client that posted it, one that joined during it and one that came later have the same messages and state."""
    posting = asyncio.create_task(run_agent(client, asked(thread, run)))
    joined = Page()
    await until_stored(rows, run, 8)
    await follow(client, run, joined)
    posted, late = await posting, await finished(client, run)
    assert posted.shown == joined.shown == late.shown
    roles = [message["role"] for message in late.reducer.messages]
    assert roles == ["user", "reasoning", "assistant", "tool", "assistant", "assistant"]
    assert late.reducer.messages[4]["content"] == "".join(f"word{n} " for n in range(12))
    assert late.reducer.state["progress"] == {"done": 3, "of": 3}
    stored = await rows.fetch("SELECT event_type FROM events WHERE invocation_id = $1", run)
    assert not [each for each in stored if each["event_type"].startswith("text_")]
    assert await rows.fetchval("SELECT count(*) FROM live_messages WHERE run_id = $1", run) == 0


async def until_stored(rows: asyncpg.Connection, run: str, events: int) -> None:
    stored = f"SELECT count(*) >= {events} FROM events WHERE invocation_id = $1"
    await until(lambda: rows.fetchval(stored, run), "the run makes progress")


async def test_a_client_cut_after_every_n_frames_ends_like_an_uncut_one(
    client: httpx.AsyncClient, thread: str, run: str
) -> None:
    """For every N, a client that is cut after each N frames and resumes has what an uncut one has."""
    whole = await run_agent(client, asked(thread, run), "frames")
    expected = await finished(client, run)
    assert len(whole.frames) >= 60
    assert whole.shown == expected.shown

    async def cut(every: int) -> None:
        page = Page()
        while not page.is_over:
            await follow(client, run, page, at_most=every)
        page.rules.end()
        assert page.shown == expected.shown

    for begin in range(1, len(expected.frames) + 1, 10):
        await asyncio.gather(*(cut(n) for n in range(begin, begin + 10)))


async def test_a_client_cut_during_the_run_ends_like_an_uncut_one(
    client: httpx.AsyncClient, thread: str, run: str
) -> None:
    """Sixteen clients are cut after every 1 to 16 frames while the run continues."""
    posting = asyncio.create_task(run_agent(client, asked(thread, run), "frames"))
    while (await client.get(f"/api/runs/{run}/events", params={"offset": "x"})).status_code == 404:
        await asyncio.sleep(0.005)
    pages = [Page() for _ in range(16)]

    async def cut(page: Page, every: int) -> None:
        while not page.is_over:
            await follow(client, run, page, at_most=every)
        page.rules.end()

    await asyncio.gather(*(cut(page, n) for n, page in enumerate(pages, 1)))
    posted = await posting
    shown = {json.dumps(page.shown, sort_keys=True) for page in pages}
    assert shown == {json.dumps(posted.shown, sort_keys=True)}


async def test_a_run_is_never_executed_twice(
    client: httpx.AsyncClient, thread: str, run: str, rows: asyncpg.Connection
) -> None:
    """The same input follows the run from its start, or from Last-Event-ID. At the end of the run it gets 204."""
    first = await start(client, thread, run)
    again = asyncio.create_task(run_agent(client, asked(thread, run)))
    async with client.stream(
        "POST", "/agui", json=asked(thread, run), headers={"Last-Event-ID": first.last_id or ""}
    ) as response:
        async for frame in frames_of(response):
            first.take(frame)
    assert first.reducer.messages == (await again).reducer.messages[1:]
    assert await rows.fetchval("SELECT count(*) FROM runs WHERE run_id = $1", run) == 1
    over = await client.post("/agui", json=asked(thread, run), headers={"Last-Event-ID": first.last_id or ""})
    assert over.status_code == 204
    other = await client.post("/agui", json=asked("another thread", run))
    assert problem(other)["type"] == "/problems/run-conflict"


async def test_headers_comments_and_custom_frames(client: httpx.AsyncClient, thread: str, run: str) -> None:
    """The stream's headers; comments by default; CUSTOM frames for connected and heartbeat on request."""
    await start(client, thread, run, "wait")
    async with client.stream("GET", f"/api/runs/{run}/events") as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-accel-buffering"] == "no"
        assert "no-cache" in response.headers["cache-control"]
        seen = b""
        async for chunk in response.aiter_raw():
            seen += chunk
            if b": heartbeat\n\n" in seen:
                break
        assert re.match(rb": connected\nretry: [123]\d\d\d\n\n", seen)
    async with client.stream("GET", f"/api/runs/{run}/events", params={"frames": "custom"}) as response:
        events = []
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
                if events[-1].get("name") == "heartbeat":
                    break
    connected = events[0]
    assert (connected["type"], connected["name"], connected["runId"]) == ("CUSTOM", "connected", run)
    assert connected["message"] == f"SSE stream for run_id={run}"
    assert events[1]["type"] == "RUN_STARTED"
    assert (await client.head(f"/api/runs/{run}/events")).status_code == 405
    await client.post(f"/api/runs/{run}/cancel")
    assert (await finished(client, run)).reducer.ends[0]["outcome"] == {"type": "cancelled"}


async def test_cancelled_and_failed_runs_end_with_a_reason(client: httpx.AsyncClient, thread: str, run: str) -> None:
    """Cancel ends the agent at once, old clients receive it as an error, and an agent's exception does not leak."""
    posting = asyncio.create_task(run_agent(client, asked(thread, run), "wait"))
    old = {key: value for key, value in asked(thread, f"{run}-old").items() if key != "protocolVersion"}
    posting_old = asyncio.create_task(run_agent(client, old, "wait"))
    for name in (run, f"{run}-old"):
        while (response := await client.post(f"/api/runs/{name}/cancel")).status_code == 404:
            await asyncio.sleep(0.01)
        assert response.status_code == 202
    assert (await posting).reducer.ends[0]["outcome"] == {"type": "cancelled"}
    assert (await posting_old).reducer.ends[0]["code"] == "cancelled"
    done = await client.post(f"/api/runs/{run}/cancel")
    assert (done.status_code, done.json()["status"]) == (200, "cancelled")
    failed = await run_agent(client, asked(thread, f"{run}-f"), "fail")
    assert failed.reducer.ends[0]["message"] == "no luck today"
    crashed = await run_agent(client, asked(thread, f"{run}-c"), "crash")
    assert crashed.reducer.ends[0]["code"] == "agent_failed"
    assert "secret" not in json.dumps(crashed.reducer.ends)


async def test_interrupts_are_answered_by_the_next_run(client: httpx.AsyncClient, thread: str, run: str) -> None:
    """An interrupted run ends with the outcome `interrupt`. The next run must bring an answer for each interrupt."""
    asking = await run_agent(client, asked(thread, run), "ask")
    (interrupt,) = asking.reducer.ends[0]["outcome"]["interrupts"]
    refused = await client.post("/agui/ask", json=asked(thread, f"{run}-2"))
    assert problem(refused)["type"] == "/problems/interrupt-open"
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}
    answered = await run_agent(client, asked(thread, f"{run}-2", resume=[answer]), "ask")
    assert answered.reducer.messages[-1]["content"] == "You said yes"


async def test_a_client_tool_is_left_to_the_client(client: httpx.AsyncClient, thread: str, run: str) -> None:
    """The call is pending when the run ends. The next run brings its result, which late clients see too."""
    calling = await run_agent(client, asked(thread, run), "delegate")
    assert calling.reducer.ends[0]["outcome"] == {"type": "success", "pendingToolCallIds": [f"call-{run}"]}
    result = {"id": "t1", "role": "tool", "toolCallId": f"call-{run}", "content": "sure"}
    body = asked(thread, f"{run}-2", messages=[*calling.reducer.messages, result])
    answered = await run_agent(client, body, "delegate")
    assert answered.reducer.messages[-1]["content"] == "The page says sure"
    joined = await finished(client, f"{run}-2")
    assert [each["role"] for each in joined.reducer.messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_refusal_before_the_stream_is_a_problem(
    client: httpx.AsyncClient, thread: str, run: str, rows: asyncpg.Connection
) -> None:
    """404 for unknown and other users' runs; 422 without a valid cursor, owner or input; 410 pruned; 204 past the
    end."""
    await run_agent(client, asked(thread, run), "echo")
    page = await finished(client, run)
    path = f"/api/runs/{run}/events"
    assert (await client.get(path, headers={"Last-Event-ID": page.last_id or ""})).status_code == 204
    assert (await client.get(path, params={"offset": page.last_id or ""})).status_code == 204
    unknown = await client.get("/api/runs/nobody/events")
    assert problem(unknown)["type"] == "/problems/run-not-found"
    assert (await client.get(path, headers={"X-User-Id": "eve"})).status_code == 404
    assert (await client.post(f"/api/runs/{run}/cancel", headers={"X-User-Id": "eve"})).status_code == 404
    assert (await client.get(path, params={"offset": "nonsense"})).status_code == 422
    assert (await client.get(path, headers={"X-User-Id": ""})).status_code == 422
    assert (await client.post("/agui/nobody", json=asked(thread, run))).status_code == 404
    assert (await client.post("/agui", json={"threadId": thread})).status_code == 422
    running = f"{run}-w"
    await start(client, thread, running, "wait")
    future = await client.get(f"/api/runs/{running}/events", params={"offset": "999999"})
    assert future.status_code == 422
    await client.post(f"/api/runs/{running}/cancel")
    async with rows.transaction():
        await rows.execute("SET LOCAL session_replication_role = replica")
        await rows.execute("DELETE FROM events WHERE invocation_id = $1", run)
    assert problem(await client.get(path))["type"] == "/problems/run-pruned"


async def test_a_run_without_the_id_of_a_session_is_refused(
    client: httpx.AsyncClient, run: str, rows: asyncpg.Connection
) -> None:
    """A blank id creates no session under an id that the client never learns; a run of another process neither."""
    before = await rows.fetchval("SELECT count(*) FROM threads")
    for blank in ("", " \t"):
        refused = problem(await client.post("/agui/echo", json=asked(blank, run)))
        assert (refused["type"], refused["detail"][:27]) == ("/problems/invalid-request", "body/threadId is blank: sen")
        remote = {"thread_id": blank, "run_id": run, "holder": "worker-1"}
        assert problem(await client.post("/api/runs", json=remote))["type"] == "/problems/invalid-request"
    assert await rows.fetchval("SELECT count(*) FROM threads") == before


async def test_a_ticket_opens_connections_of_its_scope(
    client: httpx.AsyncClient, writer: WriterProcess, thread: str, run: str, rows: asyncpg.Connection
) -> None:
    """A browser's ticket works until it expires, for its run and session. The database stores only its hash. One that
    allows it also runs agents in its session, and cancels their runs."""
    await run_agent(client, asked(thread, run), "echo")
    await run_agent(client, asked(thread, f"{run}-2"), "echo")

    async def ticket(**fields: Any) -> str:
        response = await client.post("/api/tickets", json={"thread_id": thread, **fields})
        assert response.status_code == 201, response.text
        return str(response.json()["ticket"])

    token = await ticket(run_id=run)
    assert token not in str(await rows.fetch("SELECT * FROM stream_tickets"))
    async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as browser:
        path = f"/api/runs/{run}/events"
        for _ in range(2):
            assert (await browser.get(path, params={"ticket": token})).status_code == 200
        wrong = await browser.get(path, params={"ticket": f"{token}x"})
        assert problem(wrong)["type"] == "/problems/wrong-ticket"
        other = await browser.get(f"/api/runs/{run}-2/events", params={"ticket": await ticket(run_id=run)})
        assert other.status_code == 401
        assert (await browser.get(f"/api/runs/{run}-2/events", params={"ticket": await ticket()})).status_code == 200
        assert (await browser.get(path)).status_code == 401
        assert (await browser.post(f"/api/runs/{run}/cancel", params={"ticket": await ticket()})).status_code == 401
        mine, follows = {"ticket": await ticket(may_run=True)}, {"ticket": await ticket()}
        for given, body, status in (
            (follows, asked(thread, f"{run}-3"), 401),
            (mine, asked(f"{thread}-other", f"{run}-3"), 401),
            (mine, asked(thread, f"{run}-3"), 200),
        ):
            assert (await browser.post("/agui/echo", json=body, params=given)).status_code == status
        assert (await browser.post(f"/api/runs/{run}-3/cancel", params=mine)).status_code == 200
        assert (await browser.post("/v1/apps/shop/users/mei/sessions", params=mine, json={})).status_code == 401
        allowed = {"Origin": "https://page.example"}
        page = await browser.get(path, params={"ticket": await ticket()}, headers=allowed)
        assert page.headers["access-control-allow-origin"] == "https://page.example"
        foreign = await browser.get(path, params={"ticket": await ticket()}, headers={"Origin": "https://evil.example"})
        assert problem(foreign)["type"] == "/problems/wrong-origin"
        late = await ticket()
        await rows.execute("UPDATE stream_tickets SET expires_at = now() - interval '1 second'")
        assert (await browser.get(path, params={"ticket": late})).status_code == 401
    unknown = await client.post("/api/tickets", json={"thread_id": "nowhere"})
    assert problem(unknown)["type"] == "/problems/session-not-found"


def socket_url(writer: WriterProcess, thread: str, **query: str) -> str:
    path = str(httpx.URL(writer.url, path=f"/ws/events/{thread.replace('/', '%2F')}", params=query))
    return path.replace("http://", "ws://").replace("%252F", "%2F")


async def test_a_thread_is_followed_over_a_socket(
    client: httpx.AsyncClient, writer: WriterProcess, thread: str, run: str, rows: asyncpg.Connection
) -> None:
    """One socket receives run after run and events outside runs, one per message. Its cursor resumes where it
    stopped."""
    await client.post("/v1/apps/shop/users/mei/sessions", json={"session_id": thread})
    rules, reducer, last = StreamRules(), Reducer(), ""
    url = socket_url(writer, thread, frames="envelope")
    async with websockets.connect(url, additional_headers=HEADERS) as opened:
        runs = [run_agent(client, asked(thread, f"{run}-{n}", f"turn {n}"), "echo") for n in range(2)]
        for each in runs:
            await each
        said = {"events": [{"author": "user", "content": {"text": "outside of any run"}}]}
        await client.post(f"/v1/apps/shop/users/mei/sessions/{thread.replace('/', '%2F')}/events", json=said)
        while len(reducer.ends) < 3:
            message = json.loads(await asyncio.wait_for(opened.recv(), WAIT_SECONDS))
            last = message["id"]
            rules.event(message["chunk"])
            reducer.event(message["chunk"])
    rules.end()
    texts = [message["content"] for message in reducer.messages]
    assert texts == ["turn 0", "turn 0 ", "turn 1", "turn 1 ", "outside of any run"]
    again = socket_url(writer, thread, frames="envelope", offset=last)
    async with websockets.connect(again, additional_headers=HEADERS) as opened:
        await run_agent(client, asked(thread, f"{run}-9", "more"), "echo")
        first = json.loads(await asyncio.wait_for(opened.recv(), WAIT_SECONDS))["chunk"]
        assert (first["type"], first["runId"]) == ("RUN_STARTED", f"{run}-9")


async def test_the_socket_of_one_run_closes_at_its_end_and_others_are_refused(
    client: httpx.AsyncClient, writer: WriterProcess, thread: str, run: str
) -> None:
    """With `run_id` the socket closes after the last event. Without a key, ticket or allowed origin it never opens."""
    await run_agent(client, asked(thread, run), "echo")
    rules = StreamRules()
    url = socket_url(writer, thread, run_id=run)
    async with websockets.connect(url, additional_headers=HEADERS) as opened:
        async for message in opened:
            rules.event(json.loads(message))
        assert opened.close_code == 1000
    rules.end()
    token = (await client.post("/api/tickets", json={"thread_id": thread})).json()["ticket"]
    async with websockets.connect(socket_url(writer, thread, run_id=run, ticket=token)) as opened:
        assert json.loads(await opened.recv())["type"] == "RUN_STARTED"
    logged = []
    for address, headers, code, reason in (
        (url, {}, 4401, "wrong-key"),
        (url, {**HEADERS, "X-User-Id": "eve"}, 4404, "session-not-found"),
        (url, {**HEADERS, "Origin": "https://evil.example"}, 4403, "wrong-origin"),
        (socket_url(writer, thread, ticket=f"{token}x"), {}, 4401, "wrong-ticket"),
        (socket_url(writer, thread, offset="99/"), HEADERS, 4422, "invalid-request"),
    ):
        async with websockets.connect(address, additional_headers=headers) as opened:
            await opened.wait_closed()
        assert (opened.close_code, str(opened.close_reason).partition(":")[0]) == (code, reason)
        logged.append(("/ws/events/{thread_id}", code, reason))

    def refusals() -> list[Any]:
        lines = [line for line in writer.log() if line["event"] == "socket_closed" and line["code"] > 4000]
        return [(line["route"], line["code"], line["reason"].partition(":")[0]) for line in lines]

    await until(lambda: set(logged) <= set(refusals()))


async def test_a_test_notification_reaches_followers(client: httpx.AsyncClient, thread: str, run: str) -> None:
    """The routes exist because the setting enables them. Followers of the run receive RAW at once."""
    await start(client, thread, run, "wait")
    page = Page()
    following = asyncio.create_task(follow(client, run, page, at_most=None))
    await until(lambda: len(page.frames) > 4)
    sent = (await client.get(f"/api/test-sse-notify/{run}")).json()
    assert (sent["status"], sent["run_id"]) == ("sent", run)
    assert json.loads(sent["payload"])["run_id"] == run
    assert (await client.get("/api/test-notify")).json()["status"] == "sent"
    await client.post(f"/api/runs/{run}/cancel")
    await following


async def test_a_slow_client_is_disconnected_and_resumes(
    client: httpx.AsyncClient, writer: WriterProcess, thread: str, run: str
) -> None:
    """A client that reads nothing does not slow down the others, and fills only a bounded queue. With its cursor it
    gets exactly the rest."""
    with socket.create_connection(("127.0.0.1", writer.port)) as slow:
        await _is_disconnected(client, writer, slow, thread, run)


async def _is_disconnected(
    client: httpx.AsyncClient, writer: WriterProcess, slow: socket.socket, thread: str, run: str
) -> None:
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131072)
    # It starts the run itself: no text of it can be over before the slow client follows.
    body = json.dumps(asked(thread, run)).encode()
    lines = {"Host": "x", **HEADERS, "Content-Type": "application/json", "Content-Length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    slow.sendall(f"POST /agui/flood HTTP/1.1\r\n{head}\r\n".encode() + body)
    while (await client.get(f"/api/runs/{run}/events", params={"offset": "x"})).status_code == 404:
        await asyncio.sleep(0.005)
    other = await finished(client, run)
    assert "streams_let_go_total 1.0" in (await client.get(metrics_of(writer))).text
    page = Page()
    slow.settimeout(5)
    received = bytearray()
    try:
        while chunk := slow.recv(65536):
            received += chunk
            if received.endswith(b"0\r\n\r\n"):
                break
    except TimeoutError:
        pass
    body = unchunked(bytes(received))
    for frame in body.split(b"\n\n")[:-1]:
        if not frame.startswith(b":"):
            page.take(frame + b"\n\n")
    while not page.is_over:
        await follow(client, run, page)
    # Who posted a message is not sent it.
    (sent, *answers) = other.reducer.messages
    assert (sent["role"], page.reducer.messages) == ("user", answers)


def unchunked(answer: bytes) -> bytes:
    """The body of a chunked response, as far as it was received."""
    pieces, position = [], answer.index(b"\r\n\r\n") + 4
    while position < len(answer):
        end = answer.find(b"\r\n", position)
        length = int(answer[position:end], 16) if end > 0 else 0
        if not length or end + 2 + length > len(answer):
            break
        pieces.append(answer[end + 2 : end + 2 + length])
        position = end + 2 + length + 2
    return b"".join(pieces)


async def test_hundreds_of_connects_and_disconnects_leave_no_trace(
    client: httpx.AsyncClient, writer: WriterProcess, thread: str, run: str
) -> None:
    """No follower is left, and the process has not grown by what they used."""
    await start(client, thread, run, "wait")

    async def connect_and_disconnect(times: int) -> None:
        for _ in range(times):
            await follow(client, run, Page(), at_most=2)

    await asyncio.gather(*(connect_and_disconnect(5) for _ in range(20)))
    before = resident_kb(writer)
    await asyncio.gather(*(connect_and_disconnect(15) for _ in range(20)))

    async def no_follower_is_left() -> bool:
        text = (await client.get(metrics_of(writer))).text
        return {"streams_open 0.0", "streams_runs_followed 0.0"} <= set(text.splitlines())

    await until(no_follower_is_left)
    assert resident_kb(writer) - before < 8_000
    await client.post(f"/api/runs/{run}/cancel")


def metrics_of(writer: WriterProcess) -> str:
    """The address of this writer's metrics: other writers may run beside it."""
    (port,) = (line["port"] for line in writer.log() if line.get("event") == "metrics_served")
    return f"http://127.0.0.1:{port}/metrics"


def resident_kb(writer: WriterProcess) -> int:
    assert writer.process is not None
    lines = Path(f"/proc/{writer.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def test_killing_the_listener_during_a_stream_loses_no_event(
    client: httpx.AsyncClient, streams_dsn: str, thread: str, run: str
) -> None:
    """The writer's listening connection dies during a run. The stream continues, complete, and health recovers."""
    posting = asyncio.create_task(run_agent(client, asked(thread, run)))
    for _ in range(3):
        await asyncio.sleep(0.15)
        await kill_listener(streams_dsn)
    posted = await posting
    assert posted.reducer.messages[4]["content"] == "".join(f"word{n} " for n in range(12))

    async def listens() -> bool:
        return bool((await client.get("/health")).json()["listener_running"])

    await until(listens)


@pytest.mark.system
@pytest.mark.timing
def test_sigterm_with_500_open_streams_ends_in_time(streams_dsn: str, tmp_path: Any) -> None:
    """The writer ends its streams, the run that it executes and itself within 5 seconds."""

    async def open_streams(writer: WriterProcess) -> None:
        run = f"run-{uuid.uuid4().hex[:8]}"
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        request = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode()
        async with httpx.AsyncClient(base_url=writer.url, headers=HEADERS, timeout=WAIT_SECONDS) as client:
            await start(client, "t", run, "wait")
            ready = asyncio.Semaphore(0)

            async def hold() -> bytes:
                # An HTTP client would take as much processor time for 500 streams as the writer.
                reader, sender = await asyncio.open_connection("127.0.0.1", writer.port)
                sender.write(request)
                received = await reader.readuntil(b"data: ")
                ready.release()
                received += await reader.read()
                sender.close()
                assert received.startswith(b"HTTP/1.1 200 ")
                assert received.endswith(b"0\r\n\r\n"), received  # It was not cut.
                return received

            holding = [asyncio.create_task(hold()) for _ in range(500)]
            for _ in range(500):
                await ready.acquire()
            loop = asyncio.get_running_loop()
            busy = slowdown()
            began = loop.time()
            assert await asyncio.to_thread(writer.stop) == 0
            assert loop.time() - began < at_this_pace(5)
            # Each stream has received the run's end once, and no connection was cut. A machine that cannot send 500 of
            # them in half a second leaves some to the reconnection, with their cursors.
            ends = {received.count(b'"code":"shutdown"') for received in await asyncio.gather(*holding)}
            assert ends == {1} or (ends == {0, 1} and max(busy, slowdown()) > 1.3)
            async with await database.create_pool(streams_dsn) as pool:
                assert await pool.fetchval("SELECT error_code FROM runs WHERE run_id = $1", run) == "shutdown"

    with WriterProcess(streams_dsn, tmp_path / "log", module="tests.support.stream_agents", api_key=KEY) as writer:
        asyncio.run(open_streams(writer))


def test_sigterm_ends_streams_of_runs_that_another_process_executes(streams_dsn: str, tmp_path: Path) -> None:
    """A writer that executes no run ends its SSE streams and sockets in time. Each response is complete, without an end
    of the run, sockets close with 1012, and the run continues elsewhere."""

    async def open_streams(writer: WriterProcess) -> None:
        run = f"run-{uuid.uuid4().hex[:8]}"
        async with await database.create_pool(streams_dsn) as pool:
            sessions, runs = OpenSessionService(pool), RunService(pool)
            await sessions.create_session("shop", "mei", session_id=run)
            started = (await runs.start("shop", "mei", run, run)).run
            async with httpx.AsyncClient(base_url=writer.url, headers=HEADERS, timeout=WAIT_SECONDS) as client:
                ready = asyncio.Semaphore(0)

                async def hold() -> Page:
                    page = Page()
                    async with client.stream("GET", f"/api/runs/{run}/events") as response:
                        async for frame in frames_of(response):
                            page.take(frame)
                            if len(page.frames) == 3:
                                ready.release()
                    return page

                holding = [asyncio.create_task(hold()) for _ in range(20)]
                for _ in holding:
                    await ready.acquire()
                url = socket_url(writer, run)
                async with websockets.connect(url, additional_headers=HEADERS) as opened:
                    await opened.recv()
                    assert await asyncio.to_thread(writer.stop) == 0
                    await opened.wait_closed()
                    assert opened.close_code == 1012
                assert [len(page.reducer.ends) for page in await asyncio.gather(*holding)] == [0] * 20
            assert (await runs.finish(started)).run.status == "completed"
            await sessions.close()
            await runs.close()

    with WriterProcess(streams_dsn, tmp_path / "log", api_key=KEY) as writer:
        asyncio.run(open_streams(writer))


async def test_input_that_no_text_can_hold_is_run_or_refused(client: httpx.AsyncClient, thread: str) -> None:
    """A lone surrogate in a message is run; a state 400 levels deep is refused: neither is answered with 500."""
    state: Any = 1
    for _ in range(400):
        state = {"a": state}
    for given, status in (({}, 200), ({"state": state}, 422)):
        body = {**asked(thread, f"run-{uuid.uuid4().hex[:8]}"), **given}
        body["messages"] = [{"id": uuid.uuid4().hex, "role": "user", "content": "broken \ud83d emoji"}]
        response = await client.post(
            "/agui/default", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        assert response.status_code == status, response.text
