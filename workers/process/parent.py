"""A process that was started by another one of ours, and must not outlive it."""

from __future__ import annotations

import os
import signal
import threading
import time

#: Past the end of any drain: the process hangs, and nobody is there to kill it.
LAST_SECONDS = 10.0


def end_with_parent() -> None:
    """Stop this process in good order when its standard input ends, which is when its parent does, however it dies."""
    threading.Thread(target=_watch, name="parent", daemon=True).start()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os._exit(1)
