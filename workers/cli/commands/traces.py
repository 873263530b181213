"""`hippocampus traces`: list what was done, the newest first, and show one trace as a waterfall."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pulse.errors import InvalidInputError
from pulse.tracing.reading import StoredSpan, TraceService, as_tree
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.options import bundled, filter_options, json_option
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool

#: Characters of the bar that shows when a span ran.
_BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class _Filter:
    app: str | None
    user: str | None
    session: str | None


@click.group(cls=Listing, epilog="Examples:  hippocampus traces --failed;  hippocampus traces show 4bf92f35…")
def command() -> None:
    """List traces, the newest first, or show one. There are some where HIPPOCAMPUS_TRACING has postgres."""


@command.command("list", epilog="Example:  hippocampus traces list --app shop --min-ms 500")
@click.option("--failed", is_flag=True, help="Only those that failed.")
@click.option("--min-ms", type=click.IntRange(0, 86_400_000), default=0, help="Only those that took this long.")
@bundled("selected", _Filter, filter_options("app", "user", "session"))
@page_options(20)
def list_(failed: bool, min_ms: int, selected: _Filter, options: PageOptions) -> None:
    """List the first span of each trace in each process, the newest first."""

    async def work(pool: Pool) -> Paged[StoredSpan]:
        pages = options.of("traces", selected.app, selected.user, selected.session, failed, min_ms)
        found = await TraceService(pool).list_traces(
            app_name=selected.app,
            user_id=selected.user,
            session_id=selected.session,
            failed=failed,
            min_duration_ns=min_ms * 1_000_000,
            before=pages.begin(tuple[datetime, str]),
            limit=options.limit,
        )
        return pages.full(found, lambda span: (span.started_at, span.span_id))

    columns = ("trace", "operation", "process", "app", "user", "session", "started", "ms", "error")
    options.write(databases.run(work), columns, _row, empty="There are no traces.")


@command.command("show", epilog="Example:  hippocampus traces show 4bf92f3577b34da6a3ce929d0e0e4736")
@click.argument("trace_id")
@json_option
def show(trace_id: str, as_json: bool) -> None:
    """Show a trace and the jobs that it caused: each span below the one that caused it, with when it ran."""
    spans = databases.run(lambda pool: TraceService(pool).read_trace(trace_id))
    if not spans:
        raise InvalidInputError(f"There is no trace {trace_id[:64]!r}: `hippocampus traces` lists them.")
    if as_json:
        output.write_json(spans)
        return
    began = min(span.started_at for span in spans)
    total = max(_offset_ms(span, began) + span.duration_ns / 1e6 for span in spans) or 1.0
    cells = [
        (
            "  " * depth + span.name,
            span.service,
            round(_offset_ms(span, began), 1),
            round(span.duration_ns / 1e6, 1),
            _bar(_offset_ms(span, began) / total, span.duration_ns / 1e6 / total),
            _tokens(span),
            span.error or "",
        )
        for depth, span in as_tree(spans)
    ]
    output.write_table(("operation", "process", "after ms", "ms", "when", "tokens", "error"), cells, empty="")


def _row(span: StoredSpan) -> tuple[Any, ...]:
    took = round(span.duration_ns / 1e6, 1)
    return (
        span.trace_id, span.name, span.service, span.app_name, span.user_id, span.session_id, span.started_at, took,
        span.error,
    )  # fmt: skip


def _offset_ms(span: StoredSpan, began: datetime) -> float:
    return (span.started_at - began).total_seconds() * 1000


def _bar(start: float, share: float) -> str:
    first = min(round(start * _BAR_WIDTH), _BAR_WIDTH - 1)
    return "·" * first + "█" * max(1, min(round(share * _BAR_WIDTH), _BAR_WIDTH - first))


def _tokens(span: StoredSpan) -> str:
    counts = [span.attributes.get(f"gen_ai.usage.{way}_tokens") for way in ("input", "output")]
    return "" if counts == [None, None] else " + ".join(str(count or 0) for count in counts)
