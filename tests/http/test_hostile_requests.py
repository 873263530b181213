"""What one caller could do to all others, and input that was answered with 500."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import resource
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake

from pulse.http.edge import bodies
from pulse.postgres import cursors
from tests.support.fake_gemini import FakeGemini
from tests.support.key_scene import bearer, made
from tests.support.live_writer import serving
from tests.support.pace import at_this_pace
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess, append, healthy, problem, say
from workers.api import malformed
from workers.embedded.server import EmbeddedServer

POOL_SIZE = 4
#: How many searches run at once, with a pool of this size.
READ_SLOTS = 4 * POOL_SIZE


async def test_a_repeated_key_is_found_in_linear_time(client: httpx.AsyncClient, session: str) -> None:
    """The last of 600,000 keys occurs twice: refused in two seconds, and other callers are answered meanwhile.

    If each key were compared with each, it would take hours."""
    pairs = ",".join(f'"{number}":0' for number in range(600_000))
    body = f'{{{pairs},"599999":1}}'.encode()
    assert len(body) < 8_000_000
    headers = {"Content-Type": "application/json"}
    hostile = asyncio.create_task(client.post(f"{session}/events", content=body, headers=headers, timeout=240))
    while not hostile.done():
        await client.get(session)
    response = await hostile
    assert response.status_code == 422
    assert "twice" in problem(response)["detail"]


async def test_a_long_body_is_parsed_beside_other_requests() -> None:
    """Not on the event loop, which would serve nobody meanwhile."""
    body = b"[" + b"0," * 50_000 + b"0]"
    request = bodies.ExactRequest({"type": "http", "method": "POST", "headers": []}, _receives(body))
    await request.body()
    turns = itertools.count()

    async def others() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    serving_others = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = next(turns)
    assert len(await request.json()) == 50_001
    assert next(turns) > before + 1, "nobody was served while it was parsed"
    serving_others.cancel()


def _receives(body: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def test_the_role_is_checked_before_the_body_is_read(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """A key without the role, or of another app, learns nothing of its body and costs no parsing."""
    key = await made(writer_dsn, app, "read")
    async with bearer(writer, key.text) as reader:
        for owner in (app, "other"):
            response = await reader.post(
                f"/v1/apps/{owner}/users/ann/sessions", content=b"{", headers={"Content-Type": "application/json"}
            )
            assert response.status_code == 403, response.text


#: A search waits at most ten seconds for the slot of one that hangs for five.
SEARCHES = 2 * READ_SLOTS


async def test_a_hanging_model_neither_stops_searches_nor_appends(dsn: str, tmp_path: Path) -> None:
    """Searches wait for a vector that never comes: each is answered by its text, and appends are stored while
    every slot of a search is taken.

    The breaker is the database's: other tests use another one."""
    async with FakeGemini() as gemini:
        gemini.script("hang", times=10_000)
        process = WriterProcess(
            dsn,
            tmp_path / "log",
            api_key=KEY,
            provider="gemini",
            provider_api_key="k",
            provider_base_url=gemini.base_url,
            query_embed_seconds="5",
            breaker_open_seconds="600",
            database_pool_size=str(POOL_SIZE),
        )
        await asyncio.to_thread(process.__enter__)
        headers = {"Authorization": f"Bearer {KEY}"}
        try:
            async with httpx.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as client:
                user = f"{process.url}/v1/apps/app-{uuid.uuid4().hex[:8]}/users/ann"
                (await client.post(f"{user}/sessions", json={"session_id": "s1"})).raise_for_status()
                await append(client, f"{user}/sessions/s1", say("The umbrella is blue"))
                stored_beside_hanging = 0
                searches = [
                    asyncio.create_task(client.post(f"{user}/search", json={"query": "umbrella"}))
                    for _ in range(SEARCHES)
                ]

                def all_that_may_search_hang() -> bool:
                    return gemini.stats()["calls"].get("batchEmbedContents", 0) >= READ_SLOTS

                await until(all_that_may_search_hang)
                while not all(each.done() for each in searches):
                    stored = await append(client, f"{user}/sessions/s1", say("And it rains"))
                    assert stored.status_code == 201, stored.text
                    stored_beside_hanging += not any(each.done() for each in searches)
                for each in searches:
                    found = each.result()
                    assert found.status_code == 200, found.text
                    assert "text alone was searched" in found.json()["degraded"]
                assert stored_beside_hanging > 0, "appends waited for a slot of the searches"
                # The breaker is open now: nothing more is asked.
                asked = gemini.stats()["calls"]["batchEmbedContents"]
                assert asked < SEARCHES
                window = await client.post(f"{user}/context", json={"query": "umbrella", "session_id": "s1"})
                assert "text alone was searched" in window.json()["degraded"]
                assert gemini.stats()["calls"]["batchEmbedContents"] == asked
        finally:
            await asyncio.to_thread(process.stop)


