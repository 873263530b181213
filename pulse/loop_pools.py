"""Pools for callers whose event loops come and go.

asyncpg's connections belong to the event loop that opened them. A framework that runs each call in a loop of its own
cannot share a pool between calls, so `LoopPools` keeps one per loop, opened by the loop's first call and closed with
the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

from pulse import database

if TYPE_CHECKING:
    from pulse.database import Pool

Result = TypeVar("Result")

POOL_SIZE_MAX = 10
#: How long `close` waits for a pool of another loop, or for a connection that is not given back.
CLOSE_SECONDS_MAX = 10.0


class PoolAccess(Protocol):
    """Runs work with a pool, from any event loop that the pool serves."""

    async def run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        """Return what `work` returns, and raise what it raises."""

    async def close(self) -> None:
        """Close what was opened. Idempotent."""


class GivenPool:
    """The caller's own pool, which the caller closes. It serves the event loop that opened it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        """See `PoolAccess`."""
        return await work(self._pool)

    async def close(self) -> None:
        """Do nothing: the caller closes the pool."""


class LoopPools:
    """A pool for each event loop that calls, for any number of loops and threads.

    A pool is closed when its loop shuts down its asynchronous generators, as `asyncio.run` does at its end, or by
    `close`. A loop that is closed without that leaves its connections to the garbage collector.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str | None = None,
        max_size: int = POOL_SIZE_MAX,
        check: Callable[[Pool], Awaitable[None]] | None = None,
    ) -> None:
        """Take an address and a schema as `pulse.create_pool` does.

        Args:
            check: raises if a pool that was just opened cannot be used.

        Raises:
            InvalidInputError: the schema.
        """
        database.read_address(dsn, schema)
        self._dsn = dsn
        self._schema = schema
        self._max_size = max_size
        self._check = check
        self._opened: dict[asyncio.AbstractEventLoop, _LoopPool] = {}

    async def run(self, work: Callable[[Pool], Awaitable[Result]]) -> Result:
        """See `PoolAccess`.

        Raises:
            DatabaseUnreachableError, SchemaError: the pool cannot be opened; the next call retries.
        """
        opened = self._opened.get(asyncio.get_running_loop())
        pool = opened.pool if opened is not None else None
        return await work(await self._open_once() if pool is None else pool)

    async def close(self) -> None:
        """Close the pools of this loop and of those that still run elsewhere. A later call opens a new pool."""
        here = asyncio.get_running_loop()
        for loop, opened in list(self._opened.items()):
            if loop is here:
                await opened.close()
            elif loop.is_running():
                closing = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(opened.close(), loop))
                # A loop that ends at this moment closes its pool itself and may not answer.
                await asyncio.wait([closing], timeout=CLOSE_SECONDS_MAX)
            self._opened.pop(loop, None)

    async def _open_once(self) -> Pool:
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None or opened.is_over:
            # A copy, and pop with a default: other threads do the same.
            for ended in [each for each in list(self._opened) if each.is_closed()]:
                self._opened.pop(ended, None)
            opened = self._opened[loop] = _LoopPool(self._open())
        return await opened.ready()

    async def _open(self) -> Pool:
        # No idle connection is kept: a loop that ends without closing leaves little behind.
        pool = await database.create_pool(self._dsn, schema=self._schema, min_size=0, max_size=self._max_size)
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


class _LoopPool:
    """The pool of one loop, and the generator that closes it with the loop."""

    def __init__(self, opening: Coroutine[None, None, Pool]) -> None:
        self.pool: Pool | None = None
        self._opening = asyncio.ensure_future(opening)
        self._keeper: AsyncGenerator[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the pool could not be opened, or was closed."""
        opening = self._opening
        return opening.done() and (opening.cancelled() or opening.exception() is not None or self._was_closed)

    @property
    def _was_closed(self) -> bool:
        return self._keeper is not None and self.pool is None

    async def ready(self) -> Pool:
        """Return the pool once it is open."""
        # Shielded: a cancelled caller must not take the pool from the others.
        pool = await asyncio.shield(self._opening)
        if self._keeper is None:
            self.pool = pool
            self._keeper = self._keep(pool)
            await anext(self._keeper)
        return pool

    async def close(self) -> None:
        """Close the pool, once it is open."""
        await asyncio.wait([self._opening])
        if not self.is_over:
            await self.ready()
        if self._keeper is not None:
            await self._keeper.aclose()

    async def _keep(self, pool: Pool) -> AsyncGenerator[None]:
        """Hold the pool until the loop ends its generators, or `close` is called."""
        try:
            yield
        finally:
            self.pool = None
            with contextlib.suppress(TimeoutError):  # The connections were dropped.
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await pool.close()


def access(database_: Pool | PoolAccess | str) -> PoolAccess:
    """Return the access to a pool, or to the database that a URL names (``postgresql://…``)."""
    if isinstance(database_, str):
        return LoopPools(database_)
    if isinstance(database_, GivenPool | LoopPools):
        return database_
    return GivenPool(database_)  # type: ignore[arg-type]  # anything else is a pool
