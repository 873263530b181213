"""Stops the embedded server when its program is killed: `python -m workers.embedded.keeper HOME SECONDS`.

The program holds the other end of this process's standard input. A byte means an orderly end: stop at once. An end of
file without one means that the program is gone: its roles get SECONDS to stop before the server does.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from workers import settings
from workers.embedded.server import EmbeddedServer

#: It only has to release a lock.
END_SECONDS_MAX = 5.0


@contextlib.contextmanager
def kept(home: Path, *, grace_seconds: float) -> Iterator[None]:
    """Have the embedded server of a home stopped, even if this process is killed within the block."""
    keeper = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", "workers.embedded.keeper", str(home), str(grace_seconds)],
        env=settings.child_environment(PYTHONPATH=settings.import_path()),
        stdin=subprocess.PIPE,
        # Who reads this program's output must not wait for the keeper.
        stdout=subprocess.DEVNULL,
        # A Ctrl-C in the terminal must not reach it.
        start_new_session=True,
    )
    try:
        yield
    finally:
        try:
            keeper.communicate(b"\n", timeout=END_SECONDS_MAX)
        except BrokenPipeError:
            pass
        except subprocess.TimeoutExpired:  # late on a busy machine: its lock ends with it, and we stop the server
            keeper.kill()
            keeper.wait()


def main(home: Path, grace_seconds: float) -> None:
    """Hold the server while the program runs, and release it afterwards."""
    with EmbeddedServer(home):
        if not os.read(0, 1):
            time.sleep(grace_seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
