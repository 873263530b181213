"""The bodies that the routes of sessions take and give."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Self
from urllib.parse import unquote_to_bytes

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from pulse.events import Appended, Event, EventActions, Session
from pulse.postgres.json_values import escape_state

BATCH_SIZE_MAX = 1000
PAGE_SIZE_MAX = 1000
_WITHOUT_NUL = r"^[^\x00]*$"
_YEAR_1_SECONDS = -62_135_596_800
_YEAR_10000_SECONDS = 253_402_300_800

ESCAPE_NOTE = (
    "Any JSON value, kept exactly. What JSON or PostgreSQL cannot carry (NaN, infinities, U+0000 and lone surrogates in"
    ' responses, -0.0, 1e22 and larger) is written as {"$hippocampus": ["float", "nan"]} or'
    ' {"$hippocampus": ["text", "JSON escapes"]}; a key as "$hippocampus:JSON escapes".'
)

DELETED_NOTE = '{"$hippocampus": ["deleted"]} in the place of a value takes the key out; null sets it to null.'

Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_WITHOUT_NUL)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=_WITHOUT_NUL)]
JsonObject = dict[str, Any]


def decode(segment: Any) -> Any:
    """Undo a path segment's percent-encoding: paths are matched as they were sent."""
    return unquote_to_bytes(segment).decode() if isinstance(segment, str) else segment


AppName = Annotated[Name, BeforeValidator(decode), Path(description="The application.", examples=["shop"])]
UserId = Annotated[Name, BeforeValidator(decode), Path(description="The user, as the application names them.")]
SessionId = Annotated[Id, BeforeValidator(decode), Path(description="The session; '/' in it is written %2F.")]


#: A name in a path, with nothing more to say of it.
PathName = Annotated[Name, BeforeValidator(decode)]


class Body(BaseModel):
    """A request's body: nothing beside what is described, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SessionInput(Body):
    """A session to create."""

    session_id: Annotated[Id | None, Field(description="Unique for app and user; a new UUID where it is left out.")] = (
        None
    )
    state: Annotated[JsonObject, Field(description=f"Keys may begin with user:, app: or temp:. {ESCAPE_NOTE}")] = {}
    metadata: JsonObject = {}
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"session_id": "order-17", "state": {"step": 1, "user:language": "en"}}]}
    )


class ActionsInput(Body):
    """What an event does beside saying something."""

    state_delta: Annotated[
        JsonObject, Field(description=f"Keys to set, with their scope's prefix. {DELETED_NOTE}")
    ] = {}
    other: Annotated[JsonObject, Field(description="Kept with the event, never read.")] = {}


class EventInput(Body):
    """An event to append."""

    author: Annotated[Name, Field(description="user, model, tool, or the name of a person or an agent.")]
    content: Annotated[Any, Field(description=f"The text is content.text or content.parts[].text. {ESCAPE_NOTE}")] = (
        None
    )
    id: Annotated[Id | None, Field(description="Give one of your own: then the call can be repeated safely.")] = None
    event_type: Annotated[
        str, StringConstraints(max_length=64, pattern=_WITHOUT_NUL), Field(description="By default from the author.")
    ] = ""
    invocation_id: Annotated[str, StringConstraints(max_length=512, pattern=_WITHOUT_NUL)] = ""
    actions: ActionsInput = ActionsInput()
    timestamp: Annotated[
        float | None,
        Field(
            ge=_YEAR_1_SECONDS,
            lt=_YEAR_10000_SECONDS,
            allow_inf_nan=False,
            description="When it happened, in seconds since 1970; now where it is left out.",
        ),
    ] = None

    def record(self) -> Event:
        """Return the engine's record."""
        return Event(
            author=self.author,
            content=self.content,
            event_type=self.event_type,
            invocation_id=self.invocation_id,
            actions=EventActions(state_delta=self.actions.state_delta, other=self.actions.other),
            timestamp=self.timestamp,
            id=self.id or str(uuid.uuid4()),
        )


