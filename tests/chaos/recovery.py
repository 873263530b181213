"""How long the jobs of a killed worker wait for another one."""

from __future__ import annotations

import asyncio
import collections
import datetime
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.roles import Slot
from tests.chaos.verdict import Observer

POLL_SECONDS = 0.05
GIVEN_UP_SECONDS = 60.0
SLOW_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """One kill of a worker with jobs.

    Attributes:
        jobs: the number of jobs it ran.
        given_back_seconds: until it owned none of them; None: not within a minute.
        taken_up_seconds: until another worker had started each of them, or they had ended.
        is_disturbed: no other process of the role was ready, or another fault hit the role meanwhile.
        story: what happened to jobs that waited for long.
    """

    jobs: int
    given_back_seconds: float | None
    taken_up_seconds: float | None
    is_disturbed: bool
    story: tuple[str, ...] = ()


class Recoveries:
    """Kills workers and watches what happens to their jobs."""

    def __init__(self, observer: Observer, slots: Sequence[Slot]) -> None:
        self.seen: list[Recovery] = []
        self._observer = observer
        self._slots = slots
        self._watches: set[asyncio.Task[None]] = set()
        self._disturbances: collections.Counter[str] = collections.Counter()

    def disturb(self, *roles: str) -> None:
        """A fault hits these roles: running measurements of them are no longer undisturbed."""
        self._disturbances.update(roles)

    async def kill(self, slot: Slot) -> None:
        """Kill a process, and watch its jobs from now on."""
        worker = slot.worker_id
        now = await self._observer.value("now")
        peers = [each for each in self._slots if each.role == slot.role and each is not slot]
        is_alone = not all(peer.is_at_work for peer in peers)
        slot.send(signal.SIGKILL)
        self.disturb(slot.role)
        if worker is not None:
            watch = asyncio.create_task(self._watch(slot.role, worker, now, is_disturbed=is_alone))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)

    async def settle(self) -> None:
        """Wait for the running watches."""
        await asyncio.gather(*self._watches)

    async def _watch(self, role: str, worker: int, since: datetime.datetime, *, is_disturbed: bool) -> None:
        began, disturbances = time.monotonic(), self._disturbances[role]
        jobs = [row["id"] for row in await self._observer.ask("attempts_of", worker)]
        if not jobs:
            return
        given_back = await self._until_gone(began, "still_held", worker, jobs)
        taken_up = await self._until_all(began, jobs, since)
        is_disturbed = is_disturbed or self._disturbances[role] != disturbances
        is_slow = taken_up is None or taken_up > SLOW_SECONDS
        story = await self._tell(role, worker, jobs, since) if is_slow else ()
        self.seen.append(Recovery(len(jobs), given_back, taken_up, is_disturbed, story))

    async def _tell(self, role: str, worker: int, jobs: list[int], since: datetime.datetime) -> tuple[str, ...]:
        began = f"worker {worker} of {role} was killed at {since:%H:%M:%S.%f}"
        rows = await self._observer.ask("story_of", jobs, since)
        return began, *(f"{row['seconds']:+.2f} s  job {row['job_id']} {row['type']}" for row in rows)

    async def _until_gone(self, began: float, name: str, worker: int, jobs: list[int]) -> float | None:
        while time.monotonic() - began < GIVEN_UP_SECONDS:
            if not await self._observer.ask(name, worker, jobs):
                return time.monotonic() - began
            await asyncio.sleep(POLL_SECONDS)
        return None

    async def _until_all(self, began: float, jobs: list[int], since: datetime.datetime) -> float | None:
        while time.monotonic() - began < GIVEN_UP_SECONDS:
            if len(await self._observer.ask("taken_up", jobs, since)) == len(jobs):
                return time.monotonic() - began
            await asyncio.sleep(POLL_SECONDS)
        return None
