"""The middleware around every route: request ids, the access log, keys, body limits, unexpected errors.

    event              fields                                                            metric
    request            request_id method route status seconds bytes_in [error]          `Telemetry.request`
    request_crashed    request_id error sqlstate where                                  status 500 of the same
    socket_closed      request_id route code [reason] seconds                            status 500 after a crash

`route` is the route's template, never the path: paths contain names of users. No event contains content or a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import traceback
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

import structlog
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from pulse.database import FAULTS
from pulse.http.edge import problems
from pulse.http.edge.key_ring import ANYBODY, KeyRing
from pulse.http.edge.origins import note_origins
from pulse.http.edge.refusals import close_reason, refuse, refuse_socket
from pulse.tracing.manager import current_tracing
from pulse.tracing.spans import NO_SPAN, Span

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OPEN_PATHS = ("/health", "/docs", "/openapi.json", "/problems/", "/page/")
# What a ticket may be for; the routes check what it allows.
_TICKET_PATHS = {
    "GET": re.compile(r"/api/(runs|threads)/[^/]+/events"),
    "POST": re.compile(r"/agui(/[^/]+)?|/api/runs/[^/]+/cancel"),
}
# For a connection of the pool and one statement.
_KEY_SECONDS = 10.0
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# All bodies in memory together may have the larger of the two sizes.
_BODIES_AT_ONCE = 8
_HELD_BYTES = 16 * 1024 * 1024

_log = structlog.get_logger(__name__)


class Telemetry(Protocol):
    """Counts what the API does."""

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the template, or ``unmatched``."""


