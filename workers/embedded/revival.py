"""Starts the embedded server again when it dies: killed by the kernel for its memory, or by a person."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pulse.postgres.backoff import Backoff
from pulse.process.background import in_background
from workers.embedded.binaries import EmbeddedServerError
from workers.embedded.server import EmbeddedServer

#: The interval of polls where the kernel does not report the end of a process that is not a child.
POLL_SECONDS = 0.5
RESTART_SECONDS_MIN = 0.2
RESTART_SECONDS_MAX = 30.0
#: A server that ran for this long was healthy: the next wait is the shortest again.
HEALTHY_SECONDS = 30.0


@contextlib.asynccontextmanager
async def revived(home: Path, on_change: Callable[[str], None]) -> AsyncIterator[None]:
    """Keep the running server of a home alive within the block; its address stays the same.

    A crash of one of its processes is PostgreSQL's own matter: it recovers by itself. Programs that are connected see
    a lost connection, and what was committed is there again.

    Args:
        on_change: called with what happened to the server, for people.
    """
    server = EmbeddedServer(home)
    try:
        await asyncio.to_thread(server.start)
        async with in_background(_revive(server, on_change)):
            yield
    finally:
        # It also ends the wait of a thread that starts the server, which no cancellation does.
        await asyncio.to_thread(server.stop)


async def _revive(server: EmbeddedServer, on_change: Callable[[str], None]) -> None:
    backoff = Backoff(RESTART_SECONDS_MIN, RESTART_SECONDS_MAX, jitter=0.0, healthy_seconds=HEALTHY_SECONDS)
    backoff.begin()
    while True:
        await _until_ended(server)
        wait_seconds = backoff.next_seconds()
        on_change(f"ended unexpectedly; it is started again in {wait_seconds:g} s. Log: {server.log_path}")
        await asyncio.sleep(wait_seconds)
        try:
            await asyncio.to_thread(server.restart)
        except (EmbeddedServerError, OSError) as error:
            on_change(f"could not be started again: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
            on_change(f"could not be started again: {error!r}")
        else:
            on_change("runs again at the same address")
        # After a failure, too: only the time that the server ran counts as healthy.
        backoff.begin()


async def _until_ended(server: EmbeddedServer) -> None:
    """Wait until the server's process has ended."""
    try:
        process = os.pidfd_open(server.pid)
    except (AttributeError, OSError):  # the system has none, or the process is gone
        while server.is_alive:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(POLL_SECONDS)
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process, ended.set)
    try:
        # The id may have become another process's in between.
        if server.is_alive:
            await ended.wait()
    finally:
        loop.remove_reader(process)
        os.close(process)
