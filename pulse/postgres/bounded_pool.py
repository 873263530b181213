"""A pool that hands a connection on to the next statement at once, and never waits for a server that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, cast

import asyncpg
from asyncpg.pool import PoolAcquireContext

from pulse.process.counts import COUNTS

if TYPE_CHECKING:
    from pulse.redaction import RedactionMode

    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]
    _Acquired = PoolAcquireContext[asyncpg.Record]
    _Proxy = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool
    _Acquired = PoolAcquireContext

#: The time limit for ending a cancelled statement, a transaction that failed or was left open, or a connection.
RELEASE_SECONDS_MAX = 5.0
#: A connection that was set aside goes back to the pool after at most this time; the pool renews or closes it.
_ASIDE_SECONDS_MAX = 10.0


_pools: weakref.WeakSet[BoundedPool] = weakref.WeakSet()


class Opens(Protocol):
    """Opens connections to one address: `pulse.postgres.hosts.Opener`."""

    schema: str

    async def __call__(self, **options: Any) -> Any:
        """Return a new connection."""


class BoundedPool(Pool):
    """A pool that sets a returned connection aside for the next caller, and closes one that does not answer.

    asyncpg takes a connection back in a task of its own, with a timer and a reset: half of what a short statement costs
    its client. So the connection of an ``async with`` block that ended without an error is set aside as it is, unless
    a caller waits for one. It must not be used after the block.

    A cancelled statement waits until the server has ended it, which a server that hangs never does. A loop that ends
    cancels every task, including the one in which the driver takes a connection back: if that had not begun yet, the
    connection would count as used for ever, and closing the pool would wait for it.

    After a failover, connections to the former primary may live on. A write that is refused as read-only has all of
    them replaced.
    """

    __slots__ = (
        "__weakref__",
        "_aside",
        "_before_close",
        "_clearing",
        "_is_ending",
        "_returning",
        "_waiting",
        "opener",
        "redaction_modes",
        "redaction_reads",
    )

    def __init__(self, opener: Opens, **options: Any) -> None:
        self.opener = opener
        super().__init__(connect=cast("Any", self._open), **options)
        self._aside: list[_Proxy] = []
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self._waiting = 0
        self._is_ending = False
        self._clearing: asyncio.TimerHandle | None = None
        self._returning: set[asyncio.Task[None]] = set()
        #: What the policies of apps do about secrets, as the statement gateway read it last; off for any other app.
        self.redaction_modes: dict[str, RedactionMode] = {}
        self.redaction_reads: dict[str, tuple[float, RedactionMode]] = {}
        _pools.add(self)

    @property
    def aside(self) -> int:
        """How many connections are set aside for the next caller."""
        return len(self._aside)

    @property
    def waiting(self) -> int:
        """How many callers wait for a connection."""
        return self._waiting

    @property
    def is_open(self) -> bool:
        """Whether its closing has not begun."""
        return not self._is_ending

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

    async def _open(self, *_address: str, **options: Any) -> Any:
        return await self.opener(**options)

    def redirect(self, opener: Opens) -> None:
        """Connect to another address from now on. Idle connections are closed, those in use when they come back."""
        self.opener = opener
        self._generation += 1  # type: ignore[attr-defined] # asyncpg's own, as `expire_connections` does
        self._clear()

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

    async def renew(self) -> None:
        """Replace every connection before its next use: the server refuses writes, and another may accept them."""
        await self.expire_connections()
        self._clear()

    async def take(self, seconds_max: float | None) -> _Proxy:
        """Return a connection that was set aside, or one of the pool's."""
        while self._aside:
            connection = self._aside.pop()
            if _is_ready(connection):
                return connection
            await self.release(connection)
        is_full = self.get_idle_size() == 0 and self.get_size() == self.get_max_size()
        began = time.perf_counter() if is_full else 0.0
        self._waiting += 1
        try:
            return await super().acquire(timeout=seconds_max)
        finally:
            self._waiting -= 1
            if is_full:
                COUNTS.pool_waits += 1
                COUNTS.pool_wait_seconds += time.perf_counter() - began

    def set_aside(self, connection: _Proxy) -> bool:
        """Keep a connection for the next caller; False if it must go back to the pool."""
        if self._waiting or self._is_ending or not _is_ready(connection):
            return False
        if connection._holder._generation != self._generation:  # type: ignore[attr-defined] # asyncpg's own
            return False  # It was opened before `renew`.
        self._aside.append(connection)
        if self._clearing is None:
            self._clearing = asyncio.get_running_loop().call_later(_ASIDE_SECONDS_MAX, self._clear)
        return True

    def _clear(self) -> None:
        """Give back every connection that is set aside; one in use is given back another time."""
        if self._clearing is not None:
            self._clearing.cancel()
            self._clearing = None
        # The one that was used last goes back last, and is given out first: its plans and caches are the warmest.
        aside, self._aside = self._aside, []
        for connection in aside:
            self._return(connection)

    def _return(self, connection: _Proxy) -> None:
        returning = asyncio.get_running_loop().create_task(self.release(connection))

        def end(task: asyncio.Task[None]) -> None:
            self._returning.discard(task)
            if task.cancelled():  # perhaps before it began
                _cut(connection)

        self._returning.add(returning)
        returning.add_done_callback(end)


def open_pools() -> list[BoundedPool]:
    """Return the pools of this process that are open."""
    return [pool for pool in _pools if pool.is_open]


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


def _is_read_only(error: object) -> bool:
    """Whether a server refused a write as a standby or as read-only; the error may be translated."""
    return isinstance(error, asyncpg.ReadOnlySQLTransactionError) or isinstance(
        getattr(error, "__cause__", None), asyncpg.ReadOnlySQLTransactionError
    )


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
        if _is_read_only(exc[1]):
            await self.pool.renew()
        if exc[0] is not None or connection is None or not self.pool.set_aside(connection):
            await self.pool.release(connection)

    def __await__(self) -> Generator[Any, None, _Proxy]:
        self.done = True
        return self.pool.take(self.timeout).__await__()
