"""The tutorial is true: its blocks run in its order, in one shell, with a server of OpenAI's API in Ollama's place."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support import cli_process, forked_command
from tests.support.fake_openai import FakeOpenAI
from tests.support.paths import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OLLAMA = "http://localhost:11434/v1"


@pytest.mark.system
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="`up --detach` needs /proc")
async def test_each_step_of_the_tutorial_runs(dsn: str, home: Path, tmp_path: Path) -> None:
    """`hippocampus` is this checkout's, the database a migrated one, and the ports free ones."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    script: list[str] = []
    shown: list[str] = []
    for language, code in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")):
        if language == "python":
            (tmp_path / "agent.py").write_text(code, encoding="utf-8")
        elif language == "text":
            shown.append(code)
        else:
            assert language == "sh"
            script.append(f"echo '== step'\n{code}")
    # At the model's address nobody listens; then without a model, twice.
    asked = 'python agent.py "What can I not eat?"'
    script.insert(-1, f"echo '== step'\n! HIPPOCAMPUS_GENERATOR_BASE_URL=http://127.0.0.1:9/v1 {asked}")
    script.insert(-1, f"echo '== step'\n(unset HIPPOCAMPUS_GENERATOR_BASE_URL\n{asked}\n{asked})")
    with forked_command.served(tmp_path / "bin"):
        async with FakeOpenAI(listed=("qwen3:8b",)) as fake:
            text = "set -e\n" + "\n".join(script)
            assert OLLAMA in text
            settings = cli_process.environment(home, DATABASE_URL=dsn, HIPPOCAMPUS_API_PORT="0", OPENAI_API_KEY="")
            settings["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
            shell = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                # The tests' database does not flush to disk, which `doctor` reports with exit code 1.
                text.replace(OLLAMA, fake.url).replace("hippocampus doctor\n", "hippocampus doctor || test $? = 1\n"),
                cwd=tmp_path,
                env=settings,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                said = (await asyncio.wait_for(shell.communicate(), timeout=240))[0].decode()
            finally:
                if shell.returncode is None:
                    os.killpg(shell.pid, signal.SIGKILL)
                if cli_process.processes_of(home):
                    cli_process.run(home, "down")
    assert shell.returncode == 0, said
    _, first, model, worked, agent, unreachable, without, last = said.split("== step\n")
    (expected,) = shown
    assert re.sub(r"^\d+ \w+ \d{4}$", "…", first, flags=re.MULTILINE) == expected
    assert "qwen3:8b" in model
    assert "completed" in worked
    assert "peanuts" in worked
    assert len(agent.splitlines()) == 2
    (sentence,) = unreachable.splitlines()
    assert re.fullmatch(r"The model does not answer \(.+\): `hippocampus doctor` says what to do\.", sentence)
    # What was printed is no turn of the conversation: it is not found inside itself.
    assert without.count("[Ann]: I am allergic to peanuts.") == without.count("## Relevant memories") == 2
    assert "all run: deep_reflection, fast_replay, retention, writer" in last
    asked = [call for call in fake.requests if "What can I not eat?" in str(call.body)]
    assert any("allergic to peanuts" in str(call.body) for call in asked)
