"""The program `hippocampus`: its command line, or a message that says what to install for it."""

from __future__ import annotations

import sys

from workers.cli.exit_codes import USAGE
from workers.installing import install_command
from workers.process import other_packages


def main() -> int:
    """Run the command line and return its exit code."""
    if (found := other_packages.conflict()) is not None:
        sys.stderr.write(f"hippocampus: {found}\n")
        return USAGE
    try:
        from workers.cli.main import run

        return run()
    except ImportError as error:
        if (advice := other_packages.explain(error)) is not None:
            sys.stderr.write(f"hippocampus: {advice}\n")
            return USAGE
        if (error.name or "").partition(".")[0] not in ("click", "rich", "httpx"):
            raise
        sys.stderr.write(
            f"hippocampus: the command line needs {error.name}, which is not installed: {install_command('cli')}"
            " ([all] for the API and an embedded PostgreSQL too).\n"
        )
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
