"""Ctrl-C, SIGTERM and a closed terminal: one request to stop in good order; the second one asks to be quick."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: A process group's Ctrl-C and its manager's SIGTERM arrive together and are one request.
SAME_REQUEST_SECONDS = 0.25


class Interrupts:
    """What was asked so far."""

    def __init__(self) -> None:
        self.came_at: float | None = None  # by time.monotonic()
        self.on_second: Callable[[], None] = _nothing

    @contextlib.contextmanager
    def cancelling(self) -> Iterator[None]:
        """Cancel the running task at the first request; its cleaning up is not disturbed by further ones."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task

        def note() -> None:
            now = time.monotonic()
            if self.came_at is None:
                self.came_at = now
                task.cancel()
            elif now - self.came_at > SAME_REQUEST_SECONDS:
                self.on_second()

        for number in SIGNALS:
            loop.add_signal_handler(number, note)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Put requests off to the end of the block, where they are a KeyboardInterrupt."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def raise_on_all() -> None:
    """Let every one of the signals interrupt this process as Ctrl-C does, so that it cleans up."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)


def _nothing() -> None:
    pass
