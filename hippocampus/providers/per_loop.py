"""Objects that belong to one event loop, such as HTTP clients: a host may run one loop after another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

Held = TypeVar("Held")


class PerLoop(Generic[Held]):
    """One object for each event loop, made when the loop first asks for it.

    It is closed by `close`, or when its loop shuts its generators down, as `asyncio.run` does.
    """

    def __init__(self, make: Callable[[], Held], close: Callable[[Held], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._by_loop: dict[asyncio.AbstractEventLoop, tuple[Held, AsyncGenerator[None]]] = {}

    async def get(self) -> Held:
        """Return the running loop's object."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            for ended in [each for each in self._by_loop if each.is_closed()]:
                del self._by_loop[ended]
            held = self._make()
            holder = self._hold(held)
            self._by_loop[loop] = held, holder
            await anext(holder)
        return self._by_loop[loop][0]

    async def close(self) -> None:
        """Close the running loop's object. Idempotent."""
        opened = self._by_loop.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened[1].aclose()

    async def _hold(self, held: Held) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._close(held)
