"""The routes of runs that agents elsewhere execute: start one, write its events and live text, end it."""

from __future__ import annotations

import uuid
from typing import Annotated

from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import AssertedOwner
from pulse.http.edge.roles import require
from pulse.http.edge.routing import make_router
from pulse.http.edge.schemas import RunId
from pulse.http.edge.services import service
from pulse.http.routes import remote_runs_schemas as schemas
from pulse.http.routes.runs_schemas import RunView
from pulse.http.routes.sessions_schemas import StoredEventView
from pulse.runs.records import RunWritten
from pulse.runs.remote import RemoteRuns

router = make_router("runs", "/api", *problems.BODY)

Remote = Annotated[RemoteRuns, service(RemoteRuns)]
_HELD = (problems.RUN_NOT_FOUND, problems.RUN_FENCED, problems.RUN_ENDED)
_STORED = (problems.EVENT_CONFLICT, problems.EVENT_TOO_LARGE, problems.STATE_TOO_LARGE)


@router.post(
    "/runs",
    summary="Start a run",
    dependencies=[require("append")],
    status_code=201,
    response_model=schemas.StartedRunView,
    responses={
        200: {"model": schemas.StartedRunView, "description": "This holder started the run before: continue with it."},
        **problems.documented(
            problems.RUN_CONFLICT, problems.RUN_ACTIVE, problems.RUN_FENCED, problems.VERSION_CONFLICT, *_STORED
        ),
    },
)
async def start_run(owner: AssertedOwner, body: schemas.RunInputView, remote: Remote) -> Response:
    """Start a run that the caller executes. Clients follow it with GET /api/runs/{run_id}/events, as any other run.

    The caller must keep writing or sending heartbeats, at least once every `lease_seconds`; otherwise the run is ended
    as failed, with the code `orphaned`. The same call again returns the run.
    """
    written = await remote.start(
        *owner,
        body.thread_id,
        body.run_id or str(uuid.uuid4()),
        holder=body.holder,
        message=None if body.message is None else body.message.record(),
        alone=body.alone,
        lease_seconds=body.lease_seconds,
    )
    run = written.run
    view = schemas.StartedRunView.of(run, thread_id=run.session_id, created=written.created)
    return reply(view, 201 if written.created else 200)


@router.post(
    "/runs/{run_id}/events",
    summary="Write events of a run",
    dependencies=[require("append")],
    response_model=schemas.RunEventsView,
    responses=problems.documented(*_HELD, *_STORED),
)
async def write_run(
    run_id: RunId,
    owner: AssertedOwner,
    body: schemas.RunEventsInput,
    remote: Remote,
) -> Response:
    """Store events of a run, in order, all or none, and renew its lease. Safe to repeat with the same event ids."""
    records = [event.record() for event in body.events]
    written = await remote.write(*owner, run_id, holder=body.holder, events=records)
    return reply(_events_view(written))


@router.post(
    "/runs/{run_id}/deltas",
    summary="Stream text of a run",
    dependencies=[require("append")],
    response_model=schemas.LeaseView,
    responses=problems.documented(*_HELD, problems.STREAM_LOST),
)
async def push_deltas(run_id: RunId, owner: AssertedOwner, body: schemas.DeltasInput, remote: Remote) -> Response:
    """Stream pieces of messages that are being written. Safe to repeat: a piece at a known offset changes nothing.

    Store each message as an event with the same id when it is complete. `transients` are sent to the clients that
    follow the run now, each time that they are given, and never stored. A lease that is half over is renewed.
    """
    lease = await remote.push(
        *owner,
        run_id,
        holder=body.holder,
        deltas=[each.record() for each in body.deltas],
        transients=[{"event_type": each.event_type, "content": each.content} for each in body.transients],
    )
    return reply(schemas.LeaseView(status=lease.status, cancel_requested=lease.cancel_requested))


@router.post(
    "/runs/{run_id}/heartbeat",
    summary="Renew the lease of a run",
    dependencies=[require("append")],
    response_model=schemas.LeaseView,
    responses=problems.documented(problems.RUN_NOT_FOUND, problems.RUN_FENCED),
)
async def renew_run(run_id: RunId, owner: AssertedOwner, body: schemas.HeartbeatInput, remote: Remote) -> Response:
    """Show that the run is still executed, and learn whether it was ended or should be cancelled."""
    lease = await remote.renew(*owner, run_id, holder=body.holder, lease_seconds=body.lease_seconds)
    return reply(schemas.LeaseView(status=lease.status, cancel_requested=lease.cancel_requested))


@router.post(
    "/runs/{run_id}/end",
    summary="End a run",
    dependencies=[require("append")],
    response_model=RunView,
    responses=problems.documented(*_HELD, *_STORED),
)
async def end_run(run_id: RunId, owner: AssertedOwner, body: schemas.RunEndInput, remote: Remote) -> Response:
    """End a run as completed, failed or cancelled; its streams end. The same end again changes nothing."""
    if body.status == "completed":
        written = await remote.finish(
            *owner,
            run_id,
            holder=body.holder,
            answer=body.answer,
            message_id=body.message_id,
            result=body.result,
            state_delta=body.state_delta,
            usage=body.usage,
        )
        run = written.run
    elif body.status == "failed":
        message = body.error or "the agent failed"
        run = await remote.fail(*owner, run_id, message, holder=body.holder, code=body.error_code, usage=body.usage)
    else:
        run = await remote.cancel(*owner, run_id, holder=body.holder, reason=body.reason, usage=body.usage)
    return reply(RunView.of(run, thread_id=run.session_id))


def _events_view(written: RunWritten) -> schemas.RunEventsView:
    new = {event.id for event in written.new_events}
    stored = [StoredEventView.of(event, appended=event.id in new) for event in written.events]
    run = written.run
    return schemas.RunEventsView(status=run.status, cancel_requested=run.cancel_requested, events=stored)
