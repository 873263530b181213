"""The queue as a whole, and what holds back its calls of models: for the gauges, `status` and `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Connection
    from pulse.postgres.statements import Session

#: A read that takes longer is given up.
STATEMENT_SECONDS_MAX = 10.0

_STATEMENTS = Statements("workers.telemetry", "queue_state.sql")


class Breaker(NamedTuple):
    """The breaker of a pool and a model.

    Attributes:
        state: closed, open or half_open.
        reason: the code of the last failure, if any.
        probe_seconds: until the next call is let through; None while it is closed.
        since_seconds: since it opened; None while it is closed.
    """

    name: str
    state: str
    reason: str | None
    probe_seconds: float | None
    since_seconds: float | None


class CallLimit(NamedTuple):
    """The limit of a model's calls, and for how long it lets none through."""

    name: str
    blocked_seconds: float
    reason: str | None


async def take_export_lock(connection: Connection) -> bool:
    """Return whether this session, as the only one, exports the gauges; it does until its end."""
    is_taken: bool = await _STATEMENTS.fetchval(connection, "take_export_lock", timeout=STATEMENT_SECONDS_MAX)
    return is_taken


async def read_depths(db: Session) -> dict[tuple[str, str], int]:
    """Return how many jobs each (queue, status) has."""
    rows = await _STATEMENTS.fetch(db, "queue_depths", timeout=STATEMENT_SECONDS_MAX)
    return {(row["queue_name"], row["status"]): row["jobs"] for row in rows}


async def read_ages(db: Session) -> dict[str, float]:
    """Return for how many seconds the oldest job that could run has waited, by queue."""
    rows = await _STATEMENTS.fetch(db, "queue_ages", timeout=STATEMENT_SECONDS_MAX)
    return {row["queue_name"]: row["oldest_seconds"] for row in rows}


async def read_refused(db: Session) -> dict[str, int]:
    """Return how many texts stay without a vector, by the model that refused them."""
    rows = await _STATEMENTS.fetch(db, "refused_texts", timeout=STATEMENT_SECONDS_MAX)
    return {row["model"]: row["texts"] for row in rows}


async def read_oldest_webhook(db: Session) -> float:
    """Return for how many seconds the webhook delivery that is overdue for longest has waited."""
    seconds: float = await _STATEMENTS.fetchval(db, "oldest_webhook", timeout=STATEMENT_SECONDS_MAX)
    return seconds


async def read_breakers(db: Session) -> list[Breaker]:
    """Return every breaker."""
    return [Breaker(*row) for row in await _STATEMENTS.fetch(db, "breaker_states", timeout=STATEMENT_SECONDS_MAX)]


async def read_limits(db: Session) -> list[CallLimit]:
    """Return every limit."""
    return [CallLimit(*row) for row in await _STATEMENTS.fetch(db, "limit_states", timeout=STATEMENT_SECONDS_MAX)]
