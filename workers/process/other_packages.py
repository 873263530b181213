"""Another project's packages in the place of ours, of which `pulse.process.installation` knows one.

Nothing of ours is imported before it is known that it is there.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

OURS = ("hippocampus", "pulse", "workers")


def conflict() -> str | None:
    """Return what is wrong if another project named `hippocampus` is or was beside this one, and what to do.

    Raises:
        ImportError: the package `pulse` is another project's; see `explain`.
    """
    for package in OURS:
        # Without its `__init__.py`, what is left of a package has no file.
        if (spec := importlib.util.find_spec(package)) is None or spec.origin is None:
            return (
                f"files of the package {package} are missing, as where another project of that name was uninstalled."
                " Install this one again: pip uninstall pg-hippocampus, then the installation as at first."
            )
    from pulse.process.installation import other_project

    return other_project()


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
