"""What `hippocampus up` runs below a home folder: at most one installation, found by `down` and `status`.

The files below the home folder::

    up.lock    held for an instant, while the state is read or written
    up.json    the state; locked by the process that runs the installation, for as long as it lives
    up.log     the output of a detached installation; up.log.1 is that of the one before

The locks are the kernel's (flock): they end with their process. The state of a process that was killed, or that ran
before a reboot, is therefore known to be stale, whichever process has its id now.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from workers.embedded.folders import make_folders
from workers.settings import SettingsError

POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A running installation. It has a process id once its process has begun, and addresses once it is ready."""

    pid: int | None = None
    started_at: str = ""
    grace_seconds: float = 0.0  # how long its roles may take to stop
    log: str | None = None  # None: it writes to a terminal or to its caller
    database_url: str | None = None
    api_url: str | None = None
    models: dict[str, str] = dataclasses.field(default_factory=dict)  # that its roles call (`reach.called_by`)

    @property
    def export(self) -> str:
        """The line by which a shell takes over the address of the database."""
        return f"export DATABASE_URL={shlex.quote(self.database_url or '')}"

    def describe(self) -> str:
        """Return its process, its start and its API's address, for people."""
        if self.pid is None:
            return "starting"
        return f"process {self.pid}, since {self.started_at}" + (f", API {self.api_url}" if self.api_url else "")


class Installation:
    """The installation below a home folder, running or not."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.log_path = self.home / "up.log"
        self._state_path = self.home / "up.json"

    def claim(self) -> int | None:
        """Lock the installation for this process and those that inherit the returned file descriptor.

        Returns None if another process has it.
        """
        try:
            # The embedded server of root belongs to another user, who must pass through.
            make_folders(self.home, 0o711 if os.geteuid() == 0 else 0o700)
        except OSError as error:
            raise SettingsError(
                f"The folder {self.home} cannot be made ({error.strerror}): set HIPPOCAMPUS_HOME to one that can."
            ) from error
        with self._exclusively():
            descriptor = os.open(self._state_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if not _lock(descriptor):
                os.close(descriptor)
                return None
            # A killed process may have left its state.
            os.ftruncate(descriptor, 0)
            return descriptor

    def open_log(self) -> int:
        """Open an empty log, as the process that has claimed the installation. The former one becomes up.log.1."""
        with contextlib.suppress(FileNotFoundError):
            self.log_path.replace(self.home / "up.log.1")
        return os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def record(self, descriptor: int, state: State) -> None:
        """Write the state, as the process that has claimed the installation."""
        with self._exclusively():
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(dataclasses.asdict(state)).encode(), 0)

    def read(self) -> State | None:
        """Return the state of what runs, or None if nothing does."""
        with self._reading() as state:
            return state

    def wait_until_ready(self) -> State | None:
        """Return the state once every role is ready, or None if the installation ends before."""
        while (state := self.read()) is not None and state.database_url is None:
            time.sleep(POLL_SECONDS)
        return state

    def stop(self) -> State | None:
        """Ask what runs to stop, and return its state; None if nothing runs."""
        while True:
            with self._reading() as state:
                if state is None:
                    return None
                if state.pid is not None:
                    os.kill(state.pid, signal.SIGTERM)
                    return state
            # Claimed by a process that is being started.
            time.sleep(POLL_SECONDS)

    def has_stopped(self, state: State, *, timeout_seconds: float) -> bool:
        """Wait until an installation has stopped, and return whether it has."""
        deadline = time.monotonic() + timeout_seconds
        while (now := self.read()) is not None and now.pid == state.pid:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    @contextlib.contextmanager
    def _reading(self) -> Iterator[State | None]:
        """Yield the state; its process does not change within the block."""
        if not self._state_path.exists():
            yield None
            return
        with self._exclusively():
            descriptor = os.open(self._state_path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _lock(descriptor):
                    yield None
                else:
                    text = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                    yield _state_of(text)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        descriptor = os.open(self.home / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _state_of(text: bytes) -> State:
    """Return a recorded state, without fields that only another version of the program knows."""
    recorded = json.loads(text) if text else {}
    known = {field.name for field in dataclasses.fields(State)}
    return State(**{name: value for name, value in recorded.items() if name in known})


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