class AppendInput(Body):
    """Events to append to one session, in order, all or none."""

    events: Annotated[list[EventInput], Field(min_length=1, max_length=BATCH_SIZE_MAX)]
    expected_version: Annotated[
        int | None,
        Field(ge=0, le=2**31 - 1, description="Refuse where the session is at another version; null appends anyway."),
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


class ActionsView(BaseModel):
    """What an event did beside saying something."""

    state_delta: JsonObject
    other: JsonObject


class EventView(BaseModel):
    """A stored event."""

    id: str
    sequence_num: Annotated[int, Field(description="Its place in the session, from 1 without gaps.")]
    author: str
    event_type: str
    invocation_id: str
    content: Annotated[Any, Field(description=ESCAPE_NOTE)]
    actions: ActionsView
    timestamp: Annotated[float, Field(description="When it happened, in seconds since 1970.")]
    created_at: Annotated[datetime, Field(description="When it was recorded.")]

    @classmethod
    def of(cls, event: Event) -> Self:
        """Describe a stored event."""
        sequence_num, timestamp, created_at = _stored(event)
        return cls(
            id=event.id,
            sequence_num=sequence_num,
            author=event.author,
            event_type=event.event_type,
            invocation_id=event.invocation_id,
            content=escape_state(event.content),
            actions=ActionsView(
                state_delta=escape_state(event.actions.state_delta), other=escape_state(event.actions.other)
            ),
            timestamp=timestamp,
            created_at=created_at,
        )


class SessionHeadView(BaseModel):
    """A session without its events."""

    id: str
    app_name: str
    user_id: str
    thread_id: uuid.UUID
    version: Annotated[int, Field(description="Moves with each append; give it as expected_version.")]
    state: Annotated[JsonObject, Field(description=f"The merged scopes, with prefixes. {ESCAPE_NOTE}")]
    metadata: JsonObject
    created_at: datetime
    last_update_time: Annotated[float, Field(description="In seconds since 1970.")]
    finalized_at: datetime | None

    @classmethod
    def of(cls, session: Session) -> Self:
        """Describe a session as it was read."""
        return cls(**_head(session))


class SessionView(SessionHeadView):
    """A session with the events that were asked for."""

    events: list[EventView]

    @classmethod
    def of(cls, session: Session) -> Self:
        """Describe a session as it was read."""
        return cls(**_head(session), events=[EventView.of(event) for event in session.events])


class SessionPageView(BaseModel):
    """A page of sessions, newest first."""

    sessions: list[SessionHeadView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class EventPageView(BaseModel):
    """A page of events, in sequence."""

    events: list[EventView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class StoredEventView(BaseModel):
    """Where an event stands now."""

    id: str
    sequence_num: int
    timestamp: float
    created_at: datetime
    appended: Annotated[bool, Field(description="False where it was stored before, with the same content.")]

    @classmethod
    def of(cls, event: Event, *, appended: bool) -> Self:
        """Describe a stored event without its content."""
        sequence_num, timestamp, created_at = _stored(event)
        return cls(
            id=event.id, sequence_num=sequence_num, timestamp=timestamp, created_at=created_at, appended=appended
        )


class AppendedView(BaseModel):
    """The outcome of an append, in the order given."""

    thread_id: uuid.UUID
    version: Annotated[int, Field(description="The session's version now.")]
    events: list[StoredEventView]

    @classmethod
    def of(cls, outcome: Appended) -> Self:
        """Describe an append."""
        new = {event.id for event in outcome.new_events}
        stored = [StoredEventView.of(event, appended=event.id in new) for event in outcome.events]
        return cls(thread_id=outcome.thread_id, version=outcome.version, events=stored)


class FinalizedView(BaseModel):
    """The jobs that consolidate what was open."""

    jobs: Annotated[dict[str, uuid.UUID], Field(description="By type; empty where everything is consolidated.")]


def _head(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "app_name": session.app_name,
        "user_id": session.user_id,
        "thread_id": session.thread_id,
        "version": session.version,
        "state": escape_state(session.state),
        "metadata": escape_state(session.metadata),
        "created_at": session.created_at,
        "last_update_time": session.last_update_time,
        "finalized_at": session.finalized_at,
    }


def _stored(event: Event) -> tuple[int, float, datetime]:
    """Return what only a stored event has."""
    if event.sequence_num is None or event.timestamp is None or event.created_at is None:
        raise ValueError(f"the event {event.id!r} is not stored")
    return event.sequence_num, event.timestamp, event.created_at
