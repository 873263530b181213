"""append_event and create_session, against google-adk's DatabaseSessionService and against hand-written SQL.

Ten sessions at once, in each one append after another, each with a state delta; all on one server, in turn.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable

import asyncpg
from google.adk.events import Event as AdkEvent
from google.adk.events import EventActions as AdkActions
from google.adk.sessions import DatabaseSessionService
from google.genai import types

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, row
from pulse.events import Event, EventActions
from pulse.session_service import OpenSessionService

SESSIONS = 10
APPENDS = 150
CREATES = 60
TEXT = "I moved to Lisbon last spring, and I still miss the dumplings near my old office. " * 2

# Hand-written SQL for the same rows: one statement, one round trip, no check except of the version.
HAND_WRITTEN_APPEND = """
WITH moved AS (
    UPDATE threads SET last_seq = last_seq + 1, version = version + 1, state = state || $3,
                       token_count = token_count + $4, last_event_at = now(), updated_at = now()
    WHERE id = $1 AND version = $2 RETURNING id, last_seq, app_name, user_id
), stored AS (
    INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, actions, version, session_delta,
                        occurred_at, created_at)
    SELECT id, last_seq, $5, 'user', 'user_message', $6::json, $7::json, $2 + 1, $3, now(), now() FROM moved
    RETURNING thread_id, sequence_num
)
INSERT INTO messages (id, thread_id, sequence_num, event_id, app_name, user_id, role, author, content, token_estimate,
                      occurred_at)
SELECT gen_random_uuid(), id, last_seq, $5, app_name, user_id, 'user', 'user', $8, $4, now() FROM moved
RETURNING sequence_num
"""
HAND_WRITTEN_CREATE = """
INSERT INTO threads (id, app_name, user_id, session_id, state) VALUES (gen_random_uuid(), $1, $2, $3, $4)
"""


async def per_second(total: int, workers: int, work: Callable[[int], Awaitable[None]]) -> float:
    """Run `work` once per worker, all at once; return calls per second over all of them."""
    start = time.perf_counter()
    await asyncio.gather(*(work(n) for n in range(workers)))
    return total / (time.perf_counter() - start)


async def ours(pool: asyncpg.Pool, sessions: int, appends: int) -> float:
    service = OpenSessionService(pool)
    opened = [await service.create_session("bench", f"u{uuid.uuid4()}") for _ in range(sessions)]

    async def append(worker: int) -> None:
        for n in range(appends):
            event = Event(author="user", content={"text": TEXT}, actions=EventActions(state_delta={"step": n}))
            await service.append_event(opened[worker], event)

    return await per_second(sessions * appends, sessions, append)


async def by_hand(pool: asyncpg.Pool, sessions: int, appends: int, text: str = TEXT) -> float:
    """Measure what the server allows: the hand-written statement, appends per second."""
    threads = [
        await pool.fetchval(
            "INSERT INTO threads (app_name, user_id, session_id) VALUES ('hand', $1, 's') RETURNING id",
            str(uuid.uuid4()),
        )
        for _ in range(sessions)
    ]

    async def append(worker: int) -> None:
        for n in range(appends):
            await pool.fetchval(
                HAND_WRITTEN_APPEND,
                threads[worker],
                n,
                {"step": n},
                len(text) // 4,
                str(uuid.uuid4()),
                f'{{"text": "{text}"}}',
                f'{{"state_delta": {{"step": {n}}}}}',
                text,
            )

    return await per_second(sessions * appends, sessions, append)


async def adks(service: DatabaseSessionService, sessions: int, appends: int) -> float:
    opened = [await service.create_session(app_name="bench", user_id=f"u{uuid.uuid4()}") for _ in range(sessions)]

    async def append(worker: int) -> None:
        for n in range(appends):
            event = AdkEvent(
                author="user",
                content=types.Content(role="user", parts=[types.Part(text=TEXT)]),
                actions=AdkActions(state_delta={"step": n}),
            )
            await service.append_event(opened[worker], event)

    return await per_second(sessions * appends, sessions, append)


async def creates(create: Callable[[str], Awaitable[object]], workers: int, each: int) -> float:
    async def work(worker: int) -> None:
        for n in range(each):
            await create(f"{worker}-{n}-{uuid.uuid4()}")

    return await per_second(workers * each, workers, work)


async def main() -> None:
    async with fresh_pool(40) as (pool, server):
        # A database of its own: both have a table called events.
        await pool.execute("CREATE DATABASE adk")
        address = server.tcp_dsn.removesuffix("/hippocampus").replace("postgresql://", "postgresql+asyncpg://")
        adk = DatabaseSessionService(db_url=f"{address}/adk")
        await adk.prepare_tables()
        service = OpenSessionService(pool)
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        await ours(pool, 4, 20)
        await by_hand(pool, 4, 20)
        await adks(adk, 4, 10)

        rounds = [
            (await ours(pool, SESSIONS, APPENDS), await by_hand(pool, SESSIONS, APPENDS), await adks(adk, SESSIONS, 30))
            for _ in range(3)
        ]
        own, hand, peer = (sorted(figures)[1] for figures in zip(*rounds, strict=True))
        row("append_event, 10 sessions at once", f"{own:.0f}/s")
        figure("append_vs_adk", own / peer, f"{peer:.0f}/s")
        figure("append_vs_sql", own / hand, f"{hand:.0f}/s")

        own = await creates(lambda s: service.create_session("bench", "u", {"a": 1}, session_id=s), SESSIONS, CREATES)
        hand = await creates(lambda s: pool.execute(HAND_WRITTEN_CREATE, "hand", "u", s, {"a": 1}), SESSIONS, CREATES)
        peer = await creates(
            lambda s: adk.create_session(app_name="bench", user_id="u", session_id=s, state={"a": 1}), SESSIONS, 20
        )
        row("create_session, 10 at once", f"{own:.0f}/s")
        row("  against DatabaseSessionService", f"{peer:.0f}/s", f"{own / peer:.1f}x", "of it")
        row("  against one hand-written INSERT", f"{hand:.0f}/s", f"{own / hand:.2f}")

        many = await creates(lambda s: service.create_session("bench", "u", {"a": 1}, session_id=s), 40, CREATES)
        row("create_session over 40 connections", f"{many:.0f}/s", f"{many / 1000:.1f}x", "of 1,000/s, must 1x")
        many = await ours(pool, 40, 50)
        row("append_event with a delta over 40 connections", f"{many:.0f}/s", f"{many / 500:.1f}x", "of 500/s, must 1x")
        await adk.close()


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
