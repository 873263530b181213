"""The listening socket of the API, while the process may open no more files."""

from __future__ import annotations

import errno
import math
import socket
import time

#: asyncio listens again a second after a failure.
PAUSE_SECONDS = 0.5
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener(socket.socket):
    """A listening socket that reports once a second that no connection can be accepted.

    asyncio asks it once for each connection of the backlog, and starts a timer for each failure, after which it asks as
    often again: failures would grow into the tens of thousands a second, each with a line in the log.
    """

    _failed_at = -math.inf

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection.

        Raises:
            BlockingIOError: there is none, or the last attempt has just failed.
            OSError: the process or the system may open no more files.
        """
        if time.monotonic() - self._failed_at < PAUSE_SECONDS:
            raise BlockingIOError(errno.EAGAIN, "no file can be opened")
        try:
            return super().accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._failed_at = time.monotonic()
            raise
