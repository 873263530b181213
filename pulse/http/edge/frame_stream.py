"""A run's frames as Server-Sent Events: each frame is encoded once for all followers, with comments as heartbeats."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pulse.database import FAULTS
from pulse.streams.run_hub import Cut, RunFollower, farewell

#: Comments, which clients ignore.
CONNECTED = b": connected\n\n"
HEARTBEAT = b": heartbeat\n\n"
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "Connection": "keep-alive",
    "X-Accel-Buffering": "no",
    "Content-Type": "text/event-stream; charset=utf-8",
}
_log = structlog.get_logger(__name__)


class FrameStream(StreamingResponse):
    """Streams a follower's frames, and releases the follower even if no frame was ever read."""

    def __init__(self, chunks: AsyncIterator[bytes], release: AsyncExitStack, headers: Mapping[str, str]) -> None:
        super().__init__(chunks, headers={**HEADERS, **headers})
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        async with self._release:
            await super().__call__(scope, receive, send)


async def frames_of(
    follower: RunFollower, run_id: str, *, heartbeat_seconds: float, legacy: bool = False, custom: bool = False
) -> AsyncIterator[bytes]:
    """Yield what is sent to a client; frames that wait are sent together.

    A database error ends the stream without a last event: the run may continue, and the client reconnects. An
    unexpected error would occur again: it is logged with its traceback, and ends the stream with RUN_ERROR.

    Args:
        custom: send the first frame and the heartbeats as events of type CUSTOM, which AG-UI clients do not accept.
    """
    yield custom_frame(run_id, "connected") if custom else CONNECTED
    try:
        while not follower.is_over:
            frames = await follower.take(heartbeat_seconds)
            if frames:
                yield b"".join(frame.sse(legacy=legacy) for frame in frames)
            elif not follower.is_over:
                yield custom_frame(run_id, "heartbeat") if custom else HEARTBEAT
    except FAULTS as error:
        _log.warning("stream_cut", run_id=run_id, error=type(error).__name__)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("stream_failed", run_id=run_id)
        yield farewell(Cut.FAILED).sse(legacy=legacy)


def custom_frame(run_id: str, name: str) -> bytes:
    """Return an opt-in frame: ``connected`` or ``heartbeat``."""
    event = {"type": "CUSTOM", "runId": run_id, "timestamp": int(time.time() * 1000), "name": name}
    if name == "connected":
        event["message"] = f"SSE stream for run_id={run_id}"
    return f"data: {json.dumps(event)}\n\n".encode()
