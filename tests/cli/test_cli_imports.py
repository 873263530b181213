"""The imports of the command line before it knows which command to run."""

from __future__ import annotations

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
