"""Streams over WebSockets, one AG-UI event per message.

    WS /ws/events/{thread_id}           the events of a thread, or of one run of it
    WS /ws/agui, /ws/agui/{agent}       runs: the client sends the input of a run, and gets the run

A message is the event alone; with ``?frames=envelope`` it is ``{"id": …, "chunk": event}``, where the id, if any, is
the ``offset`` to continue from. With ``?frames=positions``, the stream of a thread begins with its position,
``{"id": …}`` alone, for a client that has none of an event: its offset if it is disconnected before the first one. The
heartbeat is the protocol's own ping.

A run's input is AG-UI's `RunAgentInput`, as for ``POST /agui``; ``on_disconnect``, ``active_run`` and ``history`` in
the query are as there. ``{"type": "abort", "runId": …}`` requests the end of a run, at once; one that waits does not
begin. The runs of a socket are sent one after the other, in the order of their inputs. Eight inputs may wait, of any
size, and more while all of them are below 1 MiB; what follows, an abort too, is read when the next run begins. What is
refused gets RUN_ERROR with the problem's name as code. A client that was disconnected follows its run by
``/ws/events/{thread_id}?run_id=…&offset=…``, or sends the input again.

    closes with 1000    the requested run is over: its last event was sent
                1008    the offset is not a position in this stream
                1011    an unexpected error: read the conversation again
                1012    this process is shutting down: reconnect with the offset
                1013    the client is too slow, or the database does not respond: reconnect with the offset
                4404    the session was deleted, or has expired, or there is none: do not reconnect
                4NNN    refused, with the problem of the HTTP status NNN; 4429 and 4503: try again later

The reason of a close says why, in words.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import structlog
from fastapi import APIRouter, Query, WebSocket
from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect, WebSocketState

from pulse.agui import types as agui
from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.database import FAULTS
from pulse.errors import InvalidInputError, PulseError, RunNotFoundError
from pulse.http.edge import problems
from pulse.http.edge.bodies import parse
from pulse.http.edge.refusals import close_reason, refuse_socket
from pulse.http.edge.schemas import decode
from pulse.http.edge.services import service_of
from pulse.http.edge.stream_access import (
    LAST_EVENT_ID_LENGTH_MAX,
    Access,
    StreamSettings,
    access_of,
    run_access_of,
)
from pulse.http.routes.agui import Options, RunOptions, begin
from pulse.http.routes.runs import Legacy, cancel_left, cursor_of
from pulse.http.routes.runs import cancel as cancel_run
from pulse.http.routes.threads import session_of, thread_cursor_of
from pulse.process.background import cancel
from pulse.runs.intake import Intake, RunIntake
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.streams.run_hub import Cut, StreamCutError, farewell
from pulse.streams.run_streams import RunStreams
from pulse.streams.thread_streams import ThreadStreams

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
#: How many inputs of a socket wait while a run is sent, whatever their size; further ones, while all of them are below
#: _INPUTS_BYTES_MAX.
_INPUTS_MAX = 8
_INPUTS_BYTES_MAX = 1024 * 1024
#: What an input takes up beside its text: many small ones are limited too.
_INPUT_BYTES = 1024
_log = structlog.get_logger(__name__)

router = APIRouter()


@dataclass(slots=True)
class _Input:
    """What a client sent: the input of a run, or why it is refused; and about how much memory it takes up."""

    given: agui.RunAgentInput | Exception
    size: int
    is_aborted: bool = False


class _Inputs:
    """What a client sent over a socket and is not answered yet, in order.

    It is read further than it is taken in: an abort may follow many inputs. What has no room is not read, so that the
    client is held back.

    Attributes:
        sent: the run that is being sent.
    """

    def __init__(self) -> None:
        self.sent: Run | None = None
        self._current: _Input | None = None
        self._waiting: deque[_Input] = deque()
        self._size = 0
        self._changed = asyncio.Condition()

    async def wait_for_room(self) -> None:
        """Wait until another input may wait."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._waiting) <= _INPUTS_MAX or self._size < _INPUTS_BYTES_MAX)

    async def put(self, given: agui.RunAgentInput | Exception, length: int) -> None:
        """Add an input, or why one is refused, and the length of its text."""
        async with self._changed:
            self._waiting.append(_Input(given, length + _INPUT_BYTES))
            self._size += self._waiting[-1].size
            self._changed.notify_all()

    async def take(self) -> _Input:
        """Return the next one, once there is one: it is the current one until the next call."""
        self._current = self.sent = None
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting)
            self._current = self._waiting.popleft()
            self._size -= self._current.size
            self._changed.notify_all()
        return self._current

    def abort(self, run_id: str) -> bool:
        """Mark the inputs of a run that wait or are being taken in as aborted; return whether there is one."""
        inputs = [each for each in (self._current, *self._waiting) if each is not None]
        marked = [each for each in inputs if isinstance(each.given, agui.RunAgentInput) and each.given.run_id == run_id]
        for each in marked:
            each.is_aborted = True
        return bool(marked)


