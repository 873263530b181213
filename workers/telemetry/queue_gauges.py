"""The queue's depth and age: read from the database, exported by exactly one process at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import structlog

from pulse import database
from workers.failures import DATABASE_FAULTS
from workers.queue.claims import QUERIES
from workers.queue.tasks import CONSOLIDATION_QUEUES, EMBEDDING_QUEUE, MAINTENANCE_QUEUE
from workers.settings import Settings
from workers.telemetry.metrics import QueueGauges

if TYPE_CHECKING:
    from pulse.database import Connection

_log = structlog.get_logger("workers.telemetry.queue_gauges")

READ_SECONDS = 2.0
STATEMENT_SECONDS_MAX = 10.0
_QUEUES = sorted({*CONSOLIDATION_QUEUES.values(), EMBEDDING_QUEUE, MAINTENANCE_QUEUE})


@contextlib.asynccontextmanager
async def export_queue(settings: Settings, gauges: QueueGauges) -> AsyncIterator[None]:
    """Refresh the gauges for as long as this process is the one that exports them."""
    task = asyncio.create_task(_export(settings, gauges))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _export(settings: Settings, gauges: QueueGauges) -> None:
    while True:
        try:
            connection = await database.connect(settings.dsn or "", schema=settings.schema_name)
            try:
                await _export_by(connection, gauges)
            finally:
                # Whoever loses the connection has lost the lock, and another process may export already.
                gauges.hide()
                connection.terminate()
        except DATABASE_FAULTS as error:
            _log.warning("queue gauges interrupted", error_type=type(error).__name__)
        await asyncio.sleep(READ_SECONDS)


async def _export_by(connection: Connection, gauges: QueueGauges) -> None:
    # It waits for another process's lock, which no event tells of
    while not await connection.fetchval(QUERIES["hold_keeper"], timeout=STATEMENT_SECONDS_MAX):  # noqa: ASYNC110
        await asyncio.sleep(READ_SECONDS)
    while True:
        depths = {(queue, status): 0 for queue in _QUEUES for status in ("todo", "doing", "failed")}
        for row in await connection.fetch(QUERIES["queue_depths"], timeout=STATEMENT_SECONDS_MAX):
            depths[row["queue_name"], row["status"]] = row["jobs"]
        ages = dict.fromkeys(_QUEUES, 0.0)
        for row in await connection.fetch(QUERIES["queue_ages"], timeout=STATEMENT_SECONDS_MAX):
            ages[row["queue_name"]] = row["oldest_seconds"]
        breakers = await connection.fetch(QUERIES["breaker_states"], timeout=STATEMENT_SECONDS_MAX)
        limits = await connection.fetch(QUERIES["limit_states"], timeout=STATEMENT_SECONDS_MAX)
        gauges.show_gates(
            {row["name"]: row["state"] for row in breakers}, {row["name"]: row["blocked_seconds"] for row in limits}
        )
        refused = await connection.fetch(QUERIES["refused_texts"], timeout=STATEMENT_SECONDS_MAX)
        gauges.show_refused({row["model"]: row["texts"] for row in refused})
        gauges.show(depths, ages)
        await asyncio.sleep(READ_SECONDS)
