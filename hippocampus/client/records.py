"""The client's arguments and results: frozen records, with the fields of the API's document.

Times are ISO 8601 text as in the API, except `timestamp` and `last_update_time`, in seconds since 1970.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Record = TypeVar("Record")
FactType = Literal["preference", "rule", "profile", "custom"]
MemoryType = Literal["episodic", "semantic", "summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to append. Its id makes the append safe to repeat: choose your own, or keep this object."""

    author: str
    content: Any = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    event_type: str = ""
    invocation_id: str = ""
    state_delta: Mapping[str, Any] = field(default_factory=dict)
    timestamp: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event of a session; `actions` in the API's format."""

    id: str
    sequence_num: int
    author: str
    event_type: str
    invocation_id: str
    content: Any
    actions: Mapping[str, Any]
    timestamp: float
    metadata: Mapping[str, Any]
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session as it was read; without events if it is from a list."""

    id: str
    app_name: str
    user_id: str
    thread_id: str
    version: int
    state: Mapping[str, Any]
    metadata: Mapping[str, Any]
    created_at: str
    last_update_time: float
    finalized_at: str | None
    events: tuple[StoredEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOutcome:
    """The outcome of an append: the session's version, and whether each event is new, by id."""

    thread_id: str
    version: int
    appended: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A row that matches."""

    memory_id: str
    source: str
    memory_type: str
    content: str
    relevance_score: float
    score: float
    metadata: Mapping[str, Any]
    session_id: str | None
    source_seqs: Sequence[int]
    occurred_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A packed context window; `rerank_failure` says why what matches is in the search's own order."""

    text: str
    total_tokens: int
    max_tokens: int
    items: Sequence[Mapping[str, Any]]
    degraded: str | None
    messages: Sequence[Mapping[str, str]] = ()
    reranked: bool = False
    rerank_failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What an answer rests on: a memory, a fact or a turn."""

    source: Literal["memory", "fact", "turn"]
    id: str
    text: str
    session_id: str | None
    sequence_nums: Sequence[int]
    occurred_at: str | None
    changed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer; `answered_by` is None if nothing is remembered, and no model was asked."""

    text: str
    is_known: bool
    answered_by: Literal["model", "passages"] | None
    citations: Sequence[Citation]
    model: str | None
    usage: Mapping[str, int]
    degraded: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLine:
    """A line of a profile, with the ids of the facts, the memory or the proposal that it comes from."""

    kind: Literal["instruction", "rule", "profile", "preference", "custom", "insight"]
    text: str
    ids: Sequence[str]
    since: str | None
    is_standing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known of a user, on one page; `left_out` counts what is known and is not on it."""

    text: str
    lines: Sequence[ProfileLine]
    total_tokens: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A memory."""

    id: str
    memory_type: str
    content: str
    metadata: Mapping[str, Any]
    retention_score: float
    access_count: int
    pinned: bool
    created_at: str | None
    occurred_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRecord:
    """A fact about a user."""

    id: str
    fact_type: str
    key: str
    value: Any
    confidence: float
    valid_from: str | None
    valid_until: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A consolidation job."""

    id: str
    thread_id: str
    job_type: str
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    attempts: int
    result: Mapping[str, Any]
    error: str | None
    error_code: str | None
    created_at: str | None
    completed_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """A key of the API, without its secret."""

    id: str
    app_name: str | None
    user_id: str | None
    name: str
    roles: Sequence[str]
    created_at: str
    last_used_at: str | None
    expires_at: str | None
    revoked_at: str | None
    user_roles: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the API can do its work."""

    is_ok: bool
    database: str
    listener_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRecord:
    """The position of a session; `newest_run` is live while its `status` is running."""

    thread_id: str
    version: int
    last_sequence: int
    updated_at: str
    finalized_at: str | None
    newest_run: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What the key allows; `app_name` and `user_id` are None where it is bound to none.

    Attributes:
        user_roles: the roles of users that its calls may name, for tools and corpora; None: none with a key of one
            user, any with another.
    """

    key_id: str
    app_name: str | None
    user_id: str | None
    roles: Sequence[str]
    user_roles: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSummary:
    """An app, and how much it holds; 1000 means that many or more."""

    app_name: str
    sessions: int
    memories: int
    facts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSummary:
    """A user, how much is remembered (1000 means that many or more), and what was said last."""

    user_id: str
    sessions: int
    memories: int
    facts: int
    waiting_events: int
    last_active_at: str | None
    last_session_id: str | None
    last_role: str | None
    last_text: str | None
    last_said_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """An event that changed a session's state: the keys that it set, with their prefixes."""

    sequence_num: int
    version: int
    event_id: str
    author: str
    delta: Mapping[str, Any]
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges:
    """The keys that were set since the given versions. If `is_whole`, drop the session's other keys."""

    state: Mapping[str, Any]
    is_whole: bool
    version: int
    user_version: int
    app_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A ticket for a browser to follow the streams of one session, until it expires."""

    ticket: str
    expires_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run."""

    run_id: str
    thread_id: str
    status: str
    cancel_requested: bool
    error: str | None
    error_code: str | None
    first_sequence_num: int
    last_sequence_num: int
    started_at: str
    completed_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLease:
    """What the process that executes a run has to know: stop if it is not `running`, end it if that was requested."""

    status: str
    cancel_requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """An agent that the writer runs; `capabilities` as AG-UI's AgentCapabilities."""

    name: str
    description: str
    runs_alone: bool
    capabilities: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVersion:
    """A statement about a key, and its outcome."""

    fact_id: str
    value: Any
    confidence: float
    outcome: Literal["current", "superseded", "out_of_order", "candidate", "retracted"]
    valid_from: str
    valid_until: str | None
    recorded_at: str
    superseded_at: str | None
    source_seqs: Sequence[int]
    written_by: str | None = None
    confirmed_by: str | None = None
    confirmed_at: str | None = None
    superseded_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What became of a change by hand: what holds the words now, and whether anything changed."""

    kind: Literal["memory", "fact"]
    ids: Sequence[str]
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCandidate:
    """A statement that was too uncertain to replace a fact."""

    id: str
    fact_id: str
    fact_type: FactType
    key: str
    value: Any
    confidence: float
    held_value: Any
    held_confidence: float
    valid_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactMerge:
    """A key that was recognized as another spelling of a fact's key."""

    id: str
    fact_id: str
    fact_type: FactType
    from_key: str
    to_key: str
    similarity: float
    merged_at: str
    undone_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMemory:
    """A memory that was archived; it can be restored until `purged_after`, or always if that is None."""

    id: str
    memory_type: str
    content: str
    score: float | None
    archive_reason: str
    archived_at: str
    purged_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakMemory:
    """A memory that a clean-up would archive now: its score is below the threshold."""

    id: str
    user_id: str
    memory_type: str
    content: str
    score: float
    threshold: float
    age_days: float
    idle_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """An erasure and its outcome: the rows that were erased, and those that are still found, by table."""

    id: str
    scope: Literal["user", "session", "events", "memory", "fact"]
    counts: Mapping[str, int]
    remaining: Mapping[str, int]
    requested_at: str
    finished_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What to erase: a session, events of a session, a memory or a fact, or everything of the user. Name one."""

    session_id: str | None = None
    sequence_nums: Sequence[int] = ()
    event_ids: Sequence[str] = ()
    memory_id: str | None = None
    whole_user: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStyleRecord:
    """How a key of facts holds its values; `app_name` is '*' for a style of every app."""

    app_name: str
    fact_type: str
    normal_key: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionRecord:
    """One version of an instruction."""

    key: str
    version: int
    content: str
    metadata: Mapping[str, Any]
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of an instruction that a user's feedback suggests. It takes effect only when it is approved."""

    id: str
    key: str
    content: str
    status: Literal["proposed", "approved", "rejected"]
    base_version: int
    version: int | None
    user_id: str
    proposed_at: str
    decided_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpointRecord:
    """An address that receives the app's events; without event types, those of every type."""

    id: str
    url: str
    event_types: Sequence[str]
    description: str
    failures_in_row: int
    disabled_at: str | None
    disabled_reason: str | None
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhookEndpoint:
    """A new endpoint with its secret, which is returned only once."""

    endpoint: WebhookEndpointRecord
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDeliveryRecord:
    """An event on its way to an endpoint; `event_id` is the ``webhook-id`` that the receiver gets."""

    id: str
    endpoint_id: str
    event_id: str
    event_type: str
    event_at: str
    status: Literal["waiting", "parked", "sending", "delivered", "failed", "cancelled"]
    attempts: int
    next_attempt_at: str | None
    last_attempt_at: str | None
    response_status: int | None
    error_code: str | None
    ended_at: str | None
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """A span of a trace. `linked_trace_id` is the trace of the append that caused a job."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    linked_trace_id: str | None
    name: str
    kind: str
    service: str
    started_at: str
    duration_ns: int
    error: str | None
    session_id: str | None
    run_id: str | None
    attributes: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecord:
    """A tool of the app."""

    name: str
    display_name: str
    description: str
    kind: Literal["python", "http", "mcp", "client", "sandbox"]
    source: str | None
    version: int
    is_active: bool
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    permissions: Mapping[str, Any]
    nature: Literal["again", "once"]
    timeout_seconds: float
    call_count: int
    avg_latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSourceChange:
    """What storing a source of tools changed: names of tools; `skipped` says of which operations none can be made."""

    added: Sequence[str]
    changed: Sequence[str]
    gone: Sequence[str]
    skipped: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRecord:
    """What became of a call of a tool; `error_code` is None if there is a result."""

    status: str
    execution_id: str | None
    value: Any
    error_code: str | None
    error: str | None
    latency_ms: float
    retry_after_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionRecord:
    """A call of a tool as it was recorded: redacted, and bounded."""

    id: str
    tool_name: str
    tool_version: int | None
    user_id: str
    run_id: str | None
    tool_call_id: str
    attempt: int
    status: str
    input_params: Any
    output_result: Any
    error_code: str | None
    error: str | None
    latency_ms: float | None
    created_at: str
    ended_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRecord:
    """An administrative act: ids, no word of a user. `app_name` None or ``*``: it concerns every app."""

    id: str
    at: str
    actor: str
    action: str
    app_name: str | None
    user_id: str | None
    target: Mapping[str, Any]
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseEvent:
    """What the autonomic layer decided or did: codes, ids and numbers. `ref`: the effect that it is about."""

    id: int
    kind: str
    key: str
    ref: int | None
    hash: str | None
    meta: Mapping[str, Any]
    occurred_at: str


def pick(record: type[Record], body: Mapping[str, Any]) -> Record:
    """Return a record of its fields in a body: a newer API may send more."""
    names = (each.name for each in dataclasses.fields(record))  # type: ignore[arg-type]  # every record is one
    return record(**{name: body[name] for name in names})
