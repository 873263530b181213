"""The routes of runs: follow one, cancel one, and get a ticket for a browser."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Header, Query, Request
from starlette.responses import Response

from pulse.agui.cursor import Cursor
from pulse.errors import RunNotFoundError
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.frame_stream import FrameStream, sse_of
from pulse.http.edge.owner import AssertedOwner
from pulse.http.edge.roles import check_role, require
from pulse.http.edge.routing import make_router
from pulse.http.edge.schemas import RunId
from pulse.http.edge.services import service, service_of
from pulse.http.edge.stream_access import (
    LAST_EVENT_ID_LENGTH_MAX,
    Access,
    StreamSettings,
    access_of,
    run_access_of,
)
from pulse.http.routes.runs_schemas import RunView, TicketInput, TicketView
from pulse.runs.agents import AgentRunner
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.streams.run_streams import RunStreams
from pulse.tickets import Ticket, TicketService

router = make_router("streams", "/api")

Runs = Annotated[RunService, service(RunService)]
Offset = Annotated[
    str | None,
    Query(
        max_length=LAST_EVENT_ID_LENGTH_MAX,
        description="The id of the last frame, or -1 for every frame; Last-Event-ID takes precedence.",
    ),
]
LastEventId = Annotated[str | None, Header(max_length=LAST_EVENT_ID_LENGTH_MAX)]
Frames = Annotated[
    Literal["agui", "custom"], Query(description="custom: the first frame and the heartbeats are CUSTOM events.")
]
TicketQuery = Annotated[
    str | None, Query(max_length=200, description="Replaces the key, until it expires: see `POST /api/tickets`.")
]
Legacy = Annotated[bool, Query(description="For clients before protocol 1.0: omit the outcomes that they refuse.")]
STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The run's AG-UI events, as they occur.", "content": {"text/event-stream": {}}}
}
OVER: Final[dict[int | str, dict[str, Any]]] = {
    204: {"description": "The client has the run's last frame. Do not reconnect."}
}


def cursor_of(offset: str | None, last_event_id: str | None) -> Cursor | None:
    """Return a client's position in a stream; None if it has received nothing.

    Raises:
        InvalidInputError: what it sent is not a cursor.
    """
    # An EventSource reconnects to the same address, and sends its position in the header.
    given = last_event_id or offset
    return None if given in (None, "", "-1") else Cursor.parse(str(given))


def is_past_the_end(run: Run, cursor: Cursor | None) -> bool:
    """Whether a client has the last frame of a run."""
    return cursor is not None and run.status.is_terminal and cursor.sequence >= run.last_sequence_num


async def stream(
    request: Request, run: Run, cursor: Cursor | None, *, custom: bool = False, legacy: bool = False, **options: Any
) -> Response:
    """Return a response that follows a run. Errors are raised before the response begins."""
    if is_past_the_end(run, cursor):
        return Response(status_code=204)
    streams = service_of(request, RunStreams)
    release = AsyncExitStack()
    follower = await release.enter_async_context(streams.follow(run, cursor, **options))
    batches = follower.batches(service_of(request, StreamSettings).heartbeat_seconds)
    return streamed(request, sse_of(batches, run.run_id, legacy=legacy, custom=custom), release)


def streamed(request: Request, chunks: AsyncGenerator[bytes], release: AsyncExitStack) -> FrameStream:
    """Return the response of a stream, which pages of the origin that asked for it may read."""
    origin = request.headers.get("origin")
    headers = {} if origin is None else {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
    # A client may disconnect while nothing waits for the next chunk.
    release.push_async_callback(chunks.aclose)
    return FrameStream(chunks, release, headers)


@router.get(
    "/runs/{run_id}/events",
    summary="Follow a run",
    dependencies=[require("read")],
    response_class=FrameStream,
    responses={
        **STREAM,
        **OVER,
        **problems.documented(
            problems.WRONG_TICKET, problems.WRONG_ORIGIN, problems.RUN_NOT_FOUND, problems.RUN_PRUNED, problems.ENDING
        ),
    },
)
async def follow_run(
    request: Request,
    run_id: RunId,
    runs: Runs,
    access: Annotated[Access, Depends(access_of)],
    offset: Offset = None,
    last_event_id: LastEventId = None,
    frames: Frames = "agui",
    legacy: Legacy = False,
    ticket: TicketQuery = None,
) -> Response:
    """Stream a run as AG-UI events over SSE, from its start or after the named frame, to its last event.

    Each frame has an id: an EventSource that reconnects sends it as Last-Event-ID and continues where it stopped.
    """
    access.require_run(run_id)
    run = await runs.get(*access.owner, run_id)
    access.require_session(run.session_id)
    return await stream(request, run, cursor_of(offset, last_event_id), custom=frames == "custom", legacy=legacy)


@router.post(
    "/runs/{run_id}/cancel",
    summary="Cancel a run",
    dependencies=[require("append")],
    status_code=202,
    response_model=RunView,
    responses={
        200: {"model": RunView, "description": "The run had already ended: nothing was changed."},
        **problems.documented(problems.WRONG_TICKET, problems.WRONG_ORIGIN, problems.RUN_NOT_FOUND),
    },
)
async def cancel_run(
    run_id: RunId,
    runs: Runs,
    runner: Annotated[AgentRunner, service(AgentRunner)],
    access: Annotated[Access, Depends(run_access_of)],
    ticket: TicketQuery = None,
) -> Response:
    """Request the cancellation of a run. Its stream ends with the outcome `cancelled` within seconds."""
    access.require_run(run_id)
    if access.session_id is not None:
        access.require_session((await runs.get(*access.owner, run_id)).session_id)
    run = await runs.request_cancel(*access.owner, run_id)
    runner.wake_cancelled(run)
    return reply(RunView.of(run, thread_id=run.session_id), 200 if run.status.is_terminal else 202)


@router.post(
    "/tickets",
    summary="Get a ticket for a browser",
    dependencies=[require("read")],
    status_code=201,
    response_model=TicketView,
    responses=problems.documented(*problems.BODY, problems.SESSION_NOT_FOUND, problems.RUN_NOT_FOUND),
)
async def issue_ticket(
    request: Request,
    body: TicketInput,
    owner: AssertedOwner,
    runs: Runs,
    tickets: Annotated[TicketService, service(TicketService)],
) -> Response:
    """Issue a ticket with which a browser may follow the streams of one session, or one run of it, until it expires.

    With `may_run` it also runs agents in the session: `POST /agui?ticket=…`, and cancels their runs.
    """
    if body.may_run:
        check_role(request, "append")
    session_id = body.thread_id.strip()
    if body.run_id is not None and not body.may_run:
        run = await runs.get(*owner, body.run_id)
        if run.session_id != session_id:
            raise RunNotFoundError(f"session {body.thread_id!r} has no run {body.run_id!r}")
    ticket = Ticket(
        app_name=owner.app_name,
        user_id=owner.user_id,
        session_id=session_id,
        run_id=body.run_id,
        may_run=body.may_run,
    )
    issued = await tickets.issue(ticket)
    return reply(TicketView(ticket=issued.token, expires_at=issued.expires_at), 201)
