"""PostgresSessionService against google-adk's DatabaseSessionService on the same PostgreSQL, call by call.

Both get an address, as from an agent's configuration, and do the same in turn, five times; the medians are compared.
Events are created before the clock starts: ADK takes 25 to 60 µs for each, whichever service stores it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, row
from benchmarks.sessions import by_hand
from pulse.adk import PostgresSessionService

ROUNDS = 5
TEXT = "I moved to Lisbon last spring, and I still miss the dumplings near my old office. " * 5
LARGE_STATE = {f"key-{n}": "x" * 1000 for n in range(200)}
LONG = 3000
LISTED = 10_000

Work = Callable[[BaseSessionService], Awaitable[float]]


def event(n: int, key: str = "step") -> Event:
    """Return a message of 400 bytes that sets one key."""
    content = types.Content(role="user", parts=[types.Part(text=TEXT)])
    return Event(
        invocation_id="e-1",
        author="user",
        content=content,
        timestamp=1.7e9 + n,
        actions=EventActions(state_delta={key: n}),
    )


def creating(at_once: int, each: int) -> Work:
    """Measure creations per second."""

    async def work(service: BaseSessionService) -> float:
        async def create(number: int) -> None:
            for _ in range(each):
                await service.create_session(app_name="bench", user_id=f"u{number}", state={"a": 1})

        return await _per_second(at_once, each, create)

    return work


def appending(at_once: int, each: int, *, key: str = "step", state: dict[str, Any] | None = None) -> Work:
    """Measure appends per second, to as many sessions as there are at once."""

    async def work(service: BaseSessionService) -> float:
        opened = [
            await service.create_session(app_name="bench", user_id=f"u{uuid.uuid4()}", state=state)
            for _ in range(at_once)
        ]

        events = [[event(n, key) for n in range(each)] for _ in opened]

        async def append(number: int) -> None:
            for each_event in events[number]:
                await service.append_event(opened[number], each_event)

        return await _per_second(at_once, each, append)

    return work


async def _per_second(at_once: int, each: int, work: Callable[[int], Awaitable[None]]) -> float:
    start = time.perf_counter()
    await asyncio.gather(*map(work, range(at_once)))
    return at_once * each / (time.perf_counter() - start)


def reading(recent: int | None) -> Work:
    """Measure reads per second of the session of 3,000 events."""

    async def work(service: BaseSessionService) -> float:
        config = GetSessionConfig(num_recent_events=recent)
        best = []
        for _ in range(5 if recent is None else 30):
            start = time.perf_counter()
            found = await service.get_session(app_name="long", user_id="u", session_id="s", config=config)
            best.append(time.perf_counter() - start)
            assert found is not None
            assert len(found.events) == (recent or LONG)
        return 1 / statistics.median(best)

    return work


async def reading_at_once(service: BaseSessionService) -> float:
    """Measure reads per second of the latest 50 of 3,000 events by ten callers.

    So many that they contain several full collections of garbage, each as long as a hundred reads.
    """
    config = GetSessionConfig(num_recent_events=50)
    each = 80

    async def read(_: int) -> None:
        for _ in range(each):
            found = await service.get_session(app_name="long", user_id="u", session_id="s", config=config)
            assert found is not None
            assert len(found.events) == 50

    return await _per_second(10, each, read)


async def listing(service: BaseSessionService) -> float:
    """Measure lists per second of a user with 10,000 sessions."""
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        found = await service.list_sessions(app_name="many", user_id="u")
        taken.append(time.perf_counter() - start)
        assert len(found.sessions) == LISTED
    return 1 / statistics.median(taken)


async def fill(service: BaseSessionService) -> None:
    """Make the long session and the many."""
    session = await service.create_session(app_name="long", user_id="u", session_id="s")
    for n in range(LONG):
        await service.append_event(session, event(n))

    async def create(_: int) -> None:
        for n in range(LISTED // 10):
            await service.create_session(app_name="many", user_id="u", state={"n": n, "user:a": 1, "app:b": 2})

    await asyncio.gather(*map(create, range(10)))


CALLS: dict[str, tuple[Work, str]] = {
    "create_session": (creating(1, 60), ""),
    "create_session, 10 at once": (creating(10, 30), ""),
    "append_event": (appending(1, 60), ""),
    "append_event, 10 sessions": (appending(10, 30), ""),
    "append_event, 10 sessions, app: key": (appending(10, 30, key="app:step"), "must 5x, aim 10x"),
    "append_event, state of 200 kB": (appending(1, 40, state=LARGE_STATE), "must 1x"),
    "append_event, 10 sessions, state of 200 kB": (appending(10, 10, state=LARGE_STATE), "must 1x"),
    "get_session, 50 of 3,000 events": (reading(50), ""),
    "get_session, 50 of 3,000 events, 10 at once": (reading_at_once, ""),
    "get_session, 3,000 events": (reading(None), "must 1x"),
    "list_sessions, 10,000": (listing, ""),
}


#: The calls with a must of the installation; the others have those beside them.
MUSTS = {
    "append_event": "adk_append_one",
    "append_event, 10 sessions": "adk_append_ten",
    "create_session": "adk_create_one",
    "create_session, 10 at once": "adk_create_ten",
    "get_session, 50 of 3,000 events": "adk_get_recent",
    "get_session, 50 of 3,000 events, 10 at once": "adk_get_at_once",
    "list_sessions, 10,000": "adk_list",
}
#: Sessions at once, and appends to each: what the same server takes from the statement that a careful engineer would
#: write for the same rows.
BY_HAND = {"append_event": (1, 60), "append_event, 10 sessions": (10, 30)}


async def main() -> None:
    async with fresh_pool(10) as (pool, server):
        # A database of its own: both have a table called events.
        await pool.execute("CREATE DATABASE adk")
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        address = server.tcp_dsn.removesuffix("/hippocampus").replace("postgresql://", "postgresql+asyncpg://")
        async with DatabaseSessionService(f"{address}/adk") as peer, PostgresSessionService(server.tcp_dsn) as ours:
            for service in (peer, ours):
                await fill(service)
            await pool.execute("VACUUM ANALYZE")
            for what, (work, wanted) in CALLS.items():
                rounds = [(await work(ours), await work(peer)) for _ in range(ROUNDS)]
                own, theirs = (statistics.median(figures) for figures in zip(*rounds, strict=True))
                row(what, f"{own:.0f}/s, {1000 / own:.1f} ms")
                row("  against DatabaseSessionService", f"{theirs:.0f}/s", f"{own / theirs:.1f}x", wanted)
                if what in MUSTS:
                    figure(MUSTS[what], own / theirs)
                if what in BY_HAND:
                    hand = statistics.median([await by_hand(pool, *BY_HAND[what], TEXT) for _ in range(ROUNDS)])
                    row("  against hand-written SQL of the same rows", f"{hand:.0f}/s", f"{own / hand:.2f}")


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