async def test_a_stream_of_a_thread_that_is_not_utf8_is_not_found(writer: WriterProcess, app: str) -> None:
    """The socket is closed with a problem, not with an internal error."""
    url = f"{writer.url.replace('http', 'ws')}/ws/events/%ff?app_name={app}&user_id=ann"
    async with connect(url, additional_headers={"Authorization": f"Bearer {KEY}"}) as opened:
        await opened.wait_closed()
    assert (opened.close_code, str(opened.close_reason).partition(":")[0]) == (4422, "invalid-request")


def forged(cursor: str, position: Any) -> str:
    """A cursor of the same list at another position, with a checksum as anyone can compute it."""
    return cursors.write(base64.urlsafe_b64decode(cursor)[:8], position)


async def test_a_forged_cursor_is_refused(client: httpx.AsyncClient, user: str, session: str) -> None:
    """Positions that no list has written never reach the database."""
    for number in range(3):
        await append(client, session, say(f"event {number}"))
    page = (await client.get(f"{session}/events", params={"limit": 1})).json()
    for position in (2**70, -1, 2):
        request = {"limit": 1, "cursor": forged(page["next_cursor"], position)}
        response = await client.get(f"{session}/events", params=request)
        assert response.status_code == 422, (position, response.text)
        assert "cursor" in problem(response)["detail"]
    (await client.post(f"{user}/sessions", json={"session_id": "s2"})).raise_for_status()
    page = (await client.get(f"{user}/sessions", params={"limit": 1})).json()
    for position in ("", "x", "\0"):
        request = {"limit": 1, "cursor": forged(page["next_cursor"], position)}
        assert (await client.get(f"{user}/sessions", params=request)).status_code == 422


async def test_a_cursor_is_valid_at_every_writer(
    writer_dsn: str, tmp_path: Path, client: httpx.AsyncClient, session: str
) -> None:
    """Its checksum has a key of the installation, not of the process."""
    await append(client, session, say("one"), say("two"))
    page = (await client.get(f"{session}/events", params={"limit": 1})).json()
    with WriterProcess(writer_dsn, tmp_path / "log", api_key=KEY) as other:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=other.url, headers=headers, timeout=WAIT_SECONDS) as second:
            request = {"limit": 1, "cursor": page["next_cursor"]}
            rest = await second.get(f"{session}/events", params=request)
            assert [each["sequence_num"] for each in rest.json()["events"]] == [2]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("depth", [199, 200, 400])
async def test_deep_values_are_stored_and_returned_or_refused(
    client: httpx.AsyncClient, user: str, session: str, depth: int
) -> None:
    """In a state, a delta, metadata and content: what is accepted can be read again; nothing is answered with 500."""
    deep = nested(depth)
    sent = [
        await client.post(f"{user}/sessions", json={"session_id": f"state-{depth}", "state": {"k": deep}}),
        await client.post(f"{user}/sessions", json={"session_id": f"meta-{depth}", "metadata": {"k": deep}}),
        await client.post(f"{session}/events", json={"events": [say("x", actions={"state_delta": {"k": deep}})]}),
        await client.post(f"{session}/events", json={"events": [{"author": "user", "content": deep}]}),
        await client.put(f"{session}/state", json={"state": {"k": deep}}),
        await client.post(f"{user}/search", json={"query": "x", "metadata": {"k": deep}}),
    ]
    assert {each.status_code for each in sent} <= {200, 201, 204, 405, 422}, [each.text[:200] for each in sent]
    for name in (f"state-{depth}", f"meta-{depth}", "s1"):
        read = await client.get(f"{user}/sessions/{name}")
        assert read.status_code in (200, 404), read.text
    for path in (f"{session}/events", f"{session}/state", f"{user}/sessions"):
        read = await client.get(path)
        assert read.status_code == 200, (path, read.text)


