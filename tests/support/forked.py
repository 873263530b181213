"""Processes of the program that are forked from one which has imported it.

Importing is most of the processor time of a process that lives for a test: 1.0 s for a writer, 0.6 s for a worker.
What starts the program by its command line, as users do, is in `cli_process`.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.paths import ROOT

# Also what a process imports only when it is asked for it.
_PRELOADED = ["workers.writer", "workers.mcp.endpoint", "tests.support.worker_process", "google.genai"]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOADED)


class ForkedProcess:
    """`python -m MODULE ARGUMENTS` with an environment of its own, whose output is appended to a file."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str], log: Path) -> None:
        log.touch()
        self._process = _context.Process(target=_main, args=(module, arguments, dict(environment), str(log)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs, as far as `poll` and `wait` have seen."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _main(module: str, arguments: tuple[str, ...], environment: dict[str, str], log: str) -> None:
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(sink, sys.__stdout__.fileno())
    os.dup2(sink, sys.__stderr__.fileno())
    os.close(sink)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = [module, *arguments]
    # Imported already under its own name, which runpy would report.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
