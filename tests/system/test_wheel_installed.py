"""The built wheel installs into an empty environment and works there: the command line, the schema, the types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

from tests.conftest import cloned, dsn_of
from tests.support import cli_process
from tests.support.mcp_scene import answer
from tests.support.paths import ROOT
from tests.support.pins import constraints
from tests.support.waiting import WAIT_SECONDS, until
from workers.embedded.server import EmbeddedServer

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
TYPED = """
from hippocampus.memory_service import OpenMemoryService
from pulse.session_service import OpenSessionService
from workers.settings import Settings

reveal_type(OpenMemoryService.list_facts)
reveal_type(OpenSessionService.create_session)
reveal_type(Settings.api_port)
"""

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and its dependencies, and nothing else."""

    wheel: Path
    sdist: Path
    python: Path
    build_said: str

    def run(self, *words: str, dsn: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the installed program, from a folder without this checkout."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.wheel.parent), "DATABASE_URL": dsn, **more}
        command = [str(self.python.parent / "hippocampus"), *words]
        return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(built: tuple[Path, str]) -> Installed:
    folder, said = built
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--constraint", constraints(folder), f"{wheel}[cli]"]
    pip_done = subprocess.run(pip, capture_output=True, text=True, check=False, cwd="/")
    assert pip_done.returncode == 0, pip_done.stderr
    return Installed(wheel, sdist, python, said)


def test_the_build_emits_no_warning(installed: Installed) -> None:
    """Both archives are built, the wheel from the source archive, without a warning."""
    assert not re.search("warn|deprecat|error", installed.build_said, re.IGNORECASE), installed.build_said
    assert installed.wheel.name == f"pg_hippocampus-{VERSION}-py3-none-any.whl"
    assert installed.sdist.name == f"pg_hippocampus-{VERSION}.tar.gz"


def test_the_index_would_accept_both_archives(installed: Installed) -> None:
    """Their metadata is complete, and the description renders."""
    check = [sys.executable, "-m", "twine", "check", "--strict", str(installed.wheel), str(installed.sdist)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_pipx_runs_the_wheel_without_an_installation(installed: Installed, tmp_path: Path) -> None:
    spec = f"pg-hippocampus[cli] @ {installed.wheel.as_uri()}"
    home = {name: str(tmp_path / name) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "HOME")}
    environment = {
        "PATH": os.environ["PATH"],
        "PIP_CONSTRAINT": str(installed.wheel.parent / "constraints.txt"),
        **home,
    }
    pipx = [sys.executable, "-m", "pipx", "run", "--spec", spec, "hippocampus", "--version"]
    done = subprocess.run(pipx, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"hippocampus {VERSION}\n", done.stderr


async def test_an_mcp_client_starts_the_wheel_without_an_installation_and_a_database(
    installed: Installed, home: Path, tmp_path: Path
) -> None:
    """As `uvx` does: the official client starts it, and it remembers in an embedded server, which ends with it."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIP_CONSTRAINT": str(constraints(tmp_path, "requirements-dev.lock")),
        "HIPPOCAMPUS_HOME": str(home),
    }
    spec = f"pg-hippocampus[mcp,embedded] @ {installed.wheel.as_uri()}"
    words = ["-m", "pipx", "run", "--spec", spec, "hippocampus"]
    # The downloads, which a client does not wait for.
    first = [sys.executable, *words, "--version"]
    done = subprocess.run(first, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"hippocampus {VERSION}\n", done.stderr
    server = StdioServerParameters(
        command=sys.executable, args=[*words, "mcp", "--app", "assistant", "--user", "ann"], env=environment, cwd="/"
    )
    async with Client(server, read_timeout_seconds=WAIT_SECONDS) as client:
        assert (await client.list_tools()).tools
        memory = await answer(client, "remember", {"content": "Ann keeps bees."})
        found = await answer(client, "search_memory", {"query": "bees"})
        assert [each["id"] for each in found["results"]] == [memory["id"]]
    assert any(home.iterdir())
    await until(lambda: not cli_process.processes_of(home), "nothing is left running")


def test_the_environment_holds_the_wheels_dependencies(installed: Installed) -> None:
    done = subprocess.run([installed.python, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_installed_program_migrates_fills_and_searches_a_database(
    installed: Installed, server: EmbeddedServer, admin: psycopg.Connection, tmp_path: Path
) -> None:
    """The schema is included: an empty database is migrated, filled and searched, with the command
    line's extra alone."""
    talk = tmp_path / "talk.txt"
    talk.write_text("Ada: I live in Oslo.\nBob: Noted.\n", encoding="utf-8")
    with cloned(admin, "template1") as name:
        dsn = dsn_of(server, name)
        assert installed.run("--version", dsn=dsn).stdout == f"hippocampus {VERSION}\n"
        migrated = json.loads(installed.run("migrate", "--json", dsn=dsn).stdout)["applied"]
        ours = sorted(path.name for path in (ROOT / "schema" / "migrations").glob("*.sql"))
        assert [each for each in migrated if each in ours] == ours
        assert installed.run("ingest", str(talk), "--user", "ada", dsn=dsn).returncode == 0
        assert "Oslo" in installed.run("search", "where does she live", dsn=dsn).stdout
        assert "1 sessions, 2 events" in installed.run("status", dsn=dsn).stdout
        without = installed.run("writer", dsn=dsn)
        assert (without.returncode, without.stderr.count("\n")) == (2, 1)
        assert ".whl[http]'" in without.stderr


def test_its_types_are_visible_to_mypy(installed: Installed, tmp_path: Path) -> None:
    """py.typed is shipped with each package: a strict check of code that uses them finds their types."""
    script = tmp_path / "uses.py"
    script.write_text(TYPED, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed.python), "--no-incremental"]
    done = subprocess.run(
        [*mypy, "--config-file", os.devnull, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "Coroutine[Any, Any, list[hippocampus.records.Fact" in done.stdout
    assert "pulse.events.Session" in done.stdout
