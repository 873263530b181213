"""The heartbeat of the runs that a process executes: one statement for all of them, every few seconds.

async with heartbeat.watch(run) as watched:
    ...                                  # work; check watched.cancel_requested, or wait for it
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from pulse.database import FAULTS
from pulse.runs.records import Run, RunLease, RunStatus
from pulse.runs.service import RunService

#: The interval between two renewals, which also bring requests to cancel.
INTERVAL_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class WatchedRun:
    """What the heartbeat knows of one run.

    Attributes:
        cancel_requested: set once its cancellation was requested.
        lost: set once the run was ended elsewhere: by the reaper, or with its session.
    """

    def __init__(self) -> None:
        self.cancel_requested = asyncio.Event()
        self.lost = asyncio.Event()


class RunHeartbeat:
    """Renews leases while there are runs to watch. Not thread-safe: one per event loop."""

    def __init__(self, runs: RunService, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        # A lease outlives two beats that failed.
        self._interval_seconds = min(interval_seconds, runs.lease_seconds / 3)
        self._runs = runs
        self._watched: dict[uuid.UUID, WatchedRun] = {}
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watch(self, run: Run) -> AsyncIterator[WatchedRun]:
        """Renew a run's lease for the length of the block."""
        watched = self._watched[run.id] = WatchedRun()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._beat())
        try:
            yield watched
        finally:
            del self._watched[run.id]

    async def close(self) -> None:
        """Stop. The leases of runs that are still watched expire. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _beat(self) -> None:
        while self._watched:
            await asyncio.sleep(self._interval_seconds)
            runs = tuple(self._watched)
            try:
                leases = await self._runs.renew(runs) if runs else {}
            except Exception as error:  # noqa: BLE001 - whatever it was, without a beat every run here would be lost
                # The next beat comes before the lease expires; if none succeeds, the reaper ends the runs.
                unforeseen = None if isinstance(error, FAULTS) else error
                _log.warning("heartbeat_failed", runs=len(runs), error=type(error).__name__, exc_info=unforeseen)
                continue
            for run_id in runs:
                self._update(run_id, leases.get(run_id))

    def _update(self, run_id: uuid.UUID, lease: RunLease | None) -> None:
        watched = self._watched.get(run_id)
        if watched is None:
            return
        if lease is not None and lease.cancel_requested:
            watched.cancel_requested.set()
        if lease is None or lease.status is not RunStatus.RUNNING:
            watched.lost.set()
