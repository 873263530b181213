"""Routes that send a test notification. They exist only if the setting enables them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from pulse.http.edge.roles import EVERY_APP, require
from pulse.http.edge.routing import make_router
from pulse.http.edge.schemas import Id, RunId, View
from pulse.http.edge.services import service
from pulse.streams.check_signal import StreamTests

router = make_router("operation", "/api")

Tests = Annotated[StreamTests, service(StreamTests)]


class SentView(View):
    """What was sent."""

    status: str = "sent"
    payload: str
    run_id: str | None = None


@router.get(
    "/test-notify",
    summary="Send a test notification",
    dependencies=[require("admin"), EVERY_APP],
    response_model_exclude_none=True,
)
async def notify_thread(tests: Tests, thread_id: Annotated[Id, Query()] = "test-thread") -> SentView:
    """Notify every follower of a run of this thread: each receives an event RAW at once."""
    return SentView(payload=await tests.send(thread_id=thread_id))


@router.get(
    "/test-sse-notify/{run_id}",
    summary="Send a test notification to a run",
    dependencies=[require("admin"), EVERY_APP],
    response_model_exclude_none=True,
)
async def notify_run(tests: Tests, run_id: RunId) -> SentView:
    """Notify every follower of this run: each receives an event RAW at once."""
    return SentView(payload=await tests.send(run_id=run_id), run_id=run_id)
