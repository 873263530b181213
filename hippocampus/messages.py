"""Chat messages as events, and which messages of a conversation a session holds already. Pure.

A message is a mapping with a role and a content, as chat completion APIs take it::

    {"role": "user", "content": "I'm allergic to peanuts."}
    {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {…}}]}
    {"role": "assistant", "content": null, "tool_calls": […]}
    {"role": "tool", "tool_call_id": "call_1", "content": "[]", "id": "m3", "created_at": "2026-03-01T09:30:00+01:00"}
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeAlias

from hippocampus.names import check_names
from pulse.errors import EventConflictError, InvalidInputError
from pulse.event_rows import METADATA_RULE, check_event_id, is_metadata
from pulse.events import Event, moment
from pulse.postgres.json_values import decode_body, encode_body

#: A text counts as one message of the user.
Messages: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]

#: The author and the event type of each role; a name of the message's own is its author.
_ROLES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "user": ("user", "user_message"),
        "assistant": ("model", "assistant_message"),
        "tool": ("tool", "message"),
        "function": ("tool", "message"),
    }
)
#: The types of the events that messages become. Other events of a session are not compared.
MESSAGE_TYPES = ("user_message", "assistant_message", "message", "tool_call", "attachment")
#: They instruct the model. They are not a participant's words, so no memory may come from them.
_INSTRUCTIONS = ("system", "developer")
_TIMES = ("timestamp", "created_at")
_CALLS = ("tool_calls", "function_call")
#: A shorter list may be a turn that says again what was said before: it is known only at the end of the session.
CONVERSATION_MIN = 3
_ERASED = "erased"
#: What an event keeps elsewhere than in its content.
_BESIDE = frozenset({"role", "content", "name", "id", *_TIMES})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that was read: the event that it becomes, and its own id if it has one."""

    event: Event
    id: str | None

    def numbered(self, sequence_num: int) -> Event:
        """Return the event under the message's own id, or under one made of its number in the session and itself."""
        return dataclasses.replace(self.event, id=self.id or self._id(sequence_num, self.event.timestamp))

    def is_stored_as(self, stored: Event) -> bool:
        """Whether a stored event is this message. An erased event is recognised by its id."""
        own = self.event
        if stored.event_type == _ERASED:
            times = {own.timestamp, stored.timestamp, None}
            return stored.id in {self.id, *(self._id(stored.sequence_num or 0, time) for time in times)}
        return (own.author, own.event_type, own.content) == (stored.author, stored.event_type, stored.content) and (
            own.timestamp is None or own.occurred_at == stored.occurred_at or _has_no_time(stored)
        )

    def _id(self, sequence_num: int, timestamp: float | None) -> str:
        own = self.event
        text = json.dumps([sequence_num, own.event_type, own.author, timestamp, own.content], sort_keys=True)
        return f"message-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def read_messages(messages: Messages, metadata: Mapping[str, Any] | None = None) -> list[Message]:
    """Return the messages of a conversation. Those that instruct the model and empty replies of it are left out.

    Args:
        metadata: added to that of each message.

    Raises:
        InvalidInputError: there is no message, one has no known role, no content, a time that cannot be read or invalid
            metadata, or two have the same id.
    """
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    listed = [given] if isinstance(given, Mapping) else list(given)
    if not listed:
        raise InvalidInputError("messages is empty: give a text, a message, or a list of messages")
    read = [
        each for number, message in enumerate(listed) for each in _read(message, metadata or {}, f"messages[{number}]")
    ]
    ids: set[str] = set()
    for own_id in (each.id for each in read if each.id is not None):
        if own_id in ids:
            raise InvalidInputError(f"the id {own_id[:80]!r} is given twice: each message needs an id of its own")
        ids.add(own_id)
    return read


def new_messages(
    messages: Sequence[Message], stored: Sequence[Event], identified: Sequence[Event], *, anywhere: bool
) -> list[Message]:
    """Return the messages that a session does not hold, in order; `Hippocampus.add` states the rule.

    Args:
        messages: a conversation.
        stored: the newest messages of the session, in sequence, without `identified`.
        identified: the events of the session whose ids messages have.
        anywhere: also recognise a conversation that the session does not end with.

    Raises:
        EventConflictError: an id is taken by an event with other content.
    """
    by_id = {event.id: event for event in identified}
    for message in messages:
        taken = by_id.get(message.id) if message.id is not None else None
        if taken is not None and not message.is_stored_as(taken):
            raise EventConflictError(f"the session already has a message {message.id!r:.80} with other content")
    without_id = [each for each in messages if each.id is None]
    known = _count_at_end(without_id, stored)
    if not known and anywhere and len(messages) >= CONVERSATION_MIN:
        known = _count_in_order(without_id, stored)
        if known + len(by_id) < CONVERSATION_MIN - 1:
            known = 0
    numbers = accumulate(each.id is None for each in messages)
    return [
        each
        for each, number in zip(messages, numbers, strict=True)
        if (number > known if each.id is None else each.id not in by_id)
    ]


