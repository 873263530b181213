"""Limits in seconds that hold on a machine that does other work."""

from __future__ import annotations

import time

SAMPLE_SECONDS = 0.1


def slowdown() -> float:
    """How much longer than alone a computation takes right now: 1 on a quiet machine, 2 where it gets half a core."""
    began, used = time.perf_counter(), time.process_time()
    while (computed := time.process_time() - used) < SAMPLE_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - began) / computed)


def at_this_pace(seconds: float) -> float:
    """A limit for a quiet machine, extended for the load of this moment.

    Squared: processes that wait for each other also wait for a core after each step.
    """
    return seconds * slowdown() ** 2
