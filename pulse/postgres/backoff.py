"""Growing waits between attempts."""

from __future__ import annotations

import asyncio
import math
import random


class Backoff:
    """Waits that double up to a maximum, with jitter.

    Args:
        first_seconds: the longest first wait.
        seconds_max: the longest wait of all.
        jitter: the share of each wait that is random, from 0 for exact waits to 1 for full jitter.
    """

    __slots__ = ("_attempts", "_first_seconds", "_jitter", "_seconds_max")

    def __init__(self, first_seconds: float, seconds_max: float, *, jitter: float = 1.0) -> None:
        self._first_seconds = first_seconds
        self._seconds_max = seconds_max
        self._jitter = jitter
        self._attempts = 0

    def next_seconds(self) -> float:
        """Return how long to wait before the next attempt."""
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
