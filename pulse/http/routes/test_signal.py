"""Routes that send a test notification. They are there only where the setting asks for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute
from pulse.http.edge.roles import require
from pulse.http.routes import schemas
from pulse.http.routes.runs import RunId
from pulse.streams.test_signal import StreamTests

router = APIRouter(
    prefix="/api",
    tags=["operation"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


class SentView(BaseModel):
    """What was sent."""

    status: str = "sent"
    payload: str
    run_id: str | None = None


@router.get(
    "/test-notify",
    summary="Send a test notification",
    dependencies=[require("admin")],
    response_model_exclude_none=True,
)
async def notify_thread(request: Request, thread_id: Annotated[schemas.Id, Query()] = "test-thread") -> SentView:
    """Tell everybody who follows a run of this thread: they get an event RAW at once."""
    tests: StreamTests = request.app.state.stream_tests
    return SentView(payload=await tests.send(thread_id=thread_id))


@router.get(
    "/test-sse-notify/{run_id}",
    summary="Send a test notification to a run",
    dependencies=[require("admin")],
    response_model_exclude_none=True,
)
async def notify_run(request: Request, run_id: RunId) -> SentView:
    """Tell everybody who follows this run: they get an event RAW at once."""
    tests: StreamTests = request.app.state.stream_tests
    return SentView(payload=await tests.send(run_id=run_id), run_id=run_id)
