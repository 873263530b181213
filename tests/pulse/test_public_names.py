"""What a user imports: every public name comes from its package, cheaply, and is documented."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import hippocampus
import pulse
from tests.support.paths import ROOT

_spec = importlib.util.spec_from_file_location("names", ROOT / "docs" / "names.py")
assert _spec is not None
assert _spec.loader is not None
names = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(names)

ROOTS = (pulse, hippocampus)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def python_of(path: Path) -> Iterator[str]:
    """The Python code of a file: of a page, its blocks."""
    text = path.read_text(encoding="utf-8")
    yield from [text] if path.suffix == ".py" else re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def imported_from(path: Path) -> Iterator[tuple[str, str]]:
    """Each name of pulse or hippocampus that the file imports, and its module."""
    for code in python_of(path):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("pulse", "hippocampus"):
                yield from ((node.module or "", each.name) for each in node.names)


@pytest.mark.parametrize("package", ROOTS, ids=lambda package: package.__name__)
def test_each_public_name_resolves(package: ModuleType) -> None:
    """It is the object of its module, and dir() lists it."""
    for name in package.__all__:
        module = importlib.import_module(package._PUBLIC[name])
        assert getattr(package, name) is getattr(module, name), name
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("package", ROOTS, ids=lambda package: package.__name__)
def test_the_table_the_list_and_the_type_checkers_imports_agree(package: ModuleType) -> None:
    """A name that is missing in one of them would be public only for some users."""
    tree = ast.parse(Path(package.__file__ or "").read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    typed = {each.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert typed == package._PUBLIC
    assert sorted(package.__all__) == sorted(package._PUBLIC)
    # To a type checker, a module with this function has every name, a misspelt one too.
    assert "__getattr__" not in [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]


def test_each_list_of_public_names_is_written_out() -> None:
    """Then type checkers know the names, and ruff keeps every list in one order."""
    computed = [
        str(path.relative_to(ROOT))
        for package in ("pulse", "hippocampus", "workers")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        and [ast.unparse(each) for each in node.targets] == ["__all__"]
        and not isinstance(node.value, ast.List)
    ]
    assert computed == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match="no attribute 'OpenSessionServices'"):
        pulse.OpenSessionServices  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("first_use", ["", "pulse.SessionNotFoundError; pulse.Event"])
def test_importing_the_package_imports_no_driver_and_no_extra(first_use: str) -> None:
    """They are imported with the first name that needs them. Records and errors need none."""
    code = f"import sys, pulse; {first_use}\nprint(*{{'asyncpg', 'ag_ui', 'fastapi', 'google'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: path.name)
def test_what_the_documentation_imports_is_public(path: Path) -> None:
    """It comes from a package's root, or from an entry point that needs an extra."""
    for module, name in imported_from(path):
        if module.startswith("hippocampus.integrations."):
            # Not imported: the libraries of some don't fit beside the others.
            source = ROOT / f"{module.replace('.', '/')}.py"
            public = names.public_names(ast.parse(source.read_text(encoding="utf-8")))
        else:
            assert module in names.PACKAGES, f"{path.name}: {module}"
            public = importlib.import_module(module).__all__
        assert name in public, f"{path.name}: from {module} import {name}"


def test_the_page_of_public_names_is_current() -> None:
    """`make docs` regenerates it."""
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == names.page(), "make docs"
