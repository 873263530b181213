"""A minute of faults: whatever dies, every event is consolidated exactly once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.mark.system
@pytest.mark.timeout(600)
def test_a_minute_of_kills_and_cuts_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    """A fixed seed, so that a failure is caused by the change; `make chaos` uses a new one each time."""
    report = tmp_path / "report.txt"
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "--seconds",
        "60",
        "--seed",
        "7",
        "--kills-min",
        "12",
        "--report",
        str(report),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5_000:]
    assert "nothing lost, nothing twice" in report.read_text()