class _End(NamedTuple):
    """How a stream ended: the code of the close, and its reason."""

    code: int
    reason: str


@router.websocket("/ws/events/{thread_id}")
async def follow_thread(
    socket: WebSocket,
    thread_id: str,
    run_id: Annotated[str | None, Query(max_length=512)] = None,
    offset: Annotated[str | None, Query(max_length=LAST_EVENT_ID_LENGTH_MAX)] = None,
    frames: Annotated[str, Query(pattern="^(agui|envelope|positions)$")] = "agui",
    legacy: Legacy = False,
) -> None:
    """Follow a thread, or one run of it."""
    try:
        source, start = await _open(socket, _decoded(thread_id), run_id, offset)
    except (problems.ProblemError, *_FAULTS) as error:
        await _refuse(socket, error)
        return
    await socket.accept()
    first = start if frames == "positions" else None
    sender = asyncio.create_task(_send(socket, source, first, in_envelope=frames != "agui", legacy=legacy))
    reader = asyncio.create_task(_wait_for_disconnection(socket))
    try:
        await asyncio.wait({sender, reader}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(sender, reader)


def _decoded(thread_id: str) -> str:
    try:
        return str(decode(thread_id))
    except UnicodeDecodeError:
        detail = "path/thread_id is not percent-encoded UTF-8"
        raise problems.ProblemError(problems.INVALID_REQUEST, detail) from None


async def _open(
    socket: HTTPConnection, thread_id: str, run_id: str | None, offset: str | None
) -> tuple[_Frames, str | None]:
    """Return the frames to send, and the position before them if the client has none of a frame.

    Raises:
        ProblemError: the client may not follow this stream.
        SessionNotFoundError, RunNotFoundError: it does not exist.
    """
    access = await access_of(socket)
    access.require_session(thread_id)
    access.require_run(run_id)
    session = await session_of(socket, access, thread_id)
    heartbeat_seconds = service_of(socket, StreamSettings).heartbeat_seconds
    if run_id is None:
        threads = service_of(socket, ThreadStreams)
        cursor = await thread_cursor_of(threads, session, offset)
        start = None if cursor.within is not None else str(cursor)
        return threads.follow(session, cursor, heartbeat_seconds=heartbeat_seconds), start
    run = await service_of(socket, RunService).get(*access.owner, run_id)
    if run.thread_id != session.thread_id:
        raise RunNotFoundError(f"session {thread_id!r} has no run {run_id!r}")
    # Without an offset, the events of a run come from its start, however often the client comes back.
    return _run_frames(socket, run, cursor_of(offset, None)), None


async def _run_frames(socket: HTTPConnection, run: Run, cursor: Cursor | None, **options: Any) -> _Frames:
    heartbeat_seconds = service_of(socket, StreamSettings).heartbeat_seconds
    async with service_of(socket, RunStreams).follow(run, cursor, **options) as follower:
        async for frames in follower.batches(heartbeat_seconds):
            yield frames


async def _send(socket: WebSocket, source: _Frames, start: str | None, *, in_envelope: bool, legacy: bool) -> None:
    """Send the start, if any, and frames until the stream ends; close with the code and the reason that say why."""
    end = await _send_all(socket, source, start, in_envelope=in_envelope, legacy=legacy)
    if end is not None:
        await _close(socket, end)


async def _send_all(
    socket: WebSocket, source: _Frames, start: str | None = None, *, in_envelope: bool, legacy: bool
) -> _End | None:
    """Send frames, and return how the stream ended; None if the client disconnected."""
    try:
        if start is not None:
            await socket.send_text(f'{{"id":"{start}"}}')
        async with aclosing(source) as batches:  # type: ignore[type-var]  # they are generators
            async for batch in batches:
                for frame in batch:
                    await socket.send_text(_message(frame, in_envelope=in_envelope, legacy=legacy))
    except StreamCutError as error:
        return _End(_CODES[error.cut], error.cut.value)
    except InvalidInputError as error:
        return _End(_BAD_OFFSET, str(error))
    except _FAULTS as error:
        _log.warning("stream_cut", error=type(error).__name__)
        return _End(_TRY_AGAIN, Cut.UNREADABLE.value)
    except WebSocketDisconnect:
        return None
    except Exception:  # noqa: BLE001 - an unexpected error is logged with its traceback, and reported to the client
        if {socket.application_state, socket.client_state} != {WebSocketState.CONNECTED}:
            return None  # The client disconnected.
        _log.exception("stream_failed")
        return _End(_FAILED, Cut.FAILED.value) if await _tell(socket, farewell(Cut.FAILED)) else None
    return _End(1000, "the run is over")


def _message(frame: Frame, *, in_envelope: bool, legacy: bool) -> str:
    body = frame.json(legacy=legacy).decode()
    position = f'"id":"{frame.id}",' if frame.id else ""
    return f'{{{position}"chunk":{body}}}' if in_envelope else body


async def _tell(socket: WebSocket, frame: Frame) -> bool:
    """Send a frame of no run; False if the client has disconnected."""
    try:
        await socket.send_text(frame.json().decode())
    except (WebSocketDisconnect, RuntimeError):
        return False
    return True


async def _close(socket: WebSocket, end: _End) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # The client has disconnected.
        await socket.close(end.code, close_reason(end.reason))


async def _refuse(socket: WebSocket, error: Exception) -> None:
    kind = problems.kind_of(error)
    if kind is problems.INTERNAL:
        raise error  # The edge logs it.
    detail = str(error.detail) if isinstance(error, problems.ProblemError) else ""
    await refuse_socket(socket, kind, detail)


@router.websocket("/ws/agui")
async def run_default_agent(
    socket: WebSocket,
    options: Options,
    offset: Annotated[str | None, Query(max_length=LAST_EVENT_ID_LENGTH_MAX)] = None,
    frames: Annotated[str, Query(pattern="^(agui|envelope)$")] = "agui",
) -> None:
    """Run the agent called `default`, or the only one, as often as the client sends an input."""
    await _run_agents(socket, None, options, offset, in_envelope=frames == "envelope")


@router.websocket("/ws/agui/{agent_name}")
async def run_agent(
    socket: WebSocket,
    agent_name: str,
    options: Options,
    offset: Annotated[str | None, Query(max_length=LAST_EVENT_ID_LENGTH_MAX)] = None,
    frames: Annotated[str, Query(pattern="^(agui|envelope)$")] = "agui",
) -> None:
    """Run one of the registered agents as often as the client sends an input."""
    await _run_agents(socket, agent_name, options, offset, in_envelope=frames == "envelope")


async def _run_agents(
    socket: WebSocket, agent_name: str | None, options: RunOptions, offset: str | None, *, in_envelope: bool
) -> None:
    try:
        access = await run_access_of(socket)
        cursor = cursor_of(offset, None)
    except (problems.ProblemError, *_FAULTS) as error:
        await _refuse(socket, error)
        return
    await socket.accept()
    inputs = _Inputs()
    begin_run = functools.partial(_begin, socket, agent_name, access, options, inputs)
    tasks = (
        asyncio.create_task(_read_inputs(socket, access, inputs)),
        asyncio.create_task(_answer_inputs(socket, begin_run, options, inputs, cursor, in_envelope=in_envelope)),
    )
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
    if options.cancels_on_disconnect and inputs.sent is not None:
        await cancel_left(socket, inputs.sent)


async def _read_inputs(socket: WebSocket, access: Access, inputs: _Inputs) -> None:
    """Pass inputs of runs on, and requests to end one, until the client disconnects."""
    while True:
        await inputs.wait_for_room()
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        sent = message.get("text") or message.get("bytes", b"")
        try:
            value = parse(sent.encode() if isinstance(sent, str) else sent)
            if isinstance(value, dict) and value.get("type") == "abort":
                await _abort(socket, access, inputs, value.get("runId"))
            else:
                await inputs.put(agui.RunAgentInput.model_validate(value), len(sent))
        except (ValueError, problems.ProblemError, *_FAULTS) as error:
            # Reported between two runs: RUN_ERROR would end the one that is being sent.
            await inputs.put(error, len(sent))


async def _abort(socket: WebSocket, access: Access, inputs: _Inputs, run_id: object) -> None:
    if not isinstance(run_id, str):
        raise problems.ProblemError(problems.INVALID_REQUEST, "an abort names its run as 'runId'")
    access.require_run(run_id)
    is_to_begin = inputs.abort(run_id)
    try:
        if access.session_id is not None:
            access.require_session((await service_of(socket, RunService).get(*access.owner, run_id)).session_id)
        await cancel_run(socket, *access.owner, run_id)
    except RunNotFoundError:
        if not is_to_begin:
            raise


async def _begin(
    socket: WebSocket,
    agent_name: str | None,
    access: Access,
    options: RunOptions,
    inputs: _Inputs,
    requested: _Input,
) -> Intake:
    """Start the run of an input, or find it, and note it as the one that is sent.

    Raises:
        Exception: it is refused, or it was aborted before it began.
    """
    if isinstance(requested.given, Exception):
        raise requested.given
    if requested.is_aborted and await service_of(socket, RunIntake).find(*access.owner, requested.given) is None:
        detail = f"run {requested.given.run_id[:80]!r} was aborted before it began: nothing of it is stored"
        raise problems.ProblemError(problems.RUN_ENDED, detail)
    beginning = asyncio.ensure_future(begin(socket, agent_name, requested.given, access, options))
    try:
        taken = await asyncio.shield(beginning)
    except asyncio.CancelledError:
        # The client has disconnected. A run that is stored must be executed, or be cancelled as the client chose.
        with contextlib.suppress(problems.ProblemError, *_FAULTS):
            inputs.sent = (await beginning).run
        raise
    inputs.sent = taken.run
    if requested.is_aborted:
        await cancel_run(socket, *access.owner, taken.run.run_id)
    return taken


async def _answer_inputs(
    socket: WebSocket,
    begin_run: Callable[[_Input], Awaitable[Intake]],
    options: RunOptions,
    inputs: _Inputs,
    cursor: Cursor | None,
    *,
    in_envelope: bool,
) -> None:
    """Run one input after the other, and send the frames of each."""
    while True:
        requested = await inputs.take()
        try:
            taken = await begin_run(requested)
        except Exception as error:  # noqa: BLE001 - an unexpected error is raised again after it was reported
            if not await _report(socket, error):
                return
            continue
        source = _run_frames(
            socket,
            taken.run,
            cursor,
            with_history=options.sends_history(taken, cursor),
            known_inputs=taken.sent_ids,
        )
        is_legacy = isinstance(requested.given, agui.RunAgentInput) and requested.given.protocol_version is None
        end = await _send_all(socket, source, in_envelope=in_envelope, legacy=is_legacy)
        cursor = None
        if end is None:
            return
        if end.code != 1000:
            inputs.sent = None
            await _close(socket, end)
            return


async def _report(socket: WebSocket, error: Exception) -> bool:
    """Send what was refused as RUN_ERROR; False if the client has disconnected. What is unexpected is raised again."""
    kind = problems.INVALID_REQUEST if isinstance(error, ValueError) else problems.kind_of(error)
    detail = kind.advice
    if isinstance(error, ValidationError):
        wrong = error.errors(include_input=False, include_url=False)[0]
        detail = f"{'/'.join(map(str, wrong['loc']))}: {wrong['msg']}"
    elif isinstance(error, problems.ProblemError):
        detail = str(error.detail)
    elif isinstance(error, PulseError) and kind.status < 500:
        detail = str(error)
    is_told = await _tell(socket, Frame("", agui.RunErrorEvent(message=f"{kind.title}: {detail}", code=kind.slug)))
    if kind is problems.INTERNAL:
        raise error  # The edge logs it, and closes the socket.
    return is_told


async def _wait_for_disconnection(socket: WebSocket) -> None:
    """Read and ignore a client's messages until it disconnects."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
