"""Schedules faults from a seed alone, and injects them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.recovery import Recoveries
from tests.chaos.roles import Slot
from tests.chaos.verdict import Observer
from tests.support.stalling_proxy import StallingProxy

STOP_SECONDS = (0.5, 6.0)
KILLS_PER_SECOND = 1 / 5
#: No fault in the first second; the processes may still be starting.
FIRST_SECONDS = 1.0


class Kind(StrEnum):
    KILL = "kill -9"
    STOP = "SIGSTOP, SIGCONT"
    TERM = "SIGTERM"
    CUT = "connection cut"
    STALL = "PostgreSQL behind a stuck network"
    RESTART = "immediate restart of PostgreSQL"


#: The rate of each kind per second. kill -9 has its own.
PER_SECOND = {Kind.STOP: 1 / 12, Kind.TERM: 1 / 15, Kind.CUT: 1 / 2, Kind.STALL: 1 / 30, Kind.RESTART: 1 / 40}


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault.

    Attributes:
        at_seconds: since the start of the run.
        target: selects a slot or a connection by its remainder.
        lasts_seconds: the duration of a stop or a stall.
    """

    at_seconds: float
    kind: Kind
    target: int
    lasts_seconds: float


def schedule(seed: int, seconds: float, kills_min: int) -> list[Fault]:
    """The faults of a run, in order; a function of the arguments alone."""
    rng = random.Random(f"chaos {seed}")
    counts = {kind: max(1, round(seconds * rate)) for kind, rate in PER_SECOND.items()}
    counts[Kind.KILL] = max(kills_min, round(seconds * KILLS_PER_SECOND), 1)
    return sorted(
        Fault(rng.uniform(FIRST_SECONDS, seconds), kind, rng.randrange(1 << 30), rng.uniform(*STOP_SECONDS))
        for kind, count in counts.items()
        for _ in range(count)
    )


class Injector:
    """Injects the faults of a schedule."""

    def __init__(
        self,
        slots: Sequence[Slot],
        observer: Observer,
        recoveries: Recoveries,
        network: StallingProxy,
        restart_database: Callable[[], Awaitable[None]],
    ) -> None:
        self.done: collections.Counter[Kind] = collections.Counter()
        self.database_down_seconds: list[float] = []
        self._slots = slots
        self._observer = observer
        self._recoveries = recoveries
        self._network = network
        self._restart_database = restart_database
        self._wakers: set[asyncio.Task[None]] = set()

    async def run(self, faults: Sequence[Fault]) -> None:
        """Inject each fault at its time, or as soon as the previous one is done; then resume all stopped processes."""
        began = time.monotonic()
        try:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at_seconds - (time.monotonic() - began)))
                await self._do(fault)
        finally:
            for waker in self._wakers:
                waker.cancel()
            for slot in self._slots:
                slot.send(signal.SIGCONT)

    async def _do(self, fault: Fault) -> None:
        if fault.kind is Kind.RESTART:
            await self._restart()
        elif fault.kind is Kind.STALL:
            await self._stall(fault.lasts_seconds)
        elif fault.kind is Kind.CUT:
            await self._observer.ask("cut_connection", fault.target)
        else:
            await self._strike(fault, await self._choose(fault.target))
        self.done[fault.kind] += 1

    async def _choose(self, target: int) -> Slot:
        """The slot for this number, or the next one whose process is running."""
        while True:
            for step in range(len(self._slots)):
                slot = self._slots[(target + step) % len(self._slots)]
                if slot.is_alive:
                    return slot
            await asyncio.sleep(0.05)

    async def _strike(self, fault: Fault, slot: Slot) -> None:
        if fault.kind is Kind.KILL:
            await self._recoveries.kill(slot)
            return
        self._recoveries.disturb(slot.role)
        if fault.kind is Kind.TERM:
            slot.send(signal.SIGTERM)
        else:
            slot.send(signal.SIGSTOP)
            waker = asyncio.create_task(_wake(slot, slot.pid, fault.lasts_seconds))
            self._wakers.add(waker)
            waker.add_done_callback(self._wakers.discard)

    async def _stall(self, seconds: float) -> None:
        with self._disturbing_everybody():
            self._network.stall()
            try:
                await asyncio.sleep(seconds)
            finally:
                self._network.flow()

    async def _restart(self) -> None:
        began = time.monotonic()
        with self._disturbing_everybody():
            await self._restart_database()
        self.database_down_seconds.append(time.monotonic() - began)

    @contextlib.contextmanager
    def _disturbing_everybody(self) -> Iterator[None]:
        everybody = {slot.role for slot in self._slots}
        self._recoveries.disturb(*everybody)
        yield
        self._recoveries.disturb(*everybody)


async def _wake(slot: Slot, pid: int | None, after_seconds: float) -> None:
    await asyncio.sleep(after_seconds)
    if slot.pid == pid:
        slot.send(signal.SIGCONT)
