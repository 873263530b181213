"""An ASGI application on a free loopback port, in the loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import uvicorn


class Running(NamedTuple):
    server: uvicorn.Server
    url: str


def plain(app: Any) -> uvicorn.Config:
    """Return a configuration that runs the lifespan of an application, and logs errors."""
    return uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)


@asynccontextmanager
async def running(config: uvicorn.Config) -> AsyncIterator[Running]:
    """Serve until the block is left; connections and requests are accepted from its beginning on."""
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        task = asyncio.create_task(server._serve([listener]))
        try:
            yield Running(server, f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.should_exit = True
            await task
