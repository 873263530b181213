"""How to install what is missing."""

from __future__ import annotations

#: What pip installs: the distribution's name, once it is published.
CHECKOUT = "/path/to/the/checkout"


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{CHECKOUT}[{extra}]'"
