"""`hippocampus up --detach` and `hippocampus down`: an installation for notebooks and scripts."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support import cli_process
from tests.support.cli_process import Running
from tests.support.waiting import until_sync
from workers.cli.installation import Installation, State

SECONDS_MAX = 60.0
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="searches /proc for processes")


@pytest.fixture(autouse=True)
def _stopped(home: Path) -> Iterator[None]:
    """Nothing outlives a failed test."""
    yield
    if Installation(home).read() is not None:
        cli_process.run(home, "down")


def up(home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return cli_process.run(home, "up", "--detach", **{"HIPPOCAMPUS_API_PORT": "0", **settings})


def starting(home: Path, dsn: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        cli_process.command("up", "--detach"),
        env=cli_process.environment(home, DATABASE_URL=dsn, HIPPOCAMPUS_API_PORT="0"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(home: Path) -> State:
    state = Installation(home).read()
    assert state is not None
    return state


def evaluated(export: str) -> str:
    """The value of DATABASE_URL in a shell after `eval`."""
    shell = ["/bin/sh", "-c", 'eval "$1" && printf %s "$DATABASE_URL"', "sh", export]
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout


def test_a_shell_evaluates_its_output_and_down_stops_everything(home: Path) -> None:
    """With an embedded server, twice in one shell: the second time DATABASE_URL still has the first one's address."""
    done = up(home)
    assert done.returncode == 0, done.stderr
    assert str(home / "up.log") in done.stderr
    assert "hippocampus down" in done.stderr
    (line,) = done.stdout.splitlines()
    address = evaluated(line)
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT count(*) FROM threads").fetchone() == (0,)
    state = running(home)
    assert (state.database_url, state.log) == (address, str(home / "up.log"))
    assert httpx.get(f"{state.api_url}/health").json()["status"] == "ok"
    assert json.loads(cli_process.run(home, "status", "--json").stdout)["installation"]["pid"] == state.pid

    again = up(home, DATABASE_URL=address)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert "already runs" in again.stderr
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


def test_it_outlives_its_terminal(home: Path, dsn: str) -> None:
    """It has its own session and no standard input."""
    export = up(home, DATABASE_URL=dsn).stdout
    assert export == f"export DATABASE_URL={shlex.quote(dsn)}\n"
    pid = running(home).pid
    assert pid is not None
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)
    # An installation on another database is not the running one.
    done = up(home, DATABASE_URL=f"{dsn}&application_name=other")
    assert (done.returncode, done.stdout) == (1, "")
    assert "another database" in done.stderr
    assert running(home).database_url == dsn


def test_after_a_kill_nothing_runs_and_it_can_be_started_again(home: Path, dsn: str) -> None:
    up(home, DATABASE_URL=dsn)
    killed = running(home).pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    # The kernel takes the process's memory, and with it its name, a moment before it releases the lock.
    until_sync(lambda: Installation(home).read() is None)
    assert not cli_process.is_alive(killed)
    until_sync(lambda: cli_process.processes_of(home) == [])
    assert cli_process.run(home, "down").stdout == f"Nothing runs below {home}.\n"
    done = up(home, DATABASE_URL=dsn)
    assert done.returncode == 0, done.stderr
    assert running(home).pid != killed


def test_a_stale_state_never_names_a_process_to_stop(home: Path) -> None:
    """The process id that a killed installation left now belongs to this test."""
    home.mkdir()
    (home / "up.json").write_text(json.dumps({"pid": os.getpid(), "database_url": "postgresql://localhost/x"}))
    assert Installation(home).read() is None
    assert cli_process.run(home, "down").stdout == f"Nothing runs below {home}.\n"


def test_two_concurrent_starts_start_one_installation(home: Path, dsn: str) -> None:
    first, second = starting(home, dsn), starting(home, dsn)
    said = [each.communicate(timeout=SECONDS_MAX) for each in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert said[0][0] == said[1][0] == f"export DATABASE_URL={shlex.quote(dsn)}\n"
    assert sorted("already runs" in err for _, err in said) == [False, True]
    assert sum("up --claimed" in line for line in cli_process.processes_of(home)) == 1


def test_down_stops_a_start(home: Path, dsn: str) -> None:
    with starting(home, dsn) as process:
        until_sync(lambda: (state := Installation(home).read()) is not None and state.pid is not None)
        assert running(home).database_url is None
        assert cli_process.run(home, "down").returncode == 0
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode != 0
    assert (out, "Nothing is left running" in err) == ("", True)
    assert cli_process.processes_of(home) == []


def test_an_interrupted_start_leaves_nothing_running(home: Path, dsn: str) -> None:
    with starting(home, dsn) as process:
        until_sync(lambda: (state := Installation(home).read()) is not None and state.pid is not None)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (130, "")
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


def test_down_stops_an_installation_in_a_terminal_too(home: Path, dsn: str) -> None:
    with Running(home, "up", DATABASE_URL=dsn, HIPPOCAMPUS_API_PORT="0") as foreground:
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
