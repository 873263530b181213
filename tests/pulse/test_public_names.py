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
import workers
from tests.support.paths import ROOT

_spec = importlib.util.spec_from_file_location("names", ROOT / "docs" / "names.py")
assert _spec is not None
assert _spec.loader is not None
names = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(names)

ROOTS = (pulse, hippocampus, workers)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))

PACKAGES = ("pulse", "hippocampus", "workers")
PATH_OF_CLASS = re.compile(r"(?<![\w./])((?:pulse|hippocampus|workers)(?:\.[a-z_]\w*)*)\.([A-Z]\w*)")

#: What an example imports that is not public: `chat.py` starts and stops processes as `hippocampus up` does.
NOT_PUBLIC = {
    ("chat.py", "workers.cli", "databases"),
    ("chat.py", "workers.cli", "running"),
    ("chat.py", "workers.process.forking", "ForkServer"),
}
#: Classes that a page names by their modules though no user imports them.
INTERNAL = {
    "pulse.http.edge.routing.DeferredRoute",  # decisions.md: how routes are built
    "pulse.postgres.backoff.Backoff",  # decisions.md: how supervisors wait
}


def python_of(path: Path) -> Iterator[str]:
    """The Python code of a file: of a page, its blocks."""
    text = path.read_text(encoding="utf-8")
    yield from [text] if path.suffix == ".py" else re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def imported_from(path: Path) -> Iterator[tuple[str, str]]:
    """Each name of the three packages that the file imports, and its module."""
    for code in python_of(path):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
                yield from ((node.module or "", each.name) for each in node.names)


def public_names_of(module: str) -> list[str]:
    """The public names of a package's root, or of an entry point that needs an extra; of another module, none."""
    if module.startswith("hippocampus.integrations."):
        # Not imported: the libraries of some don't fit beside the others.
        source = ROOT / f"{module.replace('.', '/')}.py"
        return list(names.public_names(ast.parse(source.read_text(encoding="utf-8"))))
    return list(importlib.import_module(module).__all__) if module in names.PACKAGES else []


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
        for package in PACKAGES
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
        public = (path.name, module, name) in NOT_PUBLIC or name in public_names_of(module)
        assert public, f"{path.name}: from {module} import {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_class_that_a_page_names_by_its_path_is_public(path: Path) -> None:
    """It is named as it is imported, such as `pulse.Event`, not by the module that defines it."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", prose):
        for module, name in PATH_OF_CLASS.findall(code):
            public = f"{module}.{name}" in INTERNAL or name in public_names_of(module)
            assert public, f"{path.name}: {module}.{name}"


def test_a_path_that_ends_with_a_class_is_recognised() -> None:
    """Other packages' names, modules, files and variables are not."""
    code = "list[pulse.runs.agents.Agent] hippocampus.search.SearchFilter() pulse.Event"
    assert [name for _, name in PATH_OF_CLASS.findall(code)] == ["Agent", "SearchFilter", "Event"]
    for code in ("hippocampus.facts.keys", "tests.pulse.Test", "hippocampus/search.py", "HIPPOCAMPUS_X"):
        assert PATH_OF_CLASS.findall(code) == []
    assert "SearchFilter" not in public_names_of("hippocampus.search")


def test_the_page_of_public_names_is_current() -> None:
    """`make docs` regenerates it."""
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == names.page(), "make docs"
