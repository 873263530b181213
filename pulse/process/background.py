"""Work beside a process's own, which ends with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def in_background(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run work as a task until it or the block ends; then it is cancelled. Its failure is logged."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        task.remove_done_callback(_log_failure)  # A driver may report another error in place of the cancellation.
        await cancel(task)


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended; what they raise is dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("background_failed", error_type=type(error).__name__, exc_info=error)
