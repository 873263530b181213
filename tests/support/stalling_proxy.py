"""A TCP proxy in front of PostgreSQL that can stop forwarding and close nothing, as a network that is stuck does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.support.writer_process import free_port

_PIECE_BYTES = 65_536


class StallingProxy:
    """Forwards to a server on this machine."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._target = urlsplit(dsn)
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._port = free_port()  # its own also while it does not listen
        self._running: set[asyncio.Task[None]] = set()

    @property
    def dsn(self) -> str:
        """The database's address by way of the proxy."""
        return self._dsn.replace(f":{self._target.port}/", f":{self._port}/")

    @property
    def waiting(self) -> int:
        """How many connections it has taken, unless it forwards."""
        return 0 if self._flows.is_set() else len(self._running)

    def stall(self) -> None:
        """Take connections and what they send, and forward nothing."""
        self._flows.clear()

    def flow(self) -> None:
        """Forward what has waited, and all that comes."""
        self._flows.set()

    async def start(self) -> None:
        """Listen, again at the port that it had before."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End every connection, and refuse those that come, as a server that is down does."""
        assert self._server is not None
        self._server.close()
        for task in list(self._running):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._flows.wait()
            inner_reader, inner_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, inner_writer))
                group.create_task(self._pump(inner_reader, writer))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            # The server asks its tasks for their outcome, and logs a cancelled one as an error.
            pass
        finally:
            writer.close()
            self._running.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(_PIECE_BYTES):
                await self._flows.wait()
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def stalling_proxy(dsn: str) -> AsyncIterator[StallingProxy]:
    """Serve a proxy to a database inside the block."""
    proxy = StallingProxy(dsn)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
