"""A client of the HTTP API: async, typed, thin. It needs only httpx: no database driver and no web framework.

Safe calls are retried on 429 and 503, after Retry-After and within a bound: all reads, and appends, whose events always
have ids. Any other call is sent once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hippocampus.client.audit import AuditCalls
from hippocampus.client.by_hand import ByHandCalls, WrittenMemoryOptions
from hippocampus.client.calls import ATTEMPTS_MAX, RETRY_WAIT_SECONDS_MAX, TIMEOUT_SECONDS
from hippocampus.client.erasures import ErasureCalls
from hippocampus.client.errors import (
    ClientError,
    ConflictError,
    ConnectionFailedError,
    InvalidRequestError,
    KeyRefusedError,
    NotFoundError,
    ProblemError,
    UnavailableError,
    problem_of,
)
from hippocampus.client.installation import InstallationCalls
from hippocampus.client.instructions import InstructionCalls
from hippocampus.client.knowledge import (
    AddedDocumentRecord,
    CorpusRecord,
    DocumentRecord,
    KnowledgeAnswerRecord,
    KnowledgeCalls,
    KnowledgeCitationRecord,
    KnowledgeHitRecord,
    KnowledgeOptions,
    KnowledgeQuestionOptions,
)
from hippocampus.client.memory import FactOptions, JobOptions, MemoryCalls, MemoryOptions, SearchOptions
from hippocampus.client.pulse import PulseCalls
from hippocampus.client.records import (
    ActRecord,
    AgentRecord,
    Answer,
    AppendOutcome,
    AppSummary,
    ArchivedMemory,
    Caller,
    Citation,
    Edit,
    Erasure,
    FactCandidate,
    FactMerge,
    FactRecord,
    FactVersion,
    Forgotten,
    Health,
    InstructionRecord,
    JobRecord,
    KeyRecord,
    KeyStyleRecord,
    MemoryRecord,
    NewEvent,
    NewWebhookEndpoint,
    Profile,
    ProfileLine,
    Proposal,
    PulseEvent,
    RunLease,
    RunRecord,
    SearchResult,
    SessionRecord,
    StateChange,
    StateChanges,
    StoredEvent,
    ThreadRecord,
    Ticket,
    ToolCallRecord,
    ToolExecutionRecord,
    ToolRecord,
    ToolSourceChange,
    TraceSpan,
    UserSummary,
    WeakMemory,
    WebhookDeliveryRecord,
    WebhookEndpointRecord,
    Window,
)
from hippocampus.client.retention import RetentionCalls
from hippocampus.client.runs import RunCalls
from hippocampus.client.sessions import SessionCalls
from hippocampus.client.tools import ToolCalls
from hippocampus.client.traces import TraceCalls
from hippocampus.client.users import UserCalls
from hippocampus.client.webhooks import WebhookCalls

__all__ = [
    "ATTEMPTS_MAX",
    "RETRY_WAIT_SECONDS_MAX",
    "TIMEOUT_SECONDS",
    "ActRecord",
    "AddedDocumentRecord",
    "AgentRecord",
    "Answer",
    "AppSummary",
    "AppendOutcome",
    "ArchivedMemory",
    "Caller",
    "Citation",
    "ClientError",
    "ConflictError",
    "ConnectionFailedError",
    "CorpusRecord",
    "DocumentRecord",
    "Edit",
    "Erasure",
    "FactCandidate",
    "FactMerge",
    "FactOptions",
    "FactRecord",
    "FactVersion",
    "Forgotten",
    "Health",
    "HippocampusClient",
    "InstructionRecord",
    "InvalidRequestError",
    "JobOptions",
    "JobRecord",
    "KeyRecord",
    "KeyRefusedError",
    "KeyStyleRecord",
    "KnowledgeAnswerRecord",
    "KnowledgeCitationRecord",
    "KnowledgeHitRecord",
    "KnowledgeOptions",
    "KnowledgeQuestionOptions",
    "MemoryOptions",
    "MemoryRecord",
    "NewEvent",
    "NewWebhookEndpoint",
    "NotFoundError",
    "ProblemError",
    "Profile",
    "ProfileLine",
    "Proposal",
    "PulseEvent",
    "RunLease",
    "RunRecord",
    "SearchOptions",
    "SearchResult",
    "SessionRecord",
    "StateChange",
    "StateChanges",
    "StoredEvent",
    "ThreadRecord",
    "Ticket",
    "ToolCallRecord",
    "ToolExecutionRecord",
    "ToolRecord",
    "ToolSourceChange",
    "TraceSpan",
    "UnavailableError",
    "UserSummary",
    "WeakMemory",
    "WebhookDeliveryRecord",
    "WebhookEndpointRecord",
    "Window",
    "WrittenMemoryOptions",
]


class HippocampusClient(
    SessionCalls,
    RunCalls,
    MemoryCalls,
    ByHandCalls,
    RetentionCalls,
    ErasureCalls,
    InstallationCalls,
    InstructionCalls,
    AuditCalls,
    WebhookCalls,
    TraceCalls,
    ToolCalls,
    PulseCalls,
    KnowledgeCalls,
    UserCalls,
):
    """Calls the API on behalf of one app; see `hippocampus.client.calls` for the arguments.

    Raises, from every method:
        ClientError: see `hippocampus.client.errors`.
    """

    async def health(self) -> Health:
        """Read whether the API can do its work. This needs no key."""
        response = await self._send("GET", "/health")
        if response.status_code not in (200, 503):
            raise problem_of(response)
        found = response.json()
        return Health(
            is_ok=found["status"] == "ok", database=found["database"], listener_running=found["listener_running"]
        )

    async def metrics_targets(self) -> Sequence[Mapping[str, Any]]:
        """List every live process's metrics address, for Prometheus's service discovery. Needs an all-apps key."""
        return tuple(await self._call("GET", "/metrics/targets"))
