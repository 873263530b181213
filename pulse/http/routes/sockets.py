"""``WS /ws/events/{thread_id}``: the events of a thread, or of one run of it, one AG-UI event per message.

A message is the event alone; with ``?frames=envelope`` it is ``{"id": …, "chunk": event}``, where the id, if any, is
the ``offset`` to continue from. The heartbeat is the protocol's own ping.

    closes with 1000    the requested run is over: its last event was sent
                1008    the offset is not a position in this stream
                1011    the stream failed: read the conversation again
                1012    this process is shutting down: reconnect with the offset
                1013    the client is too slow: reconnect with the offset
                4404    the session was deleted, or has expired: do not reconnect
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated

import structlog
from fastapi import APIRouter, Query, WebSocket
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect, WebSocketState

from pulse.agui.frames import Frame
from pulse.database import FAULTS
from pulse.errors import InvalidInputError, PulseError, RunNotFoundError
from pulse.events import Session
from pulse.http.edge import problems
from pulse.http.edge.schemas import decode
from pulse.http.edge.services import service_of
from pulse.http.edge.stream_access import LAST_EVENT_ID_LENGTH_MAX, StreamSettings, access_of
from pulse.http.routes.runs import Legacy, cursor_of
from pulse.runs.service import RunService
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.streams.run_hub import Cut, farewell
from pulse.streams.run_streams import RunStreams
from pulse.streams.thread_streams import StreamCutError, ThreadCursor, ThreadStreams

_BAD_OFFSET, _FAILED, _RESTART, _TRY_AGAIN, _GONE = 1008, 1011, 1012, 1013, 4404
_CODES = {
    Cut.ENDING: _RESTART,
    Cut.SLOW: _TRY_AGAIN,
    Cut.UNREADABLE: _TRY_AGAIN,
    Cut.GONE: _GONE,
    Cut.FAILED: _FAILED,
}
_FAULTS = (PulseError, *FAULTS)
_Frames = AsyncIterator[Sequence[Frame]]
_log = structlog.get_logger(__name__)

router = APIRouter()


@router.websocket("/ws/events/{thread_id}")
async def follow_thread(
    socket: WebSocket,
    thread_id: str,
    run_id: Annotated[str | None, Query(max_length=512)] = None,
    offset: Annotated[str | None, Query(max_length=LAST_EVENT_ID_LENGTH_MAX)] = None,
    frames: Annotated[str, Query(pattern="^(agui|envelope)$")] = "agui",
    legacy: Legacy = False,
) -> None:
    """Follow a thread, or one run of it."""
    try:
        source = await _open(socket, _decoded(thread_id), run_id, offset)
    except (problems.ProblemError, *_FAULTS) as error:
        await socket.send_denial_response(problems.response_of(error, socket.state.request_id))
        return
    await socket.accept()
    sender = asyncio.create_task(_send(socket, source, in_envelope=frames == "envelope", legacy=legacy))
    reader = asyncio.create_task(_wait_for_disconnection(socket))
    try:
        await asyncio.wait({sender, reader}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sender, reader):
            task.cancel()
        await asyncio.gather(sender, reader, return_exceptions=True)


def _decoded(thread_id: str) -> str:
    try:
        return str(decode(thread_id))
    except UnicodeDecodeError:
        detail = "path/thread_id is not percent-encoded UTF-8"
        raise problems.ProblemError(problems.INVALID_REQUEST, detail) from None


async def _open(socket: HTTPConnection, thread_id: str, run_id: str | None, offset: str | None) -> _Frames:
    """Return the frames to send.

    Raises:
        ProblemError: the client may not follow this stream.
        SessionNotFoundError, RunNotFoundError: it does not exist.
    """
    access = await access_of(socket)
    access.require_session(thread_id)
    access.require_run(run_id)
    key = SessionKey(*access.owner, thread_id)
    session = await service_of(socket, OpenSessionService).get_session(*key, num_recent_events=0)
    if session is None:
        raise key.not_found()
    if run_id is None:
        return await _thread(socket, session, offset)
    run = await service_of(socket, RunService).get(*access.owner, run_id)
    if run.thread_id != session.thread_id:
        raise RunNotFoundError(f"session {thread_id!r} has no run {run_id!r}")
    streams = service_of(socket, RunStreams)
    heartbeat_seconds = service_of(socket, StreamSettings).heartbeat_seconds
    cursor = cursor_of(offset, None)

    async def frames() -> _Frames:
        async with streams.follow(run, cursor) as follower:
            while not follower.is_over:
                yield await follower.take(heartbeat_seconds)
            if follower.cut is not None:
                raise StreamCutError(follower.cut)

    return frames()


async def _thread(socket: HTTPConnection, session: Session, offset: str | None) -> _Frames:
    threads = service_of(socket, ThreadStreams)
    if offset in (None, "", "-1"):
        cursor = await threads.start_of(session, from_newest=offset == "-1")
    else:
        cursor = ThreadCursor.parse(str(offset))
    return threads.follow(session, cursor, heartbeat_seconds=service_of(socket, StreamSettings).heartbeat_seconds)


async def _send(socket: WebSocket, source: _Frames, *, in_envelope: bool, legacy: bool) -> None:
    """Send frames until the stream ends, and close with the code that says why."""
    code = 1000
    try:
        async with aclosing(source) as batches:  # type: ignore[type-var]  # they are generators
            async for batch in batches:
                for frame in batch:
                    body = frame.json(legacy=legacy).decode()
                    position = f'"id":"{frame.id}",' if frame.id else ""
                    await socket.send_text(f'{{{position}"chunk":{body}}}' if in_envelope else body)
    except StreamCutError as error:
        code = _CODES[error.cut]
    except InvalidInputError:
        code = _BAD_OFFSET
    except _FAULTS as error:
        _log.warning("stream_cut", error=type(error).__name__)
        code = _TRY_AGAIN
    except WebSocketDisconnect:
        return
    except Exception:  # noqa: BLE001 - an unexpected error is logged with its traceback, and reported to the client
        if {socket.application_state, socket.client_state} != {WebSocketState.CONNECTED}:
            return  # The client disconnected.
        _log.exception("stream_failed")
        code = _FAILED
        await socket.send_text(farewell(Cut.FAILED).json().decode())
    await socket.close(code)


async def _wait_for_disconnection(socket: WebSocket) -> None:
    """Read and ignore a client's messages until it disconnects."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
