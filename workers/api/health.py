"""Whether a process can do its work: the database responds, and this program works with its schema."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

import asyncpg
import structlog

from pulse import database
from pulse.errors import DatabaseUnreachableError, SchemaError
from workers import migrate

CHECK_TIMEOUT_SECONDS = 2.0
# The check needs no key: however often it is requested, it runs once in this time.
FRESH_SECONDS = 1.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """The outcome of a check."""

    database: Literal["reachable", "unreachable"]
    schema: Literal["current", "mismatch", "unknown"]

    @property
    def is_ok(self) -> bool:
        """Whether the process can do its work."""
        return self.database == "reachable" and self.schema == "current"


class HealthCheck:
    """Checks the database, at most once in `FRESH_SECONDS`."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._dsn = dsn
        self._schema = schema
        self._lock = asyncio.Lock()
        self._last: tuple[float, Health] | None = None

    async def run(self) -> Health:
        """Return the outcome of a check that is at most `FRESH_SECONDS` old."""
        async with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH_SECONDS:
                self._last = (time.monotonic(), await self._check())
            return self._last[1]

    async def _check(self) -> Health:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                # Not from the pool: a busy pool is not an unreachable database.
                connection = await database.connect(self._dsn, schema=self._schema, prepare=False)
                try:
                    await migrate.check_schema(connection, schema=self._schema)
                finally:
                    await connection.close()
        except SchemaError as error:
            _log.error("schema_mismatch", error=str(error))
            return Health("reachable", "mismatch")
        except (OSError, DatabaseUnreachableError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            _log.error("database_unreachable", error=type(error).__name__)
            return Health("unreachable", "unknown")
        return Health("reachable", "current")
