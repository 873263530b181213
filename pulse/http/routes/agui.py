"""``POST /agui``: AG-UI's own way to run an agent, with its events streamed over SSE.

A run is executed once. A request with the id of an existing run follows that run, from its start or, with
Last-Event-ID, from the client's position.
"""

from __future__ import annotations

from typing import Annotated

from ag_ui.core import RunAgentInput
from fastapi import Depends, Path, Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

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
#: By a key, or by a ticket that allows it.
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
    problems.RUN_PRUNED,
    problems.EVENT_TOO_LARGE,
    problems.STATE_TOO_LARGE,
    problems.ENDING,
    responses={**STREAM, **OVER},
)


@router.post(
    "/agui",
    summary="Run the agent",
    dependencies=[require("append")],
    response_class=FrameStream,
)
async def run_default_agent(
    request: Request,
    body: RunAgentInput,
    access: RunAccess,
    last_event_id: LastEventId = None,
    ticket: TicketQuery = None,
) -> Response:
    """Run the agent called `default`, or the only one, and stream the run. The run continues after a disconnection."""
    return await _run(request, None, body, access, last_event_id)


@router.post(
    "/agui/{agent_name}",
    summary="Run an agent by its name",
    dependencies=[require("append")],
    response_class=FrameStream,
)
async def run_agent(
    request: Request,
    agent_name: Annotated[str, Path(max_length=255)],
    body: RunAgentInput,
    access: RunAccess,
    last_event_id: LastEventId = None,
    ticket: TicketQuery = None,
) -> Response:
    """Run one of the registered agents and stream the run."""
    return await _run(request, agent_name, body, access, last_event_id)


async def begin(connection: HTTPConnection, agent_name: str | None, body: RunAgentInput, access: Access) -> Intake:
    """Start the run of an input, or find it if it was started before.

    Raises:
        ProblemError: there is no such agent, the ticket is for something else, or this process takes no further runs.
    """
    runner, intake = service_of(connection, AgentRunner), service_of(connection, RunIntake)
    agents = runner.agents
    access.require_session(body.thread_id.strip())
    access.require_run(body.run_id)
    agent = agents.get(agent_name or (next(iter(agents)) if len(agents) == 1 else DEFAULT_AGENT))
    if agent is None:
        raise problems.ProblemError(problems.NO_SUCH_AGENT)
    if runner.is_full and await intake.find(*access.owner, body) is None:
        raise problems.ProblemError(problems.ENDING if runner.is_stopping else problems.OVERLOADED)
    taken = await intake.begin(*access.owner, body, alone=runs_alone(agent))
    if taken.created:
        runner.execute(taken.run, agent, taken.given)
    return taken


async def _run(
    request: Request, agent_name: str | None, body: RunAgentInput, access: Access, last_event_id: str | None
) -> Response:
    cursor = cursor_of(None, last_event_id)
    taken = await begin(request, agent_name, body, access)
    return await stream(
        request,
        taken.run,
        cursor,
        with_history=not taken.created and cursor is None,
        known_inputs=taken.sent_ids,
        legacy=body.protocol_version is None,
    )
