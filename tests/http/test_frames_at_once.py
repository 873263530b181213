"""Frames that are written to a connection at once, and those that wait: in order, and framed as HTTP asks."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator

import asyncpg
import pytest

from pulse.events import Event
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from tests.support.live_writer import LiveWriter, serving
from tests.support.stream_client import OWNER
from tests.support.waiting import WAIT_SECONDS, until

MARK = re.compile(rb'"mark":"(\d+)"')
LONG = "x" * 400_000


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[LiveWriter]:
    async with serving(dsn, {}) as opened:
        yield opened


class Client:
    """A client of a run that reads when it is told to, and keeps what it reads."""

    def __init__(self, version: str = "1.1") -> None:
        self._version = version
        self.received = bytearray()

    async def open(self, url: str, run: str) -> Client:
        host, port = url.removeprefix("http://").split(":")
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        own.setblocking(False)
        await asyncio.get_running_loop().sock_connect(own, (host, int(port)))
        self._reader, self._writer = await asyncio.open_connection(sock=own)
        head = "".join(f"{name}: {value}\r\n" for name, value in OWNER.items())
        self._writer.write(f"GET /api/runs/{run}/events HTTP/{self._version}\r\nHost: localhost\r\n{head}\r\n".encode())
        await self.until(b'"STATE_SNAPSHOT"')
        return self

    async def until(self, sign: bytes) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while sign not in self.received[-1_000_000:]:
                data = await self._reader.read(1 << 20)
                assert data, "the stream ended"
                self.received += data

    async def to_the_end(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            self.received += await self._reader.read()

    def close(self) -> None:
        self._writer.close()

    @property
    def body(self) -> bytes:
        return bytes(self.received).partition(b"\r\n\r\n")[2]

    @property
    def chunks(self) -> list[bytes]:
        """The whole chunks of the body, each checked against its length."""
        found, rest = [], self.body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                break
            assert rest[length : length + 2] == b"\r\n"
            found.append(rest[:length])
            rest = rest[length + 2 :]
        return found


async def begin(pool: asyncpg.Pool) -> tuple[RunService, Run]:
    await OpenSessionService(pool).create_session(OWNER["X-App-Name"], OWNER["X-User-Id"], session_id="s")
    runs = RunService(pool)
    return runs, (await runs.start(OWNER["X-App-Name"], OWNER["X-User-Id"], "s", "r")).run


def plan(number: int, text: str = "") -> Event:
    return Event(author="model", event_type="work_plan", content={"mark": str(number), "text": text})


async def test_a_client_that_reads_late_gets_each_frame_once_and_in_order(
    writer: LiveWriter, pool: asyncpg.Pool
) -> None:
    """What it takes is written as it comes. What its connection does not take waits and is sent together, while another
    client gets all at once."""
    runs, run = await begin(pool)
    late, prompt = await Client().open(writer.url, "r"), await Client().open(writer.url, "r")
    await until(lambda: writer.live.streams.followers == 2)
    for number in range(5):
        await runs.write(run, [plan(number)])
        for client in (late, prompt):
            await client.until(b'"mark":"%d"' % number)
    reading = asyncio.create_task(prompt.until(b'"mark":"35"'))
    for number in range(5, 36):
        await runs.write(run, [plan(number, LONG)])
    await reading
    await late.until(b'"mark":"35"')
    await runs.write(run, [plan(36)])
    await runs.finish(run)
    for client in (late, prompt):
        await client.until(b"0\r\n\r\n")
        client.close()
        assert [int(mark) for mark in MARK.findall(client.body)] == list(range(37))
        assert all(chunk.endswith(b"\n\n") for chunk in client.chunks[:-1])
    sizes = [len(MARK.findall(chunk)) for chunk in late.chunks]
    assert [size for size in sizes if size][:5] == [1] * 5
    assert max(sizes) > 1
    assert writer.live.streams.disconnected == 0
    await runs.close()


async def test_the_frames_of_one_event_are_one_write(writer: LiveWriter, pool: asyncpg.Pool) -> None:
    runs, run = await begin(pool)
    client = await Client().open(writer.url, "r")
    await runs.write(run, [Event(author="model", event_type="assistant_message", content={"text": "hello"})])
    await runs.write(run, [plan(1)])
    await client.until(b'"mark":"1"')
    said = [chunk for chunk in client.chunks if b"TEXT_MESSAGE" in chunk]
    assert len(said) == 1
    assert re.findall(rb'"TEXT_MESSAGE_(\w+)"', said[0]) == [b"START", b"CONTENT", b"END"]
    client.close()
    await runs.close()


async def test_a_client_of_http_1_0_gets_frames_without_chunks(writer: LiveWriter, pool: asyncpg.Pool) -> None:
    runs, run = await begin(pool)
    client = await Client("1.0").open(writer.url, "r")
    for number in range(3):
        await runs.write(run, [plan(number)])
        await client.until(b'"mark":"%d"' % number)
    await runs.finish(run)
    await client.to_the_end()
    client.close()
    lines = client.body.split(b"\n")
    assert {line.partition(b":")[0] for line in lines if line} <= {b"", b"id", b"data", b"retry"}
    assert [int(mark) for mark in MARK.findall(client.body)] == [0, 1, 2]
    await runs.close()
