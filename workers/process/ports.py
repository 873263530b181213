"""A port for a process that is about to start."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

ADVICE = "end the program that uses it, or set HIPPOCAMPUS_API_PORT to another port (0 takes a free one)"


@contextlib.contextmanager
def held(host: str, port: int) -> Iterator[int]:
    """Yield a port that can be listened on: this one, or for 0 one that the kernel chooses.

    Until the end of the block it is bound, and not listened on: the kernel gives it to no other program before the
    process that needs it, which has to set SO_REUSEADDR, listens.

    Raises:
        OSError: another program holds it, or this host is not ours.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, port))
        number = int(holder.getsockname()[1])
        if sys.platform != "linux":  # elsewhere no other process could bind it too
            holder.close()
        yield number
