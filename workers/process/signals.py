"""SIGTERM and SIGINT, handled from a process's first step on: it ends gracefully even while it starts.

Without a handler the signal ends a process at once, and its rows stay in the database.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

#: A process group's Ctrl-C and its manager's SIGTERM that arrive together are one request.
SAME_REQUEST_SECONDS = 0.25
_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_stopped_at: list[float] = []


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run what a process does until it is stopped. A second request that comes after that ends the process at once.

    The loop takes its handlers with it: a process that was about to exit with 0 would be reported as killed.
    """

    def end(number: int, _frame: object) -> None:
        if seconds_since_stop() > SAME_REQUEST_SECONDS:
            os._exit(128 + number)

    try:
        asyncio.run(work)
    finally:
        for number in _NUMBERS if _stopped_at else ():
            signal.signal(number, end)


def on_stop(handler: Callable[[int], None]) -> None:
    """Have the running loop call `handler` with the number of each such signal, instead of an earlier handler."""

    def note(number: int) -> None:
        _stopped_at.append(time.monotonic())
        handler(number)

    loop = asyncio.get_running_loop()
    for number in _NUMBERS:
        loop.add_signal_handler(number, note, number)


def seconds_since_stop() -> float:
    """Return for how long this process has been stopping; 0 if no signal has come."""
    return time.monotonic() - _stopped_at[0] if _stopped_at else 0.0


def stop_cancels_start() -> None:
    """Have such a signal cancel this task, until `on_stop` sets the handler of the started process."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - called from a coroutine

    def cancel(_number: int) -> None:
        task.cancel()

    on_stop(cancel)
