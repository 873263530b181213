"""Another project's packages in the place of ours.

The package index has projects that also install a package `hippocampus`, `pulse` or `workers`. Installers overwrite one
with the other without a word, and removing either removes files of both.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

OURS = ("hippocampus", "pulse", "workers")
_NAMED_AFTER_IT = "hippocampus"


def conflict() -> str | None:
    """Return what is wrong if another project named `hippocampus` is or was beside this one, and what to do."""
    for found in _installed_after_its_name():
        name, _, version = found.name.removesuffix(".dist-info").partition("-")
        return (
            f"another project named {name} (version {version}) is installed in {found.parent} and has a package of the"
            f" same name. Remove both, then install this one again: pip uninstall {name} pg-hippocampus"
        )
    for package in OURS:
        # Without its `__init__.py`, what is left of a package has no file.
        if (spec := importlib.util.find_spec(package)) is None or spec.origin is None:
            return (
                f"files of the package {package} are missing, as where another project of that name was uninstalled."
                " Install this one again: pip uninstall pg-hippocampus, then the installation as at first."
            )
    return None


def explain(error: ImportError) -> str | None:
    """Return what to do about an import that failed because one of our packages is another project's."""
    package = (error.name or "").partition(".")[0]
    path = getattr(sys.modules.get(package), "__file__", None)
    if package not in OURS or path is None or (Path(path).parent / "py.typed").exists():
        return None
    return (
        f"the package {package} in {Path(path).parent} is another project's ({error}). Find the project with"
        " `pip list`, uninstall it, then install pg-hippocampus again."
    )


def _installed_after_its_name() -> Iterator[Path]:
    for entry in sys.path:
        for found in Path(entry).glob(f"{_NAMED_AFTER_IT}-*.dist-info"):
            record = found / "RECORD"
            # An editable installation of ours from before its name has no package of its own.
            if record.is_file() and f"{_NAMED_AFTER_IT}/__init__.py," in record.read_text(encoding="utf-8"):
                yield found
