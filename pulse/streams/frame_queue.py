"""The frames that wait for one client: bounded in number and in bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import NamedTuple

from pulse.agui.frames import Frame


class QueueBounds(NamedTuple):
    """How much may wait for one client before it is disconnected; one frame always may."""

    frames: int = 1000
    bytes: int = 16 << 20


class FrameQueue:
    """Frames in order, and a wait for the next ones."""

    def __init__(self, bounds: QueueBounds) -> None:
        self._bounds = bounds
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: Frame) -> bool:
        """Add a frame; False if there is no space for it: then all are dropped."""
        size = frame.size
        if self._frames and (len(self._frames) >= self._bounds.frames or self._bytes + size > self._bounds.bytes):
            self.drain()
            return False
        self._frames.append(frame)
        self._bytes += size
        self._ready.set()
        return True

    def wake(self) -> None:
        """End a wait without a frame."""
        self._ready.set()

    def drain(self) -> list[Frame]:
        """Return every frame, and leave none."""
        frames = list(self._frames)
        self._frames.clear()
        self._bytes = 0
        return frames

    async def wait(self, timeout_seconds: float) -> None:
        """Return when there is a frame, after `wake`, or after the timeout."""
        if not self._frames:
            self._ready.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await self._ready.wait()
