"""What the import contracts do not cover: who reads the environment and imports google.genai or google.adk."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("pulse", "hippocampus", "workers")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


@functools.cache
def nodes_of(source: Path) -> tuple[ast.AST, ...]:
    """The statements and expressions of a module that may import or read the environment."""
    walked = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    return tuple(node for node in walked if isinstance(node, ast.Import | ast.ImportFrom | ast.Attribute))


def uses_of_environment(source: Path) -> Iterator[int]:
    for node in nodes_of(source):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT:
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for each in node.names if each.name in ENVIRONMENT)


def imported(source: Path) -> Iterator[str]:
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_each_module_imports_only_what_its_package_may() -> None:
    """Only settings.py reads the environment, and what resolves references to tools' credentials (env:TOOL_KEY).

    A forked role is given its environment.

    One provider imports google.genai, and adk modules import google.adk.
    """
    wrong = []
    for source in SOURCES:
        name = str(source.relative_to(ROOT))
        if name not in ("workers/settings.py", "pulse/tools/credentials.py", "workers/process/forking.py"):
            wrong += [f"{name}:{line} reads the environment" for line in uses_of_environment(source)]
        is_adapter = source.name == "adk.py" or source.parent.name == "adk"
        for module in imported(source):
            may = True
            if module.startswith("google.genai"):
                is_provider = name.startswith("hippocampus/providers/gemini/")
                may = is_provider or (is_adapter and module == "google.genai.types")
            if module.startswith("google.adk"):
                may = is_adapter
            if not may:
                wrong.append(f"{name} imports {module}")
    assert wrong == []


def test_the_database_s_faults_are_listed_once() -> None:
    """A copy lacks the next fault that is added. What is worth another attempt has lists of its own."""
    bases = {"PostgresError", "InterfaceError", "InternalClientError"}
    own = {"pulse/postgres/statements.py", "pulse/postgres/replica.py", "workers/failures.py"}
    found = {
        str(source.relative_to(ROOT))
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Tuple | ast.BinOp)
        and len(bases & {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}) > 1
    }
    assert found == own


def module_of(source: Path) -> str:
    parts = source.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_two_modules_import_each_other() -> None:
    """There is no cycle of imports, those for type checkers included. The public names of a root are lazy."""
    modules = {module_of(source): source for source in SOURCES}
    graph = {}
    for module, source in modules.items():
        names = imported(source)
        known = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = (known & modules.keys()) - {module} if module not in PACKAGES else set()
    graphlib.TopologicalSorter(graph).prepare()


def test_no_module_imports_a_private_name() -> None:
    """A name with an underscore belongs to its module."""
    private = [
        f"{source.relative_to(ROOT)} imports {name}"
        for source in SOURCES
        for name in imported(source)
        if name.startswith(PACKAGES) and name.rpartition(".")[2].startswith("_") and not name.endswith("__main__")
    ]
    assert private == []


@pytest.mark.parametrize("package", PACKAGES)
def test_named_statements_and_stored_statements_are_the_same(package: str) -> None:
    """No query file lacks a statement that the code names, or has one that no code runs."""
    folder = ROOT / package
    kept = {name for path in folder.rglob("*.sql") for name in re.findall(r"^-- name: (\w+)$", path.read_text(), re.M)}
    source = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    named = set(re.findall(r"(?:QUERIES|queries|STATEMENTS)\[\s*\"(\w+)\"\s*\]", source))
    named |= set(re.findall(r"STATEMENTS\.(?:fetch(?:row|_one|val)?|execute)\(\s*[^,]+,\s*\"(\w+)\"", source))
    assert named <= kept
    assert {name for name in kept if f'"{name}"' not in source} == set()


#: Each takes at least a twentieth of a role's start to import, and is imported by the first call that needs it.
LATER = ("ag_ui", "mcp", "procrastinate", "psycopg", "google", "openai", "anthropic", "numpy", "httpx", "rich.progress")


def test_a_writer_imports_and_makes_only_what_it_needs_to_answer() -> None:
    """The types of AG-UI, the MCP server, what belongs to workers, and the parameters and models of the routes are made
    by the first request that needs them."""
    code = (
        "import sys, workers.writer; from fastapi.routing import APIRoute; from workers.api.app import bare_api;"
        "routes = [each for each in bare_api(test_routes=True).routes if isinstance(each, APIRoute)];"
        "print(len(routes), [each.path for each in routes if 'dependant' in vars(each)],"
        f" {{*{LATER!r}}} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    count, _, made_early = done.stdout.strip().partition(" ")
    assert int(count) > 100
    assert made_early == "[] set()"
