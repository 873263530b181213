"""Waits end when the condition holds. Their limit only keeps a broken test from hanging, and allows
for a busy machine.

A condition that has not held for long is asked less often: its answer comes at most a twentieth later, and
the asking, which may be a scrape or a look at every process, takes no core from what is waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.01
POLL_SECONDS_MAX = 0.25


async def until(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str = "", *, seconds: float = WAIT_SECONDS
) -> Any:
    """Wait until a condition, plain or a coroutine, holds, and return its result."""
    began = time.monotonic()
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(_pause(began, seconds, what or condition))


def until_sync(condition: Callable[[], Any], what: str = "", *, seconds: float = WAIT_SECONDS) -> Any:
    """Like `until`, for tests without an event loop."""
    began = time.monotonic()
    while not (found := condition()):
        time.sleep(_pause(began, seconds, what or condition))
    return found


def _pause(began: float, seconds: float, what: object) -> float:
    waited = time.monotonic() - began
    assert waited < seconds, f"not within {seconds} s: {what}"
    return min(max(POLL_SECONDS, waited / 20), POLL_SECONDS_MAX)
