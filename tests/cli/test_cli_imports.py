"""The imports of the command line before it knows which command to run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

#: Each takes longer to import than the rest of `--help` takes to run.
HEAVY = ("asyncio", "asyncpg", "pydantic", "pydantic_settings", "rich", "structlog", "prometheus_client",
         "procrastinate", "psycopg", "httpx", "google", "hippocampus.errors", "importlib.metadata")  # fmt: skip


@pytest.mark.parametrize("words", [("--help",), (), ("serach",)], ids=" ".join)
def test_help_and_suggestions_import_no_command(words: tuple[str, ...]) -> None:
    script = (
        "import sys; from workers.__main__ import main; main();"
        f"print([name for name in sys.modules if name in {HEAVY!r} or name.startswith('workers.cli.commands')])"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_takes_little_processor_time() -> None:
    """The best of five: it takes 0.05 s, and with structlog or procrastinate 0.17 and 0.24 s."""
    best = 1.0
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-m", "workers", "--help"], cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        best = min(best, used.ru_utime + used.ru_stime)
    assert best < 0.15
