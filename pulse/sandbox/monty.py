"""The default backend: Monty, an interpreter of a subset of Python, in which most calls do not exist.

It has no files, sockets, processes or imports of the host, runs in a process of its own, and starts in a tenth of a
millisecond. What it lacks: inheritance, yield, del, and modules other than json, math, re, datetime, dataclasses, csv,
random and itertools. Monty has no limits unless they are given: they always are.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from pulse.process.extras import install_command
from pulse.sandbox.records import (
    EXIT_TIMEOUT,
    GRACE_SECONDS,
    Isolation,
    Limits,
    SandboxRequest,
    SandboxResult,
    SandboxStatus,
    refused,
    unavailable,
)

PROCESSES_MAX = 4
#: A worker is replaced after this many executions.
CHECKOUTS_MAX = 200
_RECURSION_MAX = 400
_VALUE_TYPES = (str, int, float, bool, type(None))
_VALUE_DEPTH_MAX = 50


class MontyBackend:
    """Runs code in Monty's worker processes, which are started with the first execution."""

    name = "monty"
    isolation: Isolation = "language"

    def __init__(self, *, processes_max: int = PROCESSES_MAX) -> None:
        self._processes_max = processes_max
        self._pool: Any = None
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()

    async def check(self) -> str | None:
        """Calculate something, and try to read a file."""
        result = await self.execute(SandboxRequest(code="6 * 7"))
        if (result.status, result.value) != ("ok", 42):
            return f"monty does not calculate here: {result.error or result.status}"
        reading = await self.execute(SandboxRequest(code="open('/etc/hostname').read()"))
        return None if reading.status == "failed" else "monty read a file of the host: it must not be used"

    async def execute(self, request: SandboxRequest) -> SandboxResult:
        """Run code; see `SandboxBackend.execute`."""
        problem = request.problem()
        if problem is None and (request.files or request.stdin or request.env):
            problem = "monty has no files, no standard input and no environment: pass values as inputs"
        if problem is not None:
            return refused(problem)
        try:
            pool = await self._opened()
        except ImportError:
            return unavailable(
                f"the sandbox needs pydantic-monty, which is not installed: {install_command('sandbox')}"
            )
        except OSError as error:
            return unavailable(f"monty's worker cannot be started: {error.strerror or error}")
        return await self._execute(pool, request)

    async def close(self) -> None:
        """End the workers. Idempotent."""
        self._pool = None
        await self._stack.aclose()

    async def _opened(self) -> Any:
        import pydantic_monty

        async with self._opening:
            if self._pool is None:
                # A worker that does not end by itself is killed by its pool, this long after the limit of the code.
                pool = pydantic_monty.AsyncMonty(
                    max_processes=self._processes_max,
                    min_processes=1,
                    max_checkouts_per_worker=CHECKOUTS_MAX,
                    feed_duration_limit_grace=GRACE_SECONDS / 2,
                    turn_duration_limit_grace=GRACE_SECONDS / 2,
                )
                self._pool = await self._stack.enter_async_context(pool)
        return self._pool

    async def _execute(self, pool: Any, request: SandboxRequest) -> SandboxResult:
        import pydantic_monty as monty

        limits = request.limits
        seconds = min(limits.seconds, limits.cpu_seconds)
        output = monty.CollectStreams(max_bytes=limits.output_bytes)
        bounds = monty.ResourceLimits(
            max_feed_duration_secs=seconds,
            max_turn_duration_secs=seconds,
            max_memory=limits.memory_mb << 20,
            max_recursion_depth=_RECURSION_MAX,
            max_total_sleep_secs=seconds,
            max_suspensions=100,
        )
        status: SandboxStatus = "ok"
        value: Any = None
        error: str | None = None
        started = time.perf_counter()
        try:
            async with (
                asyncio.timeout(limits.seconds + GRACE_SECONDS),
                pool.checkout(limits=bounds) as session,
            ):
                started = time.perf_counter()
                found = await session.feed_run(request.code, inputs=dict(request.inputs) or None, print_callback=output)
                value = _as_json(found)
        except TimeoutError:
            status, error = "timeout", f"not done within {seconds:g} s"
        except monty.MontyCrashedError as crash:
            status = "timeout" if crash.timed_out else "crashed"
            error = f"not done within {seconds:g} s" if crash.timed_out else "the interpreter ended by itself"
        except monty.MontyError as failure:
            status, error = _status_of(failure, limits)
        except MemoryError:
            status, error = "output", f"over {limits.output_bytes:,} bytes of output"
        except (ValueError, TypeError) as unusable:
            status, error = "failed", f"the code's inputs or value cannot be converted: {str(unusable)[:200]}"
        latency = (time.perf_counter() - started) * 1000
        written = {
            name: "".join(text for stream, text in output.output if stream == name) for name in ("stdout", "stderr")
        }
        exit_codes = {"ok": 0, "failed": 1, "timeout": EXIT_TIMEOUT}
        return SandboxResult(
            status=status,
            exit_code=exit_codes.get(status),
            stdout=written["stdout"],
            stderr=written["stderr"],
            value=value,
            error=error,
            execution_time_ms=latency,
            truncated=status == "output",
        )


def _status_of(failure: Any, limits: Limits) -> tuple[SandboxStatus, str]:
    """Return what ended the code, by the class of its exception."""
    cause = failure.exception() if callable(getattr(failure, "exception", None)) else failure
    text = failure.display("type-msg") if hasattr(failure, "traceback") else str(failure)
    if isinstance(cause, TimeoutError):
        return "timeout", text[:500]
    if isinstance(cause, MemoryError):
        return ("output" if f"> {limits.output_bytes} bytes" in text else "memory"), text[:500]
    return "failed", text[:2000]


def _as_json(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; what JSON does not have is shown as text."""
    if depth > _VALUE_DEPTH_MAX:
        return "…"
    if isinstance(value, _VALUE_TYPES):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {str(key): _as_json(item, depth + 1) for key, item in value.items()}
    return str(value)[:2000]
