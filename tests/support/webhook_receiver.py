"""A receiver of webhooks: a real HTTP server on a port of its own, which answers as it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from standardwebhooks.webhooks import Webhook

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)

    def verify(self, secret: str) -> None:
        Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """Answers each request with the next of `answers`, and with 204 when none is left."""

    received: list[Received] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    always: Answer = OK
    at_once: int = 0
    at_once_max: int = 0
    port: int = 0
    handlers: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=quokka"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = cast("asyncio.Task[None]", asyncio.current_task())
        self.handlers.add(handler)
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            raw = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            headers = {name.lower(): value for name, value in raw.items()}
            body = await reader.readexactly(int(headers["content-length"]))
            self.received.append(Received(headers, body))
            answer = self.answers.pop(0) if self.answers else self.always
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.handlers.discard(handler)
            self.at_once -= 1
            writer.close()


@contextlib.asynccontextmanager
async def receiving(port: int = 0, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        # An answer that never ends would outlive the test's event loop.
        handlers = list(receiver.handlers)
        for each in handlers:
            each.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


def answer(status: int, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}Content-Length: 0\r\n\r\n".encode()
