"""The schedule of the periodic tasks: enqueues each when it is due, and those of `ON_DEMAND` only if they have work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from procrastinate.periodic import PeriodicDeferrer, PeriodicRegistry, PeriodicTask, TaskAtTime

from workers.failures import DATABASE_FAULTS

#: Tasks that run often and seldom find anything. A job costs ten statements, and asking for all of these costs one.
ON_DEMAND = frozenset(
    ("enqueue_idle", "reconcile", "expire_sessions", "erase", "reap_runs", "prune_streams", "reconcile_webhooks")
)


class Schedule(PeriodicDeferrer):
    """procrastinate's deferrer. Its first round, at the start of a process, enqueues every task that was due."""

    def __init__(
        self, registry: PeriodicRegistry, max_delay: float, find_upkeep: Callable[[], Awaitable[frozenset[str]]]
    ) -> None:
        """`find_upkeep` returns the tasks of `ON_DEMAND` that have work."""
        super().__init__(registry, max_delay)
        self._find_upkeep = find_upkeep
        self._has_begun = False

    def get_timestamps(
        self, periodic_task: PeriodicTask[Any, Any, Any], since: int | None, until: float
    ) -> Iterable[int]:
        """Return when a task was due last, unless it was enqueued for that moment.

        procrastinate's own counts on from the last one: after a jump of the clock it enqueues a task for each moment
        that was skipped, or none until the clock has caught up.
        """
        for newest in super().get_timestamps(periodic_task, None, until):
            if newest != since:
                yield newest

    async def defer_jobs(self, jobs_to_defer: Iterable[TaskAtTime]) -> None:
        """Enqueue what is due and has work; without an answer of the database, all that is due."""
        due = list(jobs_to_defer)
        if self._has_begun and any(each.task.name in ON_DEMAND for each, _ in due):
            try:
                idle = ON_DEMAND - await self._find_upkeep()
            except DATABASE_FAULTS:
                idle = frozenset()
            due = [(each, at) for each, at in due if each.task.name not in idle]
        self._has_begun = True
        await super().defer_jobs(due)
