"""``POST /agui``: AG-UI's own way to run an agent, with its events streamed over SSE.

A run is executed once. A request with the id of an existing run follows that run, from its start or, with
Last-Event-ID, from the client's position.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from fastapi import Depends, Path, Query, Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from pulse.agui import types as agui
from pulse.agui.cursor import Cursor
from pulse.http.edge import problems
from pulse.http.edge.frame_stream import FrameStream
from pulse.http.edge.roles import require
from pulse.http.edge.routing import make_router
from pulse.http.edge.services import service_of
from pulse.http.edge.stream_access import Access, run_access_of
from pulse.http.routes.runs import OVER, STREAM, LastEventId, TicketQuery, cursor_of, stream
from pulse.runs.agents import AgentRunner, runs_alone
from pulse.runs.intake import Intake, RunIntake

#: The agent of a request that names none.
DEFAULT_AGENT = "default"
#: The right to run agents, by a key, or by a ticket that allows it.
RunAccess = Annotated[Access, Depends(run_access_of)]

router = make_router(
    "streams",
    "",
    *problems.BODY,
    problems.WRONG_TICKET,
    problems.WRONG_ORIGIN,
    problems.NO_SUCH_AGENT,
    problems.SESSION_NOT_FOUND,
    problems.RUN_CONFLICT,
    problems.RUN_ACTIVE,
    problems.EVENT_CONFLICT,
    problems.INTERRUPT_OPEN,
    problems.HISTORY_CHANGED,
    problems.VERSION_CONFLICT,
    problems.RUN_PRUNED,
    problems.EVENT_TOO_LARGE,
    problems.STATE_TOO_LARGE,
    problems.ENDING,
    responses={**STREAM, **OVER},
)


class RunOptions(NamedTuple):
    """What a client chooses for its runs."""

    cancels_on_disconnect: bool
    cancels_active: bool
    takes_history: bool

    def sends_history(self, taken: Intake, cursor: Cursor | None) -> bool:
        """Whether the stream of a run begins with the session's conversation."""
        return cursor is None and (self.takes_history or not taken.created)


async def _run_options(
    on_disconnect: Annotated[
        Literal["continue", "cancel"], Query(description="cancel: cancel the run when the client disconnects.")
    ] = "continue",
    active_run: Annotated[
        Literal["refuse", "cancel"],
        Query(description="cancel: cancel the session's active run and wait for its end, if the agent runs alone."),
    ] = "refuse",
    history: Annotated[
        Literal["same", "server"],
        Query(description="server: take the session's conversation, whatever the client sent, and send it first."),
    ] = "same",
) -> RunOptions:
    return RunOptions(
        cancels_on_disconnect=on_disconnect == "cancel",
        cancels_active=active_run == "cancel",
        takes_history=history == "server",
    )


#: The options of a route that runs agents, from its query.
Options = Annotated[RunOptions, Depends(_run_options)]


@router.post(
    "/agui",
    summary="Run the agent",
    dependencies=[require("append")],
    response_class=FrameStream,
)
async def run_default_agent(
    request: Request,
    body: agui.RunAgentInput,
    access: RunAccess,
    options: Options,
    last_event_id: LastEventId = None,
    ticket: TicketQuery = None,
) -> Response:
    """Run the agent called `default`, or the only one, and stream the run. The run continues after a disconnection."""
    return await _run(request, None, body, access, last_event_id, options)


@router.post(
    "/agui/{agent_name}",
    summary="Run an agent by its name",
    dependencies=[require("append")],
    response_class=FrameStream,
)
async def run_agent(
    request: Request,
    agent_name: Annotated[str, Path(max_length=255)],
    body: agui.RunAgentInput,
    access: RunAccess,
    options: Options,
    last_event_id: LastEventId = None,
    ticket: TicketQuery = None,
) -> Response:
    """Run one of the registered agents and stream the run."""
    return await _run(request, agent_name, body, access, last_event_id, options)


async def begin(
    connection: HTTPConnection,
    agent_name: str | None,
    body: agui.RunAgentInput,
    access: Access,
    options: RunOptions,
) -> Intake:
    """Start the run of an input, or find it if it was started before.

    Raises:
        ProblemError: it names no session, there is no such agent, the ticket is for something else, or this process
            takes no further runs.
    """
    if not body.thread_id.strip():
        # `create_session` would make up an id that the client does not learn.
        detail = "body/threadId is blank: send a new id, such as a UUID, to begin a conversation"
        raise problems.ProblemError(problems.INVALID_REQUEST, detail)
    runner, intake = service_of(connection, AgentRunner), service_of(connection, RunIntake)
    agents = runner.agents
    access.require_session(body.thread_id.strip())
    access.require_run(body.run_id)
    agent = agents.get(agent_name or (next(iter(agents)) if len(agents) == 1 else DEFAULT_AGENT))
    if agent is None:
        raise problems.ProblemError(problems.NO_SUCH_AGENT)
    if runner.is_full and await intake.find(*access.owner, body) is None:
        raise problems.ProblemError(problems.ENDING if runner.is_stopping else problems.OVERLOADED)
    taken = await intake.begin(
        *access.owner,
        body,
        alone=runs_alone(agent),
        takes_history=options.takes_history,
        cancel_active=runner.wake_cancelled if options.cancels_active else None,
    )
    if taken.created:
        runner.execute(taken.run, agent, taken.given)
    return taken


async def _run(
    request: Request,
    agent_name: str | None,
    body: agui.RunAgentInput,
    access: Access,
    last_event_id: str | None,
    options: RunOptions,
) -> Response:
    cursor = cursor_of(None, last_event_id)
    taken = await begin(request, agent_name, body, access, options)
    return await stream(
        request,
        taken.run,
        cursor,
        cancels_on_disconnect=options.cancels_on_disconnect,
        with_history=options.sends_history(taken, cursor),
        known_inputs=taken.sent_ids,
        legacy=body.protocol_version is None,
    )
