"""Processes that are forked from one which has imported the program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import is_alive
from tests.support.paths import ROOT
from tests.support.waiting import until_sync

pytestmark = pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="reads /proc")


def drill(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.fork_drill", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_forked_process_is_as_if_started() -> None:
    """Its name, arguments, environment, session and descriptors, its exit code, and the end of its server."""
    done = drill()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    told = found["told"]
    assert told["pid"] == told["session"] == told["given_pid"]
    assert (told["name"], told["arguments"], told["environment"]) == ("drill-tell", ["tell"], {"QUOKKA": "1"})
    # The fourth is the one that reads the list.
    assert (told["descriptors"], told["is_imported"], told["code"]) == (4, True, 0)
    assert found["exits"] == [3, 3, 3]
    assert found["raised"] == ["ValueError: quokka", 1]
    assert found["killed"] == found["left"] == -9
    assert "forked_without_server" not in found
    assert "hippocampus" in found["by_command_line"]


def test_nothing_outlives_a_killed_program() -> None:
    done = drill("die")
    assert done.returncode == -9, done.stderr
    for pid in json.loads(done.stdout):
        until_sync(lambda pid=pid: not is_alive(pid))


def test_a_request_to_stop_within_the_fork_is_not_lost() -> None:
    """Python drops what a signal's handler raises before `os.fork` has returned: `up` would start every role."""
    program = """
import os, signal
from workers.cli import interrupts, running

interrupts.raise_on_all()

def interrupted() -> None:
    signal.raise_signal(signal.SIGTERM)

os.register_at_fork(after_in_parent=interrupted)
try:
    with running.fork_server() as forks:
        print("running")
except KeyboardInterrupt:
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
