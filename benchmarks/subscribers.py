"""Subscribers of one run over SSE, in a process of their own. Each frame is dated by the kernel as it arrives.

So neither the appends nor a frame's time waits for what the subscribers do with the frames before.

python -m benchmarks.subscribers http://127.0.0.1:8000 RUN COUNT EVENTS

Prints ``open`` once every subscriber has its state, and at the end one line of JSON: the arrivals of each mark in
nanoseconds of the clock, and the processor time that the reading took.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import time

from benchmarks import options

#: The headers that say whose the runs are.
OWNER = {"X-App-Name": "bench", "X-User-Id": "u"}
_MARK = re.compile(rb'"mark":"([^"]+)"')
_AT_ONCE = 50
# After which no further frame is waited for.
_SILENCE_SECONDS = 20.0
# Linux's option that asks when the data that is read had arrived, and the form of the reply: seconds and nanoseconds.
_SO_TIMESTAMPNS = 35
_TIME = struct.Struct("qq")


class Subscribers:
    """Connections to one run."""

    def __init__(self, address: str, run: str) -> None:
        host, port = address.removeprefix("http://").split(":")
        self._address = (host, int(port))
        head = "".join(f"{name}: {value}\r\n" for name, value in OWNER.items())
        self._request = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode()
        self._sockets: dict[int, socket.socket] = {}
        self._rests: dict[int, bytes] = {}
        self._poll = select.epoll()
        self._opened = 0
        self._frames = 0
        self.arrivals: dict[str, list[int]] = {}

    def open(self, count: int) -> None:
        """Connect, and return once each has the run's state."""
        while len(self._sockets) < count:
            for _ in range(min(_AT_ONCE, count - len(self._sockets))):
                each = socket.create_connection(self._address)
                each.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                each.sendall(self._request)
                self._sockets[each.fileno()] = each
                self._rests[each.fileno()] = b""
                self._poll.register(each, select.EPOLLIN)
            while self._opened < len(self._sockets):
                self._read()

    def read(self, frames: int) -> None:
        """Read until this many frames have arrived, or none for a while."""
        while self._frames < frames and self._read():
            pass

    def _read(self) -> bool:
        ready = self._poll.poll(_SILENCE_SECONDS)
        for number, _ in ready:
            data, ancillary, _, _ = self._sockets[number].recvmsg(1 << 16, 64)
            if not data:
                raise ConnectionResetError("a stream ended")
            text = self._rests[number] + data
            whole = text.rfind(b"\n\n") + 1
            self._rests[number] = text[whole:]
            self._opened += b'"STATE_SNAPSHOT"' in text[:whole]
            if marks := _MARK.findall(text, 0, whole):
                seconds, nanoseconds = _TIME.unpack(ancillary[0][2])
                for mark in marks:
                    self.arrivals.setdefault(mark.decode(), []).append(seconds * 10**9 + nanoseconds)
                self._frames += len(marks)
        return bool(ready)


def main() -> None:
    """Subscribe, read and report."""
    parser = options.parser()
    parser.add_argument("address")
    parser.add_argument("run")
    parser.add_argument("count", type=int)
    parser.add_argument("events", type=int)
    given = parser.parse_args()
    subscribers = Subscribers(given.address, given.run)
    subscribers.open(given.count)
    print("open", flush=True)
    began = time.process_time()
    subscribers.read(given.count * given.events)
    print(json.dumps({"arrivals": subscribers.arrivals, "seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
