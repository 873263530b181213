"""The tutorial is true: its command installs what its blocks need, and they run in its order, in one shell.

A server of OpenAI's API is in Ollama's place.

The database is the embedded one, in a home that does not exist yet, and the console is requested where the page has it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cli_process
from tests.support.fake_openai import FakeOpenAI
from tests.support.paths import ROOT
from tests.support.pins import constraints
from workers.settings import Settings

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What the page needs: the command line, the API with the console, and the embedded database.
EXTRAS = {"cli", "http", "embedded"}
OLLAMA = "http://localhost:11434/v1"
CONSOLE = re.compile(r"The \[console\]\(page\.md\) at http://localhost:(\d+)(/)")
#: Prints the console, and the size of each file that it names, of the installation that runs.
VISIT = """
import json, os, pathlib, re, sys
from urllib.parse import urljoin
from urllib.request import urlopen

at = json.loads((pathlib.Path(os.environ["HIPPOCAMPUS_HOME"]) / "up.json").read_text())["api_url"]
page = urlopen(at + sys.argv[1], timeout=60)
text = page.read().decode()
print(page.headers["Content-Type"], text)
for name in re.findall(r'(?:src|href)="([^"#:]+)"', text):
    print(name, len(urlopen(urljoin(page.url, name), timeout=60).read()))
"""


def test_the_command_that_installs_has_the_extras_of_what_the_page_runs() -> None:
    """Those of the small lock, with whose packages tests run `demo` and `up`."""
    (words,) = re.findall(r"`pip install '/path/to/the/checkout\[([^']+)\]'`", PAGE)
    assert set(words.split(",")) == EXTRAS


@pytest.fixture
def installed() -> Iterator[Path]:
    """The programs of a new environment, in which the page's command has installed this checkout.

    The server's own user can enter it.
    """
    (command,) = re.findall(r"`(pip install '/path/to/the/checkout\[[^']+\]')`", PAGE)
    with tempfile.TemporaryDirectory(prefix="hippo-tutorial-") as folder:
        Path(folder).chmod(0o711)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        programs = Path(folder) / "bin"
        words = shlex.split(command.replace("/path/to/the/checkout", str(ROOT)))
        done = subprocess.run(
            [programs / words[0], *words[1:]],
            cwd=folder,
            env={**os.environ, "PIP_CONSTRAINT": str(constraints(Path(folder)))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # An extra that a distribution does not have is only a warning.
        assert "does not provide the extra" not in done.stderr
        yield programs


@pytest.mark.system
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="`up --detach` needs /proc")
@pytest.mark.timeout(900)
async def test_each_step_of_the_tutorial_runs(installed: Path, home: Path, tmp_path: Path) -> None:
    """From the installation on; the ports are free ones: the page has the default."""
    assert not home.exists()
    (tmp_path / "visit.py").write_text(VISIT)
    ((port, path),) = CONSOLE.findall(PAGE)
    assert int(port) == Settings().api_port
    script: list[str] = []
    shown: list[str] = []
    for language, code in BLOCK.findall(PAGE):
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
    script.insert(-1, f"echo '== step'\npython visit.py {path}")
    script.insert(-1, f"echo '== step'\n(unset HIPPOCAMPUS_GENERATOR_BASE_URL\n{asked}\n{asked})")
    async with FakeOpenAI(listed=("qwen3:8b",)) as fake:
        text = "set -e\n" + "\n".join(script)
        assert OLLAMA in text
        settings = cli_process.environment(home, HIPPOCAMPUS_API_PORT="0", OPENAI_API_KEY="")
        assert "DATABASE_URL" not in settings
        settings["PATH"] = f"{installed}:{os.environ['PATH']}"
        del settings["PYTHONPATH"]
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            text.replace(OLLAMA, fake.url),
            cwd=tmp_path,
            env=settings,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said = (await asyncio.wait_for(shell.communicate(), timeout=480))[0].decode()
        finally:
            if shell.returncode is None:
                os.killpg(shell.pid, signal.SIGKILL)
            if cli_process.processes_of(home):
                cli_process.run(home, "down")
    assert shell.returncode == 0, said
    _, first, model, worked, agent, unreachable, console, without, last = said.split("== step\n")
    (expected,) = shown
    assert re.sub(r"^\d+ \w+ \d{4}$", "…", first, flags=re.MULTILINE) == expected
    assert "qwen3:8b" in model
    assert "completed" in worked
    assert "peanuts" in worked
    assert len(agent.splitlines()) == 2
    (sentence,) = unreachable.splitlines()
    assert re.fullmatch(r"The model does not answer \(.+\): `hippocampus doctor` says what to do\.", sentence)
    assert console.startswith("text/html")
    assert "<title>Hippocampus" in console
    loaded = re.findall(r"^\S+\.(?:js|css)\?\S+ (\d+)$", console, re.MULTILINE)
    assert len(loaded) == 2, console
    assert all(int(size) > 1_000 for size in loaded)
    # What was printed is no turn of the conversation: it is not found inside itself.
    assert without.count("[Ann]: I am allergic to peanuts.") == without.count("## Relevant memories") == 2
    assert "all run: deep_reflection, fast_replay, retention, writer" in last
    asked = [call for call in fake.requests if "What can I not eat?" in str(call.body)]
    assert any("allergic to peanuts" in str(call.body) for call in asked)
