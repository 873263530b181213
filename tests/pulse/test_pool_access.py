"""Connection pools for callers whose event loops start and end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from pulse import database, loop_pools
from pulse.errors import SchemaError
from pulse.loop_pools import GivenPool, LoopPools, access
from pulse.postgres import bounded_pool
from tests.support.waiting import WAIT_SECONDS


async def test_a_cancelled_call_also_ends_in_the_database(dsn: str, conn: asyncpg.Connection) -> None:
    """The statement does not outlive its caller."""
    own = LoopPools(dsn)
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'"
    calling = asyncio.create_task(own.run(lambda pool: pool.execute("SELECT pg_sleep(600)")))
    async with asyncio.timeout(WAIT_SECONDS):
        while await conn.fetchval(sleeping) == 0:
            await asyncio.sleep(0.02)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        while await conn.fetchval(sleeping) == 1:
            await asyncio.sleep(0.02)
    assert await own.run(lambda pool: pool.fetchval("SELECT 1")) == 1
    await own.close()


async def test_a_cancelled_call_does_not_wait_for_a_hung_server(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed, and the pool opens another, so no other call is stuck behind it."""
    monkeypatch.setattr(bounded_pool, "RELEASE_SECONDS_MAX", 0.2)
    async with await database.create_pool(dsn, max_size=1) as pool:
        hung: int = await pool.fetchval("SELECT pg_backend_pid()")
        os.kill(hung, signal.SIGSTOP)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await pool.fetchval("SELECT 1")
                assert await pool.fetchval("SELECT pg_backend_pid()") != hung
        finally:
            os.kill(hung, signal.SIGCONT)


async def test_a_call_cancelled_while_the_pool_opens_does_not_affect_the_others(dsn: str) -> None:
    own = LoopPools(dsn)
    calls = [asyncio.create_task(own.run(lambda pool: pool.fetchval("SELECT 1"))) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    assert await asyncio.gather(*calls[1:]) == [1, 1]
    await own.close()


async def test_an_exception_of_the_work_reaches_the_caller(dsn: str) -> None:
    own = LoopPools(dsn)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await own.run(lambda pool: pool.fetchval("SELECT 1 / 0"))
    await own.close()


async def test_a_given_pool_is_closed_by_its_owner(pool: asyncpg.Pool) -> None:
    given = access(pool)
    assert isinstance(given, GivenPool)
    assert access(given) is given
    await given.close()
    assert await given.run(lambda opened: opened.fetchval("SELECT 1")) == 1


def test_each_loop_has_a_pool_that_closes_with_it(dsn: str) -> None:
    """`asyncio.run` after `asyncio.run`, in any thread: no connection is left, and there are no warnings."""
    pools = LoopPools(dsn)

    async def connections() -> int:
        count: int = await pools.run(
            lambda pool: pool.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hippocampus'"
                " AND datname = current_database()"
            )
        )
        return count

    assert [asyncio.run(connections()) for _ in range(3)] == [1, 1, 1]
    with ThreadPoolExecutor(2) as threads:
        seen = [each.result() for each in [threads.submit(asyncio.run, connections()) for _ in range(4)]]
    assert max(seen) <= 2
    assert asyncio.run(connections()) == 1


async def test_close_also_closes_the_pools_of_other_loops(dsn: str, conn: asyncpg.Connection) -> None:
    """A later call opens a new pool."""
    pools = LoopPools(dsn)
    ready, over = threading.Event(), threading.Event()

    async def elsewhere() -> None:
        await pools.run(lambda pool: pool.fetchval("SELECT 1"))
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    thread.start()
    await asyncio.to_thread(ready.wait, 30)
    await pools.run(lambda pool: pool.fetchval("SELECT 1"))
    await pools.close()
    own = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with asyncio.timeout(WAIT_SECONDS):
        while await conn.fetchval(own):
            await asyncio.sleep(0.02)
    over.set()
    await asyncio.to_thread(thread.join)
    assert await pools.run(lambda pool: pool.fetchval("SELECT 1")) == 1
    await pools.close()
    await pools.close()


async def test_a_pool_that_failed_to_open_is_opened_again(dsn: str) -> None:
    refusals = ["not yet"]

    async def check(pool: asyncpg.Pool) -> None:
        if refusals:
            raise SchemaError(refusals.pop())

    pools = LoopPools(dsn, check=check)
    with pytest.raises(SchemaError, match="not yet"):
        await pools.run(lambda pool: pool.fetchval("SELECT 1"))
    assert await pools.run(lambda pool: pool.fetchval("SELECT 1")) == 1
    await pools.close()


async def test_a_pool_with_an_unreleased_connection_is_terminated(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_pools, "CLOSE_SECONDS_MAX", 0.1)
    own = LoopPools(dsn)
    kept = await own.run(lambda pool: pool.acquire())
    async with asyncio.timeout(WAIT_SECONDS):
        await own.close()
    with pytest.raises(asyncpg.InterfaceError):
        await kept.fetchval("SELECT 1")


async def test_threads_that_end_their_loops_do_not_disturb_each_other(dsn: str) -> None:
    """Opening a pool removes those of ended loops, while other threads do the same."""
    own = LoopPools(dsn)
    later = asyncio.SelectorEventLoop()

    class Ended(asyncio.SelectorEventLoop):
        def is_closed(self) -> bool:
            if ended in own._opened:
                own._opened[later] = own._opened[ended]  # as another thread does at this moment
                return True
            return super().is_closed()

    ended = Ended()
    own._opened[ended] = None  # type: ignore[assignment]  # only its key is used
    try:
        assert await own.run(lambda pool: pool.fetchval("SELECT 1")) == 1
        assert ended not in own._opened
    finally:
        own._opened.pop(later, None)
        later.close()
        ended.close()
        await own.close()
