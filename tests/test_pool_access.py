"""A pool for callers whose event loops come and go."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from pulse.pool_access import GivenPool, OwnLoopPool, access


async def test_what_is_cancelled_ends_in_the_database_too(dsn: str, conn: asyncpg.Connection) -> None:
    """The caller's loop and the pool's are two; the statement must not outlive its caller."""
    own = OwnLoopPool(dsn)
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'"
    calling = asyncio.create_task(own.run(lambda pool: pool.execute("SELECT pg_sleep(600)")))
    async with asyncio.timeout(30):
        while await conn.fetchval(sleeping) == 0:
            await asyncio.sleep(0.02)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        while await conn.fetchval(sleeping) == 1:
            await asyncio.sleep(0.02)
    assert await own.run(lambda pool: pool.fetchval("SELECT 1")) == 1
    await own.close()


async def test_one_who_gives_up_while_the_pool_opens_does_not_take_it_from_the_others(dsn: str) -> None:
    own = OwnLoopPool(dsn)
    calls = [asyncio.create_task(own.run(lambda pool: pool.fetchval("SELECT 1"))) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    assert await asyncio.gather(*calls[1:]) == [1, 1]
    await own.close()


async def test_what_the_work_raises_reaches_the_caller(dsn: str) -> None:
    own = OwnLoopPool(dsn)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await own.run(lambda pool: pool.fetchval("SELECT 1 / 0"))
    await own.close()


async def test_a_given_pool_is_the_callers_to_close(pool: asyncpg.Pool) -> None:
    given = access(pool)
    assert isinstance(given, GivenPool)
    assert access(given) is given
    await given.close()
    assert await given.run(lambda opened: opened.fetchval("SELECT 1")) == 1
