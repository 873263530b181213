"""The real program as a process with its own home, and a search for processes it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.support.paths import ROOT

COMMAND_SECONDS = 90.0


def environment(home: Path, **settings: str) -> dict[str, str]:
    """The test's environment, with this checkout importable from anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "HIPPOCAMPUS_HOME": str(home), **settings}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "workers", *arguments]


def run(home: Path, *arguments: str, cwd: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run one command to completion."""
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


class Running:
    """A running command, whose output is read line by line."""

    def __init__(self, home: Path, *arguments: str, **settings: str) -> None:
        self.lines: list[str] = []
        # As from a terminal, even if the suite itself runs under nohup or in the background of a shell.
        inherited = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}
        for number in inherited:
            signal.signal(number, signal.SIG_DFL)
        self.process = subprocess.Popen(
            command(*arguments),
            env=environment(home, **settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, handler in inherited.items():
            signal.signal(number, handler)

    def read_until(self, wanted: str) -> str:
        """Return the next line that contains a text."""
        for line in self._stdout:
            self.lines.append(line)
            if wanted in line:
                return line
        raise AssertionError(f"no line with {wanted!r}: {''.join(self.lines)}")

    def end(self) -> tuple[int, str]:
        """Read to the end; return the exit code and the whole output."""
        rest, _ = self.process.communicate(timeout=COMMAND_SECONDS)
        return self.process.returncode, "".join(self.lines) + rest

    def children(self) -> dict[str, int]:
        """The roles' process ids, by role."""
        found = {}
        for pid in pids():
            if parent_of(pid) == self.process.pid:
                words = words_of(pid)
                # Between fork and exec a child still has its parent's command line.
                if "--with-parent" in words:
                    found[words[words.index("--with-parent") - 1]] = pid
        return found

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stdout.close()

    @property
    def _stdout(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout


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


def words_of(pid: int) -> list[str]:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return bool(words_of(pid))
