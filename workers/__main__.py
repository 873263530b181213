"""The program `hippocampus`: its command line, or a message that says what to install for it."""

from __future__ import annotations

import sys

from workers.cli.exit_codes import USAGE


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        from workers.cli.main import run

        return run()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("click", "rich", "httpx"):
            raise
        sys.stderr.write(
            f"hippocampus: the command line needs {error.name}, which is not installed:"
            " pip install '/path/to/the/checkout[cli]' ([all] for the API and an embedded PostgreSQL too).\n"
        )
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
