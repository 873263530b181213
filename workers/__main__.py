"""The program `hippocampus`: its command line, or one sentence about what has to be installed for it."""

from __future__ import annotations

import sys

EXIT_USAGE = 2


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        from workers.cli.main import run

        # A command's own modules are imported when it is called.
        return run()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("click", "rich", "httpx"):
            raise
        sys.stderr.write(
            f"hippocampus: the command line needs {error.name}, which is not installed:"
            " pip install 'hippocampus[cli]' (or 'hippocampus[all]' for the API and an embedded PostgreSQL too).\n"
        )
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
