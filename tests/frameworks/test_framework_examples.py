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
from pulse.process.extras import install_command
from tests.support.fake_agent_model import FakeAgentModel
from tests.support.paths import EXAMPLES, ROOT

ASKED = "What am I allergic to?"
LINES_MAX = 40
#: Each with its user, and what this user is allergic to.
SCRIPTS = {"openai_agent.py": ("ann", "peanuts"), "pydantic_ai_agent.py": ("ben", "shellfish")}

#: All sessions in one process: a framework takes seconds to import, and leaves its connections to the end.
DRIVER = """
import asyncio, importlib, json, sys
async def all():
    for example, *arguments in json.loads(sys.argv[1]):
        await importlib.import_module(example).main(*arguments)
asyncio.run(all())
"""


def telling(food: str) -> str:
    return f"I am allergic to {food}."


async def run(sessions: list[list[str]], settings: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DRIVER, json.dumps(sessions)),
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{EXAMPLES}", **settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


@pytest.mark.system
async def test_each_example_remembers_across_sessions(dsn: str, pool: asyncpg.Pool) -> None:
    """What was said in one session is in the model's request in the next one, and in no other user's."""
    from hippocampus.integrations.openai_agents import HippocampusSession

    async with FakeAgentModel() as api:
        settings = {
            "DATABASE_URL": dsn,
            "OPENAI_BASE_URL": f"{api.base_url}/v1",
            "OPENAI_API_KEY": "none",
            "OPENAI_MODEL": "fake",
            "MODEL": "openai-chat:fake",
        }
        told = [[Path(script).stem, user, "monday", telling(food)] for script, (user, food) in SCRIPTS.items()]
        asked = [[Path(script).stem, user, "tuesday", ASKED] for script, (user, _) in SCRIPTS.items()]
        sessions = [*told, *asked]
        assert await run(sessions, settings) == "".join(f"You said: {said}\n" for *_, said in sessions)
        requests = [str(request.body) for request in api.requests]
    foods = [food for _, food in SCRIPTS.values()]
    assert [[food for food in foods if food in request] for request in requests] == [[food] for food in foods] * 2
    memory = Hippocampus(pool, app="assistant")
    for user, food in SCRIPTS.values():
        found = await memory.search(user, f"allergic {food}")
        assert {telling(food), f"You said: {telling(food)}"} <= {each.content for each in found}
        assert "<memory>" not in str(found)
    items = await HippocampusSession(memory, "ann", "monday").get_items()
    assert [item["role"] for item in items] == ["user", "assistant"]  # type: ignore[typeddict-item]


@pytest.mark.parametrize("script", [*SCRIPTS, "claude_agent.py", "strands_agent.py"])
def test_an_example_is_short(script: str) -> None:
    assert len((EXAMPLES / script).read_text(encoding="utf-8").splitlines()) <= LINES_MAX


#: Adapter, what it imports, and the extra that has it.
ADAPTERS = (
    ("openai_agents", "agents", "openai-agents"),
    ("claude_agent_sdk", "claude_agent_sdk", "claude-agent-sdk"),
    ("pydantic_ai", "pydantic_ai.capabilities", "pydantic-ai"),
    ("strands", "strands.memory", "strands"),
)
#: The last one's error ends the program.
IMPORT_WITHOUT = """
import importlib, json, sys
*adapters, last = json.loads(sys.argv[1])
def without(adapter, library, _):
    sys.modules[library] = None
    importlib.import_module(f"hippocampus.integrations.{adapter}")
for each in adapters:
    try:
        without(*each)
    except ImportError as error:
        print(f"{type(error).__name__}: {error}")
without(*last)
"""


def test_an_adapter_without_its_framework_names_the_extra() -> None:
    command = [sys.executable, "-c", IMPORT_WITHOUT, json.dumps(ADAPTERS)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    errors = [*done.stdout.splitlines(), done.stderr.splitlines()[-1]]
    for (_, library, extra), error in zip(ADAPTERS, errors, strict=True):
        assert error == (
            f"ModuleNotFoundError: hippocampus.integrations needs {library}, which is not installed:"
            f" run {install_command(extra)}"
        )
