"""Work beside a process's own, which ends with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable


@contextlib.asynccontextmanager
async def in_background(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run work as a task until it or the block ends; then it is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