@pytest.mark.parametrize("seconds", [-62_135_596_800, -62_135_596_799.5, -62_135_596_800 + 86_400, 253_402_300_799.9])
async def test_an_event_at_the_end_of_time_is_refused_or_kept(
    client: httpx.AsyncClient,
    session: str,
    rows: asyncpg.Connection,
    app: str,
    server: EmbeddedServer,
    seconds: float,
) -> None:
    """It is never stored as infinity, and never an error of the database, whose log would hold the event's text."""
    secret = f"the vault code is {uuid.uuid4().hex}"
    response = await client.post(f"{session}/events", json={"events": [say(secret, timestamp=seconds)]})
    assert response.status_code in (201, 422), response.text
    assert secret not in server.log_path.read_text()
    if response.status_code == 201:
        events = (await client.get(f"{session}/events")).json()["events"]
        assert events[0]["timestamp"] == pytest.approx(seconds)
        assert await rows.fetchval(
            "SELECT bool_and(isfinite(occurred_at)) FROM events JOIN threads ON threads.id = thread_id"
            " WHERE app_name = $1",
            app,
        )


async def test_both_lengths_of_a_body_are_refused(writer: WriterProcess, app: str) -> None:
    """Content-Length together with Transfer-Encoding, as request smuggling needs it: a problem, and the end."""
    request = (
        f"POST /v1/apps/{app}/users/ann/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    )
    reply = await asyncio.to_thread(exchange, writer.port, request.encode())
    assert reply.startswith(b"HTTP/1.1 400 "), reply
    assert reply.count(b"HTTP/1.1") == 1
    assert b"connection: close" in reply.lower()


async def test_a_slow_head_ends_the_connection(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte now and then does not hold a connection: neither the first request nor one that follows another."""
    monkeypatch.setattr(malformed, "HEAD_SECONDS", 0.5)

    async def hold(port: int, before: bytes) -> None:
        reader, sender = await asyncio.open_connection("127.0.0.1", port)
        sender.write(before + b"GET /health HTTP/1.1\r\n")
        trickle = asyncio.create_task(_send_slowly(sender))
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), WAIT_SECONDS)
        trickle.cancel()
        sender.close()

    async with serving(dsn, {}) as writer:
        port = int(writer.url.rpartition(":")[2])
        first, other = b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        await asyncio.gather(hold(port, first), hold(port, other))


async def test_an_upgrade_that_is_none_ends_the_connection(writer: WriterProcess) -> None:
    """A POST that asks for a WebSocket is answered by nobody: it is not held."""
    reader, sender = await asyncio.open_connection("127.0.0.1", writer.port)
    sender.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
    sender.close()


async def test_a_slow_body_ends_the_connection_and_holds_no_slot(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More bodies that stop half-way than there are slots: a call beside them is served, and each gets its problem.

    A busy machine may not serve the call within the time that the bodies have: then they have more."""
    path = "/v1/apps/shop/users/ann/sessions"
    headers = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000"
    head = f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n{{"

    async def stop_half_way(port: int) -> bytes:
        reader, sender = await asyncio.open_connection("127.0.0.1", port)
        sender.write(head.encode())
        try:
            return await asyncio.wait_for(reader.read(), WAIT_SECONDS)
        finally:
            sender.close()

    async with serving(dsn, {}) as writer, httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
        port = int(writer.url.rpartition(":")[2])
        for seconds in (2.0, 10.0, 40.0):
            monkeypatch.setattr(bodies, "BODY_TIMEOUT_SECONDS", seconds)
            slow = [asyncio.create_task(stop_half_way(port)) for _ in range(60)]
            answer = await client.post(path, json={"session_id": f"s{seconds:g}"})
            is_served_beside_them = answer.status_code == 201 and not any(each.done() for each in slow)
            for reply in await asyncio.gather(*slow):
                assert reply.startswith(b"HTTP/1.1 400 "), reply
                assert f"the body did not arrive within {seconds:g} s".encode() in reply
                assert b"connection: close" in reply.lower()
            if is_served_beside_them:
                break
        assert is_served_beside_them


async def _send_slowly(sender: asyncio.StreamWriter) -> None:
    while True:
        sender.write(b"X-A: b\r\n")
        await asyncio.sleep(0.05)


async def test_too_many_connections_are_refused(writer_dsn: str, tmp_path: Path) -> None:
    """A process that may open 260 files: one address gets half of the rest, others are served, the log stays short."""
    with WriterProcess(writer_dsn, tmp_path / "log", api_key=KEY) as process:
        assert process.process is not None
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (260, 260))
        opened = []
        try:
            for _ in range(400):
                opened.append(await asyncio.open_connection("127.0.0.1", process.port))

            async def left() -> bool:
                return sum(not reader.at_eof() and reader.exception() is None for reader, _ in opened) <= 80

            await until(left)
            transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
            async with httpx.AsyncClient(transport=transport, timeout=WAIT_SECONDS) as other:
                await healthy(other, f"{process.url}/health")
        finally:
            for _, sender in opened:
                sender.close()
        events = [line["event"] for line in process.log()]
        assert "connections_refused" in events
        assert len(process.log_path.read_text().splitlines()) < 50

        async def is_free() -> bool:
            with contextlib.suppress(httpx.TransportError):
                async with httpx.AsyncClient(timeout=WAIT_SECONDS) as same:
                    return (await same.get(f"{process.url}/health")).status_code == 200
            return False

        await until(is_free)


async def test_websockets_count_for_their_address(writer_dsn: str, tmp_path: Path) -> None:
    """An upgrade is no way around the limit of an address, and what has ended leaves its place."""
    async with contextlib.AsyncExitStack() as stack:
        settings = {"api_key": KEY, "connections_per_address": "4"}
        process = stack.enter_context(WriterProcess(writer_dsn, tmp_path / "log", **settings))
        address = f"ws://127.0.0.1:{process.port}/ws/agui?app_name=shop&user_id=ann"
        headers = {"Authorization": f"Bearer {KEY}"}

        async def opened() -> ClientConnection | None:
            try:
                return await connect(address, additional_headers=headers, open_timeout=WAIT_SECONDS)
            except (OSError, EOFError, InvalidHandshake):
                return None

        # What the start has opened has ended, but the writer may not know it yet.
        held = [await until(opened, "a place is free") for _ in range(4)]
        for each in held:
            stack.push_async_callback(each.close)
        assert await opened() is None, "a fifth connection was accepted"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{process.url}/health", timeout=WAIT_SECONDS)
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx.AsyncClient(transport=transport, timeout=WAIT_SECONDS) as other:
            await healthy(other, f"{process.url}/health")
        await asyncio.gather(*(each.ping() for each in held))
        await held.pop().close()
        held.append(await until(opened, "the place is free"))
        stack.push_async_callback(held[-1].close)
        assert await opened() is None
    assert "connections_refused" in {line["event"] for line in process.log()}


def exchange(port: int, sent: bytes) -> bytes:
    """What a server answers until it closes the connection."""
    reply = b""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(sent)
        while received := connection.recv(65_536):
            reply += received
    return reply


@pytest.mark.timing
async def test_a_window_over_giant_turns_is_bounded(client: httpx.AsyncClient, user: str, session: str) -> None:
    """Three turns of eight megabytes: the window holds the beginning of the newest, within seconds."""
    for number in range(3):
        await append(client, session, say(f"turn {number}: " + "hello there, my friend. " * 330_000))
    began = time.monotonic()
    request = {"query": "friend", "session_id": "s1", "max_tokens": 2000}
    response = await client.post(f"{user}/context", json=request)
    seconds = time.monotonic() - began
    assert response.status_code == 200, response.text
    assert "turn 2" in response.json()["text"]
    assert seconds < at_this_pace(3.0), seconds
