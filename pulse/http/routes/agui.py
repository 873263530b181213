"""``POST /agui``: AG-UI's own way to run an agent, with its events streamed over SSE.

A run is executed once. A request with the id of an existing run follows that run, from its start or, with
Last-Event-ID, from the client's position.
"""

from __future__ import annotations

from typing import Annotated

from ag_ui.core import RunAgentInput
from fastapi import Path, Request
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.owner import AssertedOwner, Owner
from pulse.http.edge.roles import require
from pulse.http.edge.routing import make_router
from pulse.http.edge.services import service_of
from pulse.http.edge.stream_access import require_origin
from pulse.http.routes.runs import OVER, STREAM, LastEventId, cursor_of, stream
from pulse.runs.agents import AgentRunner, runs_alone
from pulse.runs.intake import RunIntake

#: The agent of a request that names none.
DEFAULT_AGENT = "default"

router = make_router(
    "streams",
    "",
    *problems.BODY,
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
    response_class=Response,
)
async def run_default_agent(
    request: Request, body: RunAgentInput, owner: AssertedOwner, last_event_id: LastEventId = None
) -> Response:
    """Run the agent called `default`, or the only one, and stream the run. The run continues after a disconnection."""
    agents = service_of(request, AgentRunner).agents
    name = next(iter(agents)) if len(agents) == 1 else DEFAULT_AGENT
    return await _run(request, name, body, owner, last_event_id)


@router.post(
    "/agui/{agent_name}", summary="Run an agent by its name", dependencies=[require("append")], response_class=Response
)
async def run_agent(
    request: Request,
    agent_name: Annotated[str, Path(max_length=255)],
    body: RunAgentInput,
    owner: AssertedOwner,
    last_event_id: LastEventId = None,
) -> Response:
    """Run one of the registered agents and stream the run."""
    return await _run(request, agent_name, body, owner, last_event_id)


async def _run(
    request: Request, agent_name: str, body: RunAgentInput, owner: Owner, last_event_id: str | None
) -> Response:
    require_origin(request)
    runner, intake = service_of(request, AgentRunner), service_of(request, RunIntake)
    agent = runner.agents.get(agent_name)
    cursor = cursor_of(None, last_event_id)
    if agent is None:
        raise problems.ProblemError(problems.NO_SUCH_AGENT)
    if runner.is_full and await intake.find(*owner, body) is None:
        raise problems.ProblemError(problems.OVERLOADED)
    taken = await intake.begin(*owner, body, alone=runs_alone(agent))
    if taken.created:
        runner.execute(taken.run, agent, taken.given)
    return await stream(
        request,
        taken.run,
        cursor,
        with_history=not taken.created and cursor is None,
        known_inputs=taken.sent_ids,
        legacy=body.protocol_version is None,
    )
