"""Watched keys: what is marked is read in batches by one task, which survives errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from pulse.notify.watched_keys import WatchedKeys


class Reads:
    """Records the batches that were read, and fails as often as requested."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.faults: list[Exception] = []
        self.read_again = asyncio.Event()

    async def __call__(self, keys: Sequence[str]) -> None:
        if self.faults:
            raise self.faults.pop()
        self.batches.append(list(keys))
        self.read_again.set()

    async def next(self) -> list[str]:
        """Wait for another batch and return it."""
        await asyncio.wait_for(self.read_again.wait(), 60)
        self.read_again.clear()
        return self.batches[-1]


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
async def watched(reads: Reads) -> AsyncIterator[WatchedKeys[str, str]]:
    keys: WatchedKeys[str, str] = WatchedKeys("tests", reads, batch_length_max=2)
    yield keys
    await keys.stop()


async def test_marked_keys_are_read_in_batches_and_others_are_not(watched: WatchedKeys[str, str], reads: Reads) -> None:
    """A key that has no watcher is never read."""
    for key in ("a", "b", "c"):
        watched.add(key, "watcher")
    watched.mark("nobody's")
    watched.mark_all()
    watched.mark("a")
    watched.start()
    while len(reads.batches) < 2:
        await reads.next()
    assert reads.batches == [["a", "b"], ["c"]]


async def test_a_failed_read_is_counted_and_repeated(watched: WatchedKeys[str, str], reads: Reads) -> None:
    """Whatever the error."""
    reads.faults = [ConnectionError(), ZeroDivisionError()]
    watched.add("a", "watcher")
    watched.mark("a")
    watched.start()
    assert await reads.next() == ["a"]
    assert (watched.failures, watched.is_running) == (2, True)


async def test_every_key_is_read_periodically(reads: Reads) -> None:
    """The poll reads keys that were not marked. While nothing is watched, it does not even wake."""
    polls = 0

    class Polled(WatchedKeys[str, str]):
        def mark_all(self) -> None:
            nonlocal polls
            polls += 1
            super().mark_all()

    polled = Polled("tests", reads, batch_length_max=2, poll_seconds=0.01)
    polled.start()
    try:
        for _ in range(2):
            await asyncio.sleep(0.03)
            before = polls
            await asyncio.sleep(0.1)  # ten polls
            assert polls == before
            polled.add("a", "watcher")
            assert await reads.next() == ["a"]
            assert await reads.next() == ["a"]
            polled.remove("a", "watcher")
    finally:
        await polled.stop()
    assert not polled.is_running


async def test_a_watcher_that_raises_is_removed_and_the_others_stay(watched: WatchedKeys[str, str]) -> None:
    """Its error is logged and counted."""
    watched.add("a", "good")
    watched.add("a", "bad")
    called: list[str] = []

    def deliver(watcher: str) -> None:
        called.append(watcher)
        if watcher == "bad":
            raise ZeroDivisionError

    for watcher in watched.watchers("a"):
        watched.call("a", watcher, deliver, watcher)
    assert (called, watched.watchers("a"), watched.failures) == (["good", "bad"], ["good"], 1)
    watched.remove("a", "good")
    assert ("a" in watched, watched.count) == (False, 0)
