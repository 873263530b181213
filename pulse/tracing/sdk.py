"""Spans of OpenTelemetry's SDK: with it, spans of other libraries join ours, and OTLP is a destination.

Imported only where tracing is on and the SDK is installed: the extra ``tracing``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final
from weakref import WeakValueDictionary

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkRunning
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import Attributes

from pulse.tracing import genai
from pulse.tracing.records import SpanRecord, TraceContext, clean, parse_traceparent, shown, shown_message
from pulse.tracing.spans import error_name
from pulse.tracing.tail import Tail

#: An endpoint that hangs must not hold up the end of a process, whose grace is four seconds.
OTLP_SECONDS_MAX: Final = 2.0
_KINDS: Final = {kind.name.lower(): kind for kind in SpanKind}


class OtlpSink:
    """Sends batches to an OTLP endpoint over HTTP."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        self._exporter = OTLPSpanExporter(endpoint=endpoint, headers=dict(headers), timeout=OTLP_SECONDS_MAX)

    def send(self, batch: list[ReadableSpan]) -> int:
        """Send a batch; the exporter repeats it within its time, then it is dropped."""
        return 0 if self._exporter.export(batch) is SpanExportResult.SUCCESS else len(batch)

    def close(self) -> None:
        """Close its connections."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _RatioOrError(Sampler):
    """Samples by the parent, else by the ratio; records the others too, since an error keeps them."""

    def __init__(self, ratio: float) -> None:
        self._bound = round(ratio * 2**64)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        """Decide for a new span."""
        parent = trace.get_current_span(parent_context).get_span_context()
        is_sampled = parent.trace_flags.sampled if parent.is_valid else trace_id & (2**64 - 1) < self._bound
        return SamplingResult(Decision.RECORD_AND_SAMPLE if is_sampled else Decision.RECORD_ONLY, attributes)

    def get_description(self) -> str:
        """Return its name."""
        return "ParentBased{ratio, errors}"


class _Exit(SpanProcessor):
    """Gives each span the owner of the one above it, and hands it on when it has ended."""

    def __init__(self, exits: Sequence[Callable[[ReadableSpan], None]]) -> None:
        self._exits = exits
        self._tail: Tail[ReadableSpan] = Tail(self._export)

    def on_start(self, span: SdkRunning, parent_context: Context | None = None) -> None:
        above = trace.get_current_span(parent_context)
        if isinstance(above, ReadableSpan) and above.attributes is not None:
            own = span.attributes or {}
            for name in genai.OWNERS:
                if name in above.attributes and name not in own:
                    span.set_attribute(name, above.attributes[name])

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is not None:
            self._tail.end(
                span,
                trace_id=f"{context.trace_id:032x}",
                is_root=_is_root(span),
                is_sampled=context.trace_flags.sampled,
                has_failed=span.status.status_code is StatusCode.ERROR,
            )

    def _export(self, span: ReadableSpan) -> None:
        for put in self._exits:
            put(span)


class SdkRecorder:
    """Makes spans with a provider of the SDK that is this object's own; the counterpart of `recorder.Recorder`."""

    def __init__(
        self,
        service: str,
        exits: Sequence[Callable[[ReadableSpan], None]],
        *,
        sample_ratio: float,
        content: bool,
    ) -> None:
        self.content = content
        self.provider = TracerProvider(
            sampler=_RatioOrError(sample_ratio),
            resource=Resource({SERVICE_NAME: service}),
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(_Exit(exits))
        self._tracer = self.provider.get_tracer("hippocampus")
        self._begun: WeakValueDictionary[int, trace.Span] = WeakValueDictionary()

    @property
    def current(self) -> SdkSpan | None:
        """The span that runs in this context, perhaps another library's; None without one, and once it has ended."""
        span = self._running()
        return None if span is None else SdkSpan(span, self.content)

    def begin(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        *,
        parent: TraceContext | None = None,
        is_new: bool = False,
        start_ns: int | None = None,
    ) -> SdkSpan:
        """Return a new span: below `parent`, else below the current one unless `is_new`."""
        context: Context | None = None
        if parent is not None:
            flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
            remote = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(NonRecordingSpan(remote), Context())
        elif is_new or (running := self._running()) is None:
            # Below a span that has ended, such as that of the request which started a task, nothing begins.
            context = Context()
        else:
            context = trace.set_span_in_context(running)
        span = self._tracer.start_span(
            name,
            context=context,
            kind=_KINDS[kind],
            start_time=start_ns,
            attributes=_attributes(attributes, self.content),
            record_exception=False,
            set_status_on_exception=False,
        )
        self._begun[span.get_span_context().span_id] = span
        return SdkSpan(span, self.content)

    def _running(self) -> trace.Span | None:
        span: trace.Span | None = trace.get_current_span()
        if span is not None and not span.is_recording():
            # A library that is not traced itself, such as ADK, puts one in place that has the context of ours.
            span = self._begun.get(span.get_span_context().span_id)
        return span if span is not None and span.is_recording() else None


class SdkSpan:
    """A span of the SDK; see `pulse.tracing.spans.Span`."""

    __slots__ = ("_began", "_content", "_entered", "_span")

    def __init__(self, span: trace.Span, content: bool) -> None:
        self._span = span
        self._content = content
        self._began = time.time_ns()
        self._entered: AbstractContextManager[object] | None = None

    @property
    def is_recording(self) -> bool:
        """See `Span`."""
        return self._span.is_recording()

    @property
    def traceparent(self) -> str | None:
        """See `Span`."""
        context = self._span.get_span_context()
        return TraceContext(
            f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled
        ).traceparent

    def rename(self, name: str) -> None:
        """See `Span`."""
        self._span.update_name(name)

    def set_attribute(self, name: str, value: Any) -> None:
        """See `Span`."""
        self.set_attributes({name: value})

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """See `Span`."""
        self._span.set_attributes(_attributes(attributes, self._content))

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """See `Span`."""
        self._span.add_event(name, _attributes(attributes or {}, self._content))

    def add_link(self, traceparent: object) -> None:
        """See `Span`."""
        linked = parse_traceparent(traceparent)
        if linked is not None:
            self._span.add_link(SpanContext(int(linked.trace_id, 16), int(linked.span_id, 16), is_remote=True))

    def fail(self, error: BaseException | str) -> None:
        """See `Span`."""
        self._span.set_attribute(genai.ERROR_TYPE, error_name(error))
        message = shown_message(str(error), content=self._content) if isinstance(error, BaseException) else None
        self._span.set_status(Status(StatusCode.ERROR, message))

    def end(self, seconds: float | None = None) -> None:
        """End it now, or after `seconds` from its start."""
        start_ns = getattr(self._span, "start_time", None) or self._began
        self._span.end(None if seconds is None else start_ns + round(seconds * 1e9))

    def within(self) -> AbstractContextManager[object]:
        """See `Span`."""
        return trace.use_span(self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def __enter__(self) -> SdkSpan:
        self._entered = trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )
        self._entered.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        self.end()
        if self._entered is not None:
            self._entered.__exit__(None, None, None)


def record_of(span: ReadableSpan, *, content: bool) -> SpanRecord:
    """Return a span of the SDK that has ended, as the table stores it."""
    context = span.get_span_context()
    assert context is not None  # noqa: S101 - a span that was started has one
    attributes = dict(span.attributes or {})
    start_ns = span.start_time or 0
    failed = span.status.status_code is StatusCode.ERROR
    return SpanRecord(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_span_id=None if span.parent is None else f"{span.parent.span_id:016x}",
        name=span.name,
        kind=span.kind.name.lower(),
        start_ns=start_ns,
        end_ns=span.end_time or start_ns,
        service=str(span.resource.attributes.get(SERVICE_NAME, "")),
        is_root=_is_root(span),
        error=str(attributes.get(genai.ERROR_TYPE, "error")) if failed else None,
        # Another library's may quote anything.
        status_message=shown_message(span.status.description, content=content),
        attributes=shown(attributes, content=content),
        events=[
            {
                "name": event.name,
                "offset_ns": event.timestamp - start_ns,
                "attributes": shown(event.attributes or {}, content=content),
            }
            for event in span.events
        ],
        links=[TraceContext(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links],
    )


def exportable(span: ReadableSpan, *, content: bool) -> ReadableSpan:
    """Return a span as it may leave: without content unless asked for, never with secrets, as the exporter takes it."""
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=_attributes(span.attributes or {}, content),
        events=[
            type(event)(event.name, _attributes(event.attributes or {}, content), event.timestamp)
            for event in span.events
        ],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code, shown_message(span.status.description, content=content)),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _is_root(span: ReadableSpan) -> bool:
    return span.parent is None or span.parent.is_remote


def _attributes(given: Mapping[str, Any], content: bool) -> dict[str, Any]:
    """Return attributes as the SDK takes them: texts, numbers, and lists of one of these."""
    kept = shown(given, content=content)
    return {name: _value(clean(value)) for name, value in kept.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, list):
        is_plain = len({type(each) for each in value}) <= 1 and not isinstance(next(iter(value), None), dict | list)
        return value if is_plain else str(value)
    return str(value) if isinstance(value, dict) else value
