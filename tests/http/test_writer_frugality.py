"""What the process of a writer takes: files, and time while it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from pathlib import Path

import httpx

from tests.support.waiting import WAIT_SECONDS, until
from tests.support.wakeups import wakeups
from tests.support.writer_process import KEY, WriterProcess, healthy

WINDOW_SECONDS = 3


async def test_running_out_of_files_is_reported_once_a_second_and_passes(writer_dsn: str, tmp_path: Path) -> None:
    """Each failure is a line of the log or is counted in one; once files can be opened, waiting clients are served."""
    with WriterProcess(writer_dsn, tmp_path / "log", api_key=KEY) as writer, contextlib.ExitStack() as stack:
        assert writer.process is not None
        pid = writer.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)

        def reports() -> list[dict[str, object]]:
            return [line for line in writer.log() if line["event"] == "connections_not_accepted"]

        resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, hard))
        began = time.monotonic()
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", writer.port), timeout=WAIT_SECONDS))
        await until(lambda: len(reports()) >= 3)
        seconds = time.monotonic() - began
        assert sum(int(str(line["count"])) for line in reports()) <= seconds + 2
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, hard))
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            await healthy(client, f"{writer.url}/health")


async def test_a_writer_that_has_run_out_of_files_ends(writer_dsn: str, tmp_path: Path) -> None:
    with WriterProcess(writer_dsn, tmp_path / "log", api_key=KEY) as writer:
        assert writer.process is not None
        _, hard = resource.prlimit(writer.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(writer.process.pid, resource.RLIMIT_NOFILE, (8, hard))
        with socket.create_connection(("127.0.0.1", writer.port), timeout=WAIT_SECONDS):
            await until(lambda: "connections_not_accepted" in writer.log_path.read_text())
            assert await asyncio.to_thread(writer.stop) == 0


async def test_an_idle_writer_hardly_wakes(writer_dsn: str, tmp_path: Path) -> None:
    """Its event loop waits for requests, and wakes for its listener's heartbeat."""
    with WriterProcess(writer_dsn, tmp_path / "log", api_key=KEY) as writer:
        assert writer.process is not None
        await asyncio.sleep(1)
        counts = await wakeups(writer.process.pid, seconds=WINDOW_SECONDS, limit=5 * WINDOW_SECONDS)
        assert counts[-1] < 5 * WINDOW_SECONDS, counts
