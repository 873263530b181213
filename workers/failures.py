"""What an exception of a job means: whether another attempt may succeed, and what the job's row keeps."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from hippocampus.errors import (
    CallPostponedError,
    ProviderError,
    RateLimitedError,
    TransientProviderError,
    WatermarkMovedError,
)
from pulse.errors import AppMovingError, DatabaseUnreachableError, WrongCellError

ERROR_CHARACTERS_MAX = 4_000
RAW_REPLY_CHARACTERS_MAX = 1_000_000

# The database was unavailable, stopped, resolved a deadlock or was out of resources: the statements may succeed later.
DATABASE_FAULTS = (
    OSError,
    DatabaseUnreachableError,
    asyncpg.InterfaceError,
    # A connection that was cut between two messages of the protocol.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    # The server became a standby; the next connection looks for the primary.
    asyncpg.ReadOnlySQLTransactionError,
)


# The app has left this cell, or is leaving it: its new cell has the job, too, and this one will find no session.
_ELSEWHERE = (AppMovingError, WrongCellError)


#: What Python says when there is no memory for a thread's stack, or no thread left of those a user may have.
_NO_THREAD = "can't start new thread"


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed attempt stores in its job's row."""

    error: str
    error_code: str  # an HTTP status, a provider's code, 'database', an SQLSTATE, or an exception's name
    raw_reply: str | None = None


def is_transient(error: BaseException) -> bool:
    """Whether the same attempt may succeed later.

    Out of memory counts as transient: other work in this process or on this machine may have used it.
    """
    known = (TransientProviderError, WatermarkMovedError, *_ELSEWHERE, *DATABASE_FAULTS)
    return isinstance(error, known) or is_out_of_memory(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the process got no memory, be it for a value or for a thread."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD)


def is_postponed(error: BaseException) -> bool:
    """Whether the attempt does not count: no process could call the model, or the day's quota is used up."""
    return isinstance(error, (CallPostponedError, *_ELSEWHERE)) or (isinstance(error, RateLimitedError) and error.daily)


def describe(error: BaseException) -> Failure:
    """Return what is stored of an exception."""
    # The detail of a database error quotes the row; its first line does not.
    message = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else error
    text = _storable(f"{type(error).__name__}: {message}", ERROR_CHARACTERS_MAX)
    if isinstance(error, ProviderError):
        raw_reply = error.raw_reply
        kept = None if raw_reply is None else _storable(raw_reply, RAW_REPLY_CHARACTERS_MAX)
        return Failure(text, error.code, kept)
    return Failure(text, code_of(error))


def code_of(error: BaseException) -> str:
    """Return a code for an exception that reveals no content, for logs and metrics."""
    if isinstance(error, ProviderError):
        return error.code
    if isinstance(error, DATABASE_FAULTS):
        return "database"
    if isinstance(error, asyncpg.PostgresError):
        return error.sqlstate or "database"
    return type(error).__name__


def _storable(text: str, characters_max: int) -> str:
    """Truncate a text, and replace what PostgreSQL can't store: NUL and lone surrogates."""
    return text[:characters_max].replace("\x00", "\ufffd").encode("utf-8", "backslashreplace").decode()
