"""Time limits that hold on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from pulse.process import gc_pause

SAMPLE_SECONDS = 0.1


def slowdown() -> float:
    """How many times longer a computation takes right now: 1 on a quiet machine, 2 with half a core."""
    began, used = time.perf_counter(), time.process_time()
    while (computed := time.process_time() - used) < SAMPLE_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - began) / computed)


def at_this_pace(seconds: float) -> float:
    """Extend a limit for a quiet machine by the current load.

    The factor is squared: processes that wait for each other also wait for a core after each step.
    """
    return seconds * slowdown() ** 2


def cpu_seconds(function: Callable[[], object]) -> float:
    """The processor time that a call takes without Python's collection of garbage.

    In a process with the objects of five thousand tests, one collection takes 0.4 s.
    """
    with gc_pause.paused():
        began = time.process_time()
        function()
        return time.process_time() - began
