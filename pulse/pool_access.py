"""Pools for callers whose event loops come and go.

asyncpg's connections belong to the event loop that opened them. A framework that runs each call in a loop of its own,
in whatever thread, cannot share a pool between calls; so `OwnLoopPool` keeps its pool in a thread with a loop that
stays, and callers wait for it from theirs. It costs about a quarter of a millisecond per call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from pulse import database

if TYPE_CHECKING:
    from pulse.database import Pool

Result = TypeVar("Result")

POOL_SIZE_MAX = 10


class PoolAccess(Protocol):
    """Runs work with a pool, from any event loop that it can serve."""

    async def run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        """Return what `work` returns; what it raises is raised."""

    async def close(self) -> None:
        """Give back what was opened. Idempotent."""


class GivenPool:
    """The caller's own pool, which the caller closes. Only for the event loop that opened it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        """See `PoolAccess`."""
        return await work(self._pool)

    async def close(self) -> None:
        """Do nothing: the pool is the caller's."""


class OwnLoopPool:
    """A pool in a thread of its own, opened by its first use, for any number of event loops and threads."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "public",
        max_size: int = POOL_SIZE_MAX,
        check: Callable[[Pool], Awaitable[None]] | None = None,
    ) -> None:
        """`check` raises where a pool that was just opened can't be used."""
        self._dsn = dsn
        self._check = check
        self._schema = schema
        self._max_size = max_size
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._opened: asyncio.Task[Pool] | None = None  # known to the thread's loop alone

    async def run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        """See `PoolAccess`. Cancelling the caller cancels the work.

        Raises:
            DatabaseUnreachableError, SchemaError: the pool can't be opened; the next call tries again.
        """

        async def run_with_pool() -> Result:
            return await work(await self._pool())

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run_with_pool(), self._running_loop()))

    async def close(self) -> None:
        """Close the pool and end the thread. A later call opens both again."""
        with self._starting:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close_pool(), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon: a program that forgets to close still ends.
                self._thread = threading.Thread(
                    target=_run_until_stopped, args=(self._loop,), name="hippocampus-pool", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _pool(self) -> Pool:
        if self._opened is None or (self._opened.done() and _failed(self._opened)):
            self._opened = asyncio.create_task(self._open())
        # Shielded: one caller that gives up must not take the pool from the others.
        return await asyncio.shield(self._opened)

    async def _open(self) -> Pool:
        pool = await database.create_pool(
            # None is kept open for its own sake: a program that forgets to close leaves nothing that reconnects.
            self._dsn,
            schema=self._schema,
            min_size=0,
            max_size=self._max_size,
        )
        try:
            async with pool.acquire():
                pass
            if self._check is not None:
                await self._check(pool)
        except database.CONNECT_ERRORS as error:
            await pool.close()
            raise database.unreachable(self._dsn, error) from error
        except BaseException:
            await pool.close()
            raise
        return pool

    async def _close_pool(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and not (opened.done() and _failed(opened)):
            await (await opened).close()


def access(database_: Pool | PoolAccess | str) -> PoolAccess:
    """Return the access to a pool, or to the database that a URL names (``postgresql://…``)."""
    if isinstance(database_, str):
        return OwnLoopPool(database_)
    if isinstance(database_, GivenPool | OwnLoopPool):
        return database_
    return GivenPool(database_)  # type: ignore[arg-type]  # what is no access of ours is a pool


def _failed(opened: asyncio.Task[Pool]) -> bool:
    return opened.cancelled() or opened.exception() is not None


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
