"""A PostgreSQL of our own, with pgvector, for whoever has none: shared by processes, and crash-safe.

What is below the home folder::

    postgres-18/        the data, 0700, of the user that runs the server
    run-18/             the server's socket, 0700, of the same user
    password-18         the database password, 0600, of the user that started it first
    port-18             the loopback port of the last start
    postgres-18.log     what the server says
    start-18.lock       held while somebody starts or stops the server
    holders-18.lock     shared by everybody who uses the server; the last one to let go stops it

Locks are the kernel's (flock), so a killed process leaves none behind. A server whose holder was killed is
adopted by the next start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, urlsplit

import structlog

from workers.embedded import binaries
from workers.embedded.binaries import EmbeddedServerError, ServerUser

DATABASE = "hippocampus"
ROLE = "hippocampus"
DEFAULT_MAJOR = 18
# The socket's full name, with the closing NUL, must fit into sockaddr_un.sun_path.
SOCKET_PATH_BYTES_MAX = 107
START_ATTEMPTS_MAX = 4
POLL_SECONDS = 0.02
SLOW_START_SECONDS = 10.0
# Chosen when the data folder is made; postgresql.conf is its owner's from then on.
INITIAL_SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "random_page_cost": "1.1",
}

_log = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerStatus:
    """What postmaster.pid says about a live server."""

    pid: int
    port: int
    socket_folder: Path
    state: str  # starting -> ready -> stopping


class EmbeddedServer:
    """One PostgreSQL server below `home`, started on demand and stopped when its last holder lets go.

    Args:
        home: our folder; made if missing. For root it must be reachable by the server's system user.
        major: 18 or 16.
        settings: parameters of postgresql.conf for this start, such as ``{"max_connections": "50"}``.
            An adopted server keeps those that it was started with.
    """

    def __init__(self, home: Path, *, major: int = DEFAULT_MAJOR, settings: Mapping[str, str] | None = None) -> None:
        self.home = home.resolve()
        self.major = major
        self.settings = dict(settings or {})
        self.data = self.home / f"postgres-{major}"
        self.log_path = self.home / f"postgres-{major}.log"
        self._holder: int | None = None
        self._status: ServerStatus | None = None

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """The database's address through the server's socket, with the password, for both drivers."""
        status = self._running()
        folder = quote(str(status.socket_folder), safe="")
        return f"postgresql://{ROLE}:{self._password()}@/{DATABASE}?host={folder}&port={status.port}"

    @property
    def tcp_dsn(self) -> str:
        """The database's address through the loopback interface, with the password."""
        return f"postgresql://{ROLE}:{self._password()}@127.0.0.1:{self._running().port}/{DATABASE}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    def owns(self, dsn: str) -> bool:
        """Whether an address is this server's, of this start or an earlier one: no other server has its password."""
        try:
            return urlsplit(dsn).password == (self.home / f"password-{self.major}").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return False

    def start(self) -> str:
        """Start the server or join the one that runs, wait until it takes connections, and return its dsn.

        Raises:
            EmbeddedServerError: the message says what to mend.
        """
        if self._holder is not None:
            return self.dsn
        user = binaries.find_server_user()
        self._make_home(user)
        with self._locked(f"start-{self.major}.lock"):
            self._status = self._adopt() or self._launch(user)
            self._holder = self._open_lock(f"holders-{self.major}.lock")
            # Nobody holds this exclusively outside the start lock, so it never waits.
            fcntl.flock(self._holder, fcntl.LOCK_SH)
        return self.dsn

    def stop(self, *, fast_timeout_seconds: float = 10.0) -> None:
        """Let go of the server; the last holder stops it. Afterwards none of its processes is left."""
        if self._holder is None:
            return
        with self._locked(f"start-{self.major}.lock"):
            try:
                fcntl.flock(self._holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # Somebody else uses the server: it is theirs to stop.
            else:
                status = self._read_status()
                if status is not None:
                    self._terminate(status.pid, fast_timeout_seconds)
            finally:
                os.close(self._holder)
                self._holder = self._status = None

    def _running(self) -> ServerStatus:
        if self._status is None:
            raise EmbeddedServerError("The embedded PostgreSQL is not started: call start() first.")
        return self._status

    def _password(self) -> str:
        path = self.home / f"password-{self.major}"
        try:
            return path.read_text(encoding="ascii").strip()
        except OSError as error:
            raise EmbeddedServerError(
                f"The password of the embedded PostgreSQL can't be read from {path} ({error.strerror})."
                f" Run as the user that made it, or remove {self.data} to begin with an empty database."
            ) from error

    # Folders and locks

    def _make_home(self, user: ServerUser) -> None:
        try:
            make_folders(self.home, 0o711 if user.is_other else 0o700)
        except OSError as error:
            raise EmbeddedServerError(
                f"The folder {self.home} can't be made ({error.strerror}); set HIPPOCAMPUS_HOME to one that can."
            ) from error
        if not os.access(self.home, os.W_OK | os.X_OK):
            raise EmbeddedServerError(
                f"The folder {self.home} is not writable for this user; set HIPPOCAMPUS_HOME to one that is."
            )
        if not user.can("-x", self.home):
            raise EmbeddedServerError(
                f"The system user {user.name!r}, which runs PostgreSQL for root, can't enter {self.home}."
                " Set HIPPOCAMPUS_HOME to a folder that it can, such as /var/lib/hippocampus, or set"
                " DATABASE_URL."
            )

    def _open_lock(self, name: str) -> int:
        try:
            return os.open(self.home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EmbeddedServerError(
                f"The lock file {self.home / name} can't be opened ({error.strerror}): this home belongs to"
                f" another"
                " user. Run as that user, or set HIPPOCAMPUS_HOME to a folder of your own."
            ) from error

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        handle = self._open_lock(name)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _socket_folder(self, user: ServerUser) -> Path:
        folder = self.home / f"run-{self.major}"
        if len(os.fsencode(folder / ".s.PGSQL.65535")) >= SOCKET_PATH_BYTES_MAX:
            key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
            folder = Path("/tmp") / f"hippocampus-{user.uid}-{key}"  # noqa: S108 - made 0700, owner checked
        _make_private(folder, user)
        return folder

    # The data folder

    def _make_data(self, programs: Path, user: ServerUser) -> None:
        """Make the data folder with its database; a killed run leaves only a folder called unfinished."""
        if self.data.is_dir():
            return
        for left in self.home.glob(f"{self.data.name}.unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        # A name of its own each time: an initdb whose starter was killed may still be writing to the old one.
        unfinished = self.home / f"{self.data.name}.unfinished-{secrets.token_hex(4)}"
        _make_private(unfinished, user)
        password_path = self.home / f"password-{self.major}"
        if not password_path.exists():
            _write_private(password_path, secrets.token_urlsafe(24))
        handed_over = self.home / f"password-{self.major}.initdb"
        _write_private(handed_over, self._password())
        try:
            os.chown(handed_over, user.uid, user.gid)
            _check("initdb", user.run(self._initdb_command(programs, unfinished, handed_over)))
        finally:
            handed_over.unlink()
        single = [str(programs / "postgres"), "--single", "-D", str(unfinished), "postgres"]
        _check("creating the database", user.run(single, input_text=f'CREATE DATABASE "{DATABASE}"\n'))
        unfinished.rename(self.data)

    def _initdb_command(self, programs: Path, folder: Path, password_file: Path) -> list[str]:
        locale = ["--locale=C.UTF-8", "--lc-messages=C"]
        if self.major >= 17:
            # Built in: sorting does not change when the machine's libc does.
            locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        settings = [f"--set={name}={value}" for name, value in INITIAL_SETTINGS.items()]
        no_sync = ["--no-sync"] if self.settings.get("fsync") == "off" else []
        return [
            str(programs / "initdb"),
            *("-D", str(folder), "-U", ROLE, "--auth=scram-sha-256", f"--pwfile={password_file}"),
            *("--encoding=UTF8", "--no-instructions", *locale, *settings, *no_sync),
        ]

    # Starting

    def _adopt(self) -> ServerStatus | None:
        """Return the ready server that runs on our data, or None; one that is stopping is waited for."""
        status = self._read_status()
        return None if status is None else self._wait_until_ready(status.pid)

    def _launch(self, user: ServerUser) -> ServerStatus:
        programs = binaries.find_programs(self.major, user, self.home)
        self._make_data(programs, user)
        self._password()
        folder = self._socket_folder(user)
        for attempt in range(START_ATTEMPTS_MAX):
            # Left by a crash: nobody runs, but their pids may be another process's by now.
            for left in (self.data / "postmaster.pid", *folder.glob(".s.PGSQL.*")):
                left.unlink(missing_ok=True)
            # Somebody may take the port between our look and the server's; a killed server's last processes
            # may still hold its shared memory for a moment. Both are gone in a later attempt.
            pid = self._spawn(programs, user, folder, _choose_port(self.home / f"port-{self.major}"))
            status = self._wait_until_ready(pid)
            if status is not None:
                _write_private(self.home / f"port-{self.major}", str(status.port))
                return status
            time.sleep(0.1 * 2**attempt)
        raise EmbeddedServerError(
            f"The embedded PostgreSQL did not start; its last words are: {self._last_words()!r}."
            f" The whole log is {self.log_path}."
        )

    def _spawn(self, programs: Path, user: ServerUser, folder: Path, port: int) -> int:
        """Start the server as pg_ctl does, as nobody's child, and return its pid."""
        settings = {
            **self.settings,
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            "unix_socket_permissions": "0700",
        }
        command = [str(programs / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with self._open_log() as log:
            done = subprocess.run(  # noqa: S603 - our own program
                ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command],
                cwd="/",
                env=binaries.SERVER_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                umask=0o077,
                user=user.uid if user.is_other else None,
                group=user.gid if user.is_other else None,
                extra_groups=[] if user.is_other else None,
                # A Ctrl-C in the terminal is for the program, which then stops the server in good order.
                start_new_session=True,
                check=True,
            )
        return int(done.stdout)

    @contextlib.contextmanager
    def _open_log(self) -> Iterator[int]:
        handle = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            yield handle
        finally:
            os.close(handle)

    def _wait_until_ready(self, pid: int) -> ServerStatus | None:
        """Follow the server's own status until it is ready, or gone (None); recovery takes its time."""
        began = time.monotonic()
        told = False
        while self._is_alive(pid):
            status = self._read_status()
            if status is not None and status.pid == pid and status.state == "ready":
                return status
            if not told and time.monotonic() - began > SLOW_START_SECONDS:
                told = True
                _log.warning(
                    "embedded_server_slow",
                    state=status.state if status else "unknown",
                    log=str(self.log_path),
                )
            time.sleep(POLL_SECONDS)
        return None

    def _read_status(self) -> ServerStatus | None:
        """Read postmaster.pid; None where no live server of our data folder stands behind it."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise EmbeddedServerError(
                f"The data folder {self.data} belongs to another user. Run as that user,"
                " or set HIPPOCAMPUS_HOME to a folder of your own."
            ) from error
        if not lines or not lines[0].strip().isdigit() or not self._is_alive(int(lines[0])):
            return None
        lines += [""] * (8 - len(lines))
        port = int(lines[3]) if lines[3].strip().isdigit() else 0
        return ServerStatus(int(lines[0]), port, Path(lines[4].strip()), lines[7].strip() or "starting")

    def _is_alive(self, pid: int) -> bool:
        """Whether this process is the server of our data folder, not a stranger with a recycled pid."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return False  # Another user's process: never the server that we started.
        if not Path("/proc/self").exists():
            return True
        try:
            # Everybody may read it, in a container too; a zombie's (where nobody reaps) is empty.
            arguments = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(self.data) in arguments

    def _last_words(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        fatal = [line for line in lines[-20:] if "FATAL" in line or "PANIC" in line]
        return (fatal or lines or ["nothing"])[-1]

    # Stopping

    def _terminate(self, pid: int, fast_timeout_seconds: float) -> None:
        """End the server: fast (open transactions roll back), then immediately, then by the kernel."""
        for number, patience_seconds in (
            (signal.SIGINT, fast_timeout_seconds),
            (signal.SIGQUIT, 6.0),
            (signal.SIGKILL, 5.0),
        ):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + patience_seconds
            while time.monotonic() < deadline:
                if not self._is_alive(pid):
                    return
                time.sleep(POLL_SECONDS)
        raise EmbeddedServerError(f"The embedded PostgreSQL (process {pid}) does not end; see {self.log_path}.")


def make_folders(folder: Path, mode: int) -> None:
    """Make a folder and what is missing above it; those that exist keep their permissions."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        # Not by mkdir, which the umask would narrow: the server's user must pass through, but list nothing.
        each.chmod(mode)


def _make_private(folder: Path, user: ServerUser) -> None:
    """Make a 0700 folder of the server's user; one that is there already must be exactly that."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if folder.is_symlink() or not folder.is_dir() or found.st_uid != user.uid or found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{folder} must be a folder of the user {user.name!r} with mode 0700, and is not. Remove it"
                f" and try again."
            ) from None
        return
    if user.is_other:
        os.chown(folder, user.uid, user.gid)


def _write_private(path: Path, text: str) -> None:
    """Write a 0600 file that is there whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
    unfinished.rename(path)


def _choose_port(record: Path) -> int:
    """Return the last start's port if it is free, else one that the kernel gives."""
    try:
        wanted = int(record.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        wanted = 0
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EmbeddedServerError("No loopback port is free for the embedded PostgreSQL.")


def _check(what: str, done: subprocess.CompletedProcess[str]) -> None:
    """Raise the last line of a failed command's output."""
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise EmbeddedServerError(f"The embedded PostgreSQL could not be set up ({what}): {words}")
