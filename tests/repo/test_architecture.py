"""ARCHITECTURE.md is true: each file and function that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
REFERENCES = sorted(set(re.findall(r"`([\w/.]+\.(?:py|sql)):([\w.]+)`", TEXT)))

PATHS = sorted(set(re.findall(r"`((?:pulse|hippocampus|workers|schema|tests)/[\w/.]+)`", TEXT)))


def definitions(path: Path) -> set[str]:
    """The names that a file defines: functions, classes, methods as `Class.method`, assignments, SQL functions."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        return set(re.findall(r"^CREATE (?:OR REPLACE )?(?:FUNCTION|VIEW) (\w+)", text, re.MULTILINE))
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize(("file", "name"), REFERENCES)
def test_each_function_that_it_names_exists(file: str, name: str) -> None:
    """In the file that it names."""
    assert name in definitions(ROOT / file)


def test_it_names_the_three_paths_and_fits_on_a_page() -> None:
    """An empty or endless page would prove nothing."""
    assert len(REFERENCES) > 25
    assert len(TEXT.splitlines()) < 80


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:pulse|hippocampus|workers|schema|tests)/[\w/.]+)`", TEXT)))
)
def test_each_path_that_it_names_exists(path: str) -> None:
    """Folders and files without a function."""
    assert (ROOT / path).exists()


def directories_of_the_tree() -> Iterator[tuple[str, str]]:
    """Each directory that the tree names: its package, and where it is, below the package or its line's first one."""
    (block,) = re.findall(r"^```\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    package = ""
    for line in block.splitlines():
        first, *others = re.findall(r"(\w+)/", line) or [""]
        if not line.startswith(" "):
            package = first
            first = ""
        for name in filter(None, (first, *others)):
            is_below_first = not (ROOT / package / name).is_dir()
            yield package, f"{package}/{first}/{name}" if is_below_first and name != first else f"{package}/{name}"


def test_each_directory_of_the_tree_exists() -> None:
    """Those of a package, and those of its packages."""
    named = [path for _, path in directories_of_the_tree()]
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).is_dir()] == []


@pytest.mark.parametrize("package", ["pulse", "hippocampus", "workers"])
def test_the_tree_names_each_directory_of_a_package(package: str) -> None:
    """None is left out."""
    named = {path for each, path in directories_of_the_tree() if each == package}
    assert {f"{package}/{path.parent.name}" for path in (ROOT / package).glob("*/__init__.py")} <= named
