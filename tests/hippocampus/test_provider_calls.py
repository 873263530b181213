"""Concurrent calls: bounded, in order, and none left running."""

from __future__ import annotations

import asyncio

import pytest

from hippocampus.providers.calls import gather_bounded
from tests.support.waiting import WAIT_SECONDS, until


async def test_results_keep_the_order() -> None:
    """Results keep the order of the calls, whichever ends first; never more run at once than allowed."""
    gates = [asyncio.Event() for _ in range(5)]
    running: set[int] = set()
    most = 0

    async def wait_for(number: int) -> int:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        await gates[number].wait()
        running.discard(number)
        return number

    task = asyncio.ensure_future(
        gather_bounded([lambda n=n: wait_for(n) for n in range(5)], concurrency=2)  # type: ignore[misc]
    )
    async with asyncio.timeout(WAIT_SECONDS):
        for number in (1, 0, 3, 2, 4):
            while number not in running:
                await asyncio.sleep(0)
            gates[number].set()
        assert await task == [0, 1, 2, 3, 4]
    assert most == 2


async def test_a_failure_stops_the_rest() -> None:
    """The first error is raised once the other calls have ended: no further call is paid for."""
    stopped = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        await gather_bounded([hang, fail], concurrency=2)
    assert stopped.is_set()


async def test_cancelling_stops_all() -> None:
    """A cancelled job leaves no call running."""
    begun = ended = 0

    async def hang() -> None:
        nonlocal begun, ended
        begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    task = asyncio.ensure_future(gather_bounded([hang, hang, hang], concurrency=2))
    await until(lambda: begun == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (begun, ended) == (2, 2)
