"""The queue's depth and age: read from the database, exported by exactly one process at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import structlog

from pulse import database
from pulse.process.background import in_background
from workers.failures import DATABASE_FAULTS
from workers.pools import POOLS
from workers.settings import Settings
from workers.telemetry import queue_state
from workers.telemetry.metrics import QueueGauges

if TYPE_CHECKING:
    from pulse.database import Connection

_log = structlog.get_logger(__name__)

READ_SECONDS = 15.0
_QUEUES = sorted(queue for pool in POOLS.values() for queue in pool.queues)


@contextlib.asynccontextmanager
async def export_queue(settings: Settings, gauges: QueueGauges) -> AsyncIterator[None]:
    """Refresh the gauges for as long as this process is the one that exports them."""
    async with in_background(_export(settings, gauges)):
        yield


async def _export(settings: Settings, gauges: QueueGauges) -> None:
    while True:
        try:
            connection = await database.connect(
                settings.direct_dsn or "", schema=settings.schema_name, needs_session=True
            )
            try:
                await _export_by(connection, gauges)
            finally:
                # The lock went with the connection: another process may export already.
                gauges.hide()
                connection.terminate()
        except DATABASE_FAULTS as error:
            _log.warning("queue_gauges_interrupted", error_type=type(error).__name__)
        await asyncio.sleep(READ_SECONDS)


async def _export_by(connection: Connection, gauges: QueueGauges) -> None:
    # No event reports that another process released the lock.
    while not await queue_state.take_export_lock(connection):  # noqa: ASYNC110
        await asyncio.sleep(READ_SECONDS)
    while True:
        depths = {(queue, status): 0 for queue in _QUEUES for status in ("todo", "doing", "failed")}
        found = await queue_state.read_queue(connection)
        depths.update(found.depths)
        ages = dict.fromkeys(_QUEUES, 0.0)
        ages.update(found.ages)
        gauges.show_gates(found.breakers, found.limits)
        gauges.show_refused(found.refused)
        gauges.show_webhooks(found.oldest_webhook)
        gauges.show(depths, ages)
        await asyncio.sleep(READ_SECONDS)
