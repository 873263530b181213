"""Growing waits between attempts."""

from __future__ import annotations

import asyncio
import math
import random
import time


class Backoff:
    """Waits that double with each failure in a row, up to a maximum, with jitter.

    tenacity retries one call: its attempts are counted to the end of the call, however well each of them went. A loop
    that has no end calls `reset` after a success, or `begin` before each attempt if an attempt succeeds by lasting.

    Args:
        first_seconds: the longest first wait.
        seconds_max: the longest wait of all.
        jitter: the share of each wait that is random, from 0 for exact waits to 1 for full jitter.
        healthy_seconds: an attempt that failed after longer than this, counted from `begin`, had succeeded.
    """

    __slots__ = ("_attempts", "_began", "_first_seconds", "_healthy_seconds", "_jitter", "_seconds_max")

    def __init__(
        self, first_seconds: float, seconds_max: float, *, jitter: float = 1.0, healthy_seconds: float = math.inf
    ) -> None:
        self._first_seconds = first_seconds
        self._seconds_max = seconds_max
        self._jitter = jitter
        self._healthy_seconds = healthy_seconds
        self._began = time.monotonic()
        self._attempts = 0

    def begin(self) -> None:
        """Note that an attempt begins."""
        self._began = time.monotonic()

    def next_seconds(self) -> float:
        """Return how long to wait before the next attempt."""
        if time.monotonic() - self._began > self._healthy_seconds:
            self._attempts = 0
        # Beyond 64 doublings every wait is at the maximum; without a bound ldexp overflows.
        longest = min(self._seconds_max, math.ldexp(self._first_seconds, min(self._attempts, 64)))
        self._attempts += 1
        return longest * random.uniform(1 - self._jitter, 1)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Start again with the first wait: an attempt succeeded."""
        self._attempts = 0

    async def wait(self) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self.next_seconds())
