"""Responses to requests that are refused before a route reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from pulse.http.edge import problems

# A client that is still sending would lose the response if the connection were closed at once.
_LINGER_SECONDS = 2.0
_REASON_BYTES_MAX = 123
_LINGER_BYTES_MAX = 64 * 1024 * 1024


async def refuse(
    kind: problems.Kind,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    detail: str = "",
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer a request with a problem before its body was read, then read on for a while so that the response arrives.

    A WebSocket is closed: see `refuse_socket`.
    """
    if scope["type"] == "websocket":
        await refuse_socket(WebSocket(scope, receive, send), kind, detail)
        return
    response = problems.render(kind, scope["state"]["request_id"], detail, headers=headers)
    response = problems.for_event_source(scope, response)
    raw_headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": raw_headers})
    await send({"type": "http.response.body", "body": response.body[:-1], "more_body": True})
    if b"expect" not in dict(scope["headers"]):
        await _linger(receive)
    await send({"type": "http.response.body", "body": response.body[-1:]})


async def refuse_socket(socket: WebSocket, kind: problems.Kind, detail: str = "") -> None:
    """Accept a WebSocket and close it with 4000 and the problem's status, and its name and advice as the reason.

    A page sees neither the status nor the body of a handshake that was denied.
    """
    await socket.accept()
    await socket.close(4000 + kind.status, close_reason(f"{kind.slug}: {detail or kind.advice}"))


def close_reason(text: str) -> str:
    """Return a text as the reason of a close, which holds 123 bytes."""
    return text.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")


async def _linger(receive: Callable[[], Awaitable[Message]]) -> None:
    left = _LINGER_BYTES_MAX
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            more = True
            while more and left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message["type"] == "http.request" and message.get("more_body", False)
    except TimeoutError:
        return
