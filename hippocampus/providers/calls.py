"""How a provider makes its calls: through a gate, tried again for seconds, each one reported, several at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import tenacity

from hippocampus.errors import ProviderError, RateLimitedError, TransientProviderError
from hippocampus.records import Usage

Result = TypeVar("Result")

#: A provider that asks for a longer wait than this is left to the queue.
WAIT_SECONDS_MAX = 8.0


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

#: `asyncio.sleep`, or a test's stand-in.
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class CallGate(Protocol):
    """Decides when a call may be made, and learns how it ended. Shared, as a rule, by many processes."""

    def admit(self, operation: str) -> AbstractAsyncContextManager[None]:
        """Surround one HTTP call: wait until it may start; see its error, or that it came to an end without one.

        Raises:
            CallPostponedError: on entry, nobody may call for longer than is worth waiting, and nothing was sent; on
                exit, in place of the call's own error, the provider is taken for down.
        """


class OpenGate:
    """Lets every call through at once."""

    def admit(self, operation: str) -> AbstractAsyncContextManager[None]:
        """Do nothing."""
        return nullcontext()


class Caller:
    """Makes calls of one model, tries again after a short fault of transport, and reports each call."""

    def __init__(
        self,
        model: str,
        *,
        attempts: int,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._model = model
        self._attempts = attempts
        self._on_call = on_call
        self._gate = gate or OpenGate()
        self._sleep = sleep

    async def call(
        self,
        operation: str,
        send: Callable[[], Awaitable[Result]],
        usage_of: Callable[[Result], Usage],
    ) -> Result:
        """Await `send`, again after a transient error with a short wish; a rate limit is never slept on.

        Raises:
            ProviderError: the last one that `send` raised.
        """
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=_wait_seconds,
            retry=tenacity.retry_if_exception(_is_short_fault),
            sleep=self._sleep,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                retried = attempt.retry_state.attempt_number > 1
                async with self._gate.admit(operation):
                    return await self._once(operation, send, usage_of, retried=retried)
        raise AssertionError("tenacity returns or raises, and no gate swallows an error")

    async def _once(
        self,
        operation: str,
        send: Callable[[], Awaitable[Result]],
        usage_of: Callable[[Result], Usage],
        *,
        retried: bool,
    ) -> Result:
        started, code, usage = time.perf_counter(), "error", Usage()
        try:
            reply = await send()
            code, usage = "200", usage_of(reply)
            return reply
        except asyncio.CancelledError:
            code = "cancelled"
            raise
        except ProviderError as error:
            code = error.code
            raise
        finally:
            if self._on_call is not None:
                record = CallRecord(
                    operation=operation,
                    model=self._model,
                    code=code,
                    seconds=time.perf_counter() - started,
                    prompt_tokens=usage.prompt_tokens,
                    output_tokens=usage.output_tokens,
                    retried=retried,
                )
                self._on_call(record)


_BACKOFF = tenacity.wait_exponential_jitter(initial=0.5, max=WAIT_SECONDS_MAX, jitter=0.5)


def _wait_seconds(state: tenacity.RetryCallState) -> float:
    """Exponential with jitter, never shorter than the provider asked for."""
    error = state.outcome.exception() if state.outcome is not None else None
    wish = error.retry_after_seconds if isinstance(error, TransientProviderError) else None
    return max(_BACKOFF(state), wish or 0.0)


def _is_short_fault(error: BaseException) -> bool:
    if not isinstance(error, TransientProviderError) or isinstance(error, RateLimitedError):
        return False
    return (error.retry_after_seconds or 0.0) <= WAIT_SECONDS_MAX


async def gather_bounded(makers: Sequence[Callable[[], Awaitable[Result]]], *, concurrency: int) -> list[Result]:
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
