"""The example's README is true: its script prints what the README shows, and the files that it names exist."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import cli_process
from tests.support.paths import EXAMPLES, ROOT
from workers import adk
from workers.settings import Settings

EXAMPLE = EXAMPLES / "adk_agent"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


@pytest.mark.system
def test_the_script_prints_the_conversation_of_the_readme(dsn: str, home: Path) -> None:
    """Two sessions of a real agent, with every role as a real process, on a database for this test."""
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


@pytest.mark.parametrize("page", ["adk.md", "adk-memory.md", "streams.md"])
def test_the_names_that_the_pages_import_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found
    for block in found:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                assert [each.name for each in node.names if not hasattr(module, each.name)] == []


def test_the_adk_server_uses_another_port_than_the_writer() -> None:
    (port,) = re.findall(r"^adk web --port (\d+)", README, re.MULTILINE)
    assert int(port) != Settings.model_fields["api_port"].default


def test_services_yaml_names_things_that_exist() -> None:
    page = (ROOT / "docs" / "adk-memory.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert (EXAMPLE / "services.yaml").read_text(encoding="utf-8").endswith(shown)
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
