"""ADK's contract beyond this checkout's own versions: on PostgreSQL 16, and with the oldest supported google-adk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

CONTRACT = (
    "tests/adk/test_session_contract.py",
    "tests/adk/test_session_fidelity.py",
    "tests/adk/test_memory_contract.py",
    "tests/adk/test_artifact_contract.py",
)
#: What our services do beyond the contract, and their use by ADK's runner and ag-ui-adk.
BESIDE = (
    "tests/adk/test_adk_signatures.py",
    "tests/adk/test_postgres_sessions.py",
    "tests/adk/test_adk_addresses.py",
    "tests/adk/test_adk_runner.py",
)
OLDEST = "google-adk>=2.9,<2.10"
PACKAGES = (
    f"{ROOT}[all]",
    OLDEST,
    "ag-ui-adk>=0.11,<0.12",
    "hypothesis>=6.120",
    "pytest>=8.3",
    "pytest-asyncio>=0.26",
    "pytest-timeout>=2.3",
)
#: The cases of each file that run on our own service.
OURS = "ours or postgres"


def run_contract(python: Path | str, *arguments: str) -> str:
    """Run cases in a process; return its output, or fail with it."""
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    return done.stdout


def passed(output: str) -> int:
    """The number of passed cases."""
    [count] = re.findall(r"(\d+) passed", output)
    return int(count)


@pytest.mark.system
@pytest.mark.timeout(600)
def test_the_whole_contract_holds_on_postgresql_16() -> None:
    """Every case of sessions, memory and files, on ADK's services and on ours, as on PostgreSQL 18."""
    output = run_contract(sys.executable, "--postgres-major=16", *CONTRACT)
    assert passed(output) > 300


@pytest.mark.system
@pytest.mark.timeout(900)
def test_our_services_keep_the_contract_of_the_oldest_adk(tmp_path: Path) -> None:
    """ADK's own services differ between versions; ours pass every case on each, and agents run on them."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    version = "import google.adk; print(google.adk.__version__)"
    shown = subprocess.run([python, "-c", version], check=True, capture_output=True, text=True).stdout
    assert shown.startswith("2.9.")
    # ADK's libraries emit warnings of their own.
    output = run_contract(python, "-W", "default", "-k", OURS, *CONTRACT)
    assert passed(output) > 150
    assert passed(run_contract(python, "-W", "default", *BESIDE)) > 40
