"""The Pulse: threads, events and scoped state under optimistic concurrency, on PostgreSQL.

Every public name can be imported from here. Its module is imported when the name is first used, so that
``import pulse`` costs nothing and the extras stay optional.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.actor import acting_as, current_actor
    from pulse.adk import PostgresArtifactService, PostgresSessionService
    from pulse.adk.agent import AdkAgent
    from pulse.adk.toolset import RegistryToolset
    from pulse.agui.cursor import Cursor
    from pulse.agui.frames import Frame
    from pulse.api_keys import ApiKey, ApiKeyService, Grant, NewApiKey
    from pulse.artifacts import ArtifactKey, ArtifactStore, StoredArtifact
    from pulse.audit import Act, AuditLog
    from pulse.cells import Cells, part_of, parts_of
    from pulse.database import Connection, Pool, connect, create_pool
    from pulse.errors import (
        ApiKeyNotFoundError,
        AppMovingError,
        ArtifactTooLargeError,
        ConcurrencyConflictError,
        DatabaseUnreachableError,
        EventConflictError,
        EventTooLargeError,
        HistoryChangedError,
        InterruptOpenError,
        InvalidInputError,
        PoolerError,
        PulseError,
        RedactionChangedError,
        RunActiveError,
        RunConflictError,
        RunEndedError,
        RunFencedError,
        RunNotFoundError,
        RunPrunedError,
        SchemaError,
        SecretRefusedError,
        SessionExistsError,
        SessionNotFoundError,
        StateTooLargeError,
        StreamLostError,
        StreamsClosedError,
        StreamTooLongError,
        ToolNotFoundError,
        WrongCellError,
    )
    from pulse.event_bridge import EventBridge
    from pulse.event_types import MESSAGE_EVENT_TYPES, PERSISTENT_EVENT_TYPES, TIMELINE_EVENT_TYPES
    from pulse.events import Appended, Event, EventActions, Session, SessionPage
    from pulse.live_text import DeltaCarrier, LiveMessage, LiveText, RunKey
    from pulse.loop_pools import LoopPools
    from pulse.notify.connection import ListenerTiming
    from pulse.pg_notify_listener import PgNotifyListener, Subscription
    from pulse.postgres.json_values import DELETED
    from pulse.postgres.statements import observe_statements
    from pulse.redaction import Redactor, Secret, SecretRedactor, observe_redactions, use_redactor
    from pulse.runs.agents import Agent, AgentError, AgentRunner, RunContext, RunInput
    from pulse.runs.heartbeat import RunHeartbeat
    from pulse.runs.records import Run, RunLease, RunStatus, RunWritten
    from pulse.runs.service import RunService
    from pulse.sandbox.adapters import CommandBackend, ContainerBackend, RemoteBackend
    from pulse.sandbox.records import Limits, SandboxRequest, SandboxResult
    from pulse.sandbox.service import Sandbox, make_sandbox_backend
    from pulse.scopes import Scope
    from pulse.session_key import SessionKey
    from pulse.session_service import OpenSessionService
    from pulse.state.history import (
        RestoredState,
        SharedStates,
        StateChange,
        StateChanges,
        StateHistory,
        StateHistoryPage,
    )
    from pulse.state.overlay import StateOverlay
    from pulse.state_debug import GroupedState, StateDebugInfo, StateDebugService
    from pulse.state_manager import StateManager
    from pulse.streams.deltas import PgDeltaCarrier
    from pulse.streams.run_streams import RunStreams
    from pulse.streams.thread_streams import ThreadStreams
    from pulse.telemetry import metrics_registry
    from pulse.threads import NewestRun, Thread, ThreadList
    from pulse.tickets import IssuedTicket, Ticket, TicketService
    from pulse.timeline import ConversationTimeline, TimelineItem, TimelineService
    from pulse.tools.openapi import DocumentError
    from pulse.tools.records import FrontendTool, Tool, ToolContext, ToolError, ToolExecution, ToolOutcome
    from pulse.tools.registry import ToolRegistry
    from pulse.tracing.manager import TracingManager, current_tracing
    from pulse.tracing.spans import Span
    from pulse.tracing.table import PostgresSpanExporter

__all__ = [
    "DELETED",
    "MESSAGE_EVENT_TYPES",
    "PERSISTENT_EVENT_TYPES",
    "TIMELINE_EVENT_TYPES",
    "Act",
    "AdkAgent",
    "Agent",
    "AgentError",
    "AgentRunner",
    "ApiKey",
    "ApiKeyNotFoundError",
    "ApiKeyService",
    "AppMovingError",
    "Appended",
    "ArtifactKey",
    "ArtifactStore",
    "ArtifactTooLargeError",
    "AuditLog",
    "Cells",
    "CommandBackend",
    "ConcurrencyConflictError",
    "Connection",
    "ContainerBackend",
    "ConversationTimeline",
    "Cursor",
    "DatabaseUnreachableError",
    "DeltaCarrier",
    "DocumentError",
    "Event",
    "EventActions",
    "EventBridge",
    "EventConflictError",
    "EventTooLargeError",
    "Frame",
    "FrontendTool",
    "Grant",
    "GroupedState",
    "HistoryChangedError",
    "InterruptOpenError",
    "InvalidInputError",
    "IssuedTicket",
    "Limits",
    "ListenerTiming",
    "LiveMessage",
    "LiveText",
    "LoopPools",
    "NewApiKey",
    "NewestRun",
    "OpenSessionService",
    "PgDeltaCarrier",
    "PgNotifyListener",
    "Pool",
    "PoolerError",
    "PostgresArtifactService",
    "PostgresSessionService",
    "PostgresSpanExporter",
    "PulseError",
    "RedactionChangedError",
    "Redactor",
    "RegistryToolset",
    "RemoteBackend",
    "RestoredState",
    "Run",
    "RunActiveError",
    "RunConflictError",
    "RunContext",
    "RunEndedError",
    "RunFencedError",
    "RunHeartbeat",
    "RunInput",
    "RunKey",
    "RunLease",
    "RunNotFoundError",
    "RunPrunedError",
    "RunService",
    "RunStatus",
    "RunStreams",
    "RunWritten",
    "Sandbox",
    "SandboxRequest",
    "SandboxResult",
    "SchemaError",
    "Scope",
    "Secret",
    "SecretRedactor",
    "SecretRefusedError",
    "Session",
    "SessionExistsError",
    "SessionKey",
    "SessionNotFoundError",
    "SessionPage",
    "SharedStates",
    "Span",
    "StateChange",
    "StateChanges",
    "StateDebugInfo",
    "StateDebugService",
    "StateHistory",
    "StateHistoryPage",
    "StateManager",
    "StateOverlay",
    "StateTooLargeError",
    "StoredArtifact",
    "StreamLostError",
    "StreamTooLongError",
    "StreamsClosedError",
    "Subscription",
    "Thread",
    "ThreadList",
    "ThreadStreams",
    "Ticket",
    "TicketService",
    "TimelineItem",
    "TimelineService",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolExecution",
    "ToolNotFoundError",
    "ToolOutcome",
    "ToolRegistry",
    "TracingManager",
    "WrongCellError",
    "acting_as",
    "connect",
    "create_pool",
    "current_actor",
    "current_tracing",
    "make_sandbox_backend",
    "metrics_registry",
    "observe_redactions",
    "observe_statements",
    "part_of",
    "parts_of",
    "use_redactor",
]

#: The module of each public name.
_PUBLIC: dict[str, str] = {
    name: module
    for module, names in {
        "pulse.actor": "acting_as current_actor",
        "pulse.adk": "PostgresArtifactService PostgresSessionService",
        "pulse.adk.agent": "AdkAgent",
        "pulse.adk.toolset": "RegistryToolset",
        "pulse.agui.cursor": "Cursor",
        "pulse.agui.frames": "Frame",
        "pulse.api_keys": "ApiKey ApiKeyService Grant NewApiKey",
        "pulse.artifacts": "ArtifactKey ArtifactStore StoredArtifact",
        "pulse.cells": "Cells part_of parts_of",
        "pulse.audit": "Act AuditLog",
        "pulse.database": "Connection Pool connect create_pool",
        "pulse.errors": (
            "ApiKeyNotFoundError AppMovingError ArtifactTooLargeError ConcurrencyConflictError "
            "DatabaseUnreachableError EventConflictError EventTooLargeError HistoryChangedError "
            "InterruptOpenError InvalidInputError PoolerError PulseError RedactionChangedError RunActiveError "
            "RunConflictError RunEndedError RunFencedError RunNotFoundError RunPrunedError SchemaError "
            "SecretRefusedError SessionExistsError SessionNotFoundError StateTooLargeError StreamLostError "
            "StreamTooLongError StreamsClosedError ToolNotFoundError WrongCellError"
        ),
        "pulse.event_bridge": "EventBridge",
        "pulse.event_types": "MESSAGE_EVENT_TYPES PERSISTENT_EVENT_TYPES TIMELINE_EVENT_TYPES",
        "pulse.events": "Appended Event EventActions Session SessionPage",
        "pulse.live_text": "DeltaCarrier LiveMessage LiveText RunKey",
        "pulse.loop_pools": "LoopPools",
        "pulse.notify.connection": "ListenerTiming",
        "pulse.pg_notify_listener": "PgNotifyListener Subscription",
        "pulse.postgres.json_values": "DELETED",
        "pulse.postgres.statements": "observe_statements",
        "pulse.redaction": "Redactor Secret SecretRedactor observe_redactions use_redactor",
        "pulse.runs.agents": "Agent AgentError AgentRunner RunContext RunInput",
        "pulse.runs.heartbeat": "RunHeartbeat",
        "pulse.runs.records": "Run RunLease RunStatus RunWritten",
        "pulse.runs.service": "RunService",
        "pulse.sandbox.adapters": "CommandBackend ContainerBackend RemoteBackend",
        "pulse.sandbox.records": "Limits SandboxRequest SandboxResult",
        "pulse.sandbox.service": "Sandbox make_sandbox_backend",
        "pulse.scopes": "Scope",
        "pulse.session_key": "SessionKey",
        "pulse.session_service": "OpenSessionService",
        "pulse.state.history": "RestoredState SharedStates StateChange StateChanges StateHistory StateHistoryPage",
        "pulse.state.overlay": "StateOverlay",
        "pulse.state_debug": "GroupedState StateDebugInfo StateDebugService",
        "pulse.state_manager": "StateManager",
        "pulse.streams.deltas": "PgDeltaCarrier",
        "pulse.streams.run_streams": "RunStreams",
        "pulse.streams.thread_streams": "ThreadStreams",
        "pulse.telemetry": "metrics_registry",
        "pulse.threads": "NewestRun Thread ThreadList",
        "pulse.tickets": "IssuedTicket Ticket TicketService",
        "pulse.timeline": "ConversationTimeline TimelineItem TimelineService",
        "pulse.tracing.manager": "TracingManager current_tracing",
        "pulse.tracing.spans": "Span",
        "pulse.tracing.table": "PostgresSpanExporter",
        "pulse.tools.openapi": "DocumentError",
        "pulse.tools.records": "FrontendTool Tool ToolContext ToolError ToolExecution ToolOutcome",
        "pulse.tools.registry": "ToolRegistry",
    }.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # a type checker takes the names from the imports above, and reports any other

    def __getattr__(name: str) -> object:
        module = _PUBLIC.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(module), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
