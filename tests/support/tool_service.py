"""A service that tools call: a real HTTP server on a port of its own, with the faults of hostile ones."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class ToolService:
    """Answers by the first part of the path; `asked` is what it received."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                method, target, _ = first.split(" ", 2)
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                parts = urlsplit(target)
                asked = Asked(method, parts.path, parse_qsl(parts.query), headers, body)
                self.asked.append(asked)
                await self._answer(asked, writer)
                await writer.drain()
        writer.transport.abort()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        match unquote(asked.path).strip("/").split("/")[0]:
            case "redirect":
                writer.write(head(302, 0, Location="http://127.0.0.1:1/inside"))
            case "trickle":
                writer.write(head(200, 1_000_000))
                for _ in range(1000):
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            case "bomb":
                packed = bomb()
                writer.write(head(200, len(packed), Content_Encoding="gzip"))
                for start in range(0, len(packed), 4096):
                    writer.write(packed[start : start + 4096])
                    await writer.drain()
            case "large":
                send(writer, {"text": "x" * 100_000})
            case "hold":
                self.held.set()
                await self.go.wait()
                send(writer, {"path": asked.path})
            case "broken":
                self.held.set()
                writer.transport.abort()
            case "echo":
                send(writer, {"headers": asked.headers, "query": asked.query, "body": asked.body.decode()})
            case "fail":
                send(writer, {"problem": f"no: {asked.headers.get('x-api-key')}"}, status=500)
            case "told":
                body = asked.body.decode()
                send(writer, {"problem": f"no: {sorted(asked.headers.items())} {asked.query} {body}"}, status=500)
            case "empty":
                writer.write(head(204, 0))
            case "token":
                send(writer, {"access_token": "tok-of-the-service", "expires_in": 3600})
            case _:
                send(writer, {"path": asked.path, "query": dict(asked.query)})


@functools.cache
def bomb() -> bytes:
    """100 MB in 100 kB."""
    return gzip.compress(bytes(100 * 2**20), 6)


def send(writer: asyncio.StreamWriter, value: Any, *, status: int = 200) -> None:
    body = json.dumps(value).encode()
    writer.write(head(status, len(body)) + body)


def head(status: int, length: int, **headers: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    kind = "Content-Type: application/json\r\n"
    return f"HTTP/1.1 {status} X\r\n{kind}Content-Length: {length}\r\n{more}\r\n".encode()


@contextlib.asynccontextmanager
async def tool_service(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[ToolService]:
    service = ToolService()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, ssl=tls)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        for task in service.tasks:
            task.cancel()
        await asyncio.gather(*service.tasks, return_exceptions=True)


def document(url: str, paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An OpenAPI document with these paths."""
    described = {
        path: {
            key: {"responses": {"200": {"description": "Done."}}, **value} if isinstance(value, dict) else value
            for key, value in item.items()
        }
        for path, item in paths.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Service", "version": "1"},
        "servers": [{"url": url}],
        "paths": described,
        **more,
    }
