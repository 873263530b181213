"""`hippocampus up`: every role, supervised, and stopped within seconds of a Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support import cli_process
from tests.support.cli_process import Running
from tests.support.forked import ForkedProcess
from tests.support.pace import at_this_pace
from tests.support.paths import ROOT
from tests.support.stream_client import OWNER, asked
from tests.support.waiting import WAIT_SECONDS, until_sync
from workers.cli.installation import Installation
from workers.embedded.server import EmbeddedServer

ROLES = {"writer", "fast_replay", "deep_reflection", "retention"}
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="searches /proc for processes")


@pytest.fixture
def up(dsn: str, home: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """Forked; the test with a limit in seconds starts it by its command line, as users do."""
    is_timed = request.node.get_closest_marker("timing") is not None
    with Running(home, "up", by_command_line=is_timed, DATABASE_URL=dsn) as running:
        yield running


def ready(up: Running) -> str:
    """Wait until everything runs; return the API's address."""
    up.read_until("Everything runs")
    address = up.read_until("API").split()[-1]
    up.read_until("database")
    return address


@pytest.mark.timing
def test_every_role_runs_and_ctrl_c_stops_all_within_five_seconds(up: Running) -> None:
    address = ready(up)
    assert httpx.get(f"{address}/health", timeout=WAIT_SECONDS).json()["status"] == "ok"
    children = up.children()
    assert set(children) == ROLES
    asked = time.monotonic()
    up.process.send_signal(signal.SIGINT)
    code, said = up.end()
    assert time.monotonic() - asked < at_this_pace(5)
    assert code == 0, said
    assert "Traceback" not in said
    assert not any(cli_process.is_alive(pid) for pid in children.values())


def test_a_killed_role_is_restarted(up: Running) -> None:
    """The others keep running."""
    ready(up)
    before = up.children()
    os.kill(before["fast_replay"], signal.SIGKILL)
    assert "killed by SIGKILL; it is started again" in up.read_until("fast_replay     | --")
    until_sync(lambda: set(up.children()) == ROLES)
    after = up.children()
    assert after["fast_replay"] != before["fast_replay"]
    assert {**after, "fast_replay": 0} == {**before, "fast_replay": 0}
    up.process.send_signal(signal.SIGTERM)
    assert up.end()[0] == 0


def test_a_killed_embedded_database_is_started_again_at_its_address(made_home: Path) -> None:
    """No role ends, what was acknowledged is there, the API answers by itself, and nothing is left at the end."""
    home = made_home
    with Running(home, "up") as up:
        session = f"{ready(up)}/v1/apps/shop/users/mei/sessions"
        up.read_until("export DATABASE_URL=")
        address = shlex.split(up.lines[-1])[1].removeprefix("DATABASE_URL=")
        with psycopg.connect(address) as connection:
            assert connection.execute("SELECT count(*) FROM threads").fetchone() == (0,)
        assert any(line.startswith("  console   http") for line in up.lines)
        roles = up.children()
        assert httpx.post(session, json={"session_id": "s"}, timeout=WAIT_SECONDS).status_code == 201
        append(f"{session}/s/events", "before")
        with EmbeddedServer(home) as server:
            killed = server.pid
            os.kill(killed, signal.SIGKILL)
            up.read_until("database        | -- ended unexpectedly; it is started again in 0.2 s")
            up.read_until("database        | -- runs again at the same address")
            server.restart()  # It runs: this only reads its process's id.
            assert server.pid != killed
        until_sync(lambda: append(f"{session}/s/events", "after"))
        events = httpx.get(f"{session}/s/events", timeout=WAIT_SECONDS).json()["events"]
        assert [each["content"]["text"] for each in events] == ["before", "after"]
        assert up.children() == roles
        up.process.send_signal(signal.SIGTERM)
        code, said = up.end()
        assert code == 0, said
    assert cli_process.processes_of(home) == []


def append(address: str, text: str) -> bool:
    """Append an event, once; whether it was stored."""
    body = {"events": [{"id": text, "author": "user", "content": {"text": text}}]}
    return httpx.post(address, json=body, timeout=WAIT_SECONDS).status_code in (200, 201)


AGENT = """
async def greet(run):
    yield "Greetings, "
    yield run.input.messages[-1]["content"]
"""


