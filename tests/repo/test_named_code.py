"""The pages are true: each module, file and method of ours that they name in backticks exists."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = [
    # The generated pages are compared with what they are generated from.
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in ("api.md", "schema.md")),
    *(ROOT / name for name in ("README.md", "RUNBOOK.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "schema/README.md")),
]
PACKAGES = ("pulse", "hippocampus", "workers")
TOP = (*PACKAGES, "schema", "tests", "benchmarks", "deploy", "examples", "console", "clients")
#: Parameters of PostgreSQL and attributes of spans have names like modules'.
NOT_MODULES = {f"hippocampus.{name}" for name in ("actor", "app", "fake_time", "run_id", "user_id")}


def modules(text: str) -> list[str]:
    """Dotted names below our packages."""
    return re.findall(rf"`((?:{'|'.join(PACKAGES)}|benchmarks|tests)(?:\.\w+)+)(?:\([^`]*\))?`", text)


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or a name that stands in the module that its first parts are."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:count])
        for source in (base.with_suffix(".py"), base / "__init__.py"):
            if source.is_file():
                words = set(re.findall(r"\w+", source.read_text(encoding="utf-8")))
                return set(parts[count:]) <= words
    return False


@functools.cache
def classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for package in PACKAGES:
        for source in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(node)
    return found


def attributes(name: str) -> set[str]:
    """The methods and fields of the classes of a name, and of those of ours that they extend."""
    found: set[str] = set()
    for node in classes().get(name, []):
        for each in ast.walk(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(each.name)
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                found.add(each.target.id)
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                found.add(each.attr)
        for base in node.bases:
            inherited = ast.unparse(base).partition("[")[0].rpartition(".")[2]
            if inherited != name:
                found |= attributes(inherited)
    return found


def untrue(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    wrong = [name for name in modules(text) if name not in NOT_MODULES and not is_there(name)]
    for path in re.findall(rf"`((?:{'|'.join(TOP)})/[\w/.-]+)`", text):
        is_pattern = re.search(r"[A-Z]{4}", path.removesuffix("README.md"))
        wrong += [] if is_pattern or (ROOT / path).exists() else [path]
    for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        source = ROOT / path
        is_defined = source.is_file() and f"def {test}(" in source.read_text(encoding="utf-8")
        wrong += [] if is_defined else [f"{path}::{test}"]
    for name, attribute in re.findall(r"`([A-Z]\w+)\.(\w+)(?:\([^`]*\))?`", text):
        wrong += [] if name not in classes() or attribute in attributes(name) else [f"{name}.{attribute}"]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    """Modules by their dotted names, files and tests by their paths from the root, methods and fields by class."""
    assert untrue(page) == []


def test_the_pages_name_much_and_a_wrong_name_is_found(tmp_path: Path) -> None:
    """Patterns that match nothing would prove nothing."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert sum(len(modules(text)) for text in texts) > 25
    page = tmp_path / "page.md"
    page.write_text(
        "`pulse.telemetri`, `workers/none.py` and `MemoryArchive.pins(id)`, but `MemoryArchive.pin(id)`;"
        " `tests/repo/test_named_code.py::test_none`"
    )
    none = "tests/repo/test_named_code.py::test_none"
    assert untrue(page) == ["pulse.telemetri", "workers/none.py", none, "MemoryArchive.pins"]


def test_each_table_stands_once_in_who_writes_what() -> None:
    """Two rows of a table contradict each other sooner or later; a table that is gone has none."""
    text = (ROOT / "schema" / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Who writes what\n")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)))
    assert len(named) > 40
    assert sorted(named) == sorted(set(named))
    tables = set(re.findall(r"^### (\w+)", (ROOT / "docs" / "schema.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(named) <= tables
