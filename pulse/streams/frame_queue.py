"""The frames that wait for one client: bounded in number and in bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from pulse.agui.frames import Frame

#: Sends frames to a client that has all frames before them; False if they must be queued.
SendAtOnce: TypeAlias = Callable[[Sequence[Frame]], bool]


class QueueBounds(NamedTuple):
    """How much may wait for one client before it is disconnected; one frame always may."""

    frames: int = 1000
    bytes: int = 16 << 20


class FrameQueue:
    """Frames in order, and a wait for the next ones.

    A wait costs a future: thousands of clients wait again for each event. The timer of the wait before is left to run,
    and is set again only when it fires too early.

    Args:
        send_at_once: takes frames past the queue while its reader waits, and so has sent every frame before. They begin
            the reader's timeout again, and cost no wake-up.
    """

    def __init__(self, bounds: QueueBounds, send_at_once: SendAtOnce | None = None) -> None:
        self._bounds = bounds
        self._send_at_once = send_at_once
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self._timeout_seconds = 0.0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: Frame) -> bool:
        """Send or add a frame; see `extend`."""
        return self.extend((frame,))

    def extend(self, frames: Sequence[Frame]) -> bool:
        """Send or add frames; False if there is no space for one: then all are dropped."""
        waiting = self._waiting
        if (
            waiting is not None
            and self._send_at_once is not None
            and not self._frames
            and not waiting.done()
            and self._send_at_once(frames)
        ):
            self._deadline = waiting.get_loop().time() + self._timeout_seconds
            return True
        for frame in frames:
            size = frame.size
            if self._frames and (len(self._frames) >= self._bounds.frames or self._bytes + size > self._bounds.bytes):
                self.drain()
                return False
            self._frames.append(frame)
            self._bytes += size
        self._end_wait()
        return True

    def wake(self) -> None:
        """End a wait without a frame."""
        self._end_wait()
        self._stop_timer()

    def drain(self) -> list[Frame]:
        """Return every frame, and leave none."""
        frames = list(self._frames)
        self._frames.clear()
        self._bytes = 0
        return frames

    async def wait(self, timeout_seconds: float) -> None:
        """Return when there is a frame, after `wake`, or after the timeout. One task waits at a time."""
        if self._frames:
            return
        loop = asyncio.get_running_loop()
        self._timeout_seconds = timeout_seconds
        self._deadline = loop.time() + timeout_seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._stop_timer()
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._time_out, loop)
        self._waiting = loop.create_future()
        try:
            await self._waiting
        except BaseException:
            self._stop_timer()
            raise
        finally:
            self._waiting = None

    def _end_wait(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _time_out(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiting is None:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._time_out, loop)
        else:
            self._end_wait()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
