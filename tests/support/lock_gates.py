"""Lock-gated races: hold a lock, start the rival, wait until the server reports that it waits, continue."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import asyncpg

from tests.support.waiting import until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

#: What has stored so many events waits, before it stores more, for a lock that the test holds.
GATE = """
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM events) >= {stored} THEN
        PERFORM pg_advisory_xact_lock_shared(77, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER wait_at_gate BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION wait_at_gate();
"""


AT_THE_GATE = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND (classid, objid) = (77, 1) AND NOT granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@contextlib.asynccontextmanager
async def held_after(pool: asyncpg.Pool, stored: int) -> AsyncIterator[asyncpg.Connection]:
    """Let a program store some events and no more inside the block, however fast it is.

    Yields the connection that holds the lock.
    """
    async with pool.acquire() as holder:
        await holder.execute(GATE.format(stored=stored))
        await holder.execute("SELECT pg_advisory_lock(77, 1)")
        yield holder
        await holder.execute("SELECT pg_advisory_unlock(77, 1)")


async def until_one_waits_at_the_gate(pool: asyncpg.Pool) -> None:
    """Return once a program has stored what `held_after` lets it store."""
    await until(lambda: pool.fetchval(AT_THE_GATE), "a session waits at the gate")


async def until_one_waits_for_a_lock(pool: asyncpg.Pool) -> None:
    """Return once a session of this database waits for a lock."""
    await until(lambda: pool.fetchval(WAITING), "a session waits for a lock")
