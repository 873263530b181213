"""Supervises the roles as child processes: starts them, restarts those that die, stops them together.

Each role runs in its own process group, so that a Ctrl-C in the terminal reaches only this process, which then stops
the others gracefully. A role's standard input is a pipe that this process holds: if this process is killed, the kernel
closes the pipe, and the role stops by itself (`workers.process.parent`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from pulse.postgres.backoff import Backoff
from workers.pools import POOLS
from workers.process import watchdog
from workers.process.forking import ForkedProcess, ForkServer, NoForkServerError

#: The last lines of a role's output, for the message that explains why it failed.
LINES_KEPT = 50
LINE_BYTES_MAX = 1 << 20
RESTART_SECONDS_MIN = 0.2
RESTART_SECONDS_MAX = 10.0
#: A role that ran for this long was healthy: the next wait is the shortest again.
HEALTHY_SECONDS = 30.0
READY_POLL_SECONDS = 0.05
#: The time between the end of a role's own grace and SIGKILL.
KILL_MARGIN_SECONDS = 0.8


class RoleFailedError(Exception):
    """A role ended before it was ready. The message quotes its last line of output."""


@dataclass(frozen=True, slots=True)
class Role:
    """One process: its name, and its command line after ``hippocampus``."""

    name: str
    arguments: tuple[str, ...]


#: The roles, as in the Procfile.
ROLES = (Role("writer", ("writer",)), *(Role(pool, ("worker", pool)) for pool in POOLS))

#: Roles without which an installation is complete.
OPTIONAL_ROLES = frozenset({"pulse"})

#: Roles that send signs of life: they keep the others alive, and nothing else would notice that one hangs.
WATCHED_ROLES = frozenset({"pulse"})

#: Whether a role's process (by its id) is ready.
ReadyCheck = Callable[[Role, int], Awaitable[bool]]
#: A role's name and a line of its output, or of what happened to it.
Listener = Callable[[str, str], None]
Process = asyncio.subprocess.Process | ForkedProcess


@dataclass(slots=True)
class _State:
    role: Role
    process: Process | None = None
    is_ready: bool = False  # once: a role that dies later is restarted, whatever its exit code
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_KEPT))


class RoleSupervisor:
    """Keeps one process per role alive for as long as its block lasts.

    Args:
        environment: what the processes get; with a PYTHONPATH if this program is not installed.
        grace_seconds: how long a role may take after SIGTERM; then it is killed.
        on_line: called with each line that a role writes.
        on_change: called when a role ends and is to be restarted.
        forks: the server that forks the roles; without it, or once it has ended, their command lines start them.
        silent_seconds_max: after which a role of `WATCHED_ROLES` that sends no sign of life is killed.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        grace_seconds: float,
        on_line: Listener | None = None,
        on_change: Listener | None = None,
        roles: Sequence[Role] = ROLES,
        forks: ForkServer | None = None,
        silent_seconds_max: float = watchdog.SILENT_SECONDS_MAX,
    ) -> None:
        self._environment = environment
        self._grace_seconds = grace_seconds
        self._on_line = on_line or _ignore
        self._on_change = on_change or _ignore
        self._states = [_State(role) for role in roles]
        self._forks = forks
        self._silent_seconds_max = silent_seconds_max
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> RoleSupervisor:
        self._tasks = [asyncio.create_task(self._supervise(state), name=state.role.name) for state in self._states]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopping = asyncio.create_task(self.stop())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            # It stops already: no role may be left behind for that. `kill` is what does not wait.
            await stopping
            raise

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each running role."""
        return {state.role.name: process.pid for state, process in self._running()}

    async def wait_until_ready(self, check: ReadyCheck, *, timeout_seconds: float) -> None:
        """Return once `check` holds for every role.

        Raises:
            RoleFailedError: one ended first, or is not ready in time.
        """
        deadline = time.monotonic() + timeout_seconds
        while not all(state.is_ready for state in self._states):
            self._raise_failure()
            await self._check(check)
            if time.monotonic() > deadline:
                late = next(state for state in self._states if not state.is_ready)
                raise RoleFailedError(
                    f"The {late.role.name} is not ready after {timeout_seconds:g} s. {_last_words(late)}"
                )
            await asyncio.sleep(READY_POLL_SECONDS)

    async def wait(self) -> None:
        """Wait until a role fails for good.

        Raises:
            RoleFailedError: a role ended before it was ever ready.
        """
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        self._raise_failure()

    async def stop(self) -> None:
        """Stop every role, kill those that do not stop in time, and return when none is left."""
        self._stopping.set()
        for _, process in self._running():
            _send(process, signal.SIGTERM)
        _, late = await asyncio.wait(self._tasks, timeout=self._grace_seconds + KILL_MARGIN_SECONDS)
        if late:
            self.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill(self) -> None:
        """Kill every running role."""
        for _, process in self._running():
            _send(process, signal.SIGKILL)

    async def _check(self, check: ReadyCheck) -> None:
        for state, process in self._running():
            if not state.is_ready and await check(state.role, process.pid):
                state.is_ready = True

    def _raise_failure(self) -> None:
        for task in self._tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error

    def _running(self) -> Iterator[tuple[_State, Process]]:
        for state in self._states:
            if state.process is not None and state.process.returncode is None:
                yield state, state.process

    async def _supervise(self, state: _State) -> None:
        """Run a role again and again until it is stopped."""
        backoff = Backoff(RESTART_SECONDS_MIN, RESTART_SECONDS_MAX, healthy_seconds=HEALTHY_SECONDS, jitter=0.0)
        while not self._stopping.is_set():
            backoff.begin()
            code = await self._run(state)
            if self._stopping.is_set():
                return
            if not state.is_ready and code >= 0:
                raise RoleFailedError(f"The {state.role.name} could not start. {_last_words(state)}")
            wait_seconds = backoff.next_seconds()
            self._on_change(state.role.name, f"{_ending(code)}; it is started again in {wait_seconds:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._stopping.wait()

    async def _run(self, state: _State) -> int:
        """Run a role's process once, forward its output, and return its exit code."""
        with contextlib.ExitStack() as stack:
            dog = stack.enter_context(watchdog.opened()) if state.role.name in WATCHED_ROLES else None
            environment = self._environment if dog is None else {**self._environment, "NOTIFY_SOCKET": dog.address}
            process = await self._start((*state.role.arguments, "--with-parent"), state.role.name, environment)
            state.process = process
            if self._stopping.is_set():
                _send(process, signal.SIGTERM)
            if dog is not None:
                stack.callback(asyncio.create_task(self._watch(state, process, dog)).cancel)
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            async for line in _lines(process.stdout):
                state.lines.append(line)
                self._on_line(state.role.name, line)
            return await process.wait()

    async def _watch(self, state: _State, process: Process, dog: watchdog.Watchdog) -> None:
        """Kill a process that hangs."""
        while True:
            await asyncio.sleep(self._silent_seconds_max / 6)
            if dog.silent_seconds() > self._silent_seconds_max:
                self._on_change(
                    state.role.name, f"gave no sign of life for {self._silent_seconds_max:g} s; it is killed"
                )
                _send(process, signal.SIGKILL)
                return

    async def _start(self, arguments: Sequence[str], name: str, environment: Mapping[str, str]) -> Process:
        if self._forks is not None:
            with contextlib.suppress(NoForkServerError):
                return await self._forks.fork(name, arguments, environment, line_bytes_max=LINE_BYTES_MAX)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            # -P: the current folder may contain a package of the same name.
            *("-P", "-m", "workers", *arguments),
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue  # The line is longer than the limit: the reader has dropped it.
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip("\r\n")


def _send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        # The whole group, in case it started processes.
        os.killpg(process.pid, number)


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _last_words(state: _State) -> str:
    lines = [line for line in state.lines if line.strip()]
    return f"Its last output: {lines[-1]}" if lines else "It wrote nothing."


def _ignore(_role: str, _line: str) -> None:
    pass
