"""What a provider tells about each of its calls, and how it makes several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One HTTP call to a model, whatever became of it.

    ``code`` is the HTTP status as text, or ``timeout``, ``connection``, ``unreadable``, ``cancelled``.
    The tokens are 0 where no reply, or no count, arrived.
    """

    operation: str  # 'summarize', 'reflect', 'embed'
    model: str  # as it was asked for
    code: str
    seconds: float
    prompt_tokens: int = 0
    output_tokens: int = 0
    retried: bool = False  # this call repeats one that failed in transport a moment ago


#: Called right after each call, in the event loop: it must be quick and must not raise.
CallObserver: TypeAlias = Callable[[CallRecord], None]


async def gather_bounded(
    makers: Sequence[Callable[[], Awaitable[Result]]], *, concurrency: int
) -> list[Result]:
    """Await what each maker makes, at most `concurrency` at once; results in the makers' order.

    The first failure cancels the rest, waits until they have stopped, and is raised.
    """
    slots = asyncio.Semaphore(concurrency)

    async def run(make: Callable[[], Awaitable[Result]]) -> Result:
        async with slots:
            return await make()

    tasks = [asyncio.ensure_future(run(make)) for make in makers]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
