"""How long a supervisor waits before it runs again what ended."""

from __future__ import annotations

import random
import time


class Backoff:
    """Waits that double with each failure in a row, and begin again once the work has run well for a while.

    tenacity retries one call: its attempts are counted to the end of the call, however well each of them went. A
    supervisor's work has no end, and a failure after an hour of good work is a first one.

    Args:
        min_seconds: the first wait.
        max_seconds: the longest wait.
        healthy_seconds: work that ran for longer than this before it failed has succeeded.
        jitter: the share of each wait that is left to chance, so that processes do not wait in step.
    """

    def __init__(self, min_seconds: float, max_seconds: float, *, healthy_seconds: float, jitter: float = 0.5) -> None:
        self._min_seconds = min_seconds
        self._max_seconds = max_seconds
        self._healthy_seconds = healthy_seconds
        self._jitter = jitter
        self._failures = 0
        self._began = time.monotonic()

    def begin(self) -> None:
        """Note that the work begins."""
        self._began = time.monotonic()

    def fail(self) -> float:
        """Note that the work failed, and return how many seconds to wait."""
        if time.monotonic() - self._began > self._healthy_seconds:
            self._failures = 0
        # The exponent is bounded, since a float is.
        widest = min(self._max_seconds, self._min_seconds * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return widest * random.uniform(1 - self._jitter, 1)  # noqa: S311 - no secret depends on it
