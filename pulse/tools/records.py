"""The records of tools, of their calls, and of what a call is refused for."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

ToolKind: TypeAlias = Literal["python", "http", "mcp", "client", "sandbox"]
#: `again`: a call may be repeated, and then has happened once. `once`: it may not.
Nature: TypeAlias = Literal["again", "once"]
ExecutionStatus: TypeAlias = Literal[
    "waiting", "running", "succeeded", "failed", "timeout", "cancelled", "unknown", "refused"
]
#: Why a call has no result.
ToolErrorCode: TypeAlias = Literal[
    "unknown_tool",
    "not_allowed",
    "invalid_arguments",
    "rate_limited",
    "waiting",
    "denied",
    "timeout",
    "blocked_address",
    "too_large",
    "tool_failed",
    "outcome_unknown",
]
EXECUTION_STATUSES: tuple[ExecutionStatus, ...] = get_args(ExecutionStatus)


class ToolError(Exception):
    """Raised by a tool's function that fails: the message is shown to the model, and its code recorded."""

    def __init__(self, message: str, code: ToolErrorCode = "tool_failed") -> None:
        super().__init__(message)
        self.code: ToolErrorCode = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as it is stored.

    Attributes:
        version: the version of its definition; `revision` ascends with every change of any tool of the app.
        call_count, avg_latency_ms: calls that were made and ended, as of when the tool was read.
    """

    id: uuid.UUID
    app_name: str
    name: str
    display_name: str
    description: str
    permissions: Mapping[str, Any]
    is_active: bool
    call_count: int
    avg_latency_ms: float
    source: str | None
    kind: ToolKind
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    nature: Nature
    timeout_seconds: float
    version: int
    created_at: datetime
    updated_at: datetime
    operation: Mapping[str, Any] = field(repr=False)
    source_id: uuid.UUID | None = field(repr=False)
    revision: int = field(repr=False)
    source_version: int | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What became of a call.

    Attributes:
        execution_id: the id of its row in `tool_executions`; None if the database could not store one.
        value: the result, as JSON; None if there is an error.
        error_code, error: why there is no result; the message is written for a model.
        retry_after_seconds: after which a limit allows the call.
        cause: the database's error, if it failed before the call.
    """

    status: ExecutionStatus
    execution_id: uuid.UUID | None = None
    value: Any = None
    error_code: ToolErrorCode | None = None
    error: str | None = None
    latency_ms: float = 0.0
    retry_after_seconds: float | None = None
    cause: BaseException | None = field(default=None, repr=False, compare=False)

    @property
    def is_error(self) -> bool:
        """Whether there is no result."""
        return self.error_code is not None

    def for_model(self) -> Any:
        """Return the result, or ``{"error": {"code", "message"}}``."""
        if self.error_code is None:
            return self.value
        error: dict[str, Any] = {"code": self.error_code, "message": self.error or ""}
        if self.retry_after_seconds is not None:
            error["retry_after_seconds"] = round(self.retry_after_seconds, 3)
        if self.error_code == "waiting" and self.execution_id is not None:
            error["execution_id"] = str(self.execution_id)
        return {"error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """A call as it was recorded: redacted, and bounded."""

    id: uuid.UUID
    tool_name: str
    tool_version: int | None
    user_id: str
    run_id: uuid.UUID | None
    tool_call_id: str
    attempt: int
    status: ExecutionStatus
    input_params: Any
    output_result: Any
    error_code: str | None
    error: str | None
    latency_ms: float | None
    output_bytes: int | None
    trace_id: str | None
    span_id: str | None
    created_at: datetime
    ended_at: datetime | None


class ToolVersion(NamedTuple):
    """A version of a tool's definition."""

    version: int
    definition: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """What storing a source changed: names of tools.

    Attributes:
        skipped: operations that no tool can be made of, by their JSON pointer, and why.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool's function is passed in a parameter with this annotation.

    Attributes:
        user_id: on whose behalf it is called; '' for no user.
        idempotency_key: the same for every attempt of the same call.
    """

    app_name: str
    user_id: str
    run_id: uuid.UUID | None
    tool_call_id: str
    idempotency_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendTool:
    """A tool that the user's client executes, such as showing a form.

    Attributes:
        parameters: the JSON Schema of its arguments.
        render_component: what the client shows for it.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    render_component: str = ""
    requires_confirmation: bool = False
