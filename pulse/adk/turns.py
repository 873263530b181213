"""Calls that would only hinder each other in the database, one after the other here."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Turns:
    """Lets so many at a time of those who name the same thing pass, in the order in which they came.

    Each event loop has turns of its own.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        # By event loop, too: a semaphore belongs to the one in which somebody waited for it.
        self._queues: dict[Hashable, _Queue] = {}

    def of(self, thing: Hashable) -> _Queue:
        """Return what to enter: it waits for a turn, and keeps it until the end of the block."""
        key = id(asyncio.get_running_loop()), thing
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(self._queues, key, self._at_once)
        return queue


class _Queue:
    """Those who named one thing; gone when nobody does."""

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
