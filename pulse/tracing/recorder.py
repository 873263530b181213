"""Spans without OpenTelemetry: enough to fill the table."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from pulse.tracing import genai
from pulse.tracing.records import SpanRecord, TraceContext, parse_traceparent, shown, shown_message
from pulse.tracing.spans import error_name
from pulse.tracing.tail import Tail

_CURRENT: ContextVar[RecordedSpan | None] = ContextVar("hippocampus_span", default=None)


class Recorder:
    """Makes spans and hands each on when it has ended."""

    def __init__(
        self, service: str, export: Callable[[SpanRecord], None], *, sample_ratio: float, content: bool
    ) -> None:
        self.service = service
        self.content = content
        self._ratio = sample_ratio
        self._random = random.Random()  # noqa: S311 - ids of spans are not secrets
        self._tail = Tail(export)

    @property
    def current(self) -> RecordedSpan | None:
        """The span that runs in this context; None without one, and once it has ended."""
        span = _CURRENT.get()
        return span if span is not None and span.is_recording else None

    def begin(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        *,
        parent: TraceContext | None = None,
        is_new: bool = False,
        start_ns: int | None = None,
    ) -> RecordedSpan:
        """Return a new span: below `parent`, else below the current one unless `is_new`."""
        above = None if parent is not None or is_new else self.current
        if above is not None:
            parent = above.context
            attributes = {**above.owners(), **attributes}
        if parent is None:
            trace_id = f"{self._random.getrandbits(128) or 1:032x}"
            # By the id, as OpenTelemetry does: every process decides alike.
            context = TraceContext(trace_id, self._new_id(), int(trace_id[16:], 16) < self._ratio * 2**64)
            return RecordedSpan(self, name, kind, context, None, True, attributes, start_ns)
        context = parent._replace(span_id=self._new_id())
        return RecordedSpan(self, name, kind, context, parent.span_id, above is None, attributes, start_ns)

    def end(self, record: SpanRecord, *, is_sampled: bool) -> None:
        """Hand on a span that has ended."""
        self._tail.end(
            record,
            trace_id=record.trace_id,
            is_root=record.is_root,
            is_sampled=is_sampled,
            has_failed=record.error is not None,
        )

    def _new_id(self) -> str:
        return f"{self._random.getrandbits(64) or 1:016x}"


class RecordedSpan:
    """A span of `Recorder`; see `pulse.tracing.spans.Span`."""

    __slots__ = ("_began", "_record", "_recorder", "_token", "context", "is_recording")

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        kind: str,
        context: TraceContext,
        parent_span_id: str | None,
        is_root: bool,
        attributes: Mapping[str, Any],
        start_ns: int | None,
    ) -> None:
        self.context = context
        self.is_recording = True
        self._recorder = recorder
        self._began = time.perf_counter_ns()
        self._token: Token[RecordedSpan | None] | None = None
        self._record = SpanRecord(
            trace_id=context.trace_id,
            span_id=context.span_id,
            parent_span_id=parent_span_id,
            name=name,
            kind=kind,
            start_ns=time.time_ns() if start_ns is None else start_ns,
            end_ns=0,
            service=recorder.service,
            is_root=is_root,
        )
        self.set_attributes(attributes)

    @property
    def traceparent(self) -> str | None:
        """See `Span`."""
        return self.context.traceparent

    def owners(self) -> dict[str, Any]:
        """Return whose it is."""
        return {name: self._record.attributes[name] for name in genai.OWNERS if name in self._record.attributes}

    def rename(self, name: str) -> None:
        """See `Span`."""
        if self.is_recording:
            self._record.name = name

    def set_attribute(self, name: str, value: Any) -> None:
        """See `Span`."""
        self.set_attributes({name: value})

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """See `Span`."""
        if self.is_recording:
            kept = shown(attributes, content=self._recorder.content)
            self._record.attributes = {
                **self._record.attributes,
                **{name: value for name, value in kept.items() if value is not None},
            }

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """See `Span`."""
        if self.is_recording:
            self._record.events.append(
                {
                    "name": name,
                    "offset_ns": time.perf_counter_ns() - self._began,
                    "attributes": shown(attributes or {}, content=self._recorder.content),
                }
            )

    def add_link(self, traceparent: object) -> None:
        """See `Span`."""
        linked = parse_traceparent(traceparent)
        if linked is not None and self.is_recording:
            self._record.links.append(linked)

    def fail(self, error: BaseException | str) -> None:
        """See `Span`."""
        if self.is_recording:
            self._record.error = error_name(error)
            self.set_attribute(genai.ERROR_TYPE, self._record.error)
            if isinstance(error, BaseException):
                self._record.status_message = shown_message(str(error), content=self._recorder.content)

    def end(self, seconds: float | None = None) -> None:
        """End it now, or after `seconds` from its start."""
        if self.is_recording:
            took = time.perf_counter_ns() - self._began if seconds is None else round(seconds * 1e9)
            self._record.end_ns = self._record.start_ns + took
            self.is_recording = False
            self._recorder.end(self._record, is_sampled=self.context.is_sampled)

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """See `Span`."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def __enter__(self) -> RecordedSpan:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        self.end()
        if self._token is not None:
            try:
                _CURRENT.reset(self._token)
            except ValueError:  # A generator that another task closes: the context is another one.
                _CURRENT.set(None)
