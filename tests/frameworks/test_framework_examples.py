"""The examples of frameworks remember across sessions; each is short. Two more run in `tests/system`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from hippocampus import Hippocampus
from hippocampus.integrations.openai_agents import HippocampusSession
from tests.support.fake_agent_model import FakeAgentModel
from tests.support.paths import EXAMPLES, ROOT

TOLD = "I am allergic to peanuts."
ASKED = "What am I allergic to?"
LINES_MAX = 40
SCRIPTS = ("openai_agent.py", "pydantic_ai_agent.py")


#: Two sessions in one process: a framework takes seconds to import, and leaves its connections to the end.
DRIVER = """
import asyncio, importlib, json, sys
example, sessions = importlib.import_module(sys.argv[1]), json.loads(sys.argv[2])
async def both():
    for arguments in sessions:
        await example.main(*arguments)
asyncio.run(both())
"""


async def run(script: str, sessions: list[list[str]], settings: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DRIVER, Path(script).stem, json.dumps(sessions)),
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{EXAMPLES}", **settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


@pytest.mark.parametrize("script", SCRIPTS)
async def test_an_example_remembers_across_sessions(script: str, dsn: str, pool: asyncpg.Pool) -> None:
    """What was said in one session is in the model's request in the next one."""
    async with FakeAgentModel() as api:
        settings = {
            "DATABASE_URL": dsn,
            "OPENAI_BASE_URL": f"{api.base_url}/v1",
            "OPENAI_API_KEY": "none",
            "OPENAI_MODEL": "fake",
            "MODEL": "openai-chat:fake",
        }
        sessions = [["ann", "monday", TOLD], ["ann", "tuesday", ASKED]]
        assert await run(script, sessions, settings) == f"You said: {TOLD}\nYou said: {ASKED}\n"
        (request,) = [str(request.body) for request in api.requests if ASKED in str(request.body)]
    assert TOLD in request
    memory = Hippocampus(pool, app="assistant")
    found = await memory.search("ann", "allergic peanuts")
    assert {TOLD, f"You said: {TOLD}"} <= {each.content for each in found}
    assert "<memory>" not in str(found)
    if script == "openai_agent.py":
        items = await HippocampusSession(memory, "ann", "monday").get_items()
        assert [item["role"] for item in items] == ["user", "assistant"]  # type: ignore[typeddict-item]


@pytest.mark.parametrize("script", [*SCRIPTS, "claude_agent.py", "strands_agent.py"])
def test_an_example_is_short(script: str) -> None:
    assert len((EXAMPLES / script).read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("openai_agents", "agents", "openai-agents"),
        ("claude_agent_sdk", "claude_agent_sdk", "claude-agent-sdk"),
        ("pydantic_ai", "pydantic_ai.capabilities", "pydantic-ai"),
        ("strands", "strands.memory", "strands"),
    ],
)
def test_an_adapter_without_its_framework_names_the_extra(module: str, library: str, extra: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import hippocampus.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"run pip install '/path/to/the/checkout[{extra}]'" in done.stderr.splitlines()[-1]
