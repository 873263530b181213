"""The queue of one client's frames: waits, and the timer that they share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest
from ag_ui.core import CustomEvent

from pulse.agui.frames import Frame
from pulse.streams.frame_queue import FrameQueue, QueueBounds, SendAtOnce
from tests.support.waiting import WAIT_SECONDS


def frame(name: str = "n") -> Frame:
    return Frame("1", CustomEvent(name=name, value=None))


async def waited(queue: FrameQueue, timeout_seconds: float) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(WAIT_SECONDS):
        await queue.wait(timeout_seconds)
    return loop.time() - began


def into(sent: list[Frame]) -> SendAtOnce:
    """What a client would be sent."""

    def take(frames: Sequence[Frame]) -> bool:
        sent.extend(frames)
        return True

    return take


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


async def test_frames_are_sent_at_once_only_while_the_reader_waits_for_the_next() -> None:
    """Whatever the reader still holds, or has not taken yet, comes before."""
    sent: list[Frame] = []
    queue = FrameQueue(QueueBounds(), into(sent))
    first, second, third, fourth = (frame(str(n)) for n in range(4))
    assert queue.add(first)  # nobody waits
    assert queue.drain() == [first]
    waiting = asyncio.create_task(queue.wait(60))
    await asyncio.sleep(0)
    assert queue.extend([second, third])
    assert sent == [second, third]
    assert not waiting.done()
    queue.wake()
    assert queue.add(fourth)  # the reader is about to run
    await waiting
    assert (queue.drain(), sent) == ([fourth], [second, third])


async def test_frames_that_cannot_be_sent_at_once_wait_and_those_after_them_too() -> None:
    sent: list[Frame] = []
    first, second = frame("0"), frame("1")
    take = into(sent)
    queue = FrameQueue(QueueBounds(), lambda frames: first not in frames and take(frames))
    assert await ended_by(lambda: queue.extend([first]) and queue.extend([second]), queue, 60) == [first, second]
    assert sent == []


async def test_a_frame_that_is_sent_at_once_begins_the_timeout_anew() -> None:
    """A heartbeat is for a client that has received nothing for a while."""
    queue = FrameQueue(QueueBounds(), into([]))
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(waited(queue, 0.3))
    await asyncio.sleep(0)  # it waits
    time.sleep(0.2)  # no timer fires meanwhile, however long it takes
    sent_at = loop.time()
    assert queue.add(frame())
    await waiting
    assert loop.time() - sent_at >= 0.3
