"""How a provider makes its calls: through a gate, several at once, retried for some seconds, each one reported."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import tenacity

from hippocampus.errors import ProviderError, RateLimitedError, TransientProviderError
from hippocampus.records import Usage
from pulse.model_messages import written
from pulse.process.background import cancel
from pulse.tracing import genai
from pulse.tracing.manager import current_tracing

Result = TypeVar("Result")

#: What OpenTelemetry's conventions call our operations; the others are `TracedAs.generation`.
_OPERATIONS = {"embed": "embeddings"}

#: If the provider requests a longer wait, the retry is left to the queue.
WAIT_SECONDS_MAX = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One HTTP call to a model, successful or not.

    ``code`` is the HTTP status as text, or ``timeout``, ``connection``, ``unreadable``, ``cancelled``.
    The tokens are 0 if no reply, or no count, arrived.
    """

    provider: str
    operation: str  # 'summarize', 'reflect', 'embed'
    model: str  # as it was requested
    code: str
    seconds: float
    prompt_tokens: int = 0
    output_tokens: int = 0
    retried: bool = False  # the call repeats one whose transport failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a reply says of itself, for the span of its call.

    Attributes:
        model: that answered, as the provider names it.
        messages: as `pulse.model_messages` makes them.
    """

    model: str | None = None
    finish_reason: str = ""
    messages: Sequence[Mapping[str, Any]] = ()


#: Returns the messages that a model is asked; called only where a span keeps them.
Asked: TypeAlias = Callable[[], Sequence[Mapping[str, Any]]]

#: Called right after each call, in the event loop: it must be quick and must not raise.
CallObserver: TypeAlias = Callable[[CallRecord], None]

#: `asyncio.sleep`, or a substitute in tests.
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


def check_connection(base_url: str, timeout_seconds: float, attempts: int, concurrency: int) -> None:
    """Check what every kind of connection has.

    Raises:
        ValueError: the message names the field.
    """
    if not base_url.startswith(("http://", "https://")):
        raise ValueError(f"base_url must begin with http:// or https://, not {base_url!r}")
    if not 0 < timeout_seconds < math.inf:
        raise ValueError(f"timeout_seconds must be above 0, not {timeout_seconds}")
    if attempts < 1 or concurrency < 1:
        raise ValueError("attempts and concurrency must be at least 1")


class CallGate(Protocol):
    """Decides when a call may be made, and observes how it ended. Usually shared by many processes."""

    def admit(self, operation: str) -> AbstractAsyncContextManager[None]:
        """Surround one HTTP call: wait until it may start, then observe its error or its success.

        Raises:
            CallPostponedError: on entry, no call may start for longer than is worth waiting, and nothing was sent; on
                exit, in place of the call's own error, the provider is considered down.
        """


class OpenGate:
    """Lets every call through at once."""

    def admit(self, operation: str) -> AbstractAsyncContextManager[None]:
        """Do nothing."""
        return nullcontext()


class TracedAs(NamedTuple):
    """What OpenTelemetry's conventions call a provider, and its operation that generates."""

    provider: str
    generation: str = "chat"


class Caller:
    """Calls one model, retries after a short transport error, and reports each call.

    Args:
        traced_as: None: by the provider's own name, as ``chat``.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        attempts: int,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
        traced_as: TracedAs | None = None,
    ) -> None:
        self._provider = provider
        self._traced_as = traced_as or TracedAs(provider)
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
        *,
        asked: Asked | None = None,
        said_by: Callable[[Result], Said] | None = None,
    ) -> Result:
        """Await `send`; retry it after a transport error that requests no long wait. A rate limit is never waited for.

        Args:
            asked: what the model is asked, for the span of the call.
            said_by: what its reply says, for the span.

        Raises:
            ProviderError: the last error of `send`.
        """
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=_wait_seconds,
            retry=tenacity.retry_if_exception(_is_short),
            sleep=self._sleep,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                retried = attempt.retry_state.attempt_number > 1
                async with self._gate.admit(operation):
                    return await self._once(operation, send, usage_of, asked, said_by, retried=retried)
        raise AssertionError("tenacity returns or raises, and no gate swallows an error")

    async def _once(
        self,
        operation: str,
        send: Callable[[], Awaitable[Result]],
        usage_of: Callable[[Result], Usage],
        asked: Asked | None,
        said_by: Callable[[Result], Said] | None,
        *,
        retried: bool,
    ) -> Result:
        started, code, usage = time.perf_counter(), "error", Usage()
        said: Said | None = None
        try:
            reply = await send()
            code, usage = "200", usage_of(reply)
            if said_by is not None and current_tracing().is_on:
                # A reply that cannot be read is refused by its reader.
                with contextlib.suppress(Exception):
                    said = said_by(reply)
            return reply
        except asyncio.CancelledError:
            code = "cancelled"
            raise
        except ProviderError as error:
            code = error.code
            raise
        finally:
            tracing = current_tracing()
            if tracing.is_on:
                tracing.record_llm_call(
                    self._model,
                    provider=self._traced_as.provider,
                    operation=_OPERATIONS.get(operation, self._traced_as.generation),
                    seconds=time.perf_counter() - started,
                    error=None if code == "200" else code,
                    attributes={
                        **_said(asked, said, content=tracing.content),
                        genai.INPUT_TOKENS: usage.prompt_tokens or None,
                        genai.OUTPUT_TOKENS: usage.output_tokens or None,
                        "hippocampus.operation": operation,
                        "http.request.resend_count": int(retried) or None,
                    },
                )
            if self._on_call is not None:
                record = CallRecord(
                    provider=self._provider,
                    operation=operation,
                    model=self._model,
                    code=code,
                    seconds=time.perf_counter() - started,
                    prompt_tokens=usage.prompt_tokens,
                    output_tokens=usage.output_tokens,
                    retried=retried,
                )
                self._on_call(record)


def _said(asked: Asked | None, said: Said | None, *, content: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if said is not None:
        reasons = [said.finish_reason.lower()] if said.finish_reason else None
        attributes = {genai.RESPONSE_MODEL: said.model, genai.FINISH_REASONS: reasons}
    if content and asked is not None:
        attributes[genai.INPUT_MESSAGES] = written(asked())
    if content and said is not None:
        attributes[genai.OUTPUT_MESSAGES] = written(said.messages)
    return attributes


_BACKOFF = tenacity.wait_exponential_jitter(initial=0.5, max=WAIT_SECONDS_MAX, jitter=0.5)


def _wait_seconds(state: tenacity.RetryCallState) -> float:
    """Exponential with jitter, never shorter than the provider requested."""
    error = state.outcome.exception() if state.outcome is not None else None
    requested = error.retry_after_seconds if isinstance(error, TransientProviderError) else None
    return max(_BACKOFF(state), requested or 0.0)


def _is_short(error: BaseException) -> bool:
    if not isinstance(error, TransientProviderError) or isinstance(error, RateLimitedError):
        return False
    return (error.retry_after_seconds or 0.0) <= WAIT_SECONDS_MAX


async def gather_bounded(makers: Sequence[Callable[[], Awaitable[Result]]], *, concurrency: int) -> list[Result]:
    """Await what each maker returns, at most `concurrency` at once; results in the makers' order.

    The first failure cancels the others and is raised once they have stopped.
    """
    slots = asyncio.Semaphore(concurrency)

    async def run(make: Callable[[], Awaitable[Result]]) -> Result:
        async with slots:
            return await make()

    tasks = [asyncio.ensure_future(run(make)) for make in makers]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await cancel(*tasks)
