"""A group of processes that is watched: what it writes is read to its limit, and it is killed at any limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pulse.sandbox.records import EXIT_TIMEOUT, Limits, SandboxRequest, SandboxResult, SandboxStatus

#: The pause between two sums of the memory of all processes.
WATCH_SECONDS = 0.1
_KILLED_SECONDS = 2.0
_REPORT_BYTES_MAX = 16 << 20
_PIECE = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a group ended.

    Attributes:
        ended_by: the limit at which it was killed; None if it ended by itself.
        report: what it wrote to a pipe of its own.
        memory_bytes_max: the largest sum that was seen; None if it was not watched.
    """

    ended_by: SandboxStatus | None
    exit_code: int | None
    stdout: str
    stderr: str
    report: bytes
    truncated: bool
    memory_bytes_max: int | None
    milliseconds: float

    def result(self, limits: Limits) -> SandboxResult:
        """Return the result of an execution that ended so."""
        status: SandboxStatus = "ok" if self.exit_code == 0 else "failed"
        error: str | None = None
        if self.ended_by is not None:
            status = self.ended_by
            error = {
                "timeout": f"not done within {limits.seconds:g} s",
                "memory": f"over {limits.memory_mb} MB of memory",
                "output": f"over {limits.output_bytes:,} bytes of output",
            }[status]
        elif self.exit_code != 0:
            last = self.stderr.strip().rpartition("\n")[2][:500]
            status = "memory" if last.startswith("MemoryError") else "failed"
            error = last or f"it ended with code {self.exit_code}"
        return SandboxResult(
            status=status,
            exit_code=EXIT_TIMEOUT if status == "timeout" else self.exit_code,
            stdout=self.stdout,
            stderr=self.stderr,
            error=error,
            execution_time_ms=self.milliseconds,
            resource_usage={} if self.memory_bytes_max is None else {"memory_bytes_max": self.memory_bytes_max},
            truncated=self.truncated,
        )

    @property
    def is_killed(self) -> bool:
        """Whether a signal ended it, or a shell or an engine says so of what it started."""
        return self.exit_code is None or self.exit_code < 0 or self.exit_code > 128

    def unreported(self, limits: Limits, error: str) -> SandboxResult:
        """Return the result of code that ended by itself without a word of its end.

        What was killed after half of its processor time, or later, is taken to have used all of it; otherwise `error`
        says what happened.
        """
        if self.is_killed and self.milliseconds >= limits.cpu_seconds * 500:
            spent = f"over {limits.cpu_seconds:g} s of processor time"
            return replace(self.result(limits), status="timeout", error=spent, exit_code=EXIT_TIMEOUT)
        return replace(self.result(limits), status="crashed", error=error)


async def watch(
    process: asyncio.subprocess.Process,
    request: SandboxRequest,
    *,
    given: bytes | None = None,
    report: int | None = None,
    is_client: bool = False,
) -> Ended:
    """Wait for the end of a group whose leader is `process`; kill it at a limit of the request.

    Args:
        given: what its standard input gets; that of the request by default.
        report: the end of a pipe to read.
        is_client: the code runs elsewhere, so the group's memory is not the code's. It is asked to end before it is
            killed: it may be in the middle of a start, which no other process could undo.
    """
    stdin = request.stdin.encode("utf-8", "surrogateescape") if given is None else given
    return await _Watched(process, request.limits, is_client=is_client).finish(stdin, report)


class _Watched:
    def __init__(self, process: asyncio.subprocess.Process, limits: Limits, *, is_client: bool) -> None:
        self._process = process
        self._limits = limits
        self._signal = signal.SIGTERM if is_client else signal.SIGKILL
        self._ended_by: SandboxStatus | None = None
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._report = bytearray()
        self._written = 0
        self._memory_max = None if is_client else 0
        self._started = time.perf_counter()

    async def finish(self, stdin: bytes, report: int | None) -> Ended:
        process = self._process
        assert process.stdout is not None  # noqa: S101 - they are pipes
        assert process.stderr is not None  # noqa: S101
        tasks = [
            asyncio.create_task(self._watch()),
            asyncio.create_task(self._feed(stdin)),
            asyncio.create_task(self._read(process.stdout, "stdout")),
            asyncio.create_task(self._read(process.stderr, "stderr")),
        ]
        transport: asyncio.ReadTransport | None = None
        if report is not None:
            reader = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(report), "rb", 0)
            )
            tasks.append(asyncio.create_task(self._read_report(reader)))
        try:
            async with asyncio.timeout(self._limits.seconds):
                await process.wait()
        except TimeoutError:
            self._kill("timeout")
        finally:
            self._kill(None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILLED_SECONDS):
                    await process.wait()
            self._signal = signal.SIGKILL
            self._kill(None)
            async with asyncio.timeout(_KILLED_SECONDS):
                await process.wait()
            tasks[0].cancel()
            # What outlived the group would hold the pipes.
            await asyncio.wait(tasks, timeout=_KILLED_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if transport is not None:
                transport.close()
        texts = {name: bytes(data).decode("utf-8", "replace") for name, data in self._output.items()}
        return Ended(
            ended_by=self._ended_by,
            exit_code=process.returncode,
            stdout=texts["stdout"],
            stderr=texts["stderr"],
            report=bytes(self._report),
            truncated=self._written > self._limits.output_bytes,
            memory_bytes_max=self._memory_max,
            milliseconds=(time.perf_counter() - self._started) * 1000,
        )

    def _kill(self, why: SandboxStatus | None) -> None:
        if self._process.returncode is None:
            self._ended_by = self._ended_by or why
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, self._signal)

    async def _feed(self, given: bytes) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(ConnectionError):
            stream.write(given)
            await stream.drain()
        stream.close()

    async def _read(self, stream: asyncio.StreamReader, name: str) -> None:
        limit = self._limits.output_bytes
        while piece := await stream.read(_PIECE):
            self._output[name] += piece[: max(0, limit - self._written)]
            self._written += len(piece)
            if self._written > limit:
                self._kill("output")

    async def _read_report(self, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(_PIECE):
            if len(self._report) < _REPORT_BYTES_MAX:
                self._report += piece

    async def _watch(self) -> None:
        limit = self._limits.memory_mb << 20
        while self._memory_max is not None:
            await asyncio.sleep(WATCH_SECONDS)
            used = memory_of(self._process.pid)
            self._memory_max = max(self._memory_max, used)
            if used > limit:
                self._kill("memory")
                return


def memory_of(pid: int) -> int:
    """Return the memory of a process and its descendants in bytes, without what they share with files."""
    total = 0
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{each}/status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting.extend(map(int, (task / "children").read_text().split()))
    return total
