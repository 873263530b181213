"""The latencies that an installation promises, in short: append, notification, stream, search, with their musts.

The benchmarks measure them at length. Here each gets three attempts, and limits in milliseconds are extended by the
current load: a busy machine does not fail it, a slow path does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from benchmarks import search, sessions, streams
from benchmarks.figures import FIGURES, FILE_VARIABLE, collect
from benchmarks.server import fresh_pool
from tests.support.pace import slowdown
from workers.embedded.server import EmbeddedServer

pytestmark = [pytest.mark.system, pytest.mark.timing]

ATTEMPTS = 3
#: Bounds of two musts of which a machine may miss either, but not both. The search of 1,000 memories took 9 to 11 ms
#: where the raw scan of their vectors took 5 to 7, and 6 to 7 ms, three times as long, where that took 2: it has a part
#: that does not depend on how fast vectors are compared.
EITHER = {"search_small_p50": 16.0, "search_small_ratio": 4.0}


@pytest.fixture
async def bench() -> AsyncIterator[tuple[asyncpg.Pool, EmbeddedServer]]:
    """A durable server of its own, as the benchmarks have."""
    async with fresh_pool(12) as opened:
        yield opened


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "figures"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    return file


async def reach(measure: Callable[[], Awaitable[object]], figures: Path, *names: str) -> None:
    """Measure until each figure has reached its must, or the attempts are used up. Of `EITHER`, one must."""
    missing, met = set(names), set[str]()
    seen: list[str] = []
    for _ in range(ATTEMPTS):
        figures.write_text("")
        pace = slowdown()
        await measure()
        pace = max(pace, slowdown()) ** 2
        found = collect(figures)
        for name in sorted(names):
            wanted, value = FIGURES[name], float(str(found[name]["value"]))
            seen.append(f"{name} {value:.3g}, {wanted.text}, times {pace:.2f}")
            paced = value / pace if wanted.unit == " ms" else value
            if wanted.is_met(paced):
                met.add(name)
            if name in met or paced <= EITHER.get(name, 0.0):
                missing.discard(name)
        if not missing and (met or not EITHER.keys() & set(names)):
            return
    raise AssertionError(f"{sorted(missing)} missed: {'; '.join(seen)}")


async def test_append_costs_what_its_rows_cost(bench: tuple[asyncpg.Pool, EmbeddedServer], figures: Path) -> None:
    """Against one hand-written statement for the same rows, on the same server, in turn."""
    pool, _ = bench

    async def measure() -> None:
        await sessions.ours(pool, 4, 20)
        await sessions.by_hand(pool, 4, 20)
        rounds = [(await sessions.ours(pool, 10, 60), await sessions.by_hand(pool, 10, 60)) for _ in range(3)]
        sessions.figure("append_vs_sql", max(own / hand for own, hand in rounds))

    await reach(measure, figures, "append_vs_sql")


async def test_events_arrive_in_time(bench: tuple[asyncpg.Pool, EmbeddedServer], figures: Path) -> None:
    """From the commit to a subscriber in a process, and from the append to a frame on the wire; none is lost."""
    pool, server = bench

    async def measure() -> None:
        await pool.execute("DELETE FROM threads")
        await streams.commit_to_subscriber(pool, server.tcp_dsn, 4)
        assert collect(figures)["events_lost"]["value"] == 0
        async with streams.writer(server.tcp_dsn) as (address, _):
            await streams.append_to_frame(pool, address, 4)

    await reach(measure, figures, "notify_p99", "frame_p99", "events_lost")


async def test_search_is_fast(bench: tuple[asyncpg.Pool, EmbeddedServer], figures: Path) -> None:
    """1,000 memories, top 10, the query's vector given."""
    pool, _ = bench
    queries = await search.load(pool, search.Corpus(), scopes=1, rows=1000, queries=60)

    async def measure() -> None:
        await search.measure(pool, "1,000 memories", queries, "small")

    await reach(measure, figures, "search_small_p50", "search_small_ratio")
