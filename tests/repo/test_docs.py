"""The documentation is true: its code prints what it shows, its commands exist, its pages are current."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import pytest

from pulse.process.extras import DISTRIBUTION
from tests.conftest import dsn_of
from tests.support import cli_process
from tests.support.paths import ROOT
from tests.support.writer_process import WriterProcess
from workers.cli import main
from workers.cli.groups import Listing
from workers.embedded.server import EmbeddedServer

PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "RUNBOOK.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "schema/README.md")),
]
_spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
assert _spec is not None
assert _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[str]:
    """Every `hippocampus …` command of a page, in a block or in a sentence."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"^(?: {4}|\$ )?hippocampus ([a-z][^#\n|>]*)", text, re.MULTILINE)
    yield from re.findall(r"`hippocampus ([a-z][^`|>]*)`", text)


def test_the_settings_page_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference.configuration(), "make docs"


def test_the_page_of_benchmarks_is_current() -> None:
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == reference.benchmarks(), "make docs"


async def test_the_schema_page_is_current(dsn: str) -> None:
    assert (ROOT / "docs" / "schema.md").read_text(encoding="utf-8") == await reference.schema(dsn), "make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_has_a_target(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), link


def test_the_readme_links_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked


def test_every_page_installs_a_checkout_with_extras_that_exist() -> None:
    """Never the bare name, which is another project on the package index."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    found = 0
    for page in (*PAGES, ROOT / "examples" / "adk_agent" / "README.md"):
        for what in re.findall(r"pip install ([^`\n]+)", page.read_text(encoding="utf-8")):
            name = what.strip("'\"")
            assert not name.startswith("hippocampus"), (page.name, what)
            assert page.name == "releasing.md" or not name.startswith(DISTRIBUTION), (page.name, what)
            for names in re.findall(r"(?:/|\.)[\w/]*\[([\w,]+)\]", what):
                found += 1
                assert set(names.split(",")) <= extras.keys(), (page.name, what)
    assert found >= 6


#: A name of ours, or of the other project, as an installer would look it up; not a path, nor `NAME @ file:///path`.
INSTALLED_BY_NAME = re.compile(
    r"(?:(?:pip3? install|uv add|(?:pipx|uv tool) install)\b[^\n`;&]*?|--(?:from|spec)[ =])(?<![\w./-])['\"]?"
    rf"(?P<name>{DISTRIBUTION}|hippocampus)(?![\w/-]|\.\w)(?!(?:\[[\w,]*\])? @ )"
)


def installed_by_name(text: str) -> list[str]:
    """What a text installs by name, also where a command is in several literals of a program."""
    return [each["name"] for each in INSTALLED_BY_NAME.finditer(re.sub(r"""["']\n\s*f?["']""", "", text))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pip install hippocampus", ["hippocampus"]),
        ("run `pip install -U 'hippocampus[mcp]'` first", ["hippocampus"]),
        ("f\"pip install {options}'hippocampus[{extra}]'\"", ["hippocampus"]),
        ('("pip install "\n    f"\'hippocampus[{extra}]\'")', ["hippocampus"]),
        ("pip install numpy pg-hippocampus==0.2", ["pg-hippocampus"]),
        ("uv add hippocampus; uvx --from 'pg-hippocampus[mcp]' hippocampus mcp", ["hippocampus", "pg-hippocampus"]),
        ("pipx install hippocampus.", ["hippocampus"]),
        ("pipx run --spec 'pg-hippocampus[mcp] @ file:///path/to/the/checkout' hippocampus mcp", []),
        ("pip install '/path/to/hippocampus[adk]' ./hippocampus dist/pg_hippocampus-1.whl", []),
        ("`pip install -r requirements.txt`, then `hippocampus demo`; pip uninstall hippocampus", []),
        ("f\"pip install {options}'{source}[{extra}]'\" hippocampus-tools", []),
    ],
)
def test_what_is_installed_by_name_is_recognised(text: str, names: list[str]) -> None:
    assert installed_by_name(text) == names


def test_nothing_installs_a_distribution_by_a_name_that_is_not_ours_on_the_index() -> None:
    """Neither code nor pages: `hippocampus` is another project there, and ours is not published.

    `install_command` names the checkout, or the wheel; the page of releases installs what it has published.
    """
    code = ("pulse", "hippocampus", "workers", "examples", "benchmarks", "deploy", "console/src", "clients")
    files = {
        path
        for folder in code
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".sh", ".toml", ".ts", ".tsx", ".yaml", ".yml"} or "Dockerfile" in path.name
        if "node_modules" not in path.parts
    }
    files |= {*PAGES, ROOT / "Makefile", ROOT / "CHANGELOG.md"}
    found = {
        str(path.relative_to(ROOT)): names
        for path in files
        if path.is_file() and (names := installed_by_name(path.read_text(encoding="utf-8")))
    }
    assert found == {"docs/releasing.md": [DISTRIBUTION]}
    assert len(files) > 500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_exists(page: Path) -> None:
    for line in commands(page):
        words = [word for word in shlex.split(line) if not word.startswith(("…", "ID", "FILE"))]
        command: click.Command = main.root
        options = set()
        for word in words:
            context = click.Context(command)
            options |= {option for each in command.get_params(context) for option in each.opts}
            inner = command.get_command(context, word) if isinstance(command, click.Group) else None
            if inner is not None:
                command = inner
        if isinstance(command, Listing):
            command = command.commands[command.listing]
        options |= {option for each in command.get_params(click.Context(command)) for option in each.opts}
        assert command is not main.root, line
        given = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert given <= options | {"--help"}, line


