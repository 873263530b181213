"""Live streams: from a commit to a subscriber, from an append to a frame on the wire, clients that come back at once,
idle connections, fan-out.

python -m benchmarks.streams [--idle 2000] [--seconds 60] [--sockets 300] [--returning 1000] [--only PART]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import httpx

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, percentile, row
from benchmarks.subscribers import OWNER
from pulse.events import Event
from pulse.pg_notify_listener import PgNotifyListener
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService

PER_SECOND = 100
#: Messages of a thread: as many as a long conversation has, and as many as arrive while it is watched.
MANY_MESSAGES, FEW_MESSAGES = 600, 20
FRAME_ID = re.compile(rb"^id: ?([^\r\n]+)\n", re.MULTILINE)


async def paced(total: int, work: object, per_second: int = PER_SECOND) -> None:
    """Call `work(n)` this many times a second, without waiting for the previous call."""
    began = time.monotonic()
    tasks = []
    for n in range(total):
        await asyncio.sleep(max(0.0, began + n / per_second - time.monotonic()))
        tasks.append(asyncio.create_task(work(n)))  # type: ignore[operator]  # a coroutine function
    await asyncio.gather(*tasks)


async def commit_to_subscriber(pool: asyncpg.Pool, dsn: str, seconds: float) -> None:
    """100 events per second over 20 sessions: the delay from commit to subscriber, and the number of lost events."""
    sessions = OpenSessionService(pool)
    listener = PgNotifyListener(dsn, pool)
    await listener.start()
    threads = [await sessions.create_session("bench", "u", session_id=f"n{n}") for n in range(20)]
    seen: dict[str, float] = {}

    def take(events: Sequence[Event]) -> None:
        now = time.perf_counter()
        seen.update((event.id, now) for event in events)

    for thread in threads:
        listener.subscribe(thread.thread_id, take, after_sequence=0)
    committed: dict[str, float] = {}

    async def append(n: int) -> None:
        event = Event(author="user", content={"text": f"message {n}"})
        await sessions.append("bench", "u", f"n{n % 20}", [event])
        committed[event.id] = time.perf_counter()

    total = int(PER_SECOND * seconds)
    await paced(total, append)
    for _ in range(500):
        if len(seen) == total:
            break
        await asyncio.sleep(0.01)
    # A subscriber may receive it before the writer reads its own response: that counts as zero.
    latencies = [max(0.0, seen[each] - at) * 1000 for each, at in committed.items() if each in seen]
    lost = total - len(seen)
    row(f"commit to subscriber at 100 msg/s for {seconds:.0f} s, p50", f"{percentile(latencies, 0.5):.1f} ms")
    figure("notify_p99", percentile(latencies, 0.99))
    figure("events_lost", lost, f"of {total}")
    await listener.stop()
    await sessions.close()


async def notify_modes(pool: asyncpg.Pool, dsn: str) -> None:
    """Appends per second with notifications sent in the transaction by the trigger, and after the commit by us."""
    sessions = OpenSessionService(pool)
    listener = PgNotifyListener(dsn, pool)
    await listener.start()
    statement = "SELECT append_event('bench', 'u', $1, NULL, $2, 'user', 'user_message', '{\"text\": \"hello\"}')"
    for writers in (1, 8, 32):
        names = [f"w{writers}-{n}" for n in range(writers)]
        for name in names:
            await sessions.create_session("bench", "u", session_id=name)

        async def by_trigger(name: str) -> None:
            await pool.execute(statement, name, str(uuid.uuid4()))

        async def after_commit(name: str) -> None:
            await sessions.append("bench", "u", name, [Event(author="user", content={"text": "hello"})])

        rates = []
        for append in (by_trigger, after_commit, by_trigger, after_commit):
            rates.append(await rate(append, names))
        inside, after = max(rates[0], rates[2]), max(rates[1], rates[3])
        row(f"appends, {writers} writers: trigger, in the transaction", f"{inside:.0f}/s")
        row("  notified after the commit", f"{after:.0f}/s", f"{after / inside:.1f}x")
    await listener.stop()
    await sessions.close()


async def rate(append: object, names: Sequence[str]) -> float:
    count = max(600 // len(names), 30)

    async def write(name: str) -> None:
        for _ in range(count):
            await append(name)  # type: ignore[operator]  # a coroutine function

    began = time.perf_counter()
    await asyncio.gather(*(write(name) for name in names))
    return count * len(names) / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def writer(dsn: str) -> AsyncIterator[tuple[str, int]]:
    """A session writer in a separate process; yields its address and its process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    settings = {"DATABASE_URL": dsn, "HIPPOCAMPUS_API_PORT": str(port), "HIPPOCAMPUS_LOG_LEVEL": "error"}
    environment = {**os.environ, **settings}
    process = subprocess.Popen([sys.executable, "-m", "workers.writer"], env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=address) as client:
            for _ in range(400):
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get("/health")).json()["listener_running"]:
                        break
                await asyncio.sleep(0.05)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(10)


