"""The routes of runs: follow one, cancel one, and get a ticket for a browser."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any, Final, Literal

import structlog
from fastapi import Depends, Header, Query, Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from pulse.agui.cursor import Cursor
from pulse.database import FAULTS
from pulse.errors import PulseError, RunNotFoundError
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.frame_stream import FrameStream, sender_of, sse_of
from pulse.http.edge.origins import page_headers
from pulse.http.edge.owner import AssertedOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import check_role, grant_of, require
from pulse.http.edge.routing import make_router
from pulse.http.edge.schemas import RunId, ThreadId
from pulse.http.edge.services import service, service_of
from pulse.http.edge.stream_access import (
    LAST_EVENT_ID_LENGTH_MAX,
    Access,
    StreamSettings,
    access_of,
    run_access_of,
)
from pulse.http.routes.runs_schemas import (
    AgentListView,
    AgentView,
    MessageListView,
    ModelPricesView,
    RunListView,
    RunView,
    TicketInput,
    TicketView,
)
from pulse.runs.agents import AgentRunner
from pulse.runs.prices import ModelPrices
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.streams.run_streams import RunStreams
from pulse.tickets import Ticket, TicketService

_log = structlog.get_logger(__name__)
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
    request: Request,
    run: Run,
    cursor: Cursor | None,
    *,
    custom: bool = False,
    legacy: bool = False,
    cancels_on_disconnect: bool = False,
    **options: Any,
) -> Response:
    """Return a response that follows a run. Errors are raised before the response begins.

    Args:
        request, run, cursor: who follows what, and from where.
        custom, legacy: as for `sse_of`.
        cancels_on_disconnect: cancel the run if the client disconnects before the stream has ended.
        options: of `RunStreams.follow`.
    """
    if is_past_the_end(run, cursor):
        return Response(status_code=204)
    streams = service_of(request, RunStreams)
    release = AsyncExitStack()
    at_once = sender_of(request.scope, legacy=legacy)
    follower = await release.enter_async_context(streams.follow(run, cursor, send_at_once=at_once, **options))
    batches = follower.batches(service_of(request, StreamSettings).heartbeat_seconds)
    chunks = sse_of(batches, run.run_id, legacy=legacy, custom=custom)
    if cancels_on_disconnect:
        watched = _Watched(chunks, request, run)
        chunks = watched.chunks()
        release.push_async_callback(watched.note_disconnection)
    return streamed(request, chunks, release)


def streamed(request: Request, chunks: AsyncGenerator[bytes], release: AsyncExitStack) -> FrameStream:
    """Return the response of a stream, which pages of the origin that asked for it may read."""
    # A client may disconnect while nothing waits for the next chunk.
    release.push_async_callback(chunks.aclose)
    return FrameStream(chunks, release, page_headers(request.scope))


class _Watched:
    """A response that may be left before its end."""

    def __init__(self, chunks: AsyncGenerator[bytes], request: Request, run: Run) -> None:
        self._chunks = chunks
        self._request = request
        self._run = run
        self._is_over = False

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the response's chunks."""
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                yield chunk
        self._is_over = True

    async def note_disconnection(self) -> None:
        """Cancel the run, unless the response was sent to its end."""
        if not self._is_over:
            await cancel_left(self._request, self._run)


async def cancel(connection: HTTPConnection, app_name: str, user_id: str, run_id: str) -> Run:
    """Request the end of a run, at once if this process executes it, and return the run.

    Raises:
        RunNotFoundError: there is none.
    """
    run = await service_of(connection, RunService).request_cancel(app_name, user_id, run_id)
    service_of(connection, AgentRunner).wake_cancelled(run)
    return run


async def cancel_left(connection: HTTPConnection, run: Run) -> None:
    """Cancel the run of a client that has disconnected."""
    try:
        await cancel(connection, run.app_name, run.user_id, run.run_id)
    except (PulseError, *FAULTS) as error:
        # The run continues; another request may cancel it.
        _log.warning("cancel_failed", run_id=run.run_id, error=type(error).__name__)


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


@router.get(
    "/runs/{run_id}",
    summary="Read a run",
    dependencies=[require("read")],
    response_model=RunView,
    responses=problems.documented(problems.RUN_NOT_FOUND),
)
async def get_run(run_id: RunId, runs: Runs, owner: AssertedOwner) -> Response:
    """Read the status of a run, and why it failed."""
    run = await runs.get(*owner, run_id)
    return reply(RunView.of(run, thread_id=run.session_id))


@router.get(
    "/runs/{run_id}/messages",
    summary="Read the conversation of a run",
    dependencies=[require("read")],
    response_model=MessageListView,
    responses=problems.documented(problems.RUN_NOT_FOUND),
)
async def list_messages(
    run_id: RunId,
    runs: Runs,
    owner: AssertedOwner,
    limit: Annotated[int, Query(ge=1, le=1000, description="Of the newest stored events that are messages.")] = 200,
) -> Response:
    """Read the conversation of a run's session as AG-UI's messages, the run's own included: for an agent's model."""
    run = await runs.get(*owner, run_id)
    return reply(MessageListView(messages=await runs.history(run, limit=limit)))


@router.get(
    "/threads/{thread_id}/runs",
    summary="List the runs of a thread",
    dependencies=[require("read")],
    response_model=RunListView,
    responses=problems.documented(problems.SESSION_NOT_FOUND),
)
async def list_runs(
    request: Request,
    thread_id: ThreadId,
    runs: Runs,
    sessions: Annotated[OpenSessionService, service(OpenSessionService)],
    prices: Annotated[ModelPrices, service(ModelPrices)],
    owner: AssertedOwner,
    page: Annotated[Page, page_of(100)],
) -> Response:
    """List the runs of a session, the newest first."""
    found = await runs.list_runs(*owner, thread_id, limit=page.limit, before=page.start(uuid.UUID))
    if not found and await sessions.get_session(*owner, thread_id, num_recent_events=0, state_keys=()) is None:
        raise SessionKey(*owner, thread_id).not_found()
    following = page.next_cursor(found, lambda each: each.id)
    shown = [RunView.of(run, thread_id=run.session_id) for run in found]
    grant = grant_of(request)
    # What the operator pays is not for those who hold a key of one user.
    view = None if grant is None or grant.user_id is not None else ModelPricesView.of(prices)
    return reply(RunListView(runs=shown, prices=view, next_cursor=following))


@router.get("/agents", summary="List the agents", dependencies=[require("read")], response_model=AgentListView)
async def list_agents(runner: Annotated[AgentRunner, service(AgentRunner)], _owner: AssertedOwner) -> Response:
    """List the agents that this process runs with POST /agui/{agent_name}, and what they declare of themselves."""
    agents = [AgentView.of(each) for each in runner.described()]
    return reply(AgentListView(agents=agents))


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
    request: Request,
    run_id: RunId,
    runs: Runs,
    access: Annotated[Access, Depends(run_access_of)],
    ticket: TicketQuery = None,
) -> Response:
    """Request the cancellation of a run. Its stream ends with the outcome `cancelled` within seconds."""
    access.require_run(run_id)
    if access.session_id is not None:
        access.require_session((await runs.get(*access.owner, run_id)).session_id)
    run = await cancel(request, *access.owner, run_id)
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
