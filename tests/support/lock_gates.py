"""Lock-gated races: hold a lock, start the rival, wait until the server says that it waits, go on."""

from __future__ import annotations

import asyncio

import asyncpg


async def until_one_waits_for_a_lock(pool: asyncpg.Pool, timeout_seconds: float = 10.0) -> None:
    """Return once some session of this database waits for a lock; TimeoutError where none does."""
    async with asyncio.timeout(timeout_seconds):
        while not await pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ):
            await asyncio.sleep(0.005)
