"""A conversation of 100,000 events: what it costs to go on with it, to read its end, and to prepare its next prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from benchmarks.growth import blocks
from hippocampus.context_assembler import ContextAssembler
from hippocampus.search import MemorySearch
from pulse.events import Event
from pulse.session_service import BATCH_SIZE_MAX, OpenSessionService
from pulse.timeline import TimelineService

pytestmark = pytest.mark.system

SIZES = {"short": 100, "long": 100_000}
#: In seconds since 1970.
BEGAN = 1_735_689_600.0
WORDS = ("bridge", "garden", "market", "kitchen", "violin", "letter", "winter", "river", "harbour", "lantern", "ladder")


def turn(number: int) -> Event:
    words = " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 7))
    text = f"Turn {number} is about the {words}, number {number * 7919 % 100_003}."
    return Event(
        id=f"e{number}",
        author="user" if number % 2 else "assistant",
        event_type="user_message" if number % 2 else "assistant_message",
        content={"text": text},
        timestamp=BEGAN + 60.0 * number,
    )


@pytest.mark.timeout(400)
async def test_its_length_costs_little(pool: asyncpg.Pool) -> None:
    """An append and a page touch as few blocks of PostgreSQL as in a conversation of a hundred events."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    sessions, timelines = OpenSessionService(pool), TimelineService(pool)
    search, assembler = MemorySearch(pool, None), ContextAssembler(pool, None)
    for name, size in SIZES.items():
        await sessions.create_session("app", name, session_id=name)
        for first in range(1, size + 1, BATCH_SIZE_MAX):
            await sessions.append(
                "app", name, name, [turn(n) for n in range(first, min(first + BATCH_SIZE_MAX, size + 1))]
            )
    await pool.execute("VACUUM ANALYZE")

    async def cost(work: Callable[[str], Awaitable[object]], name: str) -> float:
        await work(name)  # What is prepared once.
        before = await blocks(pool)
        for _ in range(5):
            await work(name)
        return (await blocks(pool) - before) / 5

    async def append(name: str) -> None:
        await sessions.append("app", name, name, [Event(author="user", content={"text": "We met at the market."})])

    async def read(name: str) -> None:
        page = await timelines.get_conversation_messages("app", name, name, before_sequence=2**62, limit=50)
        assert len(page.items) == 50

    async def find(name: str) -> None:
        assert await search.search(app_name="app", user_id=name, query="the violin in the kitchen")

    async def assemble(name: str) -> None:
        window = await assembler.assemble(
            app_name="app", user_id=name, session_id=name, query="the violin", max_tokens=2000
        )
        assert window.text

    # A search ranks a bounded number of turns, and finds them by indexes: a thousand times the turns, twelve times the
    # blocks (measured).
    for work, times_max in ((append, 2), (read, 2), (find, 25), (assemble, 15)):
        short, long = await cost(work, "short"), await cost(work, "long")
        print(f"{work.__name__}: {short:.0f} blocks in a short conversation, {long:.0f} in a long one")
        assert long <= times_max * short
    await sessions.close()
