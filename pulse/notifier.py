"""Wakes stream listeners after the commit that they are to look at.

A NOTIFY inside a transaction makes its commit take a lock that all databases of the server share, and hold it over the
flush to disk: commits that would have shared one flush wait in a row. So the writer says 'look' in a transaction
of its own, right afterwards, once for everything that was committed within a few milliseconds. A writer that dies in
between leaves its listeners to their own poll.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import asyncpg
import structlog

from pulse.events import Appended, Event
from pulse.sql import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

_COALESCE_SECONDS = 0.003
_log = structlog.get_logger(__name__)


class Notifier:
    """Sends at most one notification per thread and few milliseconds, with the newest event's ids.

    Not thread-safe: one per event loop, as its pool.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._statement = load_queries("pulse")["notify"]
        self._waiting: dict[uuid.UUID, Sequence[Event]] = {}
        self._task: asyncio.Task[None] | None = None

    def wake(self, outcome: Appended) -> None:
        """Tell the listeners of a thread, soon, that there is something new. Returns at once."""
        self._waiting[outcome.thread_id] = outcome.events
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_soon())

    async def close(self) -> None:
        """Send what waits and return. Idempotent."""
        if self._task is not None:
            await self._task

    async def _send_soon(self) -> None:
        while self._waiting:
            await asyncio.sleep(_COALESCE_SECONDS)
            waiting, self._waiting = self._waiting, {}
            payloads = [_payload(*each) for each in waiting.items()]
            try:
                await self._pool.execute(self._statement, payloads)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
                # What they point at is committed; a listener finds it by its own poll.
                _log.warning("notify_failed", threads=len(payloads), error=type(error).__name__)


def _payload(thread_id: uuid.UUID, events: Sequence[Event]) -> str:
    newest = max(events, key=lambda event: event.sequence_num or 0)
    return json.dumps(
        {
            "thread_id": str(thread_id),
            "sequence_num": newest.sequence_num,
            "event_id": newest.id,
            "run_id": newest.invocation_id,
            "event_type": newest.event_type,
        },
        ensure_ascii=False,  # a payload holds 8,000 bytes, and an escape of a character is thrice its bytes
    )
