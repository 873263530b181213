"""Cut connections of the queue: what counts as one, and how work continues after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import structlog
from procrastinate.exceptions import ConnectorException

from pulse.postgres.backoff import Backoff

_log = structlog.get_logger(__name__)

PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0


def is_cut(error: BaseException) -> bool:
    """Whether the server or the network ended the connection, so that the statement may succeed on another one.

    Whether a statement that was in progress took effect is not known.
    """
    return isinstance(error, ConnectorException) and isinstance(
        error.__cause__, psycopg.OperationalError | psycopg.InterfaceError
    )


def make_backoff() -> Backoff:
    """Return the waits after cuts in a row."""
    return Backoff(PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX, jitter=0.5, healthy_seconds=PAUSE_SECONDS_MAX)


async def through_cuts(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run work that has no end, and run it again whenever its connection was cut. Any other error is raised."""
    backoff = make_backoff()
    while True:
        backoff.begin()
        try:
            return await work()
        except ConnectorException as error:
            if not is_cut(error):
                raise
        await pause(what, backoff)


async def pause(what: str, backoff: Backoff) -> None:
    """Log a cut and wait, longer with each cut in a row."""
    _log.warning("queue_connection_lost", what=what)
    await asyncio.sleep(backoff.next_seconds())
