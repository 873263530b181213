"""`hippocampus up --detach` and `hippocampus down`: an installation for notebooks and scripts."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support import cli_process
from tests.support.cli_process import Running
from tests.support.forked import ForkedProcess
from tests.support.waiting import WAIT_SECONDS, until_sync
from workers.cli.installation import Installation, State
from workers.process.roles import OPTIONAL_ROLES, ROLES

SECONDS_MAX = 60.0
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="searches /proc for processes")


@pytest.fixture(autouse=True)
def _stopped(home: Path) -> Iterator[None]:
    """Nothing outlives a failed test."""
    yield
    if Installation(home).read() is not None:
        cli_process.run(home, "down")


def up(home: Path, *, by_command_line: bool = False, **settings: str) -> subprocess.CompletedProcess[str]:
    return cli_process.run(home, "up", "--detach", by_command_line=by_command_line, **settings)


@contextmanager
def held_up(dsn: str) -> Iterator[None]:
    """No start comes further than reading which migrations a database has."""
    with psycopg.connect(dsn) as connection:
        connection.execute("LOCK TABLE hippocampus_migrations")
        yield


class Starting(ForkedProcess):
    """`hippocampus up --detach` that has not ended yet."""

    def __init__(self, home: Path, dsn: str, folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        folder.mkdir()
        environment = cli_process.environment(home, DATABASE_URL=dsn)
        super().__init__("workers", "up", "--detach", environment=environment, log=self._out, errors=self._err)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return its exit code and what it printed."""
        try:
            code = self.wait(SECONDS_MAX)
        finally:
            self.kill()
        return code, self._out.read_text(), self._err.read_text()


def running(home: Path) -> State:
    state = Installation(home).read()
    assert state is not None
    return state


def evaluated(export: str) -> str:
    """The value of DATABASE_URL in a shell after `eval`."""
    shell = ["/bin/sh", "-c", 'eval "$1" && printf %s "$DATABASE_URL"', "sh", export]
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout


def test_a_shell_evaluates_its_output_and_down_stops_everything(home: Path) -> None:
    """On a machine without a home: the first start waits while its supervisor makes and migrates the embedded server.

    Then twice more in one shell, where DATABASE_URL still has the first start's address.
    """
    assert not home.exists()
    done = up(home, by_command_line=True)
    assert done.returncode == 0, done.stderr
    assert str(home / "up.log") in done.stderr
    assert "hippocampus down" in done.stderr
    (line,) = done.stdout.splitlines()
    address = evaluated(line)
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT count(*) FROM threads").fetchone() == (0,)
    state = running(home)
    assert (state.database_url, state.log) == (address, str(home / "up.log"))
    assert httpx.get(f"{state.api_url}/health", timeout=WAIT_SECONDS).json()["status"] == "ok"
    assert json.loads(cli_process.run(home, "status", "--json").stdout)["installation"]["pid"] == state.pid

    again = up(home, DATABASE_URL=address)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert "already runs" in again.stderr
    refused = cli_process.run(home, "up", "--detach", "--agent", "talk=shop.agents:talk")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "already runs" in refused.stderr
    assert "started before this --agent was named: stop it first" in refused.stderr
    foreground = cli_process.run(home, "up")
    assert (foreground.returncode, foreground.stdout) == (1, done.stdout)
    assert "already runs" in foreground.stderr
    assert running(home) == state

    stopped = cli_process.run(home, "down")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert cli_process.processes_of(home) == []
    assert json.loads(cli_process.run(home, "status", "--json").stdout)["installation"] is None
    assert up(home, DATABASE_URL=address).returncode == 0
    assert cli_process.run(home, "down").returncode == 0
    assert cli_process.processes_of(home) == []
    idle = cli_process.run(home, "down")
    assert (idle.returncode, idle.stdout) == (0, f"Nothing runs below {home}.\n")


