"""Whether a process can do its work: the database responds, and this program works with its schema."""

from __future__ import annotations

import asyncio
import math
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
#: How long a write that found the disk full counts.
FULL_SECONDS = 30.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """The outcome of a check.

    Attributes:
        database: `exhausted`: it allows no more connections; `disk full`: it refused a write of this process for that
            within `FULL_SECONDS`.
    """

    database: Literal["reachable", "unreachable", "exhausted", "disk full"]
    schema: Literal["current", "mismatch", "unknown"]

    @property
    def is_ok(self) -> bool:
        """Whether the process can do its work."""
        return self.database == "reachable" and self.schema == "current"


class HealthCheck:
    """Checks the database, at most once in `FRESH_SECONDS`.

    Args:
        found_at: when the process itself found the database at its schema, by `time.monotonic`; None if it did not.
    """

    def __init__(self, dsn: str, schema: str, *, found_at: float | None = None) -> None:
        self._dsn = dsn
        self._schema = schema
        self._lock = asyncio.Lock()
        self._last = None if found_at is None else (found_at, Health("reachable", "current"))
        self._full_at = -math.inf

    def note_full_disk(self) -> None:
        """The database has just refused a write because its disk is full."""
        self._full_at, self._last = time.monotonic(), None

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
        except (DatabaseUnreachableError, *database.FAULTS) as error:
            cause = error.__cause__ or error
            _log.error("database_unreachable", error=type(cause).__name__)
            is_exhausted = isinstance(cause, asyncpg.TooManyConnectionsError)
            return Health("exhausted" if is_exhausted else "unreachable", "unknown")
        is_full = time.monotonic() - self._full_at < FULL_SECONDS
        return Health("disk full" if is_full else "reachable", "current")
