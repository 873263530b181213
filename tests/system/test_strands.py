"""The adapter for Strands Agents, which needs an older mcp than the MCP server, in a virtual environment of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_agent_model import FakeAgentModel
from tests.support.paths import EXAMPLES, ROOT

PACKAGES = (
    f"{ROOT}[strands,embedded]",
    "openai>=3,<4",  # for the model of the example
    "hypothesis>=6.120",
    "pytest>=8.3",
    "pytest-asyncio>=0.26",
    "pytest-timeout>=2.3",
)
SUITE = "tests/frameworks/strands_suite.py"


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_the_store_works_in_agents_of_strands(tmp_path: Path, dsn: str) -> None:
    """Its suite passes with nothing left out, and the example remembers across sessions."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-W", "default", SUITE]
    result = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "skipped" not in result.stdout

    async with FakeAgentModel() as api:
        address = {"DATABASE_URL": dsn, "OPENAI_BASE_URL": f"{api.base_url}/v1", "OPENAI_API_KEY": "none"}
        for said in ("I am allergic to peanuts.", "What am I allergic to?"):
            command = [python, EXAMPLES / "strands_agent.py", "ann", said]
            process = await asyncio.create_subprocess_exec(
                *command, env={**environment, **address}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            out, error = await process.communicate()
            assert process.returncode == 0, error.decode()
            assert out.decode().startswith("You said: ")
    assert "I am allergic to peanuts." in str(api.requests[-1].body)
