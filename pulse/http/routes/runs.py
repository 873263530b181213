"""The routes of runs: follow one, cancel one, and get a ticket for a browser."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from pulse.agui.cursor import Cursor
from pulse.errors import RunNotFoundError
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.frame_stream import FrameStream, frames_of
from pulse.http.edge.owner import AssertedOwner
from pulse.http.edge.roles import require
from pulse.http.edge.stream_access import LAST_EVENT_ID_LENGTH_MAX, Access, access_of
from pulse.http.routes import schemas
from pulse.runs.agents import AgentRunner
from pulse.runs.records import Run, RunStatus
from pulse.runs.service import RunService
from pulse.streams.run_streams import RunStreams
from pulse.tickets import Ticket, TicketService

router = APIRouter(
    prefix="/api",
    tags=["streams"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)

RunId = Annotated[schemas.Id, BeforeValidator(schemas.decode), Path(description="The run, as its client calls it.")]
Offset = Annotated[
    str | None,
    Query(
        max_length=LAST_EVENT_ID_LENGTH_MAX,
        description="The id of the last frame, or -1 for all; before Last-Event-ID.",
    ),
]
LastEventId = Annotated[str | None, Header(max_length=LAST_EVENT_ID_LENGTH_MAX)]
Frames = Annotated[
    Literal["agui", "custom"], Query(description="custom: the first frame and the heartbeats are CUSTOM events.")
]
Legacy = Annotated[bool, Query(description="For clients before protocol 1.0: no outcome that they refuse.")]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "The run's AG-UI events, as they come.", "content": {"text/event-stream": {}}}
}
OVER: dict[int | str, dict[str, Any]] = {
    204: {"description": "The client has the run's last frame: there will be no more. Do not come back."}
}


class RunView(BaseModel):
    """A run as it stands."""

    run_id: str
    thread_id: Annotated[str, Field(description="The session's id.")]
    status: RunStatus
    cancel_requested: bool
    error: str | None
    error_code: str | None
    started_at: datetime
    completed_at: datetime | None

    @classmethod
    def of(cls, run: Run) -> RunView:
        """Describe a run."""
        return cls(
            run_id=run.run_id,
            thread_id=run.session_id,
            status=run.status,
            cancel_requested=run.cancel_requested,
            error=run.error,
            error_code=run.error_code,
            started_at=run.started_at,
            completed_at=run.completed_at,
        )


class TicketInput(schemas.Body):
    """What a ticket is to allow."""

    thread_id: Annotated[schemas.Id, Field(description="The session whose streams may be followed.")]
    run_id: Annotated[schemas.Id | None, Field(description="Only this run; any of the session where left out.")] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"thread_id": "order-17"}]})


class TicketView(BaseModel):
    """A ticket, shown once."""

    ticket: Annotated[str, Field(description="For the query of one connection: ?ticket=…")]
    expires_at: datetime


def run_service(request: Request) -> RunService:
    """Return this process's service of runs."""
    service: RunService = request.app.state.runs
    return service


Runs = Annotated[RunService, Depends(run_service)]


def cursor_of(offset: str | None, last_event_id: str | None) -> Cursor | None:
    """Return where a client is; None where it has nothing.

    Raises:
        InvalidInputError: what it sent is no cursor.
    """
    # An EventSource that comes back asks for the same address, and says in the header how far it is.
    given = last_event_id or offset
    return None if given in (None, "", "-1") else Cursor.parse(str(given))


def is_past_the_end(run: Run, cursor: Cursor | None) -> bool:
    """Whether a client has the last frame of a run."""
    return cursor is not None and run.status.is_terminal and cursor.sequence >= run.last_sequence_num


async def stream(
    request: Request, run: Run, cursor: Cursor | None, *, custom: bool = False, legacy: bool = False, **options: Any
) -> Response:
    """Follow a run in a response; what is wrong is raised before it begins."""
    if is_past_the_end(run, cursor):
        return Response(status_code=204)
    streams: RunStreams = request.app.state.run_streams
    release = AsyncExitStack()
    follower = await release.enter_async_context(streams.follow(run, cursor, **options))
    chunks = frames_of(
        follower, run.run_id, heartbeat_seconds=request.app.state.heartbeat_seconds, legacy=legacy, custom=custom
    )
    origin = request.headers.get("origin")
    headers = {} if origin is None else {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
    return FrameStream(chunks, release, headers)


@router.get(
    "/runs/{run_id}/events",
    summary="Follow a run",
    dependencies=[require("read")],
    response_class=Response,
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
    ticket: Annotated[str | None, Query(max_length=200, description="In the place of the key; for one use.")] = None,
) -> Response:
    """Stream a run as AG-UI events over SSE, from its start or after the frame that is named, to its last event.

    Each frame has an id of its own: an EventSource comes back with it as Last-Event-ID and goes on where it was cut.
    """
    access.require_run(run_id)
    run = await runs.get(access.owner.app_name, access.owner.user_id, run_id)
    access.require_session(run.session_id)
    return await stream(request, run, cursor_of(offset, last_event_id), custom=frames == "custom", legacy=legacy)


@router.post(
    "/runs/{run_id}/cancel",
    summary="Cancel a run",
    dependencies=[require("append")],
    status_code=202,
    response_model=RunView,
    responses={
        200: {"model": RunView, "description": "The run had ended already: it stays as it ended."},
        **problems.documented(problems.RUN_NOT_FOUND),
    },
)
async def cancel_run(request: Request, run_id: RunId, runs: Runs, owner: AssertedOwner) -> Response:
    """Ask whoever executes a run to cancel it. Its stream ends with the outcome `cancelled`, in seconds at most."""
    run = await runs.request_cancel(owner.app_name, owner.user_id, run_id)
    runner: AgentRunner = request.app.state.agent_runner
    runner.wake_cancelled(run)
    return reply(RunView.of(run), 200 if run.status.is_terminal else 202)


@router.post(
    "/tickets",
    summary="Get a ticket for a browser",
    dependencies=[require("read")],
    status_code=201,
    response_model=TicketView,
    responses=problems.documented(*problems.BODY, problems.SESSION_NOT_FOUND, problems.RUN_NOT_FOUND),
)
async def issue_ticket(request: Request, body: TicketInput, owner: AssertedOwner, runs: Runs) -> Response:
    """Make a ticket with which a browser may follow the streams of one session, or one run of it, once and soon."""
    if body.run_id is not None:
        run = await runs.get(owner.app_name, owner.user_id, body.run_id)
        if run.session_id != body.thread_id.strip():
            raise RunNotFoundError(f"session {body.thread_id!r} has no run {body.run_id!r}")
    tickets: TicketService = request.app.state.tickets
    issued = await tickets.issue(
        Ticket(app_name=owner.app_name, user_id=owner.user_id, session_id=body.thread_id.strip(), run_id=body.run_id)
    )
    return reply(TicketView(ticket=issued.token, expires_at=issued.expires_at), 201)
