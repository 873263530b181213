"""The routes of a user's traces."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.schemas import Id
from pulse.http.edge.services import service
from pulse.http.routes.traces_schemas import SpanView, TracePageView, TraceView
from pulse.tracing.reading import TraceService

router = make_router("traces", USER_PATH)

Traces = Annotated[TraceService, service(TraceService)]


@router.get(
    "/traces",
    summary="List a user's traces",
    dependencies=[require("read")],
    response_model=TracePageView,
)
async def list_traces(
    owner: PathOwner,
    traces: Traces,
    page: Annotated[Page, page_of(50)],
    session_id: Annotated[Id | None, Query(description="Only of this session.")] = None,
    failed: Annotated[bool, Query(description="Only those that failed.")] = False,
    min_duration_ms: Annotated[float, Query(ge=0, le=86_400_000, description="Only those that took this long.")] = 0,
) -> Response:
    """List what was done for a user, the newest first; empty unless traces are stored (`HIPPOCAMPUS_TRACING`)."""
    found = await traces.list_traces(
        app_name=owner.app_name,
        user_id=owner.user_id,
        session_id=session_id,
        failed=failed,
        min_duration_ns=round(min_duration_ms * 1e6),
        before=page.start(tuple[datetime, str]),
        limit=page.limit,
    )
    following = page.next_cursor(found, lambda each: (each.started_at, each.span_id))
    views = [SpanView.of(each) for each in found]
    return reply(TracePageView(traces=views, next_cursor=following))


@router.get(
    "/traces/{trace_id}",
    summary="Read a trace",
    dependencies=[require("read")],
    response_model=TraceView,
    responses=problems.documented(problems.TRACE_NOT_FOUND),
)
async def get_trace(
    owner: PathOwner, trace_id: Annotated[str, Path(pattern="^[0-9a-f]{32}$")], traces: Traces
) -> Response:
    """Read the spans of a trace, and of the jobs that its appends caused."""
    spans = await traces.read_trace(trace_id, app_name=owner.app_name, user_id=owner.user_id)
    if not spans:
        raise problems.ProblemError(problems.TRACE_NOT_FOUND)
    return reply(TraceView(spans=[SpanView.of(span) for span in spans]))