def test_two_concurrent_starts_start_one_installation_that_outlives_its_terminal_and_a_kill(
    home: Path, dsn: str, tmp_path: Path
) -> None:
    """It has its own session and no standard input. After a kill nothing runs, and it can be started again."""
    starts = [Starting(home, dsn, tmp_path / name) for name in ("first", "second")]
    ended = [each.end() for each in starts]
    assert [(code, out) for code, out, _ in ended] == [(0, f"export DATABASE_URL={shlex.quote(dsn)}\n")] * 2, ended
    assert sorted("already runs" in err for _, _, err in ended) == [False, True]
    # Its supervisor, its fork server, its roles.
    assert sum("up --claimed" in line for line in cli_process.processes_of(home)) == 2 + len(ROLES) - len(
        OPTIONAL_ROLES
    )

    pid = running(home).pid
    assert pid is not None
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)
    # An installation on another database is not the running one.
    done = up(home, DATABASE_URL=f"{dsn}&application_name=other")
    assert (done.returncode, done.stdout) == (1, "")
    assert "another database" in done.stderr
    assert running(home).database_url == dsn

    os.kill(pid, signal.SIGKILL)
    # The kernel takes the process's memory, and with it its name, a moment before it releases the lock.
    until_sync(lambda: Installation(home).read() is None)
    assert not cli_process.is_alive(pid)
    until_sync(lambda: cli_process.processes_of(home) == [])
    assert cli_process.run(home, "down").stdout == f"Nothing runs below {home}.\n"
    done = up(home, DATABASE_URL=dsn)
    assert done.returncode == 0, done.stderr
    assert running(home).pid != pid


def test_a_stale_state_never_names_a_process_to_stop(home: Path) -> None:
    """The process id that a killed installation left now belongs to this test."""
    home.mkdir()
    (home / "up.json").write_text(json.dumps({"pid": os.getpid(), "database_url": "postgresql://localhost/x"}))
    assert Installation(home).read() is None
    assert cli_process.run(home, "down").stdout == f"Nothing runs below {home}.\n"


def test_down_stops_a_start(home: Path, dsn: str, tmp_path: Path) -> None:
    with held_up(dsn):
        process = Starting(home, dsn, tmp_path / "start")
        until_sync(lambda: (state := Installation(home).read()) is not None and state.pid is not None)
        assert running(home).database_url is None
        assert cli_process.run(home, "down").returncode == 0
        code, out, err = process.end()
    assert code != 0
    assert (out, "Nothing is left running" in err) == ("", True)
    assert cli_process.processes_of(home) == []


def test_an_interrupted_start_leaves_nothing_running(home: Path, dsn: str, tmp_path: Path) -> None:
    with held_up(dsn):
        process = Starting(home, dsn, tmp_path / "start")
        until_sync(lambda: (state := Installation(home).read()) is not None and state.pid is not None)
        process.send_signal(signal.SIGINT)
        code, out, _ = process.end()
    assert (code, out) == (130, "")
    assert cli_process.processes_of(home) == []


def test_a_failing_role_is_an_error_that_leaves_nothing_running(home: Path, dsn: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = up(home, DATABASE_URL=dsn, HIPPOCAMPUS_API_PORT=str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Port {port}" in done.stderr
    assert str(home / "up.log") in done.stderr
    assert cli_process.processes_of(home) == []


def test_an_agent_that_cannot_be_imported_is_named_in_sentences(home: Path, dsn: str) -> None:
    """What follows the error begins a sentence of its own."""
    done = cli_process.run(home, "up", "--detach", "--agent", "default=nope:x", DATABASE_URL=dsn)
    assert (done.returncode, done.stdout) == (2, "")
    assert "in the current folder. Nothing is left running." in done.stderr


def test_down_stops_an_installation_in_a_terminal_too(home: Path, dsn: str) -> None:
    with Running(home, "up", DATABASE_URL=dsn) as foreground:
        foreground.read_until("Everything runs")
        done = up(home, DATABASE_URL=dsn)
        assert done.stdout == f"export DATABASE_URL={shlex.quote(dsn)}\n"
        assert cli_process.run(home, "down").returncode == 0
        assert foreground.end()[0] == 0
    assert cli_process.processes_of(home) == []


def test_a_state_of_another_version_is_read(tmp_path: Path) -> None:
    """A field that this version does not know is ignored, one that it lacks has its default."""
    installation = Installation(tmp_path)
    descriptor = installation.claim()
    assert descriptor is not None
    try:
        (tmp_path / "up.json").write_text(json.dumps({"pid": 7, "started_at": "today", "added_later": [1]}))
        assert installation.read() == State(pid=7, started_at="today")
    finally:
        os.close(descriptor)


def test_each_start_begins_a_log_and_keeps_the_former(tmp_path: Path) -> None:
    """The log does not grow for ever, and what a crash left can still be read after the next start."""
    installation = Installation(tmp_path)
    for number in range(3):
        log = installation.open_log()
        os.write(log, f"start {number}\n".encode())
        os.close(log)
    assert installation.log_path.read_text() == "start 2\n"
    assert (tmp_path / "up.log.1").read_text() == "start 1\n"
