"""The program `hippocampus`: its command line, or a message that says what to install for it.

Ctrl-C while it is still being imported ends it quietly: at the top, only modules are imported that Python has loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        # Not KeyboardInterrupt: what is raised in the middle of an import can arrive as any other error. The command
        # line restores the handler when a command begins.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, end_quietly)
        return _main()
    except KeyboardInterrupt:
        end_quietly()
    finally:
        # While Python shuts down there is nothing left to interrupt.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, end_quietly)


def end_quietly(_number: int = signal.SIGINT, _frame: FrameType | None = None) -> NoReturn:
    """End this process at once, as interrupted."""
    os.write(2, b"hippocampus: interrupted\n")
    os._exit(_INTERRUPTED)


def _main() -> int:
    from workers.cli.exit_codes import USAGE
    from workers.installing import install_command
    from workers.process import other_packages

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
