"""Connections that are passed from one statement to the next, and released to the pool at the end."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from pulse import database
from pulse.postgres import bounded_pool
from tests.support.waiting import WAIT_SECONDS

PID = "SELECT pg_backend_pid()"


async def test_statements_reuse_a_connection_without_releasing_it(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await database.create_pool(dsn, max_size=2) as pool:
        expected = await pool.fetchval(PID)
        with monkeypatch.context() as patch:
            patch.setattr(asyncpg.Pool, "release", None)  # must not be called
            assert await pool.fetchval(PID) == expected
            async with pool.acquire() as connection:
                assert await connection.fetchval(PID) == expected
        assert pool.get_size() == 1


async def test_a_waiting_statement_gets_the_first_free_connection(dsn: str) -> None:
    """One caller keeps the first connection. The waiting statements get the second as soon as it is free."""
    async with (
        await database.create_pool(dsn, min_size=2, max_size=2) as pool,
        pool.acquire(),
        asyncio.timeout(WAIT_SECONDS),
    ):
        async with pool.acquire() as second:
            waiting = [asyncio.create_task(pool.fetchval(PID)) for _ in range(3)]
            await asyncio.sleep(0)
            expected = await second.fetchval(PID)
        assert await asyncio.gather(*waiting) == [expected] * 3
        connection = await pool.acquire()
        assert await connection.fetchval(PID) == expected
        await pool.release(connection)


async def test_a_lost_connection_is_not_reused(dsn: str, conn: asyncpg.Connection) -> None:
    async with await database.create_pool(dsn, min_size=0, max_size=1) as pool, asyncio.timeout(WAIT_SECONDS):
        lost = await pool.fetchval(PID)
        await conn.execute("SELECT pg_terminate_backend($1)", lost)
        while pool.get_size():  # until the loss is noticed
            await asyncio.sleep(0.01)
        assert await pool.fetchval(PID) != lost


async def test_a_pool_closes_with_connections_set_aside(dsn: str, conn: asyncpg.Connection) -> None:
    pool = await database.create_pool(dsn, max_size=3)
    pids = await asyncio.gather(*(pool.fetchval(PID) for _ in range(3)))
    async with asyncio.timeout(WAIT_SECONDS):
        await pool.close()
        while await conn.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)", pids):
            await asyncio.sleep(0.01)
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await pool.fetchval(PID)


async def test_a_pool_is_terminated_when_its_close_is_cancelled(dsn: str, conn: asyncpg.Connection) -> None:
    pool = await database.create_pool(dsn, max_size=1)
    pid = await pool.fetchval(PID)
    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(WAIT_SECONDS):
        while await conn.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid):
            await asyncio.sleep(0.01)


async def test_a_connection_set_aside_is_released_to_the_pool(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it is replaced after its maximum of queries, and closed when it is idle for long."""
    monkeypatch.setattr(bounded_pool, "_ASIDE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(database, "_QUERIES_MAX", 20)
    async with await database.create_pool(dsn, max_size=1) as pool, asyncio.timeout(WAIT_SECONDS):
        first = await pool.fetchval(PID)
        assert pool.get_idle_size() == 0
        while pool.get_idle_size() == 0:
            await asyncio.sleep(0.01)
        while await pool.fetchval(PID) == first:
            await asyncio.sleep(0)


async def test_of_connections_set_aside_the_one_used_last_is_given_out_first(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller whose statements come one at a time stays on one connection, whose plans are made."""
    monkeypatch.setattr(bounded_pool, "_ASIDE_SECONDS_MAX", 0.01)
    async with await database.create_pool(dsn, min_size=3, max_size=3) as pool, asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(pool.fetchval(PID) for _ in range(3)))
        for _ in range(3):
            last = await pool.fetchval(PID)
            while pool.get_idle_size() < 3:  # until all of them are back
                await asyncio.sleep(0.001)
            assert await pool.fetchval(PID) == last


async def test_a_loop_that_ends_during_a_release_closes_the_pool(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end `asyncio.run` cancels every task, also those that have not started."""
    monkeypatch.setattr(bounded_pool, "_ASIDE_SECONDS_MAX", 0.0)
    pool = await database.create_pool(dsn, max_size=1)
    before = asyncio.all_tasks()
    await pool.fetchval(PID)
    async with asyncio.timeout(WAIT_SECONDS):
        while not (releasing := asyncio.all_tasks() - before):
            await asyncio.sleep(0)
        for task in releasing:
            task.cancel()
        assert await pool.fetchval(PID)
        await pool.close()


async def test_a_connection_lost_during_its_release_is_released(dsn: str, conn: asyncpg.Connection) -> None:
    """The loss is noticed between the call of the driver's release and the first step of its task."""
    async with await database.create_pool(dsn, min_size=0, max_size=1) as pool, asyncio.timeout(WAIT_SECONDS):
        lost = await pool.acquire()
        await conn.execute("SELECT pg_terminate_backend($1)", await lost.fetchval(PID))
        releasing = asyncio.create_task(pool.release(lost))
        asyncio.get_running_loop().call_soon(lost.terminate)
        await releasing
        assert await pool.fetchval("SELECT 1") == 1


async def test_a_failed_statement_releases_its_connection(dsn: str) -> None:
    async with await database.create_pool(dsn, max_size=1) as pool, asyncio.timeout(WAIT_SECONDS):
        for _ in range(3):
            with pytest.raises(asyncpg.DivisionByZeroError):
                await pool.fetchval("SELECT 1 / 0")
        assert pool.get_idle_size() == 1


async def test_a_connection_can_be_acquired_only_once(dsn: str) -> None:
    async with await database.create_pool(dsn, max_size=2) as pool:
        acquiring = pool.acquire()
        async with acquiring:
            with pytest.raises(asyncpg.InterfaceError, match="already acquired"):
                await acquiring.__aenter__()
