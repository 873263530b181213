"""Frames as Server-Sent Events: each is encoded once for all followers, with comments as heartbeats.

Every stream says how soon its client may reconnect (``retry:``), with a random part: clients that are disconnected
together, by a proxy or a process that stops, do not come back in the same moment.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pulse.agui.frames import Frame
from pulse.database import FAULTS
from pulse.errors import PulseError
from pulse.streams.frame_queue import SendAtOnce
from pulse.streams.run_hub import Cut, StreamCutError, farewell

#: More is queued, as the frames that all clients share: a write is a copy for each.
AT_ONCE_BYTES_MAX = 16_384
#: When a client may reconnect; the shorter one where another process is there to take it.
RETRY_MS = (1000, 3000)
MOVE_RETRY_MS = (100, 1000)
#: A comment, which clients ignore.
HEARTBEAT = b": heartbeat\n\n"
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "Connection": "keep-alive",
    "X-Accel-Buffering": "no",
    "Content-Type": "text/event-stream; charset=utf-8",
}
_log = structlog.get_logger(__name__)


class FrameStream(StreamingResponse):
    """Streams frames, and releases their follower even if no frame was ever read."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        release: AsyncExitStack,
        headers: Mapping[str, str],
        status_code: int = 200,  # the API's document takes it from here
    ) -> None:
        super().__init__(chunks, status_code, {**HEADERS, **headers})
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self._send_chunk: Send = scope.get("state", {}).get("server_send", send)
        async with self._release:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send the head through every layer of the middleware, and the chunks past them to the server.

        No layer looks at a chunk of a stream, and thousands of clients get each one.
        """
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        send_chunk = self._send_chunk
        async for chunk in self.body_iterator:
            await send_chunk({"type": "http.response.body", "body": chunk, "more_body": True})
        await send_chunk({"type": "http.response.body", "body": b"", "more_body": False})


def sender_of(scope: Scope, *, legacy: bool) -> SendAtOnce | None:
    """Return what writes frames to the connection of a request, if its server can; the last ones take the long way.

    To wake the request's task, and to pass frames through its generators, costs more than the write itself.
    """
    write: Callable[[bytes], bool] | None = scope.get("state", {}).get("server_write")
    if write is None:
        return None

    def send(frames: Sequence[Frame]) -> bool:
        size = 0
        for frame in frames:
            size += frame.size
            if frame.is_terminal or frame.history_until is not None or size > AT_ONCE_BYTES_MAX:
                return False
        return write(_encoded(frames, legacy=legacy))

    return send


def _encoded(frames: Sequence[Frame], *, legacy: bool) -> bytes:
    if len(frames) == 1:
        return frames[0].sse(legacy=legacy)
    return b"".join([frame.sse(legacy=legacy) for frame in frames])


def notice(text: str, retry_ms: tuple[int, int] = RETRY_MS) -> bytes:
    """Return a comment with the time after which to reconnect."""
    return b": %s\nretry: %d\n\n" % (text.encode(), random.randint(*retry_ms))  # noqa: S311 - to spread load


def beginning(cursor: str | None) -> bytes:
    """Return what a stream begins with: for a client without a cursor, its first cursor too, as an id without a frame.

    A browser's EventSource keeps the id; a parser that shows none without data finds it in the comment.
    """
    at_first = b"" if cursor is None else b": cursor %b\nid: %b\n" % (cursor.encode(), cursor.encode())
    return at_first + notice("connected")


async def sse_of(
    batches: AsyncIterator[Sequence[Frame]],
    name: str,
    *,
    legacy: bool = False,
    custom: bool = False,
    cursor: str | None = None,
) -> AsyncGenerator[bytes]:
    """Yield what is sent to a client; frames that wait are sent together.

    A database error ends the stream without a last event: the run may continue, and the client reconnects. An
    unexpected error would occur again: it is logged with its traceback, and ends the stream with RUN_ERROR.

    Args:
        batches: raises StreamCutError where the stream ends early.
        name: the name of what is followed, for the log.
        custom: send the first frame and the heartbeats as events of type CUSTOM, which AG-UI clients do not accept.
        cursor: where the stream begins, of a client that does not know it: the first frame may be long in coming.
    """
    yield beginning(cursor)
    if custom:
        yield custom_frame(name, "connected")
    try:
        async with aclosing(batches) as frames_in_time:  # type: ignore[type-var]  # they are generators
            async for frames in frames_in_time:
                if frames:
                    yield _encoded(frames, legacy=legacy)
                else:
                    yield custom_frame(name, "heartbeat") if custom else HEARTBEAT
    except StreamCutError as error:
        if error.cut in (Cut.ENDING, Cut.SLOW, Cut.UNREADABLE):
            yield notice(error.cut.value, MOVE_RETRY_MS if error.cut is Cut.ENDING else RETRY_MS)
    except (PulseError, *FAULTS) as error:
        _log.warning("stream_cut", run_id=name, error=type(error).__name__)
        yield notice(Cut.UNREADABLE.value)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("stream_failed", run_id=name)
        yield farewell(Cut.FAILED).sse(legacy=legacy)


def custom_frame(run_id: str, name: str) -> bytes:
    """Return an opt-in frame: ``connected`` or ``heartbeat``."""
    event = {"type": "CUSTOM", "runId": run_id, "timestamp": int(time.time() * 1000), "name": name}
    if name == "connected":
        event["message"] = f"SSE stream for run_id={run_id}"
    return f"data: {json.dumps(event)}\n\n".encode()
