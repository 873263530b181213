"""Reads the table `traces`: lists of traces, and the spans of one as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pulse.postgres.limits import check_limit
from pulse.tracing.table import STATEMENTS

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

LIMIT_MAX: Final = 1000
SPANS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpan:
    """A row of `traces`.

    Attributes:
        parent_span_id: a span of this trace; None for the first. It may belong to a process whose spans are not here.
        linked_trace_id: the trace of the append that caused this job.
        error: the type of the error; None if it succeeded.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    linked_trace_id: str | None
    name: str
    kind: str
    service: str
    started_at: datetime
    duration_ns: int
    error: str | None
    status_message: str | None
    app_name: str | None
    user_id: str | None
    session_id: str | None
    run_id: str | None
    attributes: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]


class TraceService:
    """Lists and reads traces."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_traces(
        self,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        failed: bool = False,
        min_duration_ns: int = 0,
        before: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[StoredSpan]:
        """Return the first span of each trace in each process, the newest first.

        Args:
            failed: only where this span failed.
            before: time and span id of the last one of the page before.
            limit: 1 to 1,000.
        """
        check_limit(limit, LIMIT_MAX)
        rows = await STATEMENTS.fetch(
            self._pool,
            "list_traces",
            app_name,
            user_id,
            session_id,
            failed,
            min_duration_ns,
            *(before or (None, "")),
            limit,
        )
        return [_read(row) for row in rows]

    async def read_trace(
        self, trace_id: str, *, app_name: str | None = None, user_id: str | None = None
    ) -> list[StoredSpan]:
        """Return the spans of a trace and of those linked with it, such as its jobs', in the order of their start.

        Empty if there is no such trace, or a span of it belongs to another app or user than those given; at most
        10,000 spans.
        """
        rows = await STATEMENTS.fetch(self._pool, "read_trace", trace_id, app_name, user_id, SPANS_MAX)
        return [_read(row) for row in rows]


def as_tree(spans: Sequence[StoredSpan]) -> Iterator[tuple[int, StoredSpan]]:
    """Yield spans with their depth, each below the one that caused it, otherwise in the order of their start."""
    known = {(span.trace_id, span.span_id) for span in spans}
    below: dict[tuple[str, str | None], list[StoredSpan]] = {}
    for span in spans:
        parent = span.parent_span_id if (span.trace_id, span.parent_span_id) in known else None
        below.setdefault((span.trace_id, parent), []).append(span)
    roots = [span for (_, parent), group in below.items() if parent is None for span in group]
    left = [(0, span) for span in sorted(roots, key=lambda span: span.started_at, reverse=True)]
    while left:
        depth, span = left.pop()
        yield depth, span
        left.extend((depth + 1, each) for each in reversed(below.get((span.trace_id, span.span_id), [])))


def _read(row: asyncpg.Record) -> StoredSpan:
    error = row["attributes"].get("error.type", "error") if row["status_code"] == "error" else None
    return StoredSpan(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        parent_span_id=row["parent_span_id"],
        linked_trace_id=row["linked_trace_id"],
        name=row["operation_name"],
        kind=row["span_kind"],
        service=row["service_name"],
        started_at=row["start_time"],
        duration_ns=row["duration_ns"],
        error=error,
        status_message=row["status_message"],
        app_name=row["app_name"],
        user_id=row["user_id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        attributes=row["attributes"],
        events=row["events"],
    )
