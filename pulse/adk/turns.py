"""One append after the other through the same session object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from google.adk.sessions import Session


class Turns:
    """Lets the appends of parallel branches, which share one session object, follow each other.

    Each then finds the marker that the one before left. Another object of the same session has turns of its own, and is
    refused by its marker; so is one that two event loops append through at the same moment.
    """

    def __init__(self) -> None:
        self._locks: dict[tuple[int, int], asyncio.Lock] = {}
        self._waiting: dict[tuple[int, int], int] = {}

    @asynccontextmanager
    async def of(self, session: Session) -> AsyncIterator[None]:
        """Wait for the turn, and keep it until the end of the block."""
        # A lock belongs to the event loop in which somebody waited for it.
        key = id(asyncio.get_running_loop()), id(session)
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._locks[key]
