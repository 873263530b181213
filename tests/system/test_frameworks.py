"""The adapters for frameworks that do not fit beside the others, in virtual environments of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_agent_model import FakeAgentModel
from tests.support.paths import EXAMPLES, ROOT

PACKAGES = ("hypothesis>=6.120", "pytest>=8.3", "pytest-asyncio>=0.26", "pytest-timeout>=2.3")
TOLD = "I am allergic to peanuts."
ASKED = "What am I allergic to?"


@pytest.mark.system
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("extra", "more", "suite", "script"),
    [
        # strands-agents needs an older mcp than the MCP server. Its example asks OpenAI's API.
        ("strands", ("openai>=3,<4",), "strands_suite.py", "strands_agent.py"),
        # It unpacks Anthropic's program, 380 MB.
        ("claude-agent-sdk", (), "claude_agent_sdk_suite.py", "claude_agent.py"),
    ],
)
async def test_an_adapter_works_in_its_framework(
    tmp_path: Path, dsn: str, extra: str, more: tuple[str, ...], suite: str, script: str
) -> None:
    """Its suite passes with nothing left out, and the example remembers across sessions."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = (f"{ROOT}[{extra},embedded]", *PACKAGES, *more)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-W", "default", f"tests/frameworks/{suite}"]
    result = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "skipped" not in result.stdout

    async with FakeAgentModel() as api:
        settings = {
            "DATABASE_URL": dsn,
            "OPENAI_BASE_URL": f"{api.base_url}/v1",
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": api.base_url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CONFIG_DIR": str(tmp_path),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "HOME": str(tmp_path),
        }
        for said in (TOLD, ASKED):
            process = await asyncio.create_subprocess_exec(
                *(python, EXAMPLES / script, "ann", said),
                env={**environment, **settings},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, error = await process.communicate()
            assert process.returncode == 0, error.decode()
            assert out.decode().startswith("You said: ")
        (request,) = [str(request.body) for request in api.requests if ASKED in str(request.body)]
    assert TOLD in request
