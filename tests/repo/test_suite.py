"""The suite's own structure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONG_FIRST, TESTS
from tests.support.forked import ForkedProcess
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until_sync

CONFTEST = """
import faulthandler, os, pytest
from tests.support.alone_at_the_end import AloneAtTheEnd, name_those_alone

#: Says where each process is before its time is up.
faulthandler.dump_traceback_later(50, file=open(f"where-{os.getpid()}", "w"))

def pytest_configure(config):
    config.addinivalue_line("markers", "timing: alone")

def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        name_those_alone(items)

def pytest_xdist_make_scheduler(config, log):
    return AloneAtTheEnd(config, log)

@pytest.fixture(autouse=True)
def _noted(request):
    with open("noted", "a") as file:
        file.write(f"+{request.node.name}\\n")
        file.flush()
        yield
        file.write(f"-{request.node.name}\\n")
"""
MODULE = """
import os, pytest

def test_a{n}(): pass

@pytest.mark.timing
def test_alone{n}(): pass

def test_b{n}():
    if {n} == 1 and not os.path.exists("crashed"):
        open("crashed", "w").close()
        os._exit(1)
"""
CRASHES_LAST = """
import os, pytest

@pytest.mark.timing
def test_alone(): pass

def test_b():
    if not os.path.exists("crashed"):
        open("crashed", "w").close()
        os._exit(1)
"""
TIMED_OUT = """
import subprocess

def test_a_command_that_hangs():
    words = ["sh", "-c", "echo not the end; seq 2000; echo to 999 of 1000; echo careful >&2; exec sleep 600"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while True:
            try:
                process.communicate(timeout=0.1)
            except subprocess.TimeoutExpired as error:
                if error.stderr:
                    raise
    finally:
        process.kill()
"""


def _run_in(folder: Path, *options: str) -> str:
    """Run the tests of a folder in a process of their own, without this project's settings; return what it printed."""
    plain = ("-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "-c", os.devnull)
    try:
        return subprocess.run(
            [sys.executable, "-u", "-m", "pytest", *plain, *options, str(folder)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:
        for file in sorted(folder.glob("where-*")):
            error.add_note(f"{file.name}:\n{file.read_text()}")
        raise


def test_the_files_that_begin_first_exist() -> None:
    """One that was moved would begin last, and hold up the end of the suite."""
    assert [name for name in LONG_FIRST if not (TESTS / name).is_file()] == []


def test_tests_with_a_limit_in_seconds_run_last_and_one_by_one(tmp_path: Path) -> None:
    """In several processes, also if one of them crashes; every test runs."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text(MODULE.format(n=number))
    printed = _run_in(tmp_path, "-p", "xdist", "-n", "3", "--dist", "loadfile")
    assert "1 failed, 12 passed" in printed, printed
    noted = (tmp_path / "noted").read_text().split()
    alone = [line for number in range(4) for line in (f"+test_alone{number}", f"-test_alone{number}")]
    assert sorted(noted[-8:]) == sorted(alone)
    assert [line[1:] for line in noted[-8::2]] == [line[1:] for line in noted[-7::2]]


def test_the_last_process_may_crash(tmp_path: Path) -> None:
    """A process begins a test once it knows the next: the one that takes over is given more than a single test."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_0.py").write_text("def test_a(): pass")
    (tmp_path / "test_1.py").write_text(CRASHES_LAST)
    printed = _run_in(tmp_path, "-p", "xdist", "-n", "2", "--dist", "loadfile")
    assert "1 failed, 3 passed" in printed, printed


def test_the_message_of_a_time_out_ends_with_what_the_command_printed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TIMED_OUT)
    printed = _run_in(tmp_path, "-p", "tests.support.timed_out", "--tb=line")
    shown = {line.removeprefix("E").strip() for line in printed.splitlines()}
    assert shown >= {"2000", "to 999 of 1000", "careful"}, printed
    assert not shown & {"not the end", "1"}


def test_a_forked_commands_time_out_keeps_what_it_printed(tmp_path: Path) -> None:
    script, log = tmp_path / "hangs.py", tmp_path / "log"
    script.write_text("import time\nprint('to 999 of 1000', flush=True)\ntime.sleep(600)\n")
    process = ForkedProcess(script, "now", environment=os.environ, log=log)
    try:
        until_sync(log.read_text)
        with pytest.raises(subprocess.TimeoutExpired, match=r"hangs\.py.*'now'") as caught:
            process.wait(0)
    finally:
        process.kill()
        process.wait()
    assert caught.value.stdout == b"to 999 of 1000\n"
