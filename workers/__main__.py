"""The program `hippocampus`: its command line, or a message that says what to install for it.

Ctrl-C while it is still being imported ends it quietly: at the top, only modules are imported that Python has loaded.
"""

import _signal  # type: ignore[import-not-found]  # a part of Python; `signal`, made from it, is not loaded yet
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_INTERRUPTED = 130


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        # Not KeyboardInterrupt: what is raised in the middle of an import can arrive as any other error. The command
        # line restores the handler when a command begins.
        _end_quietly_by_ctrl_c()
        return _main()
    except KeyboardInterrupt:
        end_quietly()
    finally:
        # While Python shuts down there is nothing left to interrupt.
        _end_quietly_by_ctrl_c()


def _end_quietly_by_ctrl_c() -> None:
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, end_quietly)


def end_quietly(_number: int = _signal.SIGINT, _frame: "FrameType | None" = None) -> "NoReturn":
    """End this process at once, as interrupted."""
    os.write(2, b"hippocampus: interrupted\n")
    os._exit(_INTERRUPTED)


def _main() -> int:
    from workers.cli.exit_codes import USAGE
    from workers.process import other_packages

    try:
        if (found := other_packages.conflict()) is not None:
            sys.stderr.write(f"hippocampus: {found}\n")
            return USAGE
        from workers.cli.main import run

        return run()
    except ImportError as error:
        if (advice := other_packages.explain(error)) is not None:
            sys.stderr.write(f"hippocampus: {advice}\n")
            return USAGE
        if (error.name or "").partition(".")[0] not in ("click", "rich", "httpx"):
            raise
        from pulse.process.extras import install_command

        sys.stderr.write(
            f"hippocampus: the command line needs {error.name}, which is not installed: {install_command('cli')}"
            " ([all] for the API and an embedded PostgreSQL too).\n"
        )
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
