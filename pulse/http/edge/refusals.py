"""Responses to requests that are refused before a route reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from pulse.http.edge import problems

# A client that is still sending would lose the response if the connection were closed at once.
_LINGER_SECONDS = 2.0
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

    A WebSocket is denied with the same problem.
    """
    response = problems.render(kind, scope["state"]["request_id"], detail, headers=headers)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
        return
    raw_headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": raw_headers})
    await send({"type": "http.response.body", "body": response.body[:-1], "more_body": True})
    if b"expect" not in dict(scope["headers"]):
        await _linger(receive)
    await send({"type": "http.response.body", "body": response.body[-1:]})


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
