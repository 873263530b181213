"""Ends a role when the supervisor that started it ends."""

from __future__ import annotations

import os
import signal
import threading
import time

#: Longer than any drain: the process hangs, and no supervisor is left to kill it.
LAST_SECONDS = 10.0


def end_with_parent() -> None:
    """Stop this process gracefully when its standard input ends, as it does when the parent ends in any way."""
    threading.Thread(target=_watch, name="parent", daemon=True).start()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os._exit(1)
