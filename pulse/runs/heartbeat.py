"""The heartbeat of the runs that a process executes: one statement for all of them, every few seconds.

async with heartbeat.watch(run) as watched:
    ...                                  # work; look at watched.cancel_requested, or wait for it
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

from pulse.database import FAULTS
from pulse.runs.records import Run, RunStatus
from pulse.runs.service import RunService

#: How long a wish to cancel may go unheard. The lease is prolonged as often.
INTERVAL_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class WatchedRun:
    """What the heartbeat heard of one run.

    Attributes:
        cancel_requested: set once somebody asked to cancel it.
        lost: set once it ended without us: by the reaper, or with its session.
    """

    def __init__(self) -> None:
        self.cancel_requested = asyncio.Event()
        self.lost = asyncio.Event()


class RunHeartbeat:
    """Prolongs leases while there are runs to watch. Not thread-safe: one per event loop."""

    def __init__(self, runs: RunService, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        # A lease outlives two beats that failed.
        self._interval_seconds = min(interval_seconds, runs.lease_seconds / 3)
        self._runs = runs
        self._watched: dict[uuid.UUID, WatchedRun] = {}
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watch(self, run: Run) -> AsyncIterator[WatchedRun]:
        """Keep a run's lease alive for the length of the block."""
        watched = self._watched[run.id] = WatchedRun()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._beat())
        try:
            yield watched
        finally:
            del self._watched[run.id]

    async def close(self) -> None:
        """Stop. The leases of what is watched still run out by themselves. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _beat(self) -> None:
        while self._watched:
            await asyncio.sleep(self._interval_seconds)
            asked = tuple(self._watched)
            try:
                heard = await self._runs.renew(asked) if asked else {}
            except Exception as error:  # noqa: BLE001 - whatever it was, without a beat every run here would be lost
                # The next beat comes before the lease is over; if none gets through, the reaper speaks for us.
                unforeseen = None if isinstance(error, FAULTS) else error
                _log.warning("heartbeat_failed", runs=len(asked), error=type(error).__name__, exc_info=unforeseen)
                continue
            for run_id in asked:
                self._tell(run_id, heard)

    def _tell(self, run_id: uuid.UUID, heard: Mapping[uuid.UUID, tuple[RunStatus, bool]]) -> None:
        watched = self._watched.get(run_id)
        if watched is None:
            return
        status, cancel_requested = heard.get(run_id, (None, False))
        if cancel_requested:
            watched.cancel_requested.set()
        if status is not RunStatus.RUNNING:
            watched.lost.set()
