"""``POST /agui``: AG-UI's own way to run an agent, with its events streamed over SSE.

A run is executed once. A request with the id of an existing run follows that run, from its start or, with
Last-Event-ID, from the client's position.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from ag_ui.core import RunAgentInput
from fastapi import Path, Query, Request
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
from pulse.runs.service import RunService

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
    problems.HISTORY_CHANGED,
    problems.VERSION_CONFLICT,
    problems.RUN_PRUNED,
    problems.EVENT_TOO_LARGE,
    problems.STATE_TOO_LARGE,
    problems.ENDING,
    responses={**STREAM, **OVER},
)

OnDisconnect = Annotated[
    Literal["continue", "cancel"], Query(description="cancel: cancel the run when the client disconnects.")
]
ActiveRun = Annotated[
    Literal["refuse", "cancel"],
    Query(description="cancel: cancel the session's active run and wait for its end, if the agent runs alone."),
]
History = Annotated[
    Literal["same", "server"],
    Query(description="server: take the session's conversation, whatever the client sent, and send it first."),
]


@router.post(
    "/agui",
    summary="Run the agent",
    dependencies=[require("append")],
    response_class=Response,
)
async def run_default_agent(
    request: Request,
    body: RunAgentInput,
    owner: AssertedOwner,
    last_event_id: LastEventId = None,
    on_disconnect: OnDisconnect = "continue",
    active_run: ActiveRun = "refuse",
    history: History = "same",
) -> Response:
    """Run the agent called `default`, or the only one, and stream the run. The run continues after a disconnection."""
    agents = service_of(request, AgentRunner).agents
    name = next(iter(agents)) if len(agents) == 1 else DEFAULT_AGENT
    options = _Options(on_disconnect == "cancel", active_run == "cancel", history == "server")
    return await _run(request, name, body, owner, last_event_id, options)


@router.post(
    "/agui/{agent_name}", summary="Run an agent by its name", dependencies=[require("append")], response_class=Response
)
async def run_agent(
    request: Request,
    agent_name: Annotated[str, Path(max_length=255)],
    body: RunAgentInput,
    owner: AssertedOwner,
    last_event_id: LastEventId = None,
    on_disconnect: OnDisconnect = "continue",
    active_run: ActiveRun = "refuse",
    history: History = "same",
) -> Response:
    """Run one of the registered agents and stream the run."""
    options = _Options(on_disconnect == "cancel", active_run == "cancel", history == "server")
    return await _run(request, agent_name, body, owner, last_event_id, options)


class _Options(NamedTuple):
    cancels_on_disconnect: bool
    cancels_active: bool
    takes_history: bool


async def _run(
    request: Request,
    agent_name: str,
    body: RunAgentInput,
    owner: Owner,
    last_event_id: str | None,
    options: _Options,
) -> Response:
    require_origin(request)
    runner, intake = service_of(request, AgentRunner), service_of(request, RunIntake)
    agent = runner.agents.get(agent_name)
    cursor = cursor_of(None, last_event_id)
    if agent is None:
        raise problems.ProblemError(problems.NO_SUCH_AGENT)
    if runner.is_full and await intake.find(*owner, body) is None:
        raise problems.ProblemError(problems.OVERLOADED)
    taken = await intake.begin(
        *owner,
        body,
        alone=runs_alone(agent),
        takes_history=options.takes_history,
        cancel_active=runner.wake_cancelled if options.cancels_active else None,
    )
    if taken.created:
        runner.execute(taken.run, agent, taken.given)

    async def cancel() -> None:
        runner.wake_cancelled(await service_of(request, RunService).request_cancel(*owner, taken.run.run_id))

    return await stream(
        request,
        taken.run,
        cursor,
        on_disconnect=cancel if options.cancels_on_disconnect else None,
        with_history=cursor is None and (options.takes_history or not taken.created),
        known_inputs=taken.sent_ids,
        legacy=body.protocol_version is None,
    )
