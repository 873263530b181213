"""The bodies of the routes of runs that agents elsewhere execute."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from pulse.events import Event
from pulse.http.edge.schemas import DELETED_NOTE, ESCAPE_NOTE, WITHOUT_NUL, Body, Id, JsonObject, View
from pulse.http.routes.runs_schemas import RunView
from pulse.http.routes.sessions_schemas import EventInput, StoredEventView
from pulse.runs.records import RunStatus
from pulse.runs.remote import HOLDER_LENGTH_MAX, Delta

EVENTS_MAX = 1000
DELTAS_MAX = 100
_PIECE_LENGTH_MAX = 100_000

Holder = Annotated[
    str,
    StringConstraints(min_length=1, max_length=HOLDER_LENGTH_MAX, pattern=WITHOUT_NUL),
    Field(description="The name of the process that executes the run, as at its start."),
]
LeaseSeconds = Annotated[
    float | None,
    Field(ge=1, le=3600, description="How long the run outlives this call without another one; 30 by default."),
]


class QuestionInput(Body):
    """The user's message that a run answers."""

    id: Annotated[Id | None, Field(description="The message's id; a new one by default.")] = None
    content: Annotated[str | list[JsonObject], Field(description="Its text, or AG-UI's parts.")]

    def record(self) -> Event:
        """Return the event to store."""
        own = self.id or str(uuid.uuid4())
        key = "content" if isinstance(self.content, str) else "parts"
        return Event(author="user", event_type="user_message", content={key: self.content, "message_id": own}, id=own)


class RunInputView(Body):
    """A run to start."""

    thread_id: Annotated[Id, Field(description="The session's id; the session is created if there is none.")]
    run_id: Annotated[Id | None, Field(description="Unique in the app. Choose it to make the call safe to repeat.")] = (
        None
    )
    holder: Holder
    message: QuestionInput | None = None
    alone: Annotated[bool, Field(description="Refuse while another run of the session is in progress.")] = False
    lease_seconds: LeaseSeconds = None
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "thread_id": "order-17",
                    "run_id": "run-1",
                    "holder": "worker-1",
                    "message": {"id": "m1", "content": "Where is my parcel?"},
                }
            ]
        }
    )


class RunEventsInput(Body):
    """Events of a run, in order, all or none."""

    holder: Holder
    events: Annotated[list[EventInput], Field(min_length=1, max_length=EVENTS_MAX)]
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "holder": "worker-1",
                    "events": [
                        {
                            "id": "e2",
                            "author": "model",
                            "event_type": "act",
                            "content": {"tool_name": "parcels", "tool_input": {"id": 7}, "tool_call_id": "c1"},
                        },
                        {
                            "id": "e3",
                            "author": "tool",
                            "event_type": "observe",
                            "content": {"tool_call_id": "c1", "observation": {"eta": "tomorrow"}, "is_error": False},
                            "actions": {"state_delta": {"eta": "tomorrow"}},
                        },
                    ],
                }
            ]
        }
    )


class DeltaInput(Body):
    """A piece of a message that is being written."""

    message_id: Annotated[
        Id, Field(description="Store the complete message with this id, as an event. Of an act: its tool_call_id.")
    ]
    kind: Annotated[
        Literal["text", "thought", "act"],
        Field(
            description="act: the arguments of a tool's call, as JSON. Store the call with them as content.tool_args."
        ),
    ] = "text"
    tool_name: Annotated[str | None, StringConstraints(max_length=255), Field(description="Of an act.")] = None
    subagent_run_id: Annotated[Id | None, Field(description="The subagent that writes it.")] = None
    offset: Annotated[
        int,
        Field(ge=0, le=1_000_000, description="Where the piece begins, in Unicode characters; 0 opens the message."),
    ]
    text: Annotated[str, StringConstraints(min_length=1, max_length=_PIECE_LENGTH_MAX)]

    def record(self) -> Delta:
        """Return the piece."""
        named = {"tool_name": self.tool_name, "subagent_run_id": self.subagent_run_id}
        meta = {name: value for name, value in named.items() if value is not None}
        return Delta(message_id=self.message_id, kind=self.kind, offset=self.offset, text=self.text, meta=meta)


class TransientInput(Body):
    """An event that is sent to the clients which follow the run now, and not stored."""

    event_type: Literal["custom", "activity", "activity_delta"]
    content: Annotated[JsonObject, Field(description="As of a stored event of this type, at most 7,900 bytes.")]


class DeltasInput(Body):
    """Pieces of messages that are being written, and events that are not stored."""

    holder: Holder
    deltas: Annotated[list[DeltaInput], Field(default_factory=list, max_length=DELTAS_MAX)]
    transients: Annotated[
        list[TransientInput],
        Field(
            default_factory=list,
            max_length=DELTAS_MAX,
            description="Sent at once: a follower may get them before the pieces.",
        ),
    ]
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"holder": "worker-1", "deltas": [{"message_id": "m2", "offset": 0, "text": "It arrives "}]},
                {
                    "holder": "worker-1",
                    "transients": [{"event_type": "custom", "content": {"name": "shop:progress", "value": 0.5}}],
                },
            ]
        }
    )

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.deltas and not self.transients:
            raise ValueError("a piece or an event is missing: give deltas or transients")
        return self


class HeartbeatInput(Body):
    """A sign of life of the process that executes a run."""

    holder: Holder
    lease_seconds: LeaseSeconds = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"holder": "worker-1"}]})


class RunEndInput(Body):
    """The end of a run."""

    holder: Holder
    status: Literal["completed", "failed", "cancelled"]
    answer: Annotated[str | None, Field(description="completed: the whole last message, if it is not stored yet.")] = (
        None
    )
    message_id: Annotated[Id | None, Field(description="completed: the id under which the answer was streamed.")] = None
    result: Annotated[
        Any,
        Field(description=f'completed: any value, or {{"interrupts": […]}} with questions to the user. {ESCAPE_NOTE}'),
    ] = None
    state_delta: JsonObject = Field(default={}, description=f"completed: keys to set. {DELETED_NOTE}")
    error: Annotated[
        str, StringConstraints(max_length=10_000), Field(description="failed: the message for clients.")
    ] = ""
    error_code: Annotated[str, StringConstraints(max_length=255, pattern=WITHOUT_NUL)] = "agent_failed"
    reason: Annotated[str, StringConstraints(max_length=10_000), Field(description="cancelled: why.")] = ""
    usage: list[JsonObject] = Field(
        default=[], max_length=100, description="AG-UI's TokenUsage, for each provider and model."
    )
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"holder": "worker-1", "status": "completed", "answer": "It arrives tomorrow.", "message_id": "m2"}
            ]
        }
    )


class LeaseView(View):
    """What the process that executes a run has to know."""

    status: Annotated[RunStatus, Field(description="Stop working on a run that is not `running`.")]
    cancel_requested: Annotated[bool, Field(description="End the run as `cancelled`.")]


class RunEventsView(LeaseView):
    """The stored events, in the order of the request."""

    events: list[StoredEventView]


class StartedRunView(RunView):
    """A run that was started."""

    created: Annotated[bool, Field(description="False if this holder started it before.")]
    lease_until: datetime
