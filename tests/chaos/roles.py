"""The roles of the Procfile as processes that are started again whenever they end, as a process manager does."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

RESTART_SECONDS = 0.3
KILL_SECONDS = 8.0
#: linux/prctl.h
_PR_SET_PDEATHSIG = 1
READY = ('"worker_registered"', '"writer_started"')


def commands() -> dict[str, tuple[str, ...]]:
    """The arguments after ``hippocampus`` of each role in the Procfile."""
    lines = (line.partition(":") for line in (ROOT / "Procfile").read_text().splitlines() if line.strip())
    return {name: tuple(command.split()[1:]) for name, _, command in lines}


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies: a stopped process receives no other signal."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


@dataclass(slots=True)
class Ends:
    """How the processes of one slot ended."""

    killed: int = 0
    terminated: int = 0  # gracefully, after SIGTERM
    refused: list[int] = field(default_factory=list)  # unrequested exit codes before the process was ready
    by_itself: list[int] = field(default_factory=list)  # unrequested exit codes after the process was ready
    untidy: list[int] = field(default_factory=list)  # exit codes after SIGTERM other than 0
    starts: int = 0
    peak_kilobytes: int = 0


class Slot:
    """One slot, which runs processes of a role one after the other."""

    def __init__(
        self, name: str, role: str, words: tuple[str, ...], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.role = role
        self.log = folder / f"{name}.log"
        self.ends = Ends()
        self._command = [sys.executable, "-P", "-m", "workers", *words, "--with-parent"]
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None
        self._asked: collections.Counter[signal.Signals] = collections.Counter()
        self._is_stopped = False
        self._log_start = 0
        self._is_over = False

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_ready(self) -> bool:
        return self.is_alive and any(word in self._said() for word in READY)

    @property
    def is_at_work(self) -> bool:
        """Ready, not stopped, and not terminating: a draining process takes no job."""
        return self.is_ready and not self._is_stopped and not self._asked[signal.SIGTERM]

    @property
    def worker_id(self) -> int | None:
        """The id of the current process's worker."""
        lines = [line for line in self._said().splitlines() if '"worker_registered"' in line]
        return None if not lines else int(json.loads(lines[-1])["worker_id"])

    async def keep(self) -> None:
        """Keep a process running, starting it again whenever it ends, until `end`."""
        while not self._is_over:
            await self._run()
            await asyncio.sleep(RESTART_SECONDS)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the process; return False if none is running."""
        if not self.is_alive:
            return False
        assert self._process is not None
        self._asked[number] += 1
        self._is_stopped = number == signal.SIGSTOP or (self._is_stopped and number == signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        return True

    async def end(self) -> None:
        """Stop the process gracefully, or kill it if that takes too long; start no other."""
        self._is_over = True
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        deadline = time.monotonic() + KILL_SECONDS
        while self.is_alive and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        if self.send(signal.SIGKILL):
            self.ends.untidy.append(-signal.SIGKILL)

    def kill(self) -> None:
        """Kill the process, whatever happened."""
        self._is_over = True
        self.send(signal.SIGKILL)

    async def _run(self) -> None:
        self._asked, self._is_stopped = collections.Counter(), False
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as sink:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                preexec_fn=die_with_parent,
                start_new_session=True,
            )
        self.ends.starts += 1
        if self._is_over:
            self.kill()
        code = await self._wait(self._process)
        self._note(code, was_ready=any(word in self._said() for word in READY))

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        status = Path("/proc") / str(process.pid) / "status"
        while True:
            with contextlib.suppress(OSError, StopIteration):
                line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
                self.ends.peak_kilobytes = max(self.ends.peak_kilobytes, int(line.split()[1]))
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), 1.0)

    def _note(self, code: int, *, was_ready: bool) -> None:
        if signal.SIGKILL in self._asked:
            self.ends.killed += 1
        elif signal.SIGTERM in self._asked:
            self.ends.terminated += 1
            # A second signal ends it at once.
            in_order = {0, 128 + signal.SIGTERM} if self._asked[signal.SIGTERM] > 1 else {0}
            if was_ready and code not in in_order:
                self.ends.untidy.append(code)
        elif was_ready:
            self.ends.by_itself.append(code)
        else:
            self.ends.refused.append(code)

    def _said(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")
