"""Ctrl-C, SIGTERM and a closed terminal: the first is a request to stop gracefully, the second to stop at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: A process group's Ctrl-C and its manager's SIGTERM arrive together and are one request.
SAME_REQUEST_SECONDS = 0.25


class Interrupts:
    """The requests received so far."""

    def __init__(self) -> None:
        self.came_at: float | None = None  # by time.monotonic()
        self.on_second: Callable[[], None] = _nothing

    @contextlib.contextmanager
    def cancelling(self) -> Iterator[None]:
        """Cancel the running task at the first request; further ones do not disturb its clean-up."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task

        def note() -> None:
            now = time.monotonic()
            if self.came_at is None:
                self.came_at = now
                task.cancel()
            elif now - self.came_at > SAME_REQUEST_SECONDS:
                self.on_second()

        numbers = _handled()
        for number in numbers:
            loop.add_signal_handler(number, note)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Postpone requests to the end of the block, where they raise KeyboardInterrupt."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in _handled()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def raise_on_all() -> None:
    """Make each of the signals raise KeyboardInterrupt, as Ctrl-C does, so that this process cleans up."""
    for number in _handled():
        signal.signal(number, signal.default_int_handler)


def _handled() -> list[signal.Signals]:
    """Return the signals, without that of a closed terminal if this process is to outlive it (nohup)."""
    return [number for number in _SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


def _nothing() -> None:
    pass
