"""The embedded PostgreSQL: shared, crash-safe, private, and stopped with its last holder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest

from tests.conftest import FAST_SETTINGS, copied
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until_sync
from workers import cgroups
from workers.embedded import binaries, data
from workers.embedded.binaries import EmbeddedServerError
from workers.embedded.postmaster import Postmaster
from workers.embedded.server import EmbeddedServer

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root switches to a system user")
# Starts the server, prints its pid and dsn, and waits for the end of its input.
HOLDER = """
import sys
from pathlib import Path
from workers.embedded.server import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), settings={"fsync": "off"})
server.start()
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture(scope="module")
def made_home(made: Path, home_root: Path) -> Path:
    """A home with an initialised data folder; no server runs."""
    return copied(made, home_root / "embedded")


@pytest.fixture
def embedded(made_home: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(made_home, settings=FAST_SETTINGS)
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("gigabytes", "limit", "buffers"),
    [(1, "max", "256MB"), (8, "max", "512MB"), (64, "max", "1024MB"), (64, str(8 * 2**30), "512MB")],
)
def test_the_cache_is_as_large_as_the_memory_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gigabytes: int, limit: str, buffers: str
) -> None:
    """A sixteenth of what the machine has, or its container."""
    files = cgroups.MemoryFiles(tmp_path / "limit", tmp_path / "none", tmp_path / "none")
    files.limit.write_text(limit)
    monkeypatch.setattr(cgroups, "MEMORY_FILES", (files, cgroups.MemoryFiles(*[tmp_path / "none"] * 3)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gigabytes * 2**18, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert data.initial_settings(16)["shared_buffers"] == buffers


def test_a_new_server_reads_by_itself(embedded: EmbeddedServer) -> None:
    """PostgreSQL 18 would have other processes do it; older ones do not know the setting."""
    embedded.start()
    with psycopg.connect(embedded.dsn) as connection:
        assert connection.execute("SHOW io_method").fetchone() == ("sync",)
    assert "io_method" not in data.initial_settings(16)


def hold(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def release(holder: subprocess.Popen[str]) -> None:
    holder.communicate(timeout=WAIT_SECONDS)
    assert holder.returncode == 0


def servers_of(home: Path) -> list[int]:
    """The pids of all live processes that work in a data folder below `home`. One that ends has no command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").resolve().is_relative_to(home) and bool((process / "cmdline").read_bytes())
        except OSError:
            continue
        if inside and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


async def test_both_drivers_connect_by_socket_and_by_loopback(embedded: EmbeddedServer) -> None:
    """The dsn and the loopback dsn work in asyncpg and in psycopg, on PostgreSQL 18 in UTF-8."""
    embedded.start()
    for dsn in (embedded.dsn, embedded.tcp_dsn):
        connection = await asyncpg.connect(dsn)
        assert connection.get_server_version().major == 18
        await connection.close()
        with psycopg.connect(dsn) as other:
            row = other.execute("SELECT current_setting('server_encoding'), lower('ÄÖ')").fetchone()
            assert row == ("UTF8", "äö")


async def test_no_connection_without_the_password(embedded: EmbeddedServer) -> None:
    """Neither the socket nor the loopback port trusts anyone."""
    embedded.start()
    password = (embedded.home / "password-18").read_text()
    for dsn in (embedded.dsn, embedded.tcp_dsn):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(dsn.replace(password, "wrong"))


def test_only_the_owner_can_read(embedded: EmbeddedServer) -> None:
    """Data and socket are in 0700 folders, password and log in 0600 files."""
    embedded.start()
    modes = {path.name: path.stat().st_mode & 0o777 for path in embedded.home.iterdir()}
    assert modes["postgres-18"] == modes["run-18"] == 0o700
    assert modes["password-18"] == modes["postgres-18.log"] == 0o600


def test_it_owns_its_own_database_alone(made_home: Path, embedded: EmbeddedServer) -> None:
    """A command that is given another database of the server must not run on this one."""
    embedded.start()
    other = EmbeddedServer(made_home)
    for dsn in (embedded.dsn, embedded.tcp_dsn):
        assert other.owns(dsn)
        assert not other.owns(urlsplit(dsn)._replace(path="/fresh").geturl())
        assert not other.owns(dsn.replace(str(urlsplit(dsn).password), "another"))
    assert not other.owns("nonsense")


def test_the_last_holder_stops_the_server(made_home: Path) -> None:
    """Two processes share one server; it outlives the first of them and stops with the second, intact."""
    first, second = hold(made_home), hold(made_home)
    assert first.stdout is not None
    assert second.stdout is not None
    pid = int(first.stdout.readline())
    assert int(second.stdout.readline()) == pid
    release(first)
    assert pid in servers_of(made_home)
    release(second)
    assert servers_of(made_home) == []


def test_processes_that_start_together_share_one_server(home: Path) -> None:
    """On an empty home, four simultaneous starts create one data folder and one server."""
    holders = [hold(home) for _ in range(4)]
    pids = {int(holder.stdout.readline()) for holder in holders if holder.stdout is not None}
    assert len(pids) == 1
    for holder in holders:
        release(holder)
    assert servers_of(home) == []


def test_a_server_whose_holder_was_killed_is_adopted(made_home: Path, embedded: EmbeddedServer) -> None:
    """kill -9 of the holder leaves the server running; the next start takes it over, and stopping that one stops it."""
    holder = hold(made_home)
    assert holder.stdout is not None
    pid = int(holder.stdout.readline())
    holder.kill()
    holder.communicate()
    embedded.start()
    assert embedded.pid == pid
    with psycopg.connect(embedded.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    embedded.stop()
    assert servers_of(made_home) == []


def test_a_killed_server_is_restarted_with_its_data(made_home: Path, embedded: EmbeddedServer) -> None:
    """kill -9 of the server itself: the next start clears its pid file, recovers, and has every commit."""
    embedded.start()
    with psycopg.connect(embedded.dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS answer")
    os.kill(embedded.pid, signal.SIGKILL)
    until_sync(lambda: not servers_of(made_home))
    assert (made_home / "postgres-18" / "postmaster.pid").exists()
    with (
        EmbeddedServer(made_home, settings=FAST_SETTINGS) as again,
        psycopg.connect(again.dsn) as connection,
    ):
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_a_recycled_pid_does_not_block_the_start(made_home: Path, embedded: EmbeddedServer) -> None:
    """A pid file that names a live foreign process, as after a reboot, is not taken for our server."""
    stranger = subprocess.Popen(["sleep", "3600"])
    try:
        pid_file = made_home / "postgres-18" / "postmaster.pid"
        pid_file.write_text(f"{stranger.pid}\n{made_home}/postgres-18\n1\n5432\n/tmp\n127.0.0.1\n0 0\nready   \n")
        embedded.start()
        assert embedded.pid != stranger.pid
        embedded.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_is_the_server_from_its_first_moment_until_it_has_ended(home: Path) -> None:
    """Also while it begins its program, and not as a zombie."""
    postmaster = Postmaster(home / "postgres-18", home / "log")
    waiting = ["sh", "-c", "read line", "sh", str(home / "postgres-18")]
    for _ in range(20):
        with subprocess.Popen(waiting, stdin=subprocess.PIPE) as process:
            assert postmaster.is_alive(process.pid)
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert not postmaster.is_alive(process.pid)
    assert not postmaster.is_alive(process.pid)


def test_the_port_is_kept_and_changed_when_taken(embedded: EmbeddedServer) -> None:
    """The loopback port survives a restart; if another process has it, a new one is chosen."""
    embedded.start()
    port = embedded.tcp_dsn.rpartition(":")[2]
    embedded.stop()
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", int(port.partition("/")[0])))
        # It keeps others off; until it listens, the server can bind the port beside it.
        embedded.start()
        assert embedded.tcp_dsn.rpartition(":")[2] == port
        embedded.stop()
        taker.listen()
        embedded.start()
        assert embedded.tcp_dsn.rpartition(":")[2] != port


def test_a_stop_ends_open_transactions(made_home: Path, embedded: EmbeddedServer) -> None:
    """An open transaction does not delay the stop, and no process is left."""
    embedded.start()
    connection = psycopg.connect(embedded.dsn)
    try:
        connection.execute("CREATE TABLE never_committed ()")
        embedded.stop()
        assert servers_of(made_home) == []
    finally:
        connection.close()


def test_an_interrupted_setup_is_repeated(home: Path) -> None:
    """An unfinished data folder, as a kill during set-up leaves it, is discarded, not used."""
    home.mkdir(mode=0o711)
    home.chmod(0o711)
    (home / "postgres-18.unfinished-1").mkdir()
    (home / "postgres-18.unfinished-1" / "PG_VERSION").write_text("18\n")
    with EmbeddedServer(home, settings=FAST_SETTINGS) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("hippocampus",)
    assert not list(home.glob("*.unfinished*"))


def test_a_home_with_a_long_name_has_its_socket_elsewhere(home_root: Path) -> None:
    """A socket's name is limited to 107 bytes: for a longer home the socket is in a private folder of /tmp."""
    home = home_root / ("long" * 30)
    with EmbeddedServer(home, settings=FAST_SETTINGS) as server:
        with psycopg.connect(server.dsn) as connection:
            row = connection.execute("SELECT current_setting('unix_socket_directories')").fetchone()
        assert row is not None
        folder = Path(row[0])
        assert folder.parent == Path("/tmp")
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_wrong_setting_is_reported_in_the_servers_words(made_home: Path) -> None:
    """A server that does not start raises its own last log line, and leaves nothing running."""
    server = EmbeddedServer(made_home, settings={"shared_buffers": "many"})
    with pytest.raises(EmbeddedServerError, match=r"shared_buffers.*whole log"):
        server.start()
    assert servers_of(made_home) == []


def test_an_unknown_version_is_refused(made_home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="choose one of 16, 18"):
        EmbeddedServer(made_home, major=15).start()


def test_a_lost_password_is_reported(made: Path, home: Path) -> None:
    """The data without its password file: the error names the file and the fix."""
    copied(made, home)
    (home / "password-18").unlink()
    with pytest.raises(EmbeddedServerError, match=r"password-18.*remove"):
        EmbeddedServer(home, settings=FAST_SETTINGS).start()
    assert servers_of(home) == []


def test_dsn_needs_a_started_server(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="call start"):
        _ = EmbeddedServer(home).dsn


@as_root
def test_root_gets_a_clear_error_if_the_server_cannot_enter(home_root: Path) -> None:
    """A home below a closed folder is refused by name, and the closed folder stays closed."""
    closed = home_root / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedServerError, match=r"can't enter .*closed/home.*HIPPOCAMPUS_HOME"):
        EmbeddedServer(closed / "home").start()
    assert closed.stat().st_mode & 0o777 == 0o700


@as_root
def test_root_runs_a_copy_of_a_package_that_the_server_cannot_reach(
    home_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment below a 0700 folder: its programs are copied beside the data, once; the folder stays closed."""
    spec = binaries.importlib.util.find_spec(binaries.PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    packages = Path(spec.origin).parent.parent
    hidden = home_root / "hidden"
    hidden.mkdir(mode=0o700)
    for name in (binaries.PACKAGE, f"{binaries.PACKAGE}.libs"):
        (hidden / name).symlink_to(packages / name)
    monkeypatch.syspath_prepend(hidden)
    home = home_root / "copied"
    for _ in range(2):
        with EmbeddedServer(home, settings=FAST_SETTINGS) as server:
            executable = Path(f"/proc/{server.pid}/exe").resolve()
            assert executable.is_relative_to(home)
    assert hidden.stat().st_mode & 0o777 == 0o700
    assert len(list(home.glob("postgres-18-programs-*"))) == 1


@as_root
def test_an_ordinary_user_starts_their_own_server(home_root: Path) -> None:
    """Without root everything belongs to the user, and there is no switch to a system user."""
    user = binaries.find_server_user()
    if not user.can("-x", Path(sys.executable)) or not user.can("-r", ROOT / "workers" / "embedded" / "server.py"):
        pytest.skip("another user can't run this Python or read this checkout")
    home = home_root / "ordinary"
    home.mkdir()
    os.chown(home, user.uid, user.gid)
    script = f"import sys; sys.path[:0] = {sys.path!r}\n" + HOLDER
    done = subprocess.run(
        [sys.executable, "-c", script, str(home)],
        input="",
        capture_output=True,
        text=True,
        check=False,
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        cwd="/",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert {path.stat().st_uid for path in home.iterdir()} == {user.uid}


@pytest.mark.system
async def test_postgresql_16_runs_beside_18(home: Path) -> None:
    """The oldest supported version starts from the same package, migrates, and passes the start-up check."""
    from pulse import database
    from workers.migrate import check_schema, migrate

    with EmbeddedServer(home, major=16, settings=FAST_SETTINGS) as server:
        await migrate(server.dsn)
        connection = await database.connect(server.dsn)
        assert connection.get_server_version().major == 16
        await check_schema(connection)
        await connection.close()
