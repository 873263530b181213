"""How long the jobs of a killed worker wait for somebody else."""

from __future__ import annotations

import asyncio
import datetime
import signal
import time
from dataclasses import dataclass

from tests.chaos.roles import Slot
from tests.chaos.verdict import Observer

POLL_SECONDS = 0.05
GIVEN_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """One kill of a worker with jobs.

    Attributes:
        jobs: how many it ran.
        given_back_seconds: until none of them was its own any more; None: not within a minute.
        taken_up_seconds: until each of them was started by another, or over.
        is_disturbed: the database was restarted meanwhile.
    """

    jobs: int
    given_back_seconds: float | None
    taken_up_seconds: float | None
    is_disturbed: bool


class Recoveries:
    """Kills workers and watches what becomes of their jobs."""

    def __init__(self, observer: Observer) -> None:
        self.seen: list[Recovery] = []
        self._observer = observer
        self._watches: set[asyncio.Task[None]] = set()
        self._disturbances = 0

    def disturb(self) -> None:
        """The database is restarted: what is being measured has another cause as well."""
        self._disturbances += 1

    async def kill(self, slot: Slot) -> None:
        """Kill a process, and watch its jobs from now on."""
        worker = slot.worker_id
        now = await self._observer.value("now")
        slot.send(signal.SIGKILL)
        if worker is not None:
            watch = asyncio.create_task(self._watch(worker, now, time.monotonic(), self._disturbances))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)

    async def settle(self) -> None:
        """Wait for the watches that are under way."""
        await asyncio.gather(*self._watches)

    async def _watch(self, worker: int, since: datetime.datetime, began: float, disturbances: int) -> None:
        jobs = [row["id"] for row in await self._observer.ask("attempts_of", worker)]
        if not jobs:
            return
        given_back = await self._until_gone(began, "still_held", worker, jobs)
        taken_up = await self._until_all(began, jobs, since)
        self.seen.append(Recovery(len(jobs), given_back, taken_up, self._disturbances != disturbances))

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