class Edge:
    """The outermost layer: gives each request an id, logs and counts it, and turns an unexpected error into a 500."""

    def __init__(
        self,
        app: ASGIApp,
        telemetry: Telemetry,
        routes: Sequence[BaseRoute] = (),
        stream_origins: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._telemetry = telemetry
        self._routes = routes
        self._stream_origins = stream_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        # Matched in its encoded form, so that a slash within an id stays there. Parameters are decoded by their type.
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
        note_origins(scope, self._stream_origins)
        if scope["type"] == "websocket":
            scope["state"]["request_id"] = uuid.uuid4().hex
            await self._serve_socket(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        scope["state"]["server_send"] = send
        with exchange.span():
            await self._serve(exchange, scope, receive, send)

    async def _serve(self, exchange: _Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if {name for name, _ in scope["headers"]} >= _LENGTHS:
                # A proxy in front may have read another body than we would: nothing after this request can be trusted.
                detail = "it has Content-Length and Transfer-Encoding: send one of them"
                await refuse(problems.BAD_REQUEST, scope, exchange.receive, exchange.send, detail=detail)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001 - the last handler: every unexpected error becomes a 500
            _log_crash(exchange.request_id, error)
            if not exchange.status:
                await problems.render(problems.INTERNAL, exchange.request_id)(scope, receive, exchange.send)
        except asyncio.CancelledError:
            # The process is ending, and this request took longer than its grace time. Of itself the server says 500.
            if not exchange.status:
                await problems.render(problems.TIMED_OUT, exchange.request_id)(scope, receive, exchange.send)
            raise
        finally:
            exchange.finish(self._telemetry)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket, and log how it ended: by whom it was closed, and why."""
        began = time.perf_counter()
        closed: dict[str, Any] = {"code": 1006}
        is_open = False

        def note(message: Message) -> None:
            nonlocal is_open
            is_open = is_open or message["type"] == "websocket.accept"
            # The first of the two is what ended it; uvicorn repeats our own code as the client's.
            if message["type"] in ("websocket.close", "websocket.disconnect") and "by" not in closed:
                by = "server" if message["type"] == "websocket.close" else "client"
                reason = message.get("reason")
                closed.update(code=message.get("code", 1005), by=by, **({"reason": reason} if reason else {}))

        async def noted_receive() -> Message:
            message = await receive()
            note(message)
            return message

        async def noted_send(message: Message) -> None:
            note(message)
            await send(message)

        request_id, crash = scope["state"]["request_id"], None
        try:
            await self._app(scope, noted_receive, noted_send)
        except WebSocketDisconnect:
            pass  # The client disconnected while something was sent to it.
        except Exception as error:  # noqa: BLE001 - the last handler, as of a request
            crash = error
            _log_crash(request_id, error)
            with contextlib.suppress(OSError, RuntimeError, WebSocketDisconnect):  # The client has disconnected.
                if is_open:
                    reason = close_reason(f"{problems.INTERNAL.slug}: {problems.INTERNAL.title}")
                    await noted_send({"type": "websocket.close", "code": 1011, "reason": reason})
                else:
                    await refuse_socket(WebSocket(scope, noted_receive, noted_send), problems.INTERNAL)
        finally:
            # Refused before it was routed, it has the path alone.
            route = scope.get("route") or next(
                (each for each in self._routes if each.matches(scope)[0] is Match.FULL), None
            )
            path, seconds = getattr(route, "path", "unmatched"), time.perf_counter() - began
            if crash is not None:
                self._telemetry.request("GET", path, problems.INTERNAL.status, seconds)
            _log.info("socket_closed", request_id=request_id, route=path, seconds=round(seconds, 6), **closed)


def _log_crash(request_id: str, error: Exception) -> None:
    # Without the message: a driver's may quote the values of a statement.
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    _log.error(
        "request_crashed",
        request_id=request_id,
        error=type(error).__name__,
        sqlstate=getattr(error, "sqlstate", None),
        where=[f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    )


class _Exchange:
    """One request and what became of it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        self.status = 0
        self._scope, self._receive, self._send = scope, receive, send
        self._bytes_in = 0
        self._span: Span = NO_SPAN
        self._began = time.perf_counter()
        scope["state"]["request_id"] = self.request_id

    def span(self) -> Span:
        """Return the span of this request, below that of its caller; none for what monitors ask every few seconds."""
        tracing = current_tracing()
        if not tracing.is_on or self._scope["path"].startswith(_OPEN_PATHS):
            return NO_SPAN
        parent = Headers(scope=self._scope).get("traceparent")
        attributes = {"hippocampus.request_id": self.request_id}
        self._span = tracing.span("request", kind="server", parent=parent, is_new=True, attributes=attributes)
        return self._span

    async def receive(self) -> Message:
        message = await self._receive()
        self._bytes_in += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self.request_id
        await self._send(message)

    def finish(self, telemetry: Telemetry) -> None:
        seconds = time.perf_counter() - self._began
        method = self._scope["method"] if self._scope["method"] in _METHODS else "other"
        route = getattr(self._scope.get("route"), "path", "unmatched")
        status = self.status or 499  # The client disconnected before there was a response.
        telemetry.request(method, route, status, seconds)
        if self._span.is_recording:
            self._span.rename(f"{method} {route}")
            facts = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
            self._span.set_attributes(facts)
            if status >= 500:
                self._span.fail(str(status))
        error = self._scope["state"].get("error")
        _log.info(
            "request",
            request_id=self.request_id,
            method=method,
            route=route,
            status=status,
            seconds=round(seconds, 6),
            bytes_in=self._bytes_in,
            **({"error": error} if error else {}),
        )


class KeyGuard:
    """Refuses requests without a valid key; if no operator's key is set, those to a host name other than loopback's.

    The latter keeps a web page from reaching an open API on its visitor's machine, through DNS rebinding or a
    cross-origin request. Whether the key allows the call is checked by the routes: see `pulse.http.edge.roles`.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan" or scope["path"] == "/" or scope["path"].startswith(_OPEN_PATHS):
            await self._app(scope, receive, send)
            return
        refusal = await self._check(scope, Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refuse(refusal, scope, receive, send)

    async def _check(self, scope: Scope, headers: Headers) -> problems.Kind | None:
        """Store the grant of the caller's key in the scope, or return why it is refused."""
        if _has_ticket(scope):
            # The route redeems the ticket: it replaces the key, and names the app and the user.
            return None
        if self._keys.is_open:
            names = {
                _host(headers.get("host", "")),
                _host(headers.get("origin", "http://localhost").partition("://")[2]),
            }
            if not names <= _LOOPBACK_NAMES:
                return problems.WRONG_HOST
            if "authorization" not in headers:
                scope["state"]["grant"] = ANYBODY
                return None
        try:
            async with asyncio.timeout(_KEY_SECONDS):
                grant = await self._keys.grant_of(headers.get("authorization", ""))
        except FAULTS as error:
            kind = problems.kind_of(error)
            if kind is problems.INTERNAL:
                raise
            return kind
        scope["state"]["grant"] = grant
        return problems.WRONG_KEY if grant is None else None


def _has_ticket(scope: Scope) -> bool:
    """Whether a request has a ticket that its route redeems: browsers cannot set the headers of a stream."""
    pattern = None if scope["type"] == "websocket" else _TICKET_PATHS.get(scope["method"])
    is_for_tickets = scope["type"] == "websocket" or (pattern is not None and pattern.fullmatch(scope["path"]))
    return bool(is_for_tickets) and "ticket" in QueryParams(scope["query_string"])


class BodyLimit:
    """Refuses a body over the limit: at once if its length is announced, else as soon as it exceeds the limit.

    All bodies in memory together have a limit too: beyond it, requests are refused as `problems.OVERLOADED`.
    """

    def __init__(self, app: ASGIApp, bytes_max: int) -> None:
        self._app = app
        self._bytes_max = bytes_max
        self._held_max = max(_BODIES_AT_ONCE * bytes_max, _HELD_BYTES)
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length) > self._bytes_max:
            await self._refuse(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            size = len(message.get("body", b""))
            seen += size
            self._held += size
            if seen > self._bytes_max:
                raise _TooLargeError
            if self._held > self._held_max:
                raise _TooMuchError
            return message

        async def released(message: Message) -> None:
            nonlocal seen
            if message["type"] == "http.response.start":
                # The body was read; the stream that answers it may last for hours.
                self._held -= seen
                seen = 0
            await send(message)

        try:
            await self._app(scope, counted, released)
        except _TooLargeError:
            await self._refuse(scope, receive, send)
        except _TooMuchError:
            await refuse(problems.OVERLOADED, scope, receive, send)
        finally:
            self._held -= seen

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"the limit is {self._bytes_max} bytes. {problems.BODY_TOO_LARGE.advice}"
        await refuse(problems.BODY_TOO_LARGE, scope, receive, send, detail=detail)


class _TooLargeError(BaseException):
    """Not an Exception: FastAPI turns an Exception while it reads a body into a 400."""


class _TooMuchError(BaseException):
    """As `_TooLargeError`."""


def _host(header: str) -> str:
    """Return the name in a Host header, without the port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
