"""Tracing of one process: what makes spans, and their destinations.

    manager = TracingManager("my-agent", pg_dsn=dsn, otlp_endpoint="https://cloud.langfuse.com/api/public/otel/v1/traces",
                             otlp_headers={"Authorization": "Basic …"})
    manager.start()
    with current_tracing().span("plan", session_id="s1") as span:
        span.set_attribute("steps", 3)
    manager.close()

`current_tracing()` is the manager that was started in this process, else one that is off: code that is traced never
asks whether tracing is on. Off, a span is one shared object, and nothing is imported.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, ParamSpec, TypedDict, TypeVar, Unpack

from pulse.errors import InvalidInputError
from pulse.postgres.statements import observe_statements
from pulse.process.extras import install_command
from pulse.tracing import genai
from pulse.tracing.batches import Batches, close_all
from pulse.tracing.recorder import Recorder
from pulse.tracing.records import parse_traceparent
from pulse.tracing.spans import NO_SPAN, Span
from pulse.tracing.table import CLOSE_SECONDS_MAX, PostgresSpanExporter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

    from pulse.tracing.sdk import SdkRecorder

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Kind = Literal["internal", "server", "client", "producer", "consumer"]


class Owners(TypedDict, total=False):
    """Whose a span is; see `TracingManager.span`."""

    app_name: str | None
    user_id: str | None
    session_id: str | None
    run_id: str | None


#: The fields of an owner, in the order of `genai.OWNERS`.
_OWNER_NAMES: Final = ("app_name", "user_id", "session_id", "run_id")


class ExitCounts(NamedTuple):
    """Spans that were sent to one destination, and dropped, since the start."""

    sent: int
    dropped: int


class TracingManager:
    """Makes spans and sends them to PostgreSQL, to an OTLP endpoint, or to both at once; without either it is off.

    No method of it or of its spans raises because of an exit, or waits for one; what an exit cannot take is dropped and
    counted. OpenTelemetry's SDK makes the spans where it is installed, so that spans of other libraries join them;
    without it a small recorder does.
    """

    def __init__(
        self,
        service_name: str = "hippocampus",
        pg_dsn: str | None = None,
        otlp_endpoint: str | None = None,
        *,
        schema: str | None = None,
        otlp_headers: Mapping[str, str] | None = None,
        sample_ratio: float = 1.0,
        content: bool = False,
        sdk: bool | None = None,
    ) -> None:
        """Prepare it; `start` begins.

        Args:
            service_name: the name of this process.
            pg_dsn: stores spans in the table `traces` of this database.
            otlp_endpoint: sends them to this URL, by OTLP over HTTP in protobuf. Needs the extra ``tracing``.
            schema: where the table is.
            otlp_headers: such as the endpoint's authorization.
            sample_ratio: the share of traces that is kept, 0 to 1. One with an error in this process is always kept.
            content: keep what users, models and tools said, and messages of errors.
            sdk: whether OpenTelemetry's SDK makes the spans; None: if it is installed.

        Raises:
            InvalidInputError: the ratio; or OTLP without the SDK.
        """
        if not 0 <= sample_ratio <= 1:
            raise InvalidInputError(f"sample_ratio must be from 0 to 1, not {sample_ratio}")
        has_sdk = (pg_dsn or otlp_endpoint) is not None and sdk is not False and _is_installed("opentelemetry.sdk")
        if otlp_endpoint is not None and not (has_sdk and _is_installed("opentelemetry.exporter")):
            raise InvalidInputError(
                f"otlp_endpoint needs OpenTelemetry's SDK and its exporter: {install_command('tracing')}"
            )
        self.service_name = service_name
        self.content = content
        self._sample_ratio = sample_ratio
        self._otlp = (otlp_endpoint, dict(otlp_headers or {}))
        self._exporter = None if pg_dsn is None else PostgresSpanExporter(pg_dsn, schema=schema, content=content)
        self._otlp_batches: Batches[ReadableSpan] | None = None
        self._uses_sdk = has_sdk
        self._recorder: Recorder | SdkRecorder | None = None
        self._stop_observing: Callable[[], None] | None = None

    @property
    def is_on(self) -> bool:
        """Whether spans are made: it was started, has an exit, and was not closed."""
        return self._recorder is not None

    @property
    def provider(self) -> TracerProvider | None:
        """The SDK's provider of the spans, to be given to other libraries; None without the SDK, and when it is off."""
        return getattr(self._recorder, "provider", None)

    def start(self) -> TracingManager:
        """Begin to make spans, as the manager that `current_tracing()` returns, until `close`."""
        global _current  # noqa: PLW0603 - of the process
        if self.is_on or (self._exporter is None and self._otlp[0] is None):
            return self
        self._recorder = self._make_recorder()
        self._stop_observing = observe_statements(self._observe_statement)
        _current = self
        return self

    def close(self, seconds: float = CLOSE_SECONDS_MAX) -> bool:
        """Make no more spans, and send what is queued; False if that took longer, and the rest was dropped."""
        global _current  # noqa: PLW0603 - of the process
        if self._recorder is None:
            return True
        self._recorder = None
        if self._stop_observing is not None:
            self._stop_observing()
        if _current is self:
            _current = _OFF
        batches: list[Batches[Any]] = [] if self._exporter is None else [self._exporter.batches]
        return close_all([*batches, *([] if self._otlp_batches is None else [self._otlp_batches])], seconds)

    def flush(self, seconds: float = CLOSE_SECONDS_MAX) -> bool:
        """Wait until what is queued was sent or dropped; False if it takes longer."""
        return all(each.flush(seconds) for each in self._exits().values())

    def counts(self) -> dict[str, ExitCounts]:
        """Return what each exit, ``postgres`` and ``otlp``, has sent and dropped."""
        return {name: ExitCounts(each.sent, each.dropped) for name, each in self._exits().items()}

    def span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Mapping[str, Any] | None = None,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        parent: str | None = None,
        links: tuple[object, ...] = (),
        is_new: bool = False,
    ) -> Span:
        """Return a span, to be entered by `with`; it is current within the block.

        Args:
            name: the operation's name, with few values: no id in it.
            attributes: None as a value is left out.
            app_name, user_id, session_id, run_id: whose it is; otherwise that of the span above.
            parent: a `traceparent` of another process; otherwise the current span is above it.
            links: `traceparent` of spans that caused it, in traces of their own.
            is_new: begin a trace even within a span.
        """
        if self._recorder is None:
            return NO_SPAN
        owners: Owners = {"app_name": app_name, "user_id": user_id, "session_id": session_id, "run_id": run_id}
        given = _owner_attributes(owners)
        span = self._recorder.begin(
            name, kind, {**given, **(attributes or {})}, parent=parse_traceparent(parent), is_new=is_new
        )
        for link in links:
            span.add_link(link)
        return span

    def trace_tool_call(
        self,
        tool_name: str,
        *,
        arguments: Any = None,
        call_id: str | None = None,
        tool_type: str = "function",
        attributes: Mapping[str, Any] | None = None,
        **owners: Unpack[Owners],
    ) -> Span:
        """Return the span of a call of a tool. `owners` are those of `span`.

        Its result is ``span.set_attribute(genai.TOOL_RESULT, …)``: that and the arguments, which the caller has
        redacted, are kept only with `content`.
        """
        if self._recorder is None:
            return NO_SPAN
        given = {
            genai.OPERATION: "execute_tool",
            genai.TOOL_NAME: tool_name,
            genai.TOOL_TYPE: tool_type,
            genai.TOOL_CALL_ID: call_id,
            genai.LANGFUSE_TYPE: "tool",
            genai.TOOL_ARGUMENTS: arguments if self.content else None,
        }
        return self.span(f"execute_tool {tool_name}", attributes={**given, **(attributes or {})}, **owners)

    def trace_llm_call(
        self,
        model: str,
        *,
        provider: str,
        operation: str = "generate_content",
        messages: Any = None,
        attributes: Mapping[str, Any] | None = None,
        **owners: Unpack[Owners],
    ) -> Span:
        """Return the span of a call of a model: `operation` is ``generate_content``, ``chat`` or ``embeddings``.

        `provider` is the conventions' name, such as ``gcp.gemini``, ``openai`` or ``anthropic``. What came back is
        set by the caller, with the names of `pulse.tracing.genai`: tokens, finish reasons, the model that answered.
        """
        if self._recorder is None:
            return NO_SPAN
        given = {**_model_attributes(provider, operation, model), genai.INPUT_MESSAGES: messages}
        return self.span(f"{operation} {model}", kind="client", attributes={**given, **(attributes or {})}, **owners)

    def record_llm_call(
        self,
        model: str,
        *,
        provider: str,
        operation: str,
        seconds: float,
        error: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the span of a call that has just ended after `seconds`, below the current span if there is one."""
        if self._recorder is None:
            return
        given = {**_model_attributes(provider, operation, model), **(attributes or {})}
        self._record_ended(f"{operation} {model}", given, seconds, error)

    def annotate(self, attributes: Mapping[str, Any] | None = None, **owners: Unpack[Owners]) -> None:
        """Say more about the current span, once it is known: attributes, and whose it is."""
        span = None if self._recorder is None else self._recorder.current
        if span is not None:
            span.set_attributes({**_owner_attributes(owners), **(attributes or {})})

    @property
    def traceparent(self) -> str | None:
        """The current span's, for a job or another process; None without one."""
        if self._recorder is None:
            return None
        span = self._recorder.current
        return None if span is None else span.traceparent

    def _make_recorder(self) -> Recorder | SdkRecorder:
        if not self._uses_sdk:
            assert self._exporter is not None  # noqa: S101 - the table is the only exit without the SDK
            return Recorder(
                self.service_name, self._exporter.put, sample_ratio=self._sample_ratio, content=self.content
            )
        from pulse.tracing.sdk import OtlpSink, SdkRecorder, exportable

        exits: list[Callable[[ReadableSpan], None]] = []
        exporter = self._exporter
        if exporter is not None:
            exits.append(lambda span: exporter.export((span,)) and None)
        endpoint, headers = self._otlp
        if endpoint is not None:
            self._otlp_batches = otlp = Batches("otlp", lambda: OtlpSink(endpoint, headers))
            exits.append(lambda span: otlp.put(exportable(span, content=self.content)))
        return SdkRecorder(self.service_name, exits, sample_ratio=self._sample_ratio, content=self.content)

    def _exits(self) -> dict[str, Batches[Any]]:
        exits: dict[str, Batches[Any]] = {}
        if self._exporter is not None:
            exits["postgres"] = self._exporter.batches
        if self._otlp_batches is not None:
            exits["otlp"] = self._otlp_batches
        return exits

    def _observe_statement(self, name: str, seconds: float, succeeded: bool) -> None:
        """Record a statement of the gateway; only within a span, so that polls of an idle process make no traces."""
        if self._recorder is not None and self._recorder.current is not None:
            given = {"db.system.name": "postgresql", "db.query.summary": name}
            self._record_ended(name, given, seconds, None if succeeded else "database")

    def _record_ended(self, name: str, given: Mapping[str, Any], seconds: float, error: str | None) -> None:
        if self._recorder is not None:
            span = self._recorder.begin(name, "client", given, start_ns=time.time_ns() - round(seconds * 1e9))
            if error is not None:
                span.fail(error)
            span.end(seconds)

    def __enter__(self) -> TracingManager:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def current_tracing() -> TracingManager:
    """Return the manager that was started in this process, else one that is off."""
    return _current


def spanned(
    name: str, *, operation: str | None = None
) -> Callable[[Callable[Arguments, Awaitable[Result]]], Callable[Arguments, Coroutine[Any, Any, Result]]]:
    """Return a decorator: each call is a span of this name, whose owners are the keyword arguments of these names."""
    attributes = {} if operation is None else {genai.OPERATION: operation}

    def decorate(
        work: Callable[Arguments, Awaitable[Result]],
    ) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
        @functools.wraps(work)
        async def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            manager = current_tracing()
            if not manager.is_on:
                return await work(*arguments, **named)
            owners = {key: str(named[key]) for key in _OWNER_NAMES if named.get(key) is not None}
            with manager.span(name, attributes=attributes, **owners):  # type: ignore[arg-type]  # names of owners
                return await work(*arguments, **named)

        return run

    return decorate


def _owner_attributes(owners: Owners) -> dict[str, Any]:
    return {
        attribute: value
        for attribute, key in zip(genai.OWNERS, _OWNER_NAMES, strict=True)
        if (value := owners.get(key)) is not None
    }


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # nor is the one around it
        return False


def _model_attributes(provider: str, operation: str, model: str) -> dict[str, Any]:
    return {
        genai.OPERATION: operation,
        genai.PROVIDER: provider,
        genai.REQUEST_MODEL: model,
        genai.LANGFUSE_TYPE: "embedding" if operation == "embeddings" else "generation",
    }


_OFF: Final = TracingManager(sdk=False)
_current: TracingManager = _OFF
