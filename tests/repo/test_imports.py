"""What the import contracts do not cover: who reads the environment and imports google.genai or google.adk."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("pulse", "hippocampus", "workers")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def uses_of_environment(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT:
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for each in node.names if each.name in ENVIRONMENT)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_module_imports_only_what_its_package_may(source: Path) -> None:
    """Only settings.py reads the environment, one provider imports google.genai, and adk modules import google.adk."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    name = str(source.relative_to(ROOT))
    if name != "workers/settings.py":
        assert list(uses_of_environment(tree)) == []
    is_adapter = source.name == "adk.py" or source.parent.name == "adk"
    for module in imported(tree):
        if module.startswith("google.genai"):
            assert name.startswith("hippocampus/providers/gemini/") or (is_adapter and module == "google.genai.types")
        if module.startswith("google.adk"):
            assert is_adapter


def module_of(source: Path) -> str:
    parts = source.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_two_modules_import_each_other() -> None:
    """There is no cycle of imports, those for type checkers included. The public names of a root are lazy."""
    modules = {module_of(source): source for source in SOURCES}
    graph = {}
    for module, source in modules.items():
        names = imported(ast.parse(source.read_text(encoding="utf-8")))
        known = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = (known & modules.keys()) - {module} if module not in PACKAGES else set()
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_a_private_name(source: Path) -> None:
    """A name with an underscore belongs to its module."""
    names = list(imported(ast.parse(source.read_text(encoding="utf-8"))))
    private = [name for name in names if name.startswith(PACKAGES) and name.rpartition(".")[2].startswith("_")]
    assert [name for name in private if not name.endswith("__main__")] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_named_statements_and_stored_statements_are_the_same(package: str) -> None:
    """No query file lacks a statement that the code names, or has one that no code runs."""
    folder = ROOT / package
    kept = {name for path in folder.rglob("*.sql") for name in re.findall(r"^-- name: (\w+)$", path.read_text(), re.M)}
    source = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    named = set(re.findall(r"(?:QUERIES|queries|STATEMENTS)\[\s*\"(\w+)\"\s*\]", source))
    named |= set(re.findall(r"STATEMENTS\.(?:fetch|fetchrow|fetchval|execute)\(\s*[^,]+,\s*\"(\w+)\"", source))
    assert named <= kept
    assert {name for name in kept if f'"{name}"' not in source} == set()
