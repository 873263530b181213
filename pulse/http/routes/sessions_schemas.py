"""The bodies of the routes of sessions and events."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from pulse.events import Appended, Event, EventActions
from pulse.http.edge.schemas import (
    DELETED_NOTE,
    ESCAPE_NOTE,
    WITHOUT_NUL,
    Body,
    Escaped,
    EscapedObject,
    Id,
    JsonObject,
    Name,
    NextCursor,
    View,
)

BATCH_SIZE_MAX = 1000
_YEAR_1_SECONDS = -62_135_596_800
_YEAR_10000_SECONDS = 253_402_300_800


class SessionInput(Body):
    """A session to create."""

    session_id: Annotated[Id | None, Field(description="Unique for the app and the user; a new UUID by default.")] = (
        None
    )
    state: JsonObject = Field(default={}, description=f"Keys may begin with user:, app: or temp:. {ESCAPE_NOTE}")
    metadata: JsonObject = Field(default={})
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"session_id": "order-17", "state": {"step": 1, "user:language": "en"}}]}
    )


class ActionsInput(Body):
    """What an event does in addition to its content."""

    state_delta: JsonObject = Field(default={}, description=f"Keys to set, with their scope's prefix. {DELETED_NOTE}")
    other: JsonObject = Field(default={}, description="Stored with the event and returned; has no effect.")


class EventInput(Body):
    """An event to append."""

    author: Annotated[Name, Field(description="user, model, tool, or the name of a person or an agent.")]
    content: Annotated[Any, Field(description=f"The text is content.text or content.parts[].text. {ESCAPE_NOTE}")] = (
        None
    )
    id: Annotated[Id | None, Field(description="Choose your own id to make the call safe to repeat.")] = None
    event_type: Annotated[
        str,
        StringConstraints(max_length=64, pattern=WITHOUT_NUL),
        Field(description="Derived from the author by default."),
    ] = ""
    invocation_id: Annotated[str, StringConstraints(max_length=512, pattern=WITHOUT_NUL)] = ""
    actions: ActionsInput = ActionsInput()
    timestamp: Annotated[
        float | None,
        Field(
            gt=_YEAR_1_SECONDS,
            lt=_YEAR_10000_SECONDS,
            allow_inf_nan=False,
            description="When it happened, in seconds since 1970; now by default.",
        ),
    ] = None
    metadata: JsonObject = Field(default={}, description="Search can filter turns, and facts from them, by it.")

    def record(self) -> Event:
        """Return the event to append."""
        return Event(
            author=self.author,
            content=self.content,
            event_type=self.event_type,
            invocation_id=self.invocation_id,
            actions=EventActions(state_delta=self.actions.state_delta, other=self.actions.other),
            timestamp=self.timestamp,
            metadata=self.metadata,
            id=self.id or str(uuid.uuid4()),
        )


class AppendInput(Body):
    """Events to append to one session, in order, all or none."""

    events: Annotated[list[EventInput], Field(min_length=1, max_length=BATCH_SIZE_MAX)]
    expected_version: Annotated[
        int | None,
        Field(
            ge=0,
            le=2**31 - 1,
            description="Refuse the append if the session is at another version; null appends at any version.",
        ),
    ] = None
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "events": [
                        {"id": "turn-1", "author": "user", "content": {"text": "I moved to Lisbon in May."}},
                        {
                            "id": "turn-2",
                            "author": "model",
                            "content": {"text": "How do you like it?"},
                            "actions": {"state_delta": {"step": 2, "user:city": "Lisbon"}},
                        },
                    ],
                    "expected_version": 0,
                }
            ]
        }
    )


class ActionsView(View):
    """What an event did in addition to its content."""

    state_delta: EscapedObject
    other: EscapedObject


class EventView(View):
    """A stored event."""

    id: str
    sequence_num: Annotated[int, Field(description="Its position in the session, from 1 without gaps.")]
    author: str
    event_type: str
    invocation_id: str
    content: Annotated[Escaped, Field(description=ESCAPE_NOTE)]
    actions: ActionsView
    timestamp: Annotated[float, Field(description="When it happened, in seconds since 1970.")]
    metadata: EscapedObject
    created_at: Annotated[datetime, Field(description="When it was recorded.")]


class SessionHeadView(View):
    """A session without its events."""

    id: str
    app_name: str
    user_id: str
    thread_id: uuid.UUID
    version: Annotated[int, Field(description="Increases with each append; send it as expected_version.")]
    state: Annotated[EscapedObject, Field(description=f"The merged scopes, with prefixes. {ESCAPE_NOTE}")]
    metadata: EscapedObject
    created_at: datetime
    last_update_time: Annotated[float, Field(description="In seconds since 1970.")]
    finalized_at: datetime | None


class SessionView(SessionHeadView):
    """A session with the requested events."""

    events: list[EventView]


class SessionPageView(View):
    """A page of sessions, newest first."""

    sessions: list[SessionHeadView]
    next_cursor: NextCursor


class EventPageView(View):
    """A page of events, in sequence."""

    events: list[EventView]
    next_cursor: NextCursor


class StoredEventView(View):
    """The position of an event in its session."""

    id: str
    sequence_num: int
    timestamp: float
    created_at: datetime
    appended: Annotated[bool, Field(description="False if it was already stored with the same content.")]


class AppendedView(View):
    """The outcome of an append, in the order of the request."""

    thread_id: uuid.UUID
    version: Annotated[int, Field(description="The session's version after the append.")]
    events: list[StoredEventView]

    @classmethod
    def of_append(cls, outcome: Appended) -> AppendedView:
        """Return the view of an append."""
        new = {event.id for event in outcome.new_events}
        stored = [StoredEventView.of(event, appended=event.id in new) for event in outcome.events]
        return cls.of(outcome, events=stored)


class FinalizedView(View):
    """The jobs that consolidate the session's new events."""

    jobs: Annotated[dict[str, uuid.UUID], Field(description="By type; empty if everything is consolidated.")]
