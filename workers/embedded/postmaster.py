"""The server's process: started as pg_ctl starts it, observed through its status file, ended by signals."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import structlog

from workers.embedded.binaries import SERVER_ENVIRONMENT, EmbeddedServerError, ServerUser

POLL_SECONDS = 0.02
SLOW_START_SECONDS = 10.0
#: How long a process has no arguments at most while it begins a program, on a busy machine too.
_EXEC_SECONDS_MAX = 15.0
_EXEC_POLL_SECONDS = 0.001
#: The states of a process that has ended; none of one that is gone.
_ENDED: tuple[list[bytes], ...] = ([], [b"Z"], [b"X"])

_log = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerStatus:
    """What postmaster.pid says about a live server."""

    pid: int
    port: int
    socket_folder: Path
    state: str  # starting -> ready -> stopping


class Postmaster:
    """The server process of one data folder, whichever program started it."""

    def __init__(self, data: Path, log_path: Path) -> None:
        self._data = data
        self._log_path = log_path

    def spawn(self, programs: Path, user: ServerUser, settings: Mapping[str, str]) -> int:
        """Start the server as pg_ctl does, as a child of no process, and return its pid."""
        command = [str(programs / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command],
                cwd="/",
                env=SERVER_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                umask=0o077,
                user=user.uid if user.is_other else None,
                group=user.gid if user.is_other else None,
                extra_groups=[] if user.is_other else None,
                # A Ctrl-C in the terminal must reach only the program, which then stops the server gracefully.
                start_new_session=True,
                check=True,
            )
        finally:
            os.close(log)
        return int(done.stdout)

    def read_status(self) -> ServerStatus | None:
        """Read postmaster.pid; None if it names no live server of this data folder.

        Raises:
            EmbeddedServerError: the data folder belongs to another user.
        """
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise EmbeddedServerError(
                f"The data folder {self._data} belongs to another user. Run as that user,"
                " or set HIPPOCAMPUS_HOME to a folder of your own."
            ) from error
        if not lines or not lines[0].strip().isdigit() or not self.is_alive(int(lines[0])):
            return None
        lines += [""] * (8 - len(lines))
        port = int(lines[3]) if lines[3].strip().isdigit() else 0
        return ServerStatus(int(lines[0]), port, Path(lines[4].strip()), lines[7].strip() or "starting")

    def wait_until_ready(self, pid: int, stopping: threading.Event) -> ServerStatus | None:
        """Return the server's status once it is ready, or None once it is gone; recovery may take long.

        Raises:
            EmbeddedServerError: `stopping` was set first.
        """
        began = time.monotonic()
        warned = False
        while self.is_alive(pid):
            if stopping.is_set():
                raise EmbeddedServerError("The embedded PostgreSQL was stopped before it was ready.")
            status = self.read_status()
            if status is not None and status.pid == pid and status.state == "ready":
                return status
            if not warned and time.monotonic() - began > SLOW_START_SECONDS:
                warned = True
                _log.warning(
                    "embedded_server_delayed", state=status.state if status else "unknown", log=str(self._log_path)
                )
            stopping.wait(POLL_SECONDS)
        return None

    def is_alive(self, pid: int) -> bool:
        """Whether this process is the server of this data folder, not another one with a recycled pid."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return False  # Another user's process: never the server that we started.
        if not Path("/proc/self").exists():
            return True
        # Empty for a moment where a process begins a program, for a zombie, and for what the kernel runs.
        began = time.monotonic()
        while not (arguments := _read(pid, "cmdline")) and time.monotonic() - began < _EXEC_SECONDS_MAX:
            if _read(pid, "stat").rpartition(b")")[2].split()[:1] in _ENDED:
                return False
            time.sleep(_EXEC_POLL_SECONDS)
        return os.fsencode(self._data) in arguments.split(b"\0")

    def last_log_line(self) -> str:
        """Return the last line of the log that names a fatal error, or else the last line."""
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        fatal = [line for line in lines[-20:] if "FATAL" in line or "PANIC" in line]
        return (fatal or lines or ["nothing"])[-1]

    def terminate(self, pid: int, fast_timeout_seconds: float) -> None:
        """End the server: fast (open transactions roll back), then immediately, then by the kernel.

        Raises:
            EmbeddedServerError: it is still running.
        """
        for number, timeout_seconds in (
            (signal.SIGINT, fast_timeout_seconds),
            (signal.SIGQUIT, 6.0),
            (signal.SIGKILL, 5.0),
        ):
            deadline = time.monotonic() + timeout_seconds
            while time.monotonic() < deadline:
                if not self.is_alive(pid):
                    return
                # Again and again: one that only just starts ignores it at first, and to one that stops it is nothing.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                time.sleep(POLL_SECONDS)
        raise EmbeddedServerError(f"The embedded PostgreSQL (process {pid}) does not end; see {self._log_path}.")


def _read(pid: int, name: str) -> bytes:
    """Return what `/proc` shows of a process, to every user and in a container too; nothing of one that is gone."""
    try:
        return (Path("/proc") / str(pid) / name).read_bytes()
    except OSError:
        return b""