@pytest.mark.parametrize("words", [("up",), ("up", "--detach")], ids=" ".join)
def test_an_agent_of_the_option_answers_over_http(
    dsn: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """From a file in the current folder, beside an agent of the setting, also of an installation in the background."""
    (tmp_path / "my_agent.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    options = (*words, "--agent", "greeter=my_agent:greet")
    given = {"DATABASE_URL": dsn, "HIPPOCAMPUS_AGENTS": "other=tests.support.stream_agents:echo"}
    with contextlib.ExitStack() as stack:
        if "--detach" in words:
            stack.callback(cli_process.run, home, "down")
            started = cli_process.run(home, *options, **given)
            assert started.returncode == 0, started.stderr
            state = Installation(home).read()
            assert state is not None
            address = state.api_url
        else:
            running = stack.enter_context(Running(home, *options, **given))
            stack.callback(running.end)
            stack.callback(running.process.terminate)
            address = ready(running)
        listed = httpx.get(f"{address}/api/agents", headers=OWNER, timeout=WAIT_SECONDS).json()["agents"]
        assert {each["name"] for each in listed} == {"greeter", "other"}
        run = asked("t", "r", "Ann")
        said = httpx.post(f"{address}/agui/greeter", json=run, headers=OWNER, timeout=WAIT_SECONDS)
        frames = [json.loads(line.partition(": ")[2]) for line in said.text.splitlines() if line.startswith("data: ")]
        assert "".join(each.get("delta", "") for each in frames) == "Greetings, Ann", said.text
    assert cli_process.processes_of(home) == []


def test_no_role_outlives_a_killed_parent(up: Running) -> None:
    ready(up)
    children = up.children()
    up.process.kill()
    up.process.wait()
    until_sync(lambda: not any(cli_process.is_alive(pid) for pid in children.values()))


def test_a_port_in_use_is_an_error_that_says_what_to_do(dsn: str, home: Path) -> None:
    """Nothing is left running."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cli_process.run(home, "up", DATABASE_URL=dsn, HIPPOCAMPUS_API_PORT=str(port))
    assert done.returncode == 2
    assert f"Port {port}" in done.stderr
    assert "HIPPOCAMPUS_API_PORT" in done.stderr
    assert cli_process.processes_of(home) == []


@pytest.mark.parametrize("role", [("writer",), ("worker", "retention")])
def test_a_single_role_without_a_database_is_refused_with_a_hint(home: Path, role: tuple[str, ...]) -> None:
    done = cli_process.run(home, *role)
    assert done.returncode == 2
    assert "DATABASE_URL" in done.stderr
    assert "hippocampus up" in done.stderr
    assert "Traceback" not in done.stderr
    assert not home.exists()


def test_a_role_of_the_procfile_ends_with_its_runner(dsn: str, home: Path) -> None:
    """Started without a supervisor, a role does not read its standard input."""
    with Running(home, "worker", "retention", DATABASE_URL=dsn) as worker:
        worker.read_until("worker_registered")
        worker.process.terminate()
        assert worker.end()[0] == 0


def test_a_terminal_is_shown_the_address_of_the_embedded_database(made_home: Path) -> None:
    """psql and other programs can use it while the server runs."""
    reader, writer = pty.openpty()
    shown = ""
    environment = cli_process.environment(made_home, COLUMNS="200", NO_COLOR="1")
    process = ForkedProcess("workers", "up", environment=environment, log=writer)
    os.close(writer)
    try:
        while not (found := re.search(r"^export DATABASE_URL='([^']+)'", shown, re.MULTILINE)):
            shown += os.read(reader, 65536).decode()
        with psycopg.connect(found[1]) as connection:
            assert connection.execute("SELECT count(*) FROM threads").fetchone() == (0,)
    finally:
        process.terminate()
        with contextlib.suppress(OSError):  # The end of a terminal is an error.
            while os.read(reader, 65536):
                pass
        os.close(reader)
    assert process.wait(WAIT_SECONDS) == 0, shown


def test_a_closed_terminal_stops_it(up: Running) -> None:
    ready(up)
    up.process.send_signal(signal.SIGHUP)
    assert up.end()[0] == 0


def test_under_nohup_a_closed_terminal_is_not_handled() -> None:
    script = "from workers.cli import interrupts; print(*(each.name for each in interrupts._handled()))"
    done = subprocess.run(["nohup", sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "SIGINT SIGTERM\n"
