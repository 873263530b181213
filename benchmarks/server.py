"""The database of a benchmark: embedded, durable (fsync on), migrated, and deleted afterwards."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from pulse import database
from workers.cli import interrupts
from workers.cli.exit_codes import INTERRUPTED
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate


@asynccontextmanager
async def fresh_server(**settings: str) -> AsyncIterator[EmbeddedServer]:
    """Start a server in a new folder, migrate its database, and remove both at the end.

    SIGTERM, Ctrl-C and a closed terminal cancel the benchmark, and so lead to this end too.
    """
    asked = interrupts.Interrupts()
    try:
        with asked.cancelling(), fresh_folder() as folder, EmbeddedServer(folder / "home", settings=settings) as server:
            await migrate(server.dsn)
            yield server
    except asyncio.CancelledError:
        if asked.came_at is None:
            raise
        raise SystemExit(INTERRUPTED) from None


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """Make a folder that the server's user can enter, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="hippo-bench-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def fresh_pool(size: int) -> AsyncIterator[tuple[asyncpg.Pool, EmbeddedServer]]:
    """Open a pool of `size` connections on a fresh server, over TCP like the peers."""
    async with (
        fresh_server() as server,
        await database.create_pool(server.tcp_dsn, min_size=size, max_size=size) as pool,
    ):
        yield pool, server


async def commit_latency_ms(pool: asyncpg.Pool, rounds: int = 200) -> float:
    """Return the median time of the smallest durable commit: what the disk allows."""
    async with pool.acquire() as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS bench_commit (n integer)")
        samples = []
        for n in range(rounds):
            start = time.perf_counter()
            await connection.execute("INSERT INTO bench_commit VALUES ($1)", n)
            samples.append((time.perf_counter() - start) * 1000)
    return statistics.median(samples)


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    """Return the duration of one call of `work`."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample below which `share` (0 to 1) of them lie."""
    ordered = sorted(samples)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def row(what: str, figure: str, ratio: str = "", wanted: str = "") -> None:
    """Print one line of a benchmark's table."""
    print(f"{what:<58} {figure:>18} {ratio:>10}  {wanted}")
