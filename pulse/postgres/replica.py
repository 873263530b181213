"""Reads from a replica that are never older than what was committed at the primary before them.

The position of the primary's log is read first, in a statement of its own that touches no table, and the replica is
used once it has replayed that position. So a read sees every write that was acknowledged before it, by whichever
process: no client has to carry a position. A replica that is behind, or fails, is skipped for the primary. So is a
server that replays the log of another primary, whose positions say nothing about this one's: which one it is, a server
says once on each connection, and with each position through a pooler, which may lead to another server any time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import asyncpg
import structlog

from pulse.errors import PulseError
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.postgres.bounded_pool import Pool

#: How long a read waits for the replica, and the time between two polls of its position.
WAIT_SECONDS = 0.1
_POLL_SECONDS = 0.005
#: How long a replica that failed, or was behind for as long as a wait lasts, is left alone.
_PAUSE_SECONDS = 2.0
_CONNECT_SECONDS_MAX = 3.0
_STATEMENTS = Statements("pulse", "database.sql")
#: What identifies a database, whichever server shows it.
_IDENTITY = ("system_identifier", "database")
#: The statement that also reads whose log it is.
_WITH_IDENTITY = {"log_position": "own_log_position", "replayed": "own_replayed"}
_log = structlog.get_logger(__name__)
# The server, the way to it, or a query that had to give way to what the replica replays.
_FAULTS = (
    OSError,
    PulseError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
)


class ReplicaReads:
    """Runs statements that only read on a replica, or on the primary where the replica is not there yet.

    Args:
        primary: the pool of the primary.
        open_replica: opens the replica's pool, at the first read; the replica need not be up.
    """

    def __init__(self, primary: Pool, open_replica: Callable[[], Awaitable[Pool]]) -> None:
        self._primary = primary
        self._open_replica = open_replica
        self._opening = asyncio.Lock()
        self._replica: Pool | None = None
        self._not_before = 0.0
        self._is_reported = False
        #: Identities of servers that are reached directly: a connection to such a server never leads to another one.
        self._identities: WeakKeyDictionary[Any, tuple[Any, ...]] = WeakKeyDictionary()
        self.from_replica = 0
        self.from_primary = 0

    async def fetch(self, query: str, *arguments: Any, timeout: float | None = None) -> list[asyncpg.Record]:  # noqa: ASYNC109 - as a pool's
        """Return the rows of a statement that only reads."""
        if time.monotonic() >= self._not_before:
            rows = None
            try:
                async with self._primary.acquire() as connection:
                    primary, identity = await self._look(connection, "log_position")
                rows = await self._fetch(primary["position"], identity, query, *arguments, timeout=timeout)
            except asyncpg.InsufficientPrivilegeError as error:
                # A managed server may keep from its users whose log it writes.
                self._report("replica_refused", error=str(error))
            except _FAULTS:
                pass
            if rows is not None:
                self.from_replica += 1
                return rows
            self._not_before = time.monotonic() + _PAUSE_SECONDS
        self.from_primary += 1
        return await self._primary.fetch(query, *arguments, timeout=timeout)

    async def close(self) -> None:
        """Close the replica's pool."""
        replica, self._replica = self._replica, None
        if replica is not None:
            await replica.close()

    async def _fetch(
        self, position: str, identity: tuple[Any, ...], query: str, *arguments: Any, **options: Any
    ) -> list[asyncpg.Record] | None:
        """Return the rows as of a position of the log, or None if the replica does not reach it in time."""
        async with asyncio.timeout(_CONNECT_SECONDS_MAX):
            replica = await self._pool()
            connection = await replica.acquire()
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while True:
                found, theirs = await self._look(connection, "replayed", position)
                if theirs != identity:
                    self._report(
                        "replica_of_another_primary",
                        **{f"primary_{name}": value for name, value in zip(_IDENTITY, identity, strict=True)},
                        **{f"replica_{name}": value for name, value in zip(_IDENTITY, theirs, strict=True)},
                    )
                    return None
                if found["has_replayed"]:
                    break
                if time.monotonic() > deadline:
                    return None
                await asyncio.sleep(_POLL_SECONDS)
            return await connection.fetch(query, *arguments, **options)
        finally:
            await replica.release(connection)

    async def _look(self, proxy: Any, statement: str, *arguments: Any) -> tuple[asyncpg.Record, tuple[Any, ...]]:
        """Return the row of a statement about a server's log, and the identity of the database that it is of."""
        connection = proxy._con  # None once it was lost, which the statement reports
        identity = None if connection is None else self._identities.get(connection)
        row = await _STATEMENTS.fetch_one(
            proxy, _WITH_IDENTITY[statement] if identity is None else statement, *arguments
        )
        if identity is None:
            identity = tuple(row[name] for name in _IDENTITY)
            if not getattr(connection, "is_pooled", True):
                self._identities[connection] = identity
        return row, identity

    async def _pool(self) -> Pool:
        async with self._opening:
            if self._replica is None:
                self._replica = await self._open_replica()
            return self._replica

    def _report(self, event: str, **details: Any) -> None:
        """Say once why the replica is not read, and will not be."""
        if not self._is_reported:
            _log.error(event, **details)
            self._is_reported = True