def _count_at_end(messages: Sequence[Message], stored: Sequence[Event]) -> int:
    """Return how many messages at the beginning of a list are the end of `stored`."""
    for count in range(min(len(messages), len(stored)), 0, -1):
        pairs = zip(messages[:count], stored[len(stored) - count :], strict=True)
        if all(message.is_stored_as(event) for message, event in pairs):
            return count
    return 0


def _count_in_order(messages: Sequence[Message], stored: Sequence[Event]) -> int:
    """Return how many messages at the beginning of a list are among `stored` in the same order."""
    rest = iter(stored)
    for count, message in enumerate(messages):
        if not any(message.is_stored_as(event) for event in rest):
            return count
    return len(messages)


def _has_no_time(stored: Event) -> bool:
    """Whether an event was appended without a time: it then has that of the append."""
    return stored.created_at is not None and stored.timestamp == stored.created_at.timestamp()


def _read(message: Any, metadata: Mapping[str, Any], where: str) -> Iterator[Message]:
    if hasattr(message, "model_dump"):  # as client libraries return a reply
        message = message.model_dump(exclude_none=True)
    if not isinstance(message, Mapping):
        raise InvalidInputError(f"{where} must be a mapping with a role and a content, not {type(message).__name__}")
    role = message.get("role")
    if role in _INSTRUCTIONS:
        return
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join((*_ROLES, *_INSTRUCTIONS))
        raise InvalidInputError(f"{where}: role must be one of {known}, not {role!r:.80}")
    author, event_type = _ROLES[role]
    name, own_id = message.get("name"), message.get("id")
    check_names(**{f"{where}.id": own_id, f"{where}.name": name})
    if own_id is not None:
        check_event_id(own_id)
    content = _content(message, where)
    if "text" not in content:
        if any(content.get(key) for key in _CALLS):
            event_type = "tool_call"
        elif "parts" in content:
            event_type = "attachment"
        elif role == "assistant":
            return
        elif author != "tool":
            raise InvalidInputError(f"{where} has no content: give a text, content parts or tool calls")
    event = Event(
        author=name if name and name.strip() else author,
        event_type=event_type,
        content=content,
        timestamp=_timestamp(message, where),
        metadata=_metadata(message, metadata, where),
    )
    yield Message(event=event, id=own_id)


def _metadata(message: Mapping[str, Any], metadata: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the metadata of all messages and those of one, which are also in its content: it is recognised by that."""
    both = {**metadata, **own} if isinstance(own := message.get("metadata"), Mapping) else metadata
    if not is_metadata(both):
        raise InvalidInputError(f"{where}: {METADATA_RULE}")
    return both


def _content(message: Mapping[str, Any], where: str) -> Any:
    """Return the content of the event: the text, the parts of a content that has some, and the message's other keys."""
    given = message.get("content")
    parts = given if isinstance(given, Sequence) and not isinstance(given, str) else None
    text = given if isinstance(given, str) else "\n".join(_texts(parts or ()))
    if not text.strip() and isinstance(message.get("refusal"), str):
        text = message["refusal"]
    others = {key: message[key] for key in sorted(message.keys() - _BESIDE) if message[key] is not None}
    content = {**({"text": text} if text.strip() else {}), **({"parts": parts} if parts else {}), **others}
    return decode_body(encode_body(content, where=where))


def _texts(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        text = (part.get("text") or part.get("refusal")) if isinstance(part, Mapping) else part
        if isinstance(text, str) and text.strip():
            yield text


def _timestamp(message: Mapping[str, Any], where: str) -> float | None:
    given = next((message[key] for key in _TIMES if message.get(key) is not None), None)
    if given is None:
        return None
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise InvalidInputError(f"{where}: {given!r:.80} is not an ISO 8601 time") from None
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidInputError(f"{where}: the time {given} needs a zone, such as +00:00")
        return given.timestamp()
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidInputError(
            f"{where}: a time must be seconds since 1970, ISO 8601 or a datetime, not {given!r:.80}"
        )
    return moment(given).timestamp()
