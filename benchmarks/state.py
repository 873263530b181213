"""What a large state costs an append, what snapshots cost, and how long restoring takes.

One session, one append after another, each with one small key. The state's text hardly compresses, so that its size is
what PostgreSQL rewrites.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Mapping
from typing import Any

import asyncpg

from benchmarks import options
from benchmarks.server import commit_latency_ms, fresh_pool, row, seconds
from pulse.events import Event, EventActions
from pulse.session_service import OpenSessionService
from pulse.state.history import StateHistory

APPENDS = 300
NEVER = 2**31 - 1


def state_of(kilobytes: int) -> dict[str, str]:
    return {f"key-{n}": secrets.token_urlsafe(750) for n in range(kilobytes)}


def event_with(n: int, delta: Mapping[str, Any]) -> Event:
    return Event(author="user", content={"text": f"message {n}"}, actions=EventActions(state_delta=delta))


async def appends(pool: asyncpg.Pool, kilobytes: int, *, changes: bool = True) -> tuple[float, int]:
    """Median milliseconds and mean WAL bytes of an append to a session with a state of this size, without snapshots."""
    await pool.execute("UPDATE app_policies SET snapshot_events = $1, max_state_bytes = 16000000", NEVER)
    service = OpenSessionService(pool)
    session = await service.create_session("bench", secrets.token_hex(8), state_of(kilobytes))
    samples = []
    before = await pool.fetchval("SELECT pg_current_wal_insert_lsn()")
    for n in range(APPENDS):
        start = time.perf_counter()
        await service.append_event(session, event_with(n, {"step": n} if changes else {}))
        samples.append((time.perf_counter() - start) * 1000)
    await service.close()
    wal = await pool.fetchval("SELECT pg_current_wal_insert_lsn() - $1::pg_lsn", before)
    return statistics.median(samples), int(wal) // APPENDS


async def snapshot_cost(pool: asyncpg.Pool, kilobytes: int) -> None:
    """The duration of a snapshot, and its share of an append at one snapshot per hundred appends."""
    service, history = OpenSessionService(pool), StateHistory(pool)
    session = await service.create_session("bench", secrets.token_hex(8), state_of(kilobytes))
    samples = []
    for n in range(30):
        await service.append_event(session, event_with(n, {"step": n}))
        samples.append(await seconds(lambda: history.take_snapshot("bench", session.user_id, session.id)) * 1000)
    median = statistics.median(samples)
    row(
        f"a snapshot of {kilobytes} kB by itself",
        f"{median:.2f} ms",
        f"{median / 100:.3f}",
        "ms per append at 1 in 100",
    )
    await service.close()


async def restoring(pool: asyncpg.Pool) -> None:
    """Restore the state after 2,000 deltas, with the default snapshots and without any."""
    await pool.execute("UPDATE app_policies SET snapshot_events = 100")
    service, history = OpenSessionService(pool), StateHistory(pool)
    session = await service.create_session("bench", secrets.token_hex(8), state_of(20))
    for first in range(0, 2000, 50):
        await service.append_events(session, [event_with(n, {f"step-{n % 40}": n}) for n in range(first, first + 50)])
    for from_snapshot in (True, False):

        async def restore(from_snapshot: bool = from_snapshot) -> None:
            await history.restore("bench", session.user_id, session.id, from_snapshot=from_snapshot)

        median = statistics.median([await seconds(restore) * 1000 for _ in range(20)])
        row(f"restore 2,000 deltas {'from a snapshot' if from_snapshot else 'from the events'}", f"{median:.2f} ms")
    await service.close()


async def main() -> None:
    async with fresh_pool(2) as (pool, _):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        await appends(pool, 1)
        small, small_wal = await appends(pool, 1)
        row("append, one small key of a 1 kB state", f"{small:.2f} ms", "1.0x", f"{small_wal / 1024:.1f} kB of WAL")
        for kilobytes in (20, 200, 1000):
            large, wal = await appends(pool, kilobytes)
            row(
                f"append, one small key of a {kilobytes} kB state",
                f"{large:.2f} ms",
                f"{large / small:.1f}x",
                f"{wal / 1024:.1f} kB of WAL",
            )
        none, wal = await appends(pool, 200, changes=False)
        row(
            "append without a delta, 200 kB state",
            f"{none:.2f} ms",
            f"{none / small:.1f}x",
            f"{wal / 1024:.1f} kB of WAL",
        )
        for kilobytes in (1, 200):
            await snapshot_cost(pool, kilobytes)
        await restoring(pool)


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
