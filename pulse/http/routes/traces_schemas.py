"""The bodies of the routes of traces."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from pulse.http.edge.schemas import NextCursor, View


class SpanView(View):
    """A span of a trace."""

    trace_id: str
    span_id: str
    parent_span_id: Annotated[str | None, Field(description="The span above it; null for the first one.")]
    linked_trace_id: Annotated[str | None, Field(description="Of a job: the trace of the append that caused it.")]
    name: str
    kind: Annotated[str, Field(description="internal, server, client, producer or consumer.")]
    service: Annotated[str, Field(description="The process's role.")]
    started_at: datetime
    duration_ns: Annotated[int, Field(description="In nanoseconds.")]
    error: Annotated[str | None, Field(description="The type of the error; null if it succeeded.")]
    session_id: str | None
    run_id: str | None
    attributes: dict[str, Any]
    events: list[dict[str, Any]]


class TraceView(View):
    """A trace with those that are linked with it."""

    spans: Annotated[list[SpanView], Field(description="In the order of their start.")]


class TracePageView(View):
    """A page of traces: the first span of each in each process, the newest first."""

    traces: list[SpanView]
    next_cursor: NextCursor
