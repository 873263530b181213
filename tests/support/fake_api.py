"""A fake of a model's API: a real HTTP server that replies regularly, or fails as the real one does.

Subclasses say which operations there are, and how each is answered. Faults of every API, by `kind` (its fields):
    hang                                       no response, until the caller gives up
    trickle                                    a response of one byte at a time
    endless                                    a body without an end
    compressed                                 a small body that is large once it is decoded
    deep (status)                              JSON that is nested 100,000 deep
    disconnect                                 the connection closes before a response
    cut_body                                   the body ends in the middle
    redirect (location)                        307
    not_json                                   200 with an HTML page
    raw (status, body, headers)                any response
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import json
import random
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

HALF_CHARACTER = re.compile("[\ud800-\udfff]")
REQUESTS_KEPT = 1000

#: The kinds of random faults: all are temporary, or fixed by a repair.
RANDOM_KINDS: tuple[dict[str, Any], ...] = (
    {"kind": "status", "code": 503},
    {"kind": "status", "code": 500},
    {"kind": "rate_limit", "retry_delay_seconds": 0.2},
    {"kind": "cut_body"},
    {"kind": "disconnect"},
    {"kind": "broken_json"},
)

#: Those, and faults that cost a caller its timeout or its job.
EVERY_KIND: tuple[dict[str, Any], ...] = (
    *RANDOM_KINDS,
    {"kind": "hang"},
    {"kind": "wrong_schema"},
)

WRONG_KEY = "wrong-key"
UNKNOWN_MODEL = "no-such-model"


@dataclass(frozen=True, slots=True)
class Request:
    """One received call."""

    operation: str
    model: str
    api_key: str
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Reply:
    """One HTTP response; `cut` sends half of the body, `silent` nothing, `trickle` one byte at a time."""

    status: int
    body: bytes
    content_type: str = "application/json; charset=UTF-8"
    cut: bool = False
    silent: bool = False
    trickle: bool = False
    endless: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Counts:
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: collections.Counter[str] = field(default_factory=collections.Counter)
    aborted: int = 0  # the caller disconnected before the response


class FakeApi:
    """The server. `script` queues faults, `requests` holds the received calls, `counts` their number."""

    operations: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        seed: int = 0,
        fault_rate: float = 0.0,
        fault_kinds: Sequence[dict[str, Any]] = RANDOM_KINDS,
        latency_seconds: float = 0.0,
    ) -> None:
        self.fault_rate = fault_rate
        self.fault_kinds = fault_kinds
        self.latency_seconds = latency_seconds
        self.counts = Counts()
        self.requests: collections.deque[Request] = collections.deque(maxlen=REQUESTS_KEPT)
        self._random = random.Random(seed)
        self._poison: dict[str, dict[str, Any]] = {}
        self._scripts: dict[str, collections.deque[dict[str, Any]]] = collections.defaultdict(collections.deque)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.base_url = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._connected, host, port, limit=2**26)
        self.base_url = f"http://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def script(self, kind: str, *, operation: str = "*", times: int = 1, **fields: Any) -> None:
        """Queue a fault for the next `times` calls of an operation, or of any."""
        if operation != "*" and operation not in self.operations:
            raise ValueError(f"unknown operation {operation!r}: one of {self.operations} or *")
        self._scripts[operation].extend({"kind": kind, **fields} for _ in range(times))

    def poison(self, word: str, kind: str, **fields: Any) -> None:
        """End every call whose body contains this word with a fault."""
        self._poison[word] = {"kind": kind, **fields}

    def heal(self) -> None:
        """Answer every call that `poison` ended."""
        self._poison.clear()

    def reset(self) -> None:
        self._scripts.clear()
        self.requests.clear()
        self.counts = Counts()

    def stats(self) -> dict[str, Any]:
        return {
            "calls": dict(self.counts.calls),
            "faults": dict(self.counts.faults),
            "aborted": self.counts.aborted,
            "open": len(self._connections),
        }

    # -- HTTP ---------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The caller disconnected between two requests, as usual.
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _version = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        reply = await self._until_gone(reader, self._reply(method, target, headers, body))
        if reply is None or reply.silent:
            return False
        sent = reply.body[: len(reply.body) // 2] if reply.cut else reply.body
        head_sent = (
            f"HTTP/1.1 {reply.status} Fake\r\nContent-Type: {reply.content_type}\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
            + ("" if reply.endless else f"Content-Length: {len(reply.body)}\r\n")
            + "\r\n"
        ).encode()
        while reply.endless:
            writer.write(head_sent + sent)
            await writer.drain()
            head_sent = b""
        if reply.trickle:
            for byte in head_sent + sent:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
        else:
            writer.write(head_sent + sent)
            await writer.drain()
        return not reply.cut

    async def _until_gone(self, reader: asyncio.StreamReader, answer: Any) -> Reply | None:
        """The response, or None as soon as the caller has closed the connection."""
        answering = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            self.counts.aborted += 1
            return None
        finally:
            answering.cancel()
            gone.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)

    async def _reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        path = target.partition("?")[0]
        if path.startswith("/__"):
            return self._admin(method, path, body)
        if method == "GET":
            return self.describe(path, headers) or self.error(404, f"there is no {method} {path}")
        call = self.read_call(path, headers, json.loads(body)) if method == "POST" else None
        if call is None:
            return self.error(404, f"there is no {method} {path}")
        self.requests.append(call)
        self.counts.calls[call.operation] += 1
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)
        fault = self._poisoned(body.decode()) or self._next_fault(call.operation)
        if fault is not None:
            self.counts.faults[" ".join(str(fault[name]) for name in ("kind", "code") if name in fault)] += 1
            if fault["kind"] == "hang":
                await asyncio.Event().wait()
        return self.refusal(call) or self._faulty(call, fault or {"kind": "none"})

    def _faulty(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        kind = fault["kind"]
        if kind == "disconnect":
            return Reply(200, b"", silent=True)
        if kind == "not_json":
            return Reply(200, b"<html><body>Please log in.</body></html>", content_type="text/html")
        if kind == "endless":
            return Reply(200, b" " * 65_536, endless=True)
        if kind == "compressed":
            return Reply(200, bomb(), headers={"Content-Encoding": "gzip"})
        if kind == "deep":
            return Reply(fault.get("status", 200), b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
        if kind == "redirect":
            return Reply(307, b"", headers={"Location": fault["location"]})
        if kind == "raw":
            sent = fault["body"] if isinstance(fault["body"], str) else json.dumps(fault["body"])
            return Reply(fault.get("status", 200), sent.encode(), headers=fault.get("headers", {}))
        reply = self.respond(call, fault)
        reply.cut = kind == "cut_body"
        reply.trickle = kind == "trickle"
        return reply

    # -- what an API adds ---------------------------------------------------------------------------

    def read_call(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Request | None:
        """The call that a POST makes; None if there is no such path."""
        raise NotImplementedError

    def describe(self, path: str, headers: Mapping[str, str]) -> Reply | None:
        """The response to a GET; None if there is no such path."""
        raise NotImplementedError

    def refusal(self, call: Request) -> Reply | None:
        """The error that a wrong call gets."""
        raise NotImplementedError

    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        """The response to a call, altered by a fault unless its kind is ``none``."""
        raise NotImplementedError

    def error(self, code: int, message: str) -> Reply:
        """An error as this API sends it."""
        raise NotImplementedError

    def _admin(self, method: str, path: str, body: bytes) -> Reply:
        if (method, path) == ("GET", "/__stats"):
            return as_json(200, self.stats())
        if (method, path) == ("GET", "/__log"):
            return as_json(200, [{"operation": r.operation, "model": r.model, "body": r.body} for r in self.requests])
        if (method, path) == ("POST", "/__script"):
            self.script(**json.loads(body))
            return as_json(200, {})
        if (method, path) == ("POST", "/__reset"):
            self.reset()
            return as_json(200, {})
        return self.error(404, f"there is no {method} {path}")

    def _poisoned(self, body: str) -> dict[str, Any] | None:
        return next((fault for word, fault in self._poison.items() if word in body), None)

    def _next_fault(self, operation: str) -> dict[str, Any] | None:
        for name in (operation, "*"):
            if self._scripts[name]:
                return self._scripts[name].popleft()
        if self._random.random() < self.fault_rate:
            return self._random.choice(self.fault_kinds)
        return None


def as_json(status: int, value: Any, **headers: str) -> Reply:
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return Reply(status, body, headers={name.replace("_", "-"): text for name, text in headers.items()})


@functools.cache
def bomb() -> bytes:
    """128 MB of spaces, compressed in little memory."""
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(b" " * 2**20) for _ in range(128)) + packer.flush()
