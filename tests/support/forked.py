"""Processes of the program that are forked from one which has imported it.

Importing is most of the processor time of a process that lives for a test: 1.0 s for a writer, 0.6 s for a worker, 2 s
for `up` with its roles.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.support.paths import ROOT

# Also what a process imports only when it is asked for it.
_PRELOADED = [
    "tests.support.uncollected",
    "workers.writer",
    "workers.mcp.endpoint",
    "tests.support.made_routes",
    "tests.support.worker_process",
    "tests.support.executor_process",
    "google.genai",
    # Compiling its patterns takes 0.7 s in each process that extracts facts.
    "hippocampus.providers.local.provider",
    *(
        f"workers.cli.commands.{name}"
        for name in ("demo", "doctor", "down", "export", "ingest", "jobs", "keys", "search", "status", "up", "worker")
    ),
    "workers.cli.commands.writer",
    "tests.support.frozen",
]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOADED)


#: An exit code can be read once, and a start reads those of all others.
_reading = threading.Lock()


class ForkedProcess:
    """`python -m MODULE ARGUMENTS`, or `python SCRIPT ARGUMENTS`, with an environment of its own.

    Args:
        module: the name of a module, or the path of a script.
        log: the file that its output is appended to, or a descriptor.
        errors: that of its standard error, if it is another one.
        stdin: that of its standard input, which is empty without it.
    """

    def __init__(
        self,
        module: str | Path,
        *arguments: str,
        environment: Mapping[str, str],
        log: Path | int,
        errors: Path | int | None = None,
        stdin: Path | int | None = None,
        cwd: Path = ROOT,
    ) -> None:
        if isinstance(log, Path):
            log.touch()
        self._command = [str(module), *arguments]
        self._printed = [each if isinstance(each, Path) else None for each in (log, errors)]
        streams = [stdin or Path(os.devnull), log, log if errors is None else errors]
        # Multiprocessing passes on the descriptors of its connections.
        passed = [Connection(os.dup(each)) if isinstance(each, int) else each for each in streams]
        self._process = _context.Process(target=_main, args=(module, arguments, dict(environment), passed, str(cwd)))
        with _reading:
            self._process.start()
        for each in passed:
            if isinstance(each, Connection):
                each.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        with _reading:
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        wait([self._process.sentinel], timeout)
        code = self.returncode
        if code is None:
            log, errors = (each.read_bytes() if each and each.is_file() else None for each in self._printed)
            raise subprocess.TimeoutExpired(self._command, timeout or 0.0, log, errors)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        # The server has taken its exit code a moment before this process knows it.
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _main(
    module: str | Path,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    streams: list[Path | Connection],
    cwd: str,
) -> None:
    source, *sinks = streams
    opened = [_opened(source, os.O_RDONLY), *(_opened(each, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for each in sinks)]
    for number, each in enumerate(opened):
        os.dup2(each, number)
        os.close(each)
    # It takes signals as a command of a terminal does, even if the suite runs in the background of a shell.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    if "UNREGISTER_SECONDS" in environment:
        from workers.telemetry import discovery  # loaded before the fork

        discovery.UNREGISTER_SECONDS_MAX = float(environment["UNREGISTER_SECONDS"])
    _show(environment)
    # Multiprocessing has replaced it.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    os.chdir(cwd)
    sys.argv = [str(module), *arguments]
    if isinstance(module, Path):
        sys.path.insert(0, str(module.parent))
        runpy.run_path(str(module), run_name="__main__")
        return
    # Imported already under its own name, which runpy would report.
    sys.modules.pop(f"{module}.__main__" if module == "workers" else module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _opened(stream: Path | Connection, flags: int) -> int:
    if isinstance(stream, Path):
        return os.open(stream, flags, 0o644)
    with stream:
        return os.dup(stream.fileno())


def _show(environment: Mapping[str, str]) -> None:
    """Let /proc show this environment's home in place of the one that the forking process was started with.

    What it forks in turn shows the same, so that `processes_of` of `cli_process` finds all of them.
    """
    shown = b"HIPPOCAMPUS_HOME=" + os.fsencode(environment.get("HIPPOCAMPUS_HOME", "")) + b"\0"
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return
    # The fields 50 and 51. Nothing reads this memory any more: the variables of the program are copies.
    begin, end = int(fields[47]), int(fields[48])
    assert len(shown) <= end - begin
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, shown, len(shown))
