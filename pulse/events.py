"""The records of a session and of its events."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from pulse.errors import InvalidInputError
from pulse.event_types import MESSAGE_EVENT_TYPES
from pulse.postgres.json_values import clean_text
from pulse.session_key import SessionKey

Role: TypeAlias = Literal["user", "assistant", "tool"]

_ROLES: Mapping[str, Role] = {"user": "user", "tool": "tool"}
_ROLES_BY_TYPE: Mapping[str, Role] = {"user_message": "user", "assistant_message": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventActions:
    """Side effects of an event.

    Attributes:
        state_delta: keys to set, with their scope's prefix; a value replaces the old one whole, None is stored as null,
            `pulse.DELETED` removes the key.
        other: further values that a framework keeps with an event; stored and returned, never read.
    """

    state_delta: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a session, immutable once it is appended.

    Attributes:
        author: ``user``, ``model``, ``tool``, or the name of a person or an agent.
        content: any JSON value; the text of a message is ``content["text"]``, ``content["content"]``,
            ``content["message"]``, or the ``text`` of the items of ``content["parts"]``.
        id: unique within the session; appending the same event again changes nothing.
        event_type: by default ``user_message`` for the user, ``message`` for a tool, else ``assistant_message``.
        invocation_id: the run that made the event; '' for none.
        timestamp: when it happened, in seconds since 1970; None for the time of the append.
        metadata: a JSON object that a search of turns and of the facts extracted from them can filter by.
        sequence_num: its position in the session, from 1 without gaps; None before it is appended.
        created_at: when it was recorded, by the database's clock; None before it is appended.
        shared_versions: of the user's and the app's state after it, where it changed them; only streams read them.
    """

    author: str
    content: Any = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    event_type: str = ""
    invocation_id: str = ""
    actions: EventActions = field(default_factory=EventActions)
    timestamp: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sequence_num: int | None = None
    created_at: datetime | None = None
    shared_versions: tuple[int | None, int | None] = field(default=(None, None), repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.event_type:
            default = {"user": "user_message", "tool": "message"}.get(self.author, "assistant_message")
            object.__setattr__(self, "event_type", default)

    @property
    def occurred_at(self) -> datetime | None:
        """The timestamp as an aware datetime.

        Raises:
            InvalidInputError: the number is outside of the years 1 to 9999.
        """
        return None if self.timestamp is None else moment(self.timestamp)

    @property
    def text(self) -> str | None:
        """The text of the message; None if the event is not a message or has no text."""
        return message_text(self.content) if self.event_type in MESSAGE_EVENT_TYPES else None

    @property
    def role(self) -> Role:
        """The role of the event's author in a model's conversation."""
        return role_of(self.event_type, self.author)


@dataclass(slots=True, kw_only=True)
class Session:
    """A session as it was read, updated by the appends that are made through it.

    Attributes:
        state: the merged view of the three stored scopes, with prefixes; ``temp:`` keys only if this process set them.
        events: those that were requested, in sequence.
        version: rises with each append; an append through a stale session is refused.
        user_version, app_version: of the shared states, as they were read; 0 if there is none.
        last_update_time: when the last event was recorded, in seconds since 1970.
    """

    id: str
    app_name: str
    user_id: str
    state: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    last_update_time: float = 0.0
    version: int = 0
    user_version: int = 0
    app_version: int = 0
    thread_id: uuid.UUID
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime
    finalized_at: datetime | None = None

    @property
    def key(self) -> SessionKey:
        """The names of the session."""
        return SessionKey(self.app_name, self.user_id, self.id)


class SessionPage(list[Session]):
    """Sessions without their events, newest first, and the cursor of the next page; None after the last."""

    def __init__(self, sessions: Sequence[Session] = (), next_cursor: str | None = None) -> None:
        super().__init__(sessions)
        self.next_cursor = next_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The outcome of an append: the stored events in the order given, and the session's version after it.

    Attributes:
        last_sequence_num: the number of the session's newest event.
        new_events: the events that were not stored before.
        user_version, app_version: of the shared states; None if this append did not change them.
    """

    thread_id: uuid.UUID
    version: int
    last_sequence_num: int
    events: tuple[Event, ...]
    new_events: tuple[Event, ...]
    user_version: int | None = None
    app_version: int | None = None


#: The driver stores these as -infinity and infinity.
_INFINITIES = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def moment(seconds: float) -> datetime:
    """Return a time in seconds since 1970 as an aware datetime.

    Raises:
        InvalidInputError: the number is outside of the years 1 to 9999.
    """
    try:
        found = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(f"timestamp must be seconds since 1970, not {seconds!r}: {error}") from error
    if found in _INFINITIES:
        raise InvalidInputError(f"timestamp must be seconds since 1970, not {seconds!r}, which is out of range")
    return found


def role_of(event_type: str, author: str) -> Role:
    """Return the role of an event's author in a model's conversation."""
    return _ROLES_BY_TYPE.get(event_type) or _ROLES.get(author, "assistant")


def message_text(content: Any) -> str | None:
    """Return the text of a message's content, as PostgreSQL can store it, or None if it has none."""
    text: Any = content
    if isinstance(content, Mapping):
        candidates = (content.get(key) for key in ("text", "content", "message"))
        text = next((each for each in candidates if isinstance(each, str) and each), None)
        text = text or _text_of_parts(content.get("parts"))
    return clean_text(text) if isinstance(text, str) and text.strip() else None


def _text_of_parts(parts: Any) -> str:
    if not isinstance(parts, Sequence) or isinstance(parts, str):
        return ""
    texts = (part.get("text") for part in parts if isinstance(part, Mapping) and not part.get("thought"))
    return "\n".join(text for text in texts if isinstance(text, str) and text)
