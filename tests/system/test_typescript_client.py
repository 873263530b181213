"""The TypeScript client: its types are those of the API, and the packed package works against a real writer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, WriterProcess

pytestmark = pytest.mark.system

SOURCE = ROOT / "clients" / "typescript"
BUILT = ("node_modules", "dist", "build", "*.tgz")


@pytest.fixture(scope="module")
def writer(agents_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    log = tmp_path_factory.mktemp("typescript") / "log"
    with WriterProcess(agents_dsn, log, module="tests.support.stream_agents", api_key=KEY) as process:
        yield process


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with what its lock file names, built."""
    folder = tmp_path_factory.mktemp("package") / "typescript"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns(*BUILT))
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
    run("npm", "run", "check", folder=folder)
    run("npm", "run", "build", folder=folder)
    return folder


def run(*command: str, folder: Path, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_types_are_those_of_the_document(package: Path, writer: WriterProcess) -> None:
    """`make client` has been run since the last change of a route, and reads what the API returns."""
    headers = {"Authorization": f"Bearer {KEY}"}
    served = httpx.get(f"{writer.url}/openapi.json", headers=headers, timeout=WAIT_SECONDS).json()
    printed = run(str(ROOT / ".venv/bin/python"), "docs/openapi.py", folder=ROOT, PYTHONPATH=".")
    assert json.loads(printed) == served
    (package / "openapi.json").write_text(printed, encoding="utf-8")
    committed = (package / "src" / "schema.d.ts").read_text(encoding="utf-8")
    run("npm", "run", "generate", folder=package)
    assert (package / "src" / "schema.d.ts").read_text(encoding="utf-8") == committed, "make client"


def test_every_call_and_stream_against_a_writer(package: Path, writer: WriterProcess) -> None:
    run("npm", "test", folder=package, API=writer.url, KEY=KEY)


def test_face_needs_nothing_of_node(package: Path) -> None:
    """Compiled without node's types, it names no module but its own and its dependencies."""
    wanted = {"openapi-fetch", "eventsource-parser"}
    built = "\n".join(path.read_text(encoding="utf-8") for path in (package / "dist").glob("*.js"))
    imported = set(re.findall(r'(?:from|import\()\s*"([^"]+)"', built))
    assert {name for name in imported if not name.startswith("./")} == wanted
    assert wanted | {"@ag-ui/core"} == set(json.loads((package / "package.json").read_text())["dependencies"])


def test_packed_package_runs_the_example_of_its_page(package: Path, writer: WriterProcess, tmp_path: Path) -> None:
    """In an empty folder, the tarball installs, its types are checked whole, and the page's output appears."""
    packed = json.loads(run("npm", "pack", "--json", "--ignore-scripts", folder=package))[0]
    modules = ("client", "errors", "index", "schema", "stream", "transport")
    declared = {f"dist/{name}.d.ts" for name in modules}
    code = {f"dist/{name}.js" for name in modules if name != "schema"}
    files = {each["path"] for each in packed["files"]}
    assert files == declared | code | {"LICENSE", "README.md", "package.json"}
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    run(
        "npm",
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        str(package / packed["filename"]),
        folder=tmp_path,
    )
    page = (package / "README.md").read_text(encoding="utf-8")
    example = re.findall(r"^```ts\n(.*?)^```$", page, re.M | re.S)[0]
    (expected,) = re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "example.ts").write_text(example, encoding="utf-8")
    compiler = str(package / "node_modules" / ".bin" / "tsc")
    types = ("--types", "node", "--typeRoots", str(package / "node_modules" / "@types"))
    run(compiler, "--strict", "--target", "es2022", "--module", "nodenext", *types, "example.ts", folder=tmp_path)
    assert run("node", "example.js", folder=tmp_path, API=writer.url, KEY=KEY) == expected
