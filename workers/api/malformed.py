"""The connections of the API: whose bytes are not valid HTTP, who sends too slowly, and who has too many."""

from __future__ import annotations

import asyncio
import functools
import resource
import time
import uuid
from collections import Counter
from typing import Any, ClassVar

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from pulse.http.edge import problems

#: How long the head of a request may take, from its first byte, or from the connection if it is the first one.
HEAD_SECONDS = 10.0
#: Open files that are kept for the database, the log and what else a process opens.
FILES_KEPT = 100
#: A server without a limit of its own gets this one.
FILES_MAX = 65_536
LOG_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class Throttle:
    """Lets through one event a second, with the number of those that were held back before."""

    def __init__(self) -> None:
        self._at = 0.0
        self._held = 0

    def take(self) -> int:
        """Return how many events the next line stands for; 0 if it is too soon for another one."""
        self._held += 1
        now = time.monotonic()
        if now - self._at < LOG_SECONDS:
            return 0
        count, self._at, self._held = self._held, now, 0
        return count


_refused, _unaccepted = Throttle(), Throttle()


def raise_file_limit() -> None:
    """Let this process open as many files as the system allows it: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the event loop reports; that no connection can be accepted, at most once a second."""
    if "system resource" not in context.get("message", ""):
        loop.default_exception_handler(context)
    elif count := _unaccepted.take():
        _log.error("connections_not_accepted", count=count, error=type(context.get("exception")).__name__)


class OpenConnections:
    """How many connections each address holds, of HTTP and of WebSockets together."""

    per_address_max: ClassVar[int] = 0
    _held: ClassVar[Counter[str]] = Counter()

    @classmethod
    def add(cls, address: str) -> int:
        """Count a connection; return how many the address holds with it."""
        cls._held[address] += 1
        return cls._held[address]

    @classmethod
    def remove(cls, address: str) -> None:
        """Forget a connection."""
        cls._held[address] -= 1
        if cls._held[address] <= 0:
            del cls._held[address]


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol of WebSockets, whose connection continues to count for its address."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over from HTTP, which has found it within the limit."""
        super().connection_made(transport)
        self._address = _address_of(self.client)
        OpenConnections.add(self._address)

    def data_received(self, data: bytes) -> None:
        """Read. An invalid upgrade, such as a POST, ends the connection: nothing would answer it."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        OpenConnections.remove(self._address)
        super().connection_lost(exc)


def _address_of(client: tuple[str, int] | None) -> str:
    return client[0] if client else ""


class ProblemProtocol(H11Protocol):
    """uvicorn's protocol, with a problem in place of its plain text, and with limits.

    A connection over a limit is closed before anything is read. An address may hold `OpenConnections.per_address_max`
    of them, WebSockets too (0: half of what the process may open), and all together leave `FILES_KEPT` files to the
    rest of the process.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Take a connection, or close it at once."""
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._address = _address_of(self.client)
        held = OpenConnections.add(self._address)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        usable = max(files - FILES_KEPT, 1) if files != resource.RLIM_INFINITY else FILES_MAX
        per_address = OpenConnections.per_address_max or max(usable // 2, 1)
        if held > per_address or len(self.connections) > usable:
            if count := _refused.take():
                _log.warning("connections_refused", count=count, open=len(self.connections))
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._head_arrived()
        OpenConnections.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; the head of a request has a time limit."""
        cycle = self.cycle
        if self._head_timer is None and (cycle is None or cycle.response_complete):
            self._await_head()
        super().data_received(data)
        if self.cycle is not cycle or self.transport.is_closing():
            self._head_arrived()

    def handle_events(self) -> None:
        """Read; a request may write to its connection past h11."""
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle and self.scope["http_version"] == "1.1" and self.scope["method"] != "HEAD":
            # Its task begins later.
            self.scope["state"]["server_write"] = functools.partial(self._write_chunk, self.cycle)

    def _write_chunk(self, cycle: RequestResponseCycle, data: bytes) -> bool:
        """Write a piece of a response without a length, as h11 would; False if the client is not ready for it."""
        if (
            cycle is not self.cycle
            or not cycle.response_started
            or cycle.response_complete
            or self.flow.write_paused
            or self.transport.is_closing()
        ):
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the protocol of WebSockets, which counts it from here on."""
        self._head_arrived()
        OpenConnections.remove(self._address)
        super().handle_websocket_upgrade(event)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer with a problem and close the connection."""
        request_id = uuid.uuid4().hex
        response = problems.render(problems.BAD_REQUEST, request_id, f"{msg} {problems.BAD_REQUEST.advice}")
        headers = [*response.raw_headers, (b"x-request-id", request_id.encode()), (b"connection", b"close")]
        parts = (
            h11.Response(status_code=response.status_code, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        )
        for each in parts:
            self.transport.write(self.conn.send(each) or b"")
        self.transport.close()
