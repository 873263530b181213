"""Lock-gated races: hold a lock, start the rival, wait until the server reports that it waits, continue."""

from __future__ import annotations

import asyncpg

from tests.support.waiting import until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def until_one_waits_for_a_lock(pool: asyncpg.Pool) -> None:
    """Return once a session of this database waits for a lock."""
    await until(lambda: pool.fetchval(WAITING), "a session waits for a lock")
