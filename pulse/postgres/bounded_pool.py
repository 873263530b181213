"""A pool that hands a connection on to the next statement at once, and never waits for a server that is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

import asyncpg
from asyncpg.pool import PoolAcquireContext

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]
    _Acquired = PoolAcquireContext[asyncpg.Record]
    _Proxy = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool
    _Acquired = PoolAcquireContext

#: For the end of a cancelled statement, of a transaction that failed or was left open, of a connection.
RELEASE_SECONDS_MAX = 5.0
#: After this time at most, a connection that was set aside goes back to the pool, which renews and closes connections.
_ASIDE_SECONDS_MAX = 1.0


class BoundedPool(Pool):
    """A pool that sets a returned connection aside for the next caller, and closes one that does not answer.

    asyncpg takes a connection back in a task of its own, with a timer and a reset: half of what a short statement costs
    its client. So the connection of an ``async with`` block that ended without an error is set aside as it is, unless
    a caller waits for one. It must not be used after the block.

    A cancelled statement waits until the server has ended it, which a server that hangs never does. A loop that ends
    cancels every task, also the one in which the driver takes a connection back: if that had not begun yet, the
    connection would count as used for ever, and closing the pool would wait for it.
    """

    __slots__ = ("_aside", "_before_close", "_clearing", "_is_ending", "_returning", "_waiting")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._aside: list[_Proxy] = []
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self._waiting = 0
        self._is_ending = False
        self._clearing: asyncio.TimerHandle | None = None
        self._returning: set[asyncio.Task[None]] = set()

    def acquire(self, *, timeout: float | None = None) -> _Acquired:
        """Take a connection; see `asyncpg.Pool.acquire`."""
        return _Acquiring(self, timeout)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's own
        """Take a connection back; close it if it is not ready within `RELEASE_SECONDS_MAX`."""
        try:
            await super().release(connection, timeout=RELEASE_SECONDS_MAX if timeout is None else timeout)
        except TimeoutError:
            return  # It was closed: the pool opens another.
        except asyncpg.InternalClientError:
            # The connection was lost just before the driver's own task began.
            if not _is_back(connection):
                raise
        except asyncio.CancelledError:
            _cut(connection)
            raise

    def before_close(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have work done at the beginning of `close`, while the pool still gives connections."""
        self._before_close.append(work)

    async def close(self) -> None:
        """Close all connections as they come back; see `asyncpg.Pool.close`."""
        while self._before_close:
            await self._before_close.pop()()
        self._is_ending = True
        try:
            while self._aside:
                await self.release(self._aside.pop())
        except BaseException:
            self.terminate()
            raise
        await super().close()

    def terminate(self) -> None:
        """Close all connections at once; see `asyncpg.Pool.terminate`."""
        self._is_ending = True
        self._aside.clear()
        super().terminate()

    async def take(self, seconds_max: float | None) -> _Proxy:
        """Return a connection that was set aside, or one of the pool's."""
        while self._aside:
            connection = self._aside.pop()
            if _is_ready(connection):
                return connection
            await self.release(connection)
        self._waiting += 1
        try:
            return await super().acquire(timeout=seconds_max)
        finally:
            self._waiting -= 1

    def set_aside(self, connection: _Proxy) -> bool:
        """Keep a connection for the next caller; False if it must go back to the pool."""
        if self._waiting or self._is_ending or not _is_ready(connection):
            return False
        self._aside.append(connection)
        if self._clearing is None:
            self._clearing = asyncio.get_running_loop().call_later(_ASIDE_SECONDS_MAX, self._clear)
        return True

    def _clear(self) -> None:
        """Give back every connection that is set aside; one in use is given back another time."""
        if self._clearing is not None:
            self._clearing.cancel()
            self._clearing = None
        while self._aside:
            self._return(self._aside.pop())

    def _return(self, connection: _Proxy) -> None:
        returning = asyncio.get_running_loop().create_task(self.release(connection))

        def end(task: asyncio.Task[None]) -> None:
            self._returning.discard(task)
            if task.cancelled():  # perhaps before it began
                _cut(connection)

        self._returning.add(returning)
        returning.add_done_callback(end)


def _cut(connection: _Proxy) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):  # It is back already.
        connection.terminate()


def _is_back(connection: _Proxy) -> bool:
    try:
        connection.is_closed()
    except asyncpg.InterfaceError:
        return True
    return False


def _is_ready(connection: _Proxy) -> bool:
    # A connection that was lost is back at once.
    return not (_is_back(connection) or connection.is_closed() or connection.is_in_transaction())


class _Acquiring(_Acquired):
    """Returned by `BoundedPool.acquire`, to be awaited or entered."""

    __slots__ = ()

    pool: BoundedPool

    async def __aenter__(self) -> _Proxy:
        if self.connection is not None or self.done:
            raise asyncpg.InterfaceError("a connection is already acquired")
        self.connection = connection = await self.pool.take(self.timeout)
        return connection

    async def __aexit__(self, *exc: object) -> None:
        self.done = True
        connection, self.connection = self.connection, None
        if exc[0] is not None or connection is None or not self.pool.set_aside(connection):
            await self.pool.release(connection)

    def __await__(self) -> Generator[Any, None, _Proxy]:
        self.done = True
        return self.pool.take(self.timeout).__await__()
