"""The README is true: its code prints what it shows, its commands and links exist."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import asyncpg

from hippocampus import Hippocampus
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from tests.support import cli_process
from tests.support.paths import ROOT
from tests.support.queue_claims import work_off
from workers.cli import main

README = (ROOT / "README.md").read_text(encoding="utf-8")

#: Runs a file whose top level may `await`.
NOTEBOOK = """
import ast, asyncio, pathlib, sys
code = pathlib.Path(sys.argv[1]).read_text()
asyncio.run(eval(compile(code, sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)))
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_first_lines_of_code_print_what_the_readme_shows(dsn: str, home: Path, tmp_path: Path) -> None:
    """As in a notebook, on a migrated database, without a worker."""
    code = block("python")
    lines = [line for line in code.splitlines() if line]
    assert len(lines) <= 10
    assert [line for line in lines if re.search(r"\bimport\b", line)] == ["from hippocampus import Hippocampus"]
    script = tmp_path / "first.py"
    script.write_text(code.replace("postgresql://localhost/agents", dsn), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, str(script)],
        env=cli_process.environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr[-1500:]
    assert done.stdout == block("text")


def test_the_first_lines_of_code_follow_the_name_of_the_distribution_and_where_their_address_comes_from() -> None:
    before = README.partition("```python")[0].partition("## In your agent")[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"`{project['name']}`" in before
    assert "`DATABASE_URL` that `make run` prints" in before


def test_the_first_lines_of_code_print_nothing_else_at_a_prompt(dsn: str, home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=block("python").replace("postgresql://localhost/agents", dsn) + "\n",
        env=cli_process.environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.sub(r"(>>>|\.\.\.) ", "", done.stdout).strip() == block("text").strip(), done.stderr[-1500:]


async def test_what_follows_the_first_lines_of_code_is_true(dsn: str, pool: asyncpg.Pool) -> None:
    """Passages at once and without a model, a profile once there are facts, which take workers."""
    calls = {
        name: code for code, name in re.findall(r"`(await memory\.(?:sessions\.|memory\.)?(\w+)\([^`]*\))`", README)
    }
    assert set(calls) == {"finalize_session", "add_session_to_memory", "recall", "ask", "profile"}

    async def called(name: str) -> Any:
        return await eval(calls[name].removeprefix("await "), {"memory": memory})

    async with Hippocampus(dsn, app="shop") as memory:
        await memory.add("ann", [{"role": "user", "content": "I'm allergic to peanuts."}], session="monday")
        assert "[user]: I'm allergic to peanuts." in await called("recall")
        answer = await called("ask")
        assert (answer.answered_by, "peanuts" in answer.text) == ("passages", True)
        assert (await called("profile")).lines == ()
        policy = await pool.fetchrow("SELECT * FROM app_policy('*')")
        assert policy is not None
        fast, deep = policy["fast_idle_seconds"] // 60, policy["deep_idle_seconds"] // 60
        assert (
            f"a summary after {policy['fast_events']} events or {policy['fast_tokens']:,} tokens, or when the session"
            f" has been idle for {fast} minutes, and extract facts after {policy['deep_tokens']:,} tokens, or when it"
            f" has been idle for {deep} minutes"
        ) in README
        await called("finalize_session")
        assert (await called("profile")).lines == ()
        waiting = asyncio.create_task(called("add_session_to_memory"))
        worker = MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder())
        while not waiting.done():
            await work_off(pool, worker)
            await asyncio.wait([waiting], timeout=0.05)
        assert waiting.result()["status"] == "completed"
        assert "peanuts" in (await called("profile")).lines[0].text
        assert (await called("recall")).startswith("## User preferences")


def test_the_shell_of_the_readme_has_the_data_of_make_run(tmp_path: Path) -> None:
    """For an ordinary user: the Makefile asks `id`."""
    (found,) = re.findall(r"`(\. \.venv/bin/activate; [^`]+)`", README)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=tmp_path, check=True)
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    path = {name: value for name, value in os.environ.items() if name != "HIPPOCAMPUS_HOME"}
    path["PATH"] = f"{tmp_path}:{path['PATH']}"
    script = f'{found}\ncommand -v python\necho "$HIPPOCAMPUS_HOME"'
    shown = subprocess.run(
        ["/bin/sh", "-ec", script], cwd=tmp_path, env=path, capture_output=True, text=True, check=True
    )
    rule = "home: ; @echo $(HIPPOCAMPUS_HOME)"
    made = subprocess.run(
        ["make", "-f", str(ROOT / "Makefile"), "--no-print-directory", f"--eval={rule}", "home"],
        cwd=tmp_path, env=path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.split() == [str(tmp_path / ".venv/bin/python"), made.stdout.strip()]


def test_every_command_is_documented_and_exists() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    pattern = r"`(?:hippocampus )?([a-z][a-z-]*)[^`]*`"
    assert set(re.findall(pattern, page.partition("## The commands")[2].partition("## ")[0])) == set(main.COMMANDS)
    named = re.findall(pattern, README.partition("## At the command line")[2].partition("## ")[0])
    assert set(named) <= set(main.COMMANDS)


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_make_accepts_a_file_with_any_name(tmp_path: Path) -> None:
    """Blanks, quotes and dollars in it have no meaning to the shell."""
    program = tmp_path / "bin" / "hippocampus"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor each; do echo "<$each>"; done\n')
    program.chmod(0o755)
    (tmp_path / ".installed").touch()
    command = ["make", "--no-print-directory", f"VENV={tmp_path}", "demo"]
    for given, handed in ((["FILE=Ann's $$HOME; talk.json"], "<demo>\n<Ann's $HOME; talk.json>\n"), ([], "<demo>\n")):
        done = subprocess.run([*command, *given], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout == handed


def test_the_links_of_the_readme_have_targets() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
