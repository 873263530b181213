"""ARCHITECTURE.md is true: each file and function that it names exists."""

from __future__ import annotations

import ast
import re
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
