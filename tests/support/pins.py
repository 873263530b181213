"""The versions of a lock file, for pip in an environment of a test's own."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT


def constraints(folder: Path, lock: str = "requirements.lock") -> Path:
    """Write a file of constraints into a folder."""
    pins = re.findall(r"^[a-z0-9._-]+==[^ ;\\]+", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE)
    file = folder / "constraints.txt"
    file.write_text("\n".join(pins))
    return file
