"""The example's README is true: its script prints what it says, and its files are those that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests import cli_process
from workers import adk

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "adk_agent"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


def test_the_conversation_is_what_the_readme_shows(dsn: str, home: Path) -> None:
    """Two sessions of a real agent, with every role as a real process, on a database of the test's own."""
    (transcript,) = re.findall(r"^```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "chat.py")],
        env=cli_process.environment(home, DATABASE_URL=dsn),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == transcript, done.stderr
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_services_yaml_names_what_exists() -> None:
    services = yaml.safe_load((EXAMPLE / "services.yaml").read_text(encoding="utf-8"))["services"]
    assert [(each["scheme"], each["type"]) for each in services] == [
        ("hippocampus", "session"),
        ("hippocampus", "memory"),
        ("hippocampus", "artifact"),
    ]
    for each in services:
        module, _, name = each["class"].rpartition(".")
        assert module == "workers.adk"
        assert name in adk.__all__
