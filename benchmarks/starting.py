"""How soon a writer that was started answers: from the process's start to its first `/health`.

python -m benchmarks.starting

Under `hippocampus up` the writer is forked from a process that has imported the program, and answers sooner; this is
the start of a unit or a container.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

import httpx

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import fresh_server, row
from workers import settings

ROUNDS = 7
POLL_SECONDS = 0.005
START_SECONDS_MAX = 60.0


async def start_seconds(dsn: str) -> tuple[float, float]:
    """Start a writer, wait until it is healthy, and stop it.

    Returns:
        The seconds until then, and the processor time that the process used in all.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    before = os.times()
    environment = settings.child_environment(
        DATABASE_URL=dsn,
        HIPPOCAMPUS_API_PORT=str(port),
        HIPPOCAMPUS_LOG_LEVEL="error",
        PYTHONPATH=settings.import_path(),
    )
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-P", "-m", "workers", "writer"], env=environment)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            while not await _is_healthy(client):
                if process.poll() is not None or time.perf_counter() - began > START_SECONDS_MAX:
                    raise RuntimeError("the writer did not start")
                await asyncio.sleep(POLL_SECONDS)
        took = time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return took, used


async def _is_healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


async def main() -> None:
    async with fresh_server() as server:
        await start_seconds(server.tcp_dsn)  # files are read from the disk once
        rounds = [await start_seconds(server.tcp_dsn) for _ in range(ROUNDS)]
        waits, used = zip(*rounds, strict=True)
        row("start of a writer, slowest", f"{max(waits):.2f} s")
        row("  processor time, its end included", f"{statistics.median(used):.2f} s")
        figure("writer_start", statistics.median(waits))


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
