"""The transactions that apply files: again while a table is held, and with the file named that failed."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import asyncpg
import tenacity

from pulse.errors import SchemaError
from workers.migrate.files import PROCRASTINATE_SCHEMA

if TYPE_CHECKING:
    from pulse.database import Connection

LOCK_TIMEOUT_SECONDS = 600
# What a migration or a trigger meets where writers are at work: it is tried again.
BUSY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_Found = TypeVar("_Found")


async def in_transaction(connection: Connection, name: str, work: Callable[[], Awaitable[_Found]]) -> _Found:
    """Do the work of these files in one transaction, again while other sessions hold the tables that it locks."""
    try:
        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(BUSY),
            stop=tenacity.stop_after_delay(LOCK_TIMEOUT_SECONDS),
            wait=tenacity.wait_random(0.1, 1),
            reraise=True,
        ):
            with attempt:
                async with connection.transaction():
                    found = await work()
    except BUSY as error:
        raise SchemaError(
            f"{name} was not applied: for {LOCK_TIMEOUT_SECONDS} s other transactions have held a table that it"
            f" changes (SQLSTATE {error.sqlstate}: {error}). Find the oldest one in pg_stat_activity (ORDER BY"
            " xact_start; `hippocampus doctor` prints its age), end it, then run `hippocampus migrate` again."
        ) from error
    return found


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Raise SchemaError with the name of the file that failed."""
    try:
        yield
    except BUSY:
        raise
    except asyncpg.PostgresError as error:
        raise SchemaError(_why_failed(name, error)) from error


def _why_failed(name: str, error: asyncpg.PostgresError) -> str:
    if name == PROCRASTINATE_SCHEMA and isinstance(error, asyncpg.DuplicateObjectError | asyncpg.DuplicateTableError):
        return (
            "This schema has procrastinate's tables already, from another program. Use a schema or a"
            " database of its own (HIPPOCAMPUS_SCHEMA_NAME, DATABASE_URL) and run `hippocampus migrate`."
        )
    if isinstance(error, asyncpg.DependentObjectsStillExistError):
        return (
            f"{name} drops what other objects depend on, and was rolled back (SQLSTATE {error.sqlstate}): {error}\n"
            f"Drop the objects that are not ours, then run `hippocampus migrate` again."
        )
    return f"{name} failed and was rolled back (SQLSTATE {error.sqlstate}): {error}"
