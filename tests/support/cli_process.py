"""The real program as a process with its own home, and a search for processes it left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.support.forked import ForkedProcess
from tests.support.paths import ROOT
from workers.process.roles import ROLES

COMMAND_SECONDS = 90.0


def environment(home: Path, **settings: str) -> dict[str, str]:
    """The test's environment, with this checkout importable from anywhere, and no fixed port, which others may have."""
    own = {"PYTHONPATH": str(ROOT), "HIPPOCAMPUS_HOME": str(home), "HIPPOCAMPUS_API_PORT": "0"}
    return {**os.environ, **own, **settings}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "workers", *arguments]


def run(
    home: Path, *arguments: str, cwd: Path | None = None, by_command_line: bool = False, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run one command to completion: forked, or started by its command line as users do.

    It is also started by its command line if it has another import path.
    """
    if by_command_line or "PYTHONPATH" in settings:
        return subprocess.run(
            command(*arguments),
            cwd=cwd,
            env=environment(home, **settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = ForkedProcess(
            "workers", *arguments, environment=environment(home, **settings), log=out, errors=err, cwd=cwd or Path.cwd()
        )
        try:
            code = process.wait(COMMAND_SECONDS)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command(*arguments), code, out.read_text(), err.read_text())


@contextlib.contextmanager
def from_a_terminal() -> Iterator[None]:
    """Start a process that takes signals, even if the suite itself runs under nohup or in the background of a shell."""
    inherited = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in inherited.items():
            signal.signal(number, handler)


class Running:
    """A running command, whose output is read line by line: forked, or started by its command line as users do."""

    def __init__(self, home: Path, *arguments: str, by_command_line: bool = False, **settings: str) -> None:
        self.lines: list[str] = []
        self.process: ForkedProcess | subprocess.Popen[str]
        if not by_command_line:
            reading, writing = os.pipe()
            self._stdout: IO[str] = os.fdopen(reading, encoding="utf-8")
            try:
                self.process = ForkedProcess(
                    "workers", *arguments, environment=environment(home, **settings), log=writing, cwd=Path.cwd()
                )
            finally:
                # From here on, the end of the file is the end of the process.
                os.close(writing)
            return
        with from_a_terminal():
            process = subprocess.Popen(
                command(*arguments),
                env=environment(home, **settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert process.stdout is not None
        self.process, self._stdout = process, process.stdout

    def read_until(self, wanted: str) -> str:
        """Return the next line that contains a text."""
        for line in self._stdout:
            self.lines.append(line)
            if wanted in line:
                return line
        raise AssertionError(f"no line with {wanted!r}: {''.join(self.lines)}")

    def end(self) -> tuple[int, str]:
        """Read to the end; return the exit code and the whole output."""
        late = threading.Timer(COMMAND_SECONDS, self.process.kill)
        late.start()
        try:
            rest = self._stdout.read()
        finally:
            late.cancel()
        return self.process.wait(COMMAND_SECONDS), "".join(self.lines) + rest

    def children(self) -> dict[str, int]:
        """The roles' process ids, by role: they are forked from a child of the command."""
        of_ours = {self.process.pid, *(pid for pid in pids() if parent_of(pid) == self.process.pid)}
        return {
            name: pid
            for pid in pids()
            if parent_of(pid) in of_ours and (name := name_of(pid)) in {r.name for r in ROLES}
        }

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stdout.close()


def processes_of(home: Path) -> list[str]:
    """The command lines of all running processes of a home: its roles, its server."""
    marks = (os.fsencode(home),)
    left = []
    for pid in pids():
        try:
            place = Path("/proc") / str(pid)
            text = (place / "cmdline").read_bytes()
            # The environment of another user's server is unreadable, but its command line names the home.
            held = (place / "environ").read_bytes() if pid != os.getpid() else b""
        except OSError:
            continue
        if text and any(mark in text or b"HIPPOCAMPUS_HOME=" + mark in held for mark in marks):
            left.append(text.replace(b"\0", b" ").decode())
    return left


def pids() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


def parent_of(pid: int) -> int:
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def name_of(pid: int) -> str:
    """Its name, as `ps -o comm` shows it."""
    try:
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def words_of(pid: int) -> list[str]:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return bool(words_of(pid))
