"""An embedded PostgreSQL with pgvector: shared by processes, and crash-safe.

Below the home folder::

    postgres-18/        the data, 0700, of the user that runs the server
    run-18/             the server's socket, 0700, of the same user
    password-18         the database password, 0600, of the user that started it first
    port-18             the loopback port of the last start
    postgres-18.log     the server's log
    start-18.lock       held while a process starts or stops the server
    holders-18.lock     shared by every process that uses the server; the last one to release it stops the server

Locks are the kernel's (flock), so a killed process leaves none behind. The next start adopts a server whose holder was
killed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, quote, unquote, urlsplit

from workers.embedded import binaries, folders
from workers.embedded.binaries import EmbeddedServerError, ServerUser
from workers.embedded.data import DATABASE, ROLE, make_data, read_password
from workers.embedded.postmaster import Postmaster, ServerStatus

DEFAULT_MAJOR = 18
START_ATTEMPTS_MAX = 4
STOP_SECONDS = 10.0


class EmbeddedServer:
    """One PostgreSQL server below `home`, started on demand and stopped by its last holder.

    Args:
        home: the folder of its files; made if missing. For root it must be reachable by the server's system user.
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
        self._password_path = self.home / f"password-{major}"
        self._start_lock = self.home / f"start-{major}.lock"
        self._postmaster = Postmaster(self.data, self.log_path)
        self._holder: int | None = None
        self._status: ServerStatus | None = None
        self._stopping = threading.Event()

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
        """Whether an address is that of this server's database, of this start or an earlier one.

        No other server has its password. Another database of this server is not the one that `dsn` names.
        """
        try:
            given = urlsplit(dsn)
            password = self._password_path.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return False
        (named,) = parse_qs(given.query).get("dbname", [unquote(given.path).removeprefix("/")])[-1:]
        return given.password == password and named == DATABASE

    def start(self) -> str:
        """Start the server or join the running one, wait until it accepts connections, and return its dsn.

        Raises:
            EmbeddedServerError: the message says what to do.
        """
        if self._holder is not None:
            return self.dsn
        self._stopping.clear()
        user = binaries.find_server_user()
        folders.make_home(self.home, user)
        with folders.locked(self._start_lock):
            # Before the server starts, so that a stop() in another thread finds it.
            self._holder = folders.open_lock(self.home / f"holders-{self.major}.lock")
            try:
                # Never waits: no process holds this exclusively outside the start lock.
                fcntl.flock(self._holder, fcntl.LOCK_SH)
                self._status = self._adopt() or self._launch(user, is_first=True)
            except BaseException:
                os.close(self._holder)
                self._holder = None
                raise
        return self.dsn

    @property
    def is_alive(self) -> bool:
        """Whether the server that this object started or joined still runs."""
        return self._postmaster.is_alive(self._running().pid)

    def restart(self) -> None:
        """Start the server again where it was, so that its dsn stays; do nothing if it runs. It never makes data.

        Raises:
            EmbeddedServerError: it does not start, its data or its password is gone, another program started it at
                another port, or stop() was called in another thread.
        """
        port = self._running().port
        for kept in (self.data, self._password_path):
            if not kept.exists():
                raise EmbeddedServerError(
                    f"{kept} of the embedded PostgreSQL is gone, and with it what is stored there: mount or restore it,"
                    " and the server starts again. No empty database is made in its place."
                )
        with folders.locked(self._start_lock):
            status = self._adopt() or self._launch(binaries.find_server_user(), port=port)
        if status.port != port:
            raise EmbeddedServerError(
                f"Another program started the embedded PostgreSQL at port {status.port} in place of {port}, where"
                " nothing reaches it: end that program."
            )
        self._status = status

    def stop(self, *, fast_timeout_seconds: float = STOP_SECONDS) -> None:
        """Release the server; the last holder stops it. Afterwards none of its processes is left.

        A start() or restart() that waits in another thread fails, and ends the server that it started.
        """
        self._stopping.set()
        holder = self._holder
        if holder is None:
            return
        with folders.locked(self._start_lock):
            if self._holder != holder:
                return  # The start failed, and released it.
            try:
                fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # Another process uses the server, and will stop it.
            else:
                status = self._postmaster.read_status()
                if status is not None:
                    self._postmaster.terminate(status.pid, fast_timeout_seconds)
                    folders.remove_socket_folder(status.socket_folder, self.home)
            finally:
                os.close(holder)
                self._holder = self._status = None

    def _running(self) -> ServerStatus:
        if self._status is None:
            raise EmbeddedServerError("The embedded PostgreSQL is not started: call start() first.")
        return self._status

    def _password(self) -> str:
        return read_password(self._password_path, self.data)

    def _adopt(self) -> ServerStatus | None:
        """Return the ready server that runs on this data, or None; one that is stopping is waited for."""
        status = self._postmaster.read_status()
        return None if status is None else self._postmaster.wait_until_ready(status.pid, self._stopping)

    def _launch(self, user: ServerUser, *, port: int | None = None, is_first: bool = False) -> ServerStatus:
        """Start the server, at this port or one that is free, and wait until it is ready; the first one makes data."""
        programs = binaries.find_programs(self.major, user, self.home)
        if is_first:
            is_synced = self.settings.get("fsync") != "off"
            make_data(
                self.data, self._password_path, programs=programs, user=user, major=self.major, is_synced=is_synced
            )
        self._password()
        socket_folder = folders.make_socket_folder(self.home, f"run-{self.major}", user)
        port_record = self.home / f"port-{self.major}"
        for attempt in range(START_ATTEMPTS_MAX):
            # Left by a crash: no server runs, but the pid may belong to another process now.
            for left in (self.data / "postmaster.pid", *socket_folder.glob(".s.PGSQL.*")):
                left.unlink(missing_ok=True)
            # Another process may take the port between our check and the server's bind, and a killed server's last
            # processes may hold its shared memory for a moment. A later attempt meets neither.
            settings = {
                # The detail of an error quotes the row, and so what users said.
                "log_error_verbosity": "terse",
                **_QUIET,
                "listen_addresses": "127.0.0.1",
                **self.settings,
                "port": str(port or _choose_port(port_record)),
                "unix_socket_directories": str(socket_folder),
                "unix_socket_permissions": "0700",
            }
            pid = self._postmaster.spawn(programs, user, settings)
            try:
                status = self._postmaster.wait_until_ready(pid, self._stopping)
            except BaseException:
                self._postmaster.terminate(pid, STOP_SECONDS)
                raise
            if status is not None:
                folders.write_private(port_record, str(status.port))
                return status
            time.sleep(0.1 * 2**attempt)
        raise EmbeddedServerError(
            f"The embedded PostgreSQL did not start. Its last log line: {self._postmaster.last_log_line()!r}."
            f" The whole log is {self.log_path}."
        )


#: PostgreSQL's own processes: by default two of them wake five times a second each as long as anything happens at all,
#: and autovacuum starts a process for each database every minute, which was a third of what an idle installation costs.
#: A commit writes its log itself, except one without synchronous_commit, such as a notification's: within 9 s.
_QUIET = {"bgwriter_delay": "10s", "wal_writer_delay": "3s", "autovacuum_naptime": "3min"}


def _choose_port(record: Path) -> int:
    """Return the last start's port if it is free, else one that the kernel assigns."""
    try:
        last = int(record.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        last = 0
    for port in (last, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EmbeddedServerError("No loopback port is free for the embedded PostgreSQL.")
