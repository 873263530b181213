"""Connections of the queue that were cut: whose work goes on, and what is no cut."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import psycopg
import structlog
from procrastinate.exceptions import ConnectorException

_log = structlog.get_logger("workers.queue.cuts")

PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0


def is_cut(error: BaseException) -> bool:
    """Whether the server or the network ended the connection, so that the same statement may pass on another one.

    Whether a statement that was under way took effect is not known.
    """
    return isinstance(error, ConnectorException) and isinstance(
        error.__cause__, psycopg.OperationalError | psycopg.InterfaceError
    )


async def through_cuts(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run work that has no end, and run it again whenever its connection was cut.

    Raises:
        whatever else it raises.
    """
    cuts = 0
    while True:
        began = time.monotonic()
        try:
            return await work()
        except ConnectorException as error:
            if not is_cut(error):
                raise
        cuts = 0 if time.monotonic() - began > PAUSE_SECONDS_MAX else cuts + 1
        await pause(what, cuts)


async def pause(what: str, cuts_before: int) -> None:
    """Tell of a cut and wait a moment, longer with each cut in a row."""
    _log.warning("connection of the queue cut", what=what)
    widest = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2**cuts_before)
    await asyncio.sleep(random.uniform(widest / 2, widest))  # noqa: S311 - no secret depends on it
