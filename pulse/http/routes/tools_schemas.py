"""The bodies of the routes of tools."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from pulse.http.edge.schemas import WITHOUT_NUL, Body, Name, NextCursor, View
from pulse.tools.records import ExecutionStatus, Nature, ToolKind

SourceName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=WITHOUT_NUL)]


class SourceInput(Body):
    """An OpenAPI document, or the address of an MCP server. Credentials need an all-apps key."""

    openapi: Annotated[dict[str, Any] | None, Field(description="An OpenAPI document, 3.0 or 3.1.")] = None
    openapi_url: Annotated[str | None, StringConstraints(max_length=2048), Field(description="Or where it is.")] = None
    mcp_url: Annotated[str | None, StringConstraints(max_length=2048), Field(description="Or an MCP server.")] = None
    base_url: Annotated[
        str | None, StringConstraints(max_length=2048), Field(description="Instead of the document's servers.")
    ] = None
    permissions: Annotated[dict[str, Any] | None, Field(description="Of all its tools.")] = None
    credentials: Annotated[
        dict[str, str],
        Field(default_factory=dict, description="env:TOOL_NAME for each security scheme; of MCP, for `bearer`."),
    ]
    allowed_networks: Annotated[
        str, StringConstraints(max_length=1000), Field(description="Private networks that it may reach.")
    ] = ""
    timeout_seconds: Annotated[
        float | None,
        Field(gt=0, le=3600, description="Of each call; 30, and 60 of an MCP server, if it is not given."),
    ] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"openapi_url": "https://example.org/openapi.json"}]})


class PermissionsInput(Body):
    """Who may call a tool, how often, and whether a person confirms it."""

    permissions: dict[str, Any]
    model_config = ConfigDict(json_schema_extra={"examples": [{"permissions": {"rate_limit": 60}}]})


class RollbackInput(Body):
    """The version to restore."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 1}]})


class CallInput(Body):
    """The arguments of a call."""

    params: Annotated[dict[str, Any], Field(default_factory=dict)]
    tool_call_id: Annotated[str | None, StringConstraints(min_length=1, max_length=255, pattern=WITHOUT_NUL)] = None
    roles: Annotated[
        list[Name],
        Field(
            default_factory=list,
            max_length=100,
            description="The user's roles, which the caller vouches for: not with a key of one user.",
        ),
    ]
    model_config = ConfigDict(json_schema_extra={"examples": [{"params": {"city": "Oslo"}}]})


class DecisionInput(Body):
    """Whether a call that waits is made."""

    approved: bool
    model_config = ConfigDict(json_schema_extra={"examples": [{"approved": True}]})


class ResultInput(Body):
    """What the user's client answers to a call of its own tool."""

    value: Annotated[Any, Field(description="Any JSON value.")]
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": {"name": "Ann"}}]})


class ToolView(View):
    """A tool."""

    name: str
    display_name: str
    description: str
    kind: ToolKind
    source: Annotated[str | None, Field(description="The document or the server that describes it.")]
    version: int
    is_active: bool
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    permissions: dict[str, Any]
    nature: Annotated[Nature, Field(description="again: a call may be repeated.")]
    timeout_seconds: float
    call_count: int
    avg_latency_ms: float
    created_at: datetime
    updated_at: datetime


class ToolPageView(View):
    """A page of tools, by their names."""

    tools: list[ToolView]
    next_cursor: NextCursor


class VersionView(View):
    """A version of a tool's definition."""

    version: int
    definition: dict[str, Any]
    created_at: datetime


class VersionListView(View):
    """The versions of a tool, the newest first."""

    versions: list[VersionView]


class SourceChangeView(View):
    """What storing a source changed: names of tools."""

    added: list[str]
    changed: list[str]
    gone: list[str]
    skipped: Annotated[dict[str, str], Field(description="Operations that no tool can be made of, and why.")]


class CallView(View):
    """What became of a call."""

    status: ExecutionStatus
    execution_id: uuid.UUID | None
    value: Annotated[Any, Field(description="The result; null if there is an error.")]
    error_code: str | None
    error: str | None
    latency_ms: float
    retry_after_seconds: float | None


class ExecutionView(View):
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
    created_at: datetime
    ended_at: datetime | None


class ExecutionPageView(View):
    """A page of calls, the newest first."""

    executions: list[ExecutionView]
    next_cursor: NextCursor
