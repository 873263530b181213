"""The queue as a whole, and what holds back its calls of models: for the gauges, `status` and `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Connection
    from pulse.postgres.statements import Session

#: A read that takes longer is given up.
STATEMENT_SECONDS_MAX = 10.0
#: The one that reads all that the gauges show.
_STATE_SECONDS_MAX = 3 * STATEMENT_SECONDS_MAX

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


class QueueState(NamedTuple):
    """The queue as a whole.

    Attributes:
        depths: jobs by (queue, status).
        ages: for how many seconds the oldest job that could run has waited, by queue.
        refused: texts that stay without a vector, by the model that refused them.
        oldest_webhook: for how many seconds the webhook delivery that is overdue for longest has waited.
        breakers: the state of each, by name.
        limits: for how many seconds each lets no call through, by name.
    """

    depths: dict[tuple[str, str], int]
    ages: dict[str, float]
    refused: dict[str, int]
    oldest_webhook: float
    breakers: dict[str, str]
    limits: dict[str, float]


async def take_export_lock(connection: Connection) -> bool:
    """Return whether this session, as the only one, exports the gauges; it does until its end."""
    is_taken: bool = await _STATEMENTS.fetchval(connection, "take_export_lock", timeout=STATEMENT_SECONDS_MAX)
    return is_taken


async def read_queue(db: Session) -> QueueState:
    """Return everything that the gauges show, in one statement."""
    row = await _STATEMENTS.fetch_one(db, "queue_state", timeout=_STATE_SECONDS_MAX)
    return QueueState(
        {(queue, status): jobs for queue, status, jobs in row["depths"]},
        row["ages"],
        row["refused"],
        row["oldest_webhook"],
        row["breakers"],
        row["limits"],
    )


async def read_breakers(db: Session) -> list[Breaker]:
    """Return every breaker."""
    return [Breaker(*row) for row in await _STATEMENTS.fetch(db, "breaker_states", timeout=STATEMENT_SECONDS_MAX)]
