"""Answers to requests whose body nobody will read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

# A client that is still sending would lose the answer if the connection were closed at once.
_LINGER_SECONDS = 2.0
_LINGER_BYTES_MAX = 64 * 1024 * 1024


async def answer_early(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer before the body has been read, then read on for a while, so that the answer arrives."""
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
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
