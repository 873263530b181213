"""Serializing calls that would only wait for each other in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Turns:
    """Limits how many calls with the same key run at once; the others wait in order.

    Each event loop has its own limits.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        # By event loop, too: a semaphore is bound to the loop in which a task waited for it.
        self._queues: dict[Hashable, _Queue] = {}

    def of(self, name: Hashable) -> _Queue:
        """Return the context manager of a key, which waits for a turn and holds it until the end of the block."""
        key = id(asyncio.get_running_loop()), name
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(self._queues, key, self._at_once)
        return queue


class _Queue:
    """The calls with one key; removed after the last of them."""

    def __init__(self, queues: dict[Hashable, _Queue], key: Hashable, at_once: int) -> None:
        self._queues = queues
        self._key = key
        self._turns = asyncio.Semaphore(at_once)
        self._entered = 0

    async def __aenter__(self) -> None:
        self._entered += 1
        try:
            await self._turns.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._turns.release()
        self._leave()

    def _leave(self) -> None:
        self._entered -= 1
        if not self._entered:
            del self._queues[self._key]
