"""Waits end when the condition holds. Their limit only keeps a broken test from hanging, and allows
for a busy machine."""

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
    """Wait until a condition, plain or a coroutine, holds, and return its result."""
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
    """Like `until`, for tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(POLL_SECONDS)
    return found
