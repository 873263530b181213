"""What the tasks do, put together from the rooms: one object per process, given to `workers.tasks`."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from workers.claims import JobClaim
from workers.metrics import Metrics
from workers.settings import Settings
from workers.upkeep import Upkeep

if TYPE_CHECKING:
    from pulse.database import Pool


async def _nothing() -> None:
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One coroutine function per kind of job."""

    consolidate: Callable[[UUID, JobClaim], Awaitable[object]]
    backfill: Callable[[], Awaitable[None]]
    enqueue_idle: Callable[[], Awaitable[None]]
    reconcile: Callable[[], Awaitable[None]]
    prune: Callable[[], Awaitable[None]]
    archive_jobs: Callable[[], Awaitable[None]]
    retention: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]] = _nothing


BuildServices = Callable[[Settings, "Pool", Metrics], Services]


def build(settings: Settings, pool: Pool, metrics: Metrics) -> Services:
    """Return the services of this program, with the provider that the settings name."""
    upkeep = Upkeep(pool, settings, metrics)

    async def missing(*_arguments: object) -> None:
        raise NotImplementedError

    return Services(
        consolidate=missing,
        backfill=missing,
        enqueue_idle=upkeep.enqueue_idle,
        reconcile=upkeep.reconcile,
        prune=upkeep.prune,
        archive_jobs=upkeep.archive_jobs,
        retention=missing,
    )
