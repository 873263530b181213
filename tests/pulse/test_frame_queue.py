"""The queue of one client's frames: waits, and the timer that they share."""

from __future__ import annotations

import asyncio

import pytest
from ag_ui.core import CustomEvent

from pulse.agui.frames import Frame
from pulse.streams.frame_queue import FrameQueue, QueueBounds
from tests.support.waiting import WAIT_SECONDS


def frame(name: str = "n") -> Frame:
    return Frame("1", CustomEvent(name=name, value=None))


async def waited(queue: FrameQueue, timeout_seconds: float) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(WAIT_SECONDS):
        await queue.wait(timeout_seconds)
    return loop.time() - began


async def ended_by(act: object, queue: FrameQueue, timeout_seconds: float) -> list[Frame]:
    """Act while the queue waits; return what it has then."""
    waiting = asyncio.create_task(waited(queue, timeout_seconds))
    await asyncio.sleep(0)
    act()  # type: ignore[operator]  # a function
    await waiting
    return queue.drain()


async def test_a_wait_ends_with_a_frame_a_wake_or_its_own_timeout() -> None:
    queue, own = FrameQueue(QueueBounds()), frame()
    assert await ended_by(lambda: queue.add(own), queue, 60) == [own]
    # The timer of the wait before would end at 60 s.
    assert await waited(queue, 0.05) >= 0.05
    assert await ended_by(lambda: queue.add(own), queue, 0.3) == [own]
    # The timer of the wait before fires during this one, which has its whole time.
    assert await waited(queue, 0.3) >= 0.3
    assert await ended_by(queue.wake, queue, 60) == []
    assert await waited(queue, 0.05) >= 0.05
    queue.add(own)
    assert await waited(queue, 60) < 60


async def test_a_cancelled_wait_leaves_a_queue_that_can_be_waited_for() -> None:
    queue = FrameQueue(QueueBounds())
    waiting = asyncio.create_task(queue.wait(60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert queue.add(frame())
    assert await waited(queue, 60) < 60
    assert len(queue.drain()) == 1
    assert await waited(queue, 0.05) >= 0.05


async def test_a_full_queue_drops_all_and_takes_the_next_frame() -> None:
    queue = FrameQueue(QueueBounds(frames=2))
    assert queue.add(frame())
    assert queue.add(frame())
    assert not queue.add(frame())
    assert not queue
    assert queue.add(frame())
