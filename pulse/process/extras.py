"""How to install what is missing: the extras of this distribution."""

from __future__ import annotations

import functools
import json
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "pg-hippocampus"


def install_command(extra: str) -> str:
    """Return the command that installs an extra: from the checkout or the wheel that this was installed from."""
    options, source = _source()
    return f"pip install {options}'{source}[{extra}]'"


@functools.cache
def _source() -> tuple[str, str]:
    """Return pip's options and what it installs: what the installer has noted of this distribution (PEP 610)."""
    try:
        noted = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return "", DISTRIBUTION
    url = urlsplit(noted.get("url", ""))
    if url.scheme != "file":
        return "", DISTRIBUTION
    return "-e " if noted.get("dir_info", {}).get("editable") else "", unquote(url.path)