@pytest.mark.parametrize("number", range(2))
def test_the_library_quick_start_prints_what_it_shows(dsn: str, home: Path, tmp_path: Path, number: int) -> None:
    code = blocks("quickstart.md", "python")[number]
    script = tmp_path / "quickstart.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=cli_process.environment(home, DATABASE_URL=dsn),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", blocks("quickstart.md", "text")[number])


def test_the_quick_start_shows_what_the_readme_promises_of_it() -> None:
    """Facts, retention and erasure in Python, in twelve lines or fewer."""
    code = blocks("quickstart.md", "python")[1]
    assert all(call in code for call in ("list_facts(", "memory.retention.", "erase_user("))
    assert len([line for line in code.partition("async def main")[2].splitlines() if line]) <= 12


@pytest.fixture(scope="module")
def api(
    server: EmbeddedServer, admin: psycopg.Connection, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """A writer for the pages; its address and its database, as variables."""
    admin.execute(f'CREATE DATABASE "test-docs" TEMPLATE "{template}" STRATEGY FILE_COPY')
    dsn = dsn_of(server, "test-docs")
    with WriterProcess(dsn, tmp_path_factory.mktemp("docs") / "log") as writer:
        yield {"API": writer.url, "DATABASE_URL": dsn}
    admin.execute('DROP DATABASE "test-docs" WITH (FORCE)')


def in_shell(script: str, api: dict[str, str]) -> str:
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", script],
        env={"PATH": "/usr/bin:/bin", **api},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_http_quick_start_runs(api: dict[str, str]) -> None:
    said = in_shell(blocks("quickstart.md", "sh")[0].replace("curl -s", "curl -sS --fail"), api)
    assert "without sugar" in said.split("}{")[-2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_conditional_requests_of_the_api_page_get_the_shown_responses(api: dict[str, str]) -> None:
    _, script = blocks("http.md", "sh")
    _, first, second, third = in_shell(script.replace("curl -s", "curl -sS"), api).replace("}{", "}\n{").splitlines()
    assert ('"appended":true' in first, '"appended":false' in second) == (True, True)
    assert '"/problems/precondition-failed"' in third


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_run_of_the_streams_page_is_executed(api: dict[str, str]) -> None:
    """Its agent knows only HTTP: it starts the run, streams an answer and ends the run."""
    (script,) = blocks("streams.md", "sh")
    said = in_shell(script.replace("curl -s", "curl -sS --fail"), api).replace("}{", "}\n{").splitlines()
    assert '"created":true' in said[0]
    assert [json.loads(each)["status"] for each in said] == ["running"] * 4 + ["completed"]


def test_the_keys_of_the_api_page_are_created_listed_and_revoked(api: dict[str, str], home: Path) -> None:
    create, listing, revoke = (line.split()[1:] for line in blocks("http.md", "sh")[0].splitlines())
    made = cli_process.run(home, *create, DATABASE_URL=api["DATABASE_URL"])
    (key_id,) = re.findall(r"hip_([a-z0-9]{12})_", made.stdout)
    assert key_id in cli_process.run(home, *listing, DATABASE_URL=api["DATABASE_URL"]).stdout
    assert cli_process.run(home, *revoke[:-1], key_id, DATABASE_URL=api["DATABASE_URL"]).returncode == 0


def test_the_client_of_the_api_page_prints_what_it_shows(api: dict[str, str], home: Path, tmp_path: Path) -> None:
    (code,) = blocks("http.md", "python")
    script = tmp_path / "client.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=cli_process.environment(home, API=api["API"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, [done.stdout]) == ("", blocks("http.md", "text"))


def test_the_two_machine_setup_runs(dsn: str, home: Path) -> None:
    """Two of each worker on one database, as on two machines. status and doctor list them all."""
    machine, keeper, look = (block.splitlines() for block in blocks("quickstart.md", "sh")[1:])
    migrate, *workers = [line.removeprefix("hippocampus ").removesuffix(" &").split() for line in machine]
    assert cli_process.run(home, *migrate, DATABASE_URL=dsn).returncode == 0
    started = [*workers, *workers, keeper[0].removeprefix("hippocampus ").removesuffix(" &").split()]
    running = [cli_process.Running(home, *words, DATABASE_URL=dsn) for words in started]
    try:
        for process in running:
            process.read_until("worker_registered")
        status, doctor = (cli_process.run(home, *line.split()[1:], DATABASE_URL=dsn) for line in look)
        assert status.stdout.count("fast_replay\t") >= 2
        assert status.stdout.count("deep_reflection\t") >= 2
        assert "pools" in doctor.stdout
    finally:
        for process in running:
            process.process.terminate()
        for process in running:
            process.end()
            process.__exit__()


@pytest.mark.parametrize("line", [line for block in blocks("operations.md", "sh") for line in block.splitlines()])
def test_the_commands_of_operations_run(line: str, dsn: str, home: Path) -> None:
    done = cli_process.run(home, *line.removeprefix("hippocampus ").split(), DATABASE_URL=dsn)
    assert "Traceback" not in done.stderr
    # The suite's server is configured to be fast and unsafe, which doctor reports.
    assert done.returncode == (1 if "doctor" in line else 0), done.stderr
