"""The signs of life of a role: the protocol of systemd's WatchdogSec=, where systemd does not run it.

A process that hangs neither ends nor reports: what started it has to notice. A process sends ``WATCHDOG=1`` to the
socket of ``NOTIFY_SOCKET``.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Iterator

#: The same as WatchdogSec= of the units in deploy/: three signs of life that are missing.
SILENT_SECONDS_MAX = 30.0
_BYTES_MAX = 4096


class Watchdog:
    """Where one process sends its signs of life. Before the first one, it is not silent."""

    def __init__(self, endpoint: socket.socket) -> None:
        self._endpoint = endpoint
        self._heard_at: float | None = None

    @property
    def address(self) -> str:
        """The value of NOTIFY_SOCKET."""
        name: bytes = self._endpoint.getsockname()
        return name.decode().replace("\0", "@", 1)

    def silent_seconds(self) -> float:
        """Return how long ago the last sign of life was read; 0 before the first."""
        with contextlib.suppress(BlockingIOError):
            while self._endpoint.recv(_BYTES_MAX):
                self._heard_at = time.monotonic()
        return 0.0 if self._heard_at is None else time.monotonic() - self._heard_at


@contextlib.contextmanager
def opened() -> Iterator[Watchdog | None]:
    """Yield a watchdog; None on a system whose kernel gives a socket no name of its own."""
    if sys.platform != "linux":
        yield None
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as endpoint:
        endpoint.bind("")
        endpoint.setblocking(False)
        yield Watchdog(endpoint)