class Stream:
    """A minimal SSE connection, whose own cost is negligible."""

    def __init__(self, reader: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        self.reader, self.writing = reader, writing

    @classmethod
    async def open(cls, address: str, run: str) -> Stream:
        host, port = address.removeprefix("http://").split(":")
        reader, writing = await asyncio.open_connection(host, int(port), limit=1 << 20)
        head = "".join(f"{name}: {value}\r\n" for name, value in OWNER.items())
        writing.write(f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
        stream = cls(reader, writing)
        await stream.until(b"STATE_SNAPSHOT")
        return stream

    async def until(self, sign: bytes) -> bytes:
        while sign not in (line := await self.reader.readline()):
            if not line:
                raise ConnectionResetError("the stream ended")
        return line


async def append_to_frame(pool: asyncpg.Pool, address: str, seconds: float) -> None:
    """100 events per second in one run: from before the append, in one process, to the frame, read in this one."""
    sessions, runs = OpenSessionService(pool), RunService(pool)
    await sessions.create_session("bench", "u", session_id="frames")
    run = (await runs.start("bench", "u", "frames", "run-frames")).run
    stream = await Stream.open(address, "run-frames")
    total = int(PER_SECOND * seconds)
    begun: dict[bytes, float] = {}
    latencies: list[float] = []

    async def read() -> None:
        while len(latencies) < total:
            line = await stream.until(b'"mark":')
            mark = line.split(b'"mark":"')[1].split(b'"')[0]
            latencies.append((time.perf_counter() - begun[mark]) * 1000)

    async def append(n: int) -> None:
        mark = f"m{n}"
        begun[mark.encode()] = time.perf_counter()
        await runs.write(run, [Event(author="model", event_type="work_plan", content={"mark": mark})])

    reading = asyncio.create_task(read())
    await paced(total, append)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            await reading
    row(f"append to SSE frame at 100/s for {seconds:.0f} s, p50", f"{percentile(latencies, 0.5):.1f} ms")
    figure("frame_p99", percentile(latencies, 0.99))
    figure("events_lost", total - len(latencies), f"of {total}")
    stream.writing.close()
    await runs.finish(run)
    await runs.close()


async def append_to_many(
    pool: asyncpg.Pool, address: str, pid: int, count: int, per_second: int, seconds: float
) -> None:
    """This many SSE subscribers of one run, and this many events per second: from before the append to every frame.

    The subscribers are a process of their own (`benchmarks.subscribers`), and a frame is dated as its bytes arrive.
    """
    sessions, runs = OpenSessionService(pool), RunService(pool)
    await sessions.create_session("bench", "u", session_id="many")
    run = (await runs.start("bench", "u", "many", "run-many")).run
    begun: dict[str, int] = {}
    appends: list[float] = []
    total = int(per_second * seconds)

    async def append(n: int) -> None:
        begun[f"m{n}"] = began = time.time_ns()
        await runs.write(run, [Event(author="model", event_type="work_plan", content={"mark": f"m{n}"})])
        appends.append((time.time_ns() - began) / 1e6)

    program = (sys.executable, "-m", "benchmarks.subscribers", address, "run-many", str(count), str(total))
    subscribers = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE, limit=1 << 30)
    assert subscribers.stdout is not None
    if await subscribers.stdout.readline() != b"open\n":
        raise SystemExit("the subscribers could not connect")
    used = cpu_seconds(pid)
    await paced(total, append, per_second)
    read = json.loads(await subscribers.stdout.readline())
    used = cpu_seconds(pid) - used
    arrivals: dict[str, list[int]] = read["arrivals"]
    latencies = [(at - begun[mark]) / 1e6 for mark, times in arrivals.items() for at in times]
    first, last = ([(end(times) - begun[mark]) / 1e6 for mark, times in arrivals.items()] for end in (min, max))
    row(f"append to SSE frame, {count} subscribers, {per_second}/s, p50", f"{percentile(latencies, 0.5):.1f} ms")
    figure("frames_many_p99", percentile(latencies, 0.99))
    row("  of that, the append: p50, p99", f"{percentile(appends, 0.5):.1f} ms", f"{percentile(appends, 0.99):.1f} ms")
    row("  the first frame: p50, p99", f"{percentile(first, 0.5):.1f} ms", f"{percentile(first, 0.99):.1f} ms")
    row("  the last frame: p50, p99", f"{percentile(last, 0.5):.1f} ms", f"{percentile(last, 0.99):.1f} ms")
    figure("frames_many_lost", total * count - len(latencies), f"of {total * count}")
    row("  processor time for each frame: the writer", f"{used / len(latencies) * 1e6:.1f} us")
    row("    the process of all subscribers", f"{read['seconds'] / len(latencies) * 1e6:.1f} us")
    await subscribers.wait()
    await runs.finish(run)
    await runs.close()


class Returning(asyncio.Protocol):
    """An SSE connection that is cut, and comes back with the id of its last frame."""

    def __init__(self, address: str, run: str) -> None:
        self._address, self._run = address, run
        self._received = b""
        self._last_id = b""
        self.status = 0
        self.answered = asyncio.Event()

    async def connect(self) -> None:
        """Connect, and return when the first frame is here, or another status than 200."""
        self._received, self.status = b"", 0
        self.answered.clear()
        host, port = self._address.removeprefix("http://").split(":")
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        await self.answered.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # a socket's
        head = "".join(f"{name}: {value}\r\n" for name, value in OWNER.items())
        if self._last_id:
            head += f"Last-Event-ID: {self._last_id.decode()}\r\n"
        self.transport.write(f"GET /api/runs/{self._run}/events HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self.status and b"\r\n" in self._received:
            self.status = int(self._received.split(b" ", 2)[1])
        if ids := FRAME_ID.findall(self._received):
            self._last_id = ids[-1]
        # Without news a resumed stream has no frame: its head, or the answer of a refusal, is all.
        if b"\r\n\r\n" in self._received and (self._last_id or self.status != 200):
            self.answered.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.answered.set()


async def come_back(pool: asyncpg.Pool, address: str, count: int) -> None:
    """This many SSE subscribers of one run are cut and come back in the same moment: how long until each has its
    stream, and how many get another status than 200."""
    sessions, runs = OpenSessionService(pool), RunService(pool)
    await sessions.create_session("bench", "u", session_id="returning")
    run = (await runs.start("bench", "u", "returning", "run-returning")).run
    clients = [Returning(address, "run-returning") for _ in range(count)]
    for start in range(0, count, 50):
        await asyncio.gather(*(each.connect() for each in clients[start : start + 50]))
    for each in clients:
        each.transport.abort()
    began = time.perf_counter()
    times: list[float] = []

    async def back(each: Returning) -> None:
        await each.connect()
        times.append(time.perf_counter() - began)

    async with asyncio.timeout(120):
        await asyncio.gather(*(back(each) for each in clients))
    row(f"{count} clients of a run come back at once, p50", f"{percentile(times, 0.5):.2f} s")
    row("  the last", f"{max(times):.2f} s")
    figure("returning_refused", sum(each.status != 200 for each in clients), f"of {count}")
    for each in clients:
        each.transport.abort()
    await runs.finish(run)
    await runs.close()
    await sessions.close()


async def idle_and_fan_out(pool: asyncpg.Pool, address: str, pid: int, count: int) -> None:
    """Open this many idle connections to one run; measure their memory, their CPU time, and one event sent to all of
    them."""
    sessions, runs = OpenSessionService(pool), RunService(pool)
    await sessions.create_session("bench", "u", session_id="idle")
    run = (await runs.start("bench", "u", "idle", "run-idle")).run
    warm = await Stream.open(address, "run-idle")
    before = memory_kb(pid)
    streams: list[Stream] = []
    for _ in range(0, count, 50):
        streams += await asyncio.gather(*(Stream.open(address, "run-idle") for _ in range(50)))
    row(f"{len(streams)} idle SSE connections, memory of each", f"{(memory_kb(pid) - before) / len(streams):.0f} KB")
    cpu = cpu_seconds(pid)
    await asyncio.sleep(5)
    row("  CPU while idle", f"{(cpu_seconds(pid) - cpu) / 5 * 100:.1f} %")
    for events in (1, 20):
        reading = [asyncio.create_task(each.until(f'"last{events}"'.encode())) for each in streams]
        began = time.perf_counter()
        batch = [
            Event(author="model", event_type="work_plan", content={"at": f"last{events}" if n == events - 1 else "on"})
            for n in range(events)
        ]
        await runs.write(run, batch)
        await asyncio.gather(*reading)
        row(f"  {events} event(s) to all of them", f"{(time.perf_counter() - began) * 1000:.0f} ms")
    for each in [warm, *streams]:
        each.writing.close()
    await runs.finish(run)
    await runs.close()


class Socket(asyncio.Protocol):
    """A WebSocket that counts what it receives and when it first sees a text."""

    def __init__(self, path: str) -> None:
        self.received = 0
        self.seen: dict[bytes, float] = {}
        self.awaited: dict[bytes, asyncio.Event] = {}
        self._path = path
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # a socket's
        head = "".join(f"{name}: {value}\r\n" for name, value in OWNER.items())
        self.transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{head}\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        text = self._tail + data
        for sign, event in self.awaited.items():
            if not event.is_set() and sign in text:
                self.seen[sign] = time.perf_counter()
                event.set()
        self._tail = text[-40:]

    def expect(self, sign: bytes) -> asyncio.Event:
        return self.awaited.setdefault(sign, asyncio.Event())

    @classmethod
    async def open(cls, address: str, path: str) -> Socket:
        host, port = address.removeprefix("http://").split(":")
        _, own = await asyncio.get_running_loop().create_connection(lambda: cls(path), host, int(port))
        opened = own.expect(b"101 Switching")
        await opened.wait()
        return own


async def thread_sockets(pool: asyncpg.Pool, address: str, count: int, messages: int) -> None:
    """Follow one thread with this many sockets while messages are appended and a run begins."""
    sessions, runs = OpenSessionService(pool), RunService(pool)
    name = f"thread-{uuid.uuid4().hex[:8]}"
    await sessions.create_session("bench", "u", session_id=name)
    sockets: list[Socket] = []
    for _ in range(0, count, 50):
        opening = (Socket.open(address, f"/ws/events/{name}") for _ in range(min(50, count - len(sockets))))
        sockets += await asyncio.gather(*opening)
    await asyncio.sleep(1)
    last = [each.expect(b'"last of them"') for each in sockets]
    for n in range(messages):
        text = "last of them" if n == messages - 1 else f"message {n} of a conversation, as long as people write them"
        await sessions.append("bench", "u", name, [Event(author="user", content={"text": text})])
    appended = time.perf_counter()
    await asyncio.gather(*(each.wait() for each in last))
    lags = [each.seen[b'"last of them"'] - appended for each in sockets]
    received = max(each.received for each in sockets) / 1e6
    row(f"{messages} messages to {count} socket(s) of a thread, each received", f"{received:.2f} MB")
    row("  the last message arrived after", f"{max(0.0, percentile(lags, 0.5)):.2f} s", f"max {max(lags):.2f} s")
    if messages == MANY_MESSAGES:
        figure("thread_bytes", received, f"{count} socket(s)")
    begun = [each.expect(b'"run-of-thread') for each in sockets]
    at = time.perf_counter()
    run = (await runs.start("bench", "u", name, f"run-of-thread-{name}")).run
    await asyncio.gather(*(each.wait() for each in begun))
    delays = [max(each.seen.values()) - at for each in sockets]
    row("  RUN_STARTED of a run arrived after", f"{percentile(delays, 0.5):.2f} s", f"max {max(delays):.2f} s")
    if messages == FEW_MESSAGES:
        figure("thread_lag", max(0.0, percentile(lags, 0.5)), f"{count} sockets")
        figure("thread_run_started", max(delays), f"{count} sockets")
    for each in sockets:
        each.transport.close()
    await runs.finish(run)
    await runs.close()
    await sessions.close()


def memory_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def main(idle: int, seconds: float, sockets: int, returning: int, only: str | None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 2 * max(idle, returning) + 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, files), hard), hard))
    async with fresh_pool(34) as (pool, server):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        if only in (None, "commits"):
            await commit_to_subscriber(pool, server.tcp_dsn, seconds)
            await notify_modes(pool, server.tcp_dsn)
        async with writer(server.tcp_dsn) as (address, pid):
            if only in (None, "frames"):
                await append_to_frame(pool, address, seconds / 3)
            if only in (None, "many"):
                await append_to_many(pool, address, pid, 1000, 20, 10)
            if only in (None, "returning"):
                await come_back(pool, address, returning)
            if only in (None, "idle"):
                await idle_and_fan_out(pool, address, pid, idle)
            if only in (None, "threads"):
                await thread_sockets(pool, address, 1, MANY_MESSAGES)
                await thread_sockets(pool, address, sockets, FEW_MESSAGES)
                await thread_sockets(pool, address, sockets, MANY_MESSAGES)


if __name__ == "__main__":
    parser = options.parser()
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sockets", type=int, default=300)
    parser.add_argument("--returning", type=int, default=1000)
    parser.add_argument("--only", choices=("commits", "frames", "many", "returning", "idle", "threads"))
    given = parser.parse_args()
    asyncio.run(main(given.idle, given.seconds, given.sockets, given.returning, given.only))
