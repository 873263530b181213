"""Waits end when the thing happens. Their bound only keeps a broken test from hanging; a busy machine is given time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.01


async def until(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str = "", *, seconds: float = WAIT_SECONDS
) -> Any:
    """Wait until a condition, plain or a coroutine, holds, and return what it gave."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        await asyncio.sleep(POLL_SECONDS)


def until_sync(condition: Callable[[], Any], what: str = "", *, seconds: float = WAIT_SECONDS) -> Any:
    """As `until`, for tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(POLL_SECONDS)
    return found
