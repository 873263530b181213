"""What the autonomic layer costs while nothing happens, how long a tick takes, and how soon a wake reaches one.

    python -m benchmarks.autonomic [--seconds 120] [--settle 60] [--wakes 60]

It runs one role `pulse` on an embedded server of its own. Processor time is that of the role and of its sandbox
(/proc/PID/stat); a write is a transaction of the server that got an id, which those that only read do not. Ticks and
wakes are the role's own histograms: a quantile is the bound of the bucket that it is in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import asyncpg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.idle import Clock, clock_of
from benchmarks.server import fresh_pool, row

PORT = 9390
#: A tick begins a second after the last one, at the earliest.
WAKE_EVERY_SECONDS = 1.3


@contextlib.contextmanager
def role(dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the role `pulse`."""
    environment = {**os.environ, "DATABASE_URL": dsn, "HIPPOCAMPUS_PULSE_METRICS_PORT": str(PORT)}
    command = [sys.executable, "-m", "workers", "worker", "pulse"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def used(pid: int) -> Clock:
    """Return what a process and its children have used."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    clocks = [clock_of(each) for each in (pid, *map(int, children))]
    return Clock("pulse", sum(each.seconds for each in clocks), sum(each.wakes for each in clocks))


def quantile(metrics: str, name: str, share: float) -> tuple[int, float]:
    """Return the number of observations of a histogram, and the bound of the bucket that a quantile is in."""
    found = re.findall(rf'^{name}_bucket{{le="(.+)"}} (.+)$', metrics, re.M)
    buckets = [(float(bound), float(count)) for bound, count in found]
    total = buckets[-1][1]
    return int(total), next(bound for bound, count in buckets if count >= share * total)


async def next_transaction(pool: asyncpg.Pool) -> int:
    """Return the id of the next transaction that writes."""
    return int(await pool.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text"))


def scrape() -> str:
    """Return the role's metrics."""
    body: bytes = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5).read()
    return body.decode()


async def measure(seconds: float, settle: float, wakes: int) -> None:
    """Print the figures."""
    async with fresh_pool(1) as (pool, server):
        with role(server.tcp_dsn) as process:
            await asyncio.sleep(settle)
            began, first, ticks_before = used(process.pid), await next_transaction(pool), await ticks(pool)
            await asyncio.sleep(seconds)
            ended, last, ticked = used(process.pid), await next_transaction(pool), await ticks(pool) - ticks_before
            own = await pool.fetchval("SELECT count(*) FROM metrics_targets")
            memory = Path(f"/proc/{process.pid}/status").read_text()
            for _ in range(wakes):
                await pool.execute("SELECT wake_pulse('main')")
                await asyncio.sleep(WAKE_EVERY_SECONDS)
            metrics = await asyncio.to_thread(scrape)
    share, writes = (ended.seconds - began.seconds) / seconds, (last - first) * 60 / seconds
    beats = own * 3  # Each process reports every 20 s, with or without this layer.
    count, tick = quantile(metrics, "pulse_tick_duration_seconds", 0.99)
    _, usual = quantile(metrics, "pulse_tick_duration_seconds", 0.5)
    woken, wake = quantile(metrics, "pulse_wake_duration_seconds", 0.99)
    resident = int(next(line.split()[1] for line in memory.splitlines() if line.startswith("VmRSS"))) // 1024
    figure("pulse_share", 100 * share)
    row("writes a minute, with the queue's own", f"{writes:.1f}", "", f"of which reports of the process: {beats}")
    figure("pulse_writes", ticked * 60 / seconds)
    row("memory of the role, MB", f"{resident}")
    row(f"tick, p50 and p99 of {count}, ms", f"{1000 * usual:g}, {1000 * tick:g}")
    figure("pulse_wake_p99", 1000 * wake, f"of {woken}")


async def ticks(pool: asyncpg.Pool) -> int:
    """Return how many ticks there were: each is one transaction that stores the samples."""
    return int(await pool.fetchval("SELECT coalesce(sum(ticks), 0) FROM pulse_scopes"))


def main() -> None:
    """Read the arguments and measure."""
    parser = options.parser()
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to measure")
    parser.add_argument("--settle", type=float, default=60.0, help="how long to wait before")
    parser.add_argument("--wakes", type=int, default=60, help="how many wakes to measure")
    given = parser.parse_args()
    asyncio.run(measure(given.seconds, given.settle, given.wakes))


if __name__ == "__main__":
    main()
