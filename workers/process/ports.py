"""Whether a port can be listened on, before a process that needs it is started."""

from __future__ import annotations

import socket

ADVICE = "end the program that uses it, or set HIPPOCAMPUS_API_PORT to another port (0 takes a free one)"


def probe(host: str, port: int) -> int:
    """Return a port that can be listened on: this one, or for 0 one that the kernel chooses.

    Raises:
        OSError: another program holds it, or this host is not ours.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        return int(listener.getsockname()[1])
