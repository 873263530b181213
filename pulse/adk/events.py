"""Converting ADK's events to the engine's, and back.

    column       contains
    content      the event's content in ADK's wire format: ``{"role": …, "parts": […]}``, or null
    actions      the event's actions likewise, and under ``adk`` its other fields, with its exact time

Both are text to the database and are returned unchanged. The text of the parts, without thoughts, is the message that
search and consolidation read. Events of a run are stored in pieces; see `pulse.adk.pieces`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, Final

from google.adk.events import Event, EventActions
from google.genai import types

from pulse import events as engine
from pulse.adk import pieces
from pulse.adk.json_safe import json_safe
from pulse.adk.pieces import REST
from pulse.adk.templates import Template
from pulse.event_rows import METADATA_KEY, is_metadata
from pulse.event_types import ADK_EVENT, STATE_UPDATE
from pulse.postgres.json_values import DELETED, MARK, clean_text, unescape
from pulse.process import gc_pause

AUTHOR_LENGTH_MAX = 255
INVOCATION_LENGTH_MAX = 512
_TEXT = Template(types.Part(text=""))
_CONTENT = Template(types.Content(role="", parts=[]))
_ACTIONS = Template(EventActions(state_delta={}))
_EVENT = Template(Event(id="-", author="-", timestamp=0.0))
_CONTENT_KEYS: Final = {"role", "parts"}
#: Fields that an event has even if they are empty.
_EMPTY_ACTIONS = ("artifactDelta", "requestedAuthConfigs", "requestedToolConfirmations")


def to_engine(event: Event) -> engine.Event:
    """Return an event for the engine to store, without the ``temp:`` keys of its delta.

    Raises:
        ValueError: a value contains itself.
    """
    # By alias: by name, the location of an API key would be read as another kind of scheme.
    fields: dict[str, Any] = event.model_dump(exclude_none=True, by_alias=True)
    actions = fields.pop("actions")
    delta = actions.pop("stateDelta", {})
    # Not pydantic's JSON mode: it turns NaN and the infinities into null.
    fields = json_safe(fields, bytes_mode="base64")
    content = fields.pop("content", None)
    author = clean_text(event.author)[:AUTHOR_LENGTH_MAX] or "unknown"
    invocation_id = clean_text(event.invocation_id)[:INVOCATION_LENGTH_MAX]
    text = engine.message_text(content)
    metadata = fields.get("customMetadata") or {}
    return engine.Event(
        id=fields.pop("id"),
        author=author,
        event_type=event_type_of(event, text),
        invocation_id=invocation_id,
        content=content,
        actions=engine.EventActions(
            state_delta={key: json_safe(value) for key, value in delta.items() if not key.startswith("temp:")},
            other={
                **_without_empty(json_safe(actions, bytes_mode="base64")),
                REST: _rest(fields, author, invocation_id),
            },
        ),
        timestamp=event.timestamp,
        # Also in the rest of the fields, exactly.
        metadata=metadata if is_metadata(metadata) else {},
    )


def event_type_of(event: Event, text: str | None) -> str:
    """Return the engine's type of an event; `text` is its message's, None if it has none."""
    if text is not None:
        return "user_message" if event.author == "user" else "assistant_message"
    if event.get_function_calls():
        return "function_call"
    if event.get_function_responses():
        return "function_response"
    return STATE_UPDATE if event.actions.state_delta else ADK_EVENT


@gc_pause.paused()
def from_rows(stored: str | None) -> tuple[list[Event], int]:
    """Return the events of a JSON array of rows, by time and id, and the number of rows.

    Each row: id, author, invocation id, time in seconds, content, actions; as `get_adk_session` returns them.

    Raises:
        pydantic.ValidationError: an event was stored by a later version of ADK, with actions unknown to this one.
    """
    rows = json.loads(stored) if stored else []
    if stored and MARK in stored:
        rows = unescape(rows)
    unnamed = pieces.written_elsewhere(rows)
    events = [_from_row(*row) for row in pieces.join(rows)]
    events.sort(key=lambda event: (event.timestamp, event.id))
    if unnamed:
        _name_answers(events, unnamed)
    return events, len(rows)


def _without_empty(actions: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in actions.items() if value or key not in _EMPTY_ACTIONS}


def _rest(fields: dict[str, Any], author: str, invocation_id: str) -> dict[str, Any]:
    """Remove the fields that are columns, and an empty node_info."""
    columns = {"author": author, "invocationId": invocation_id, "nodeInfo": {"path": ""}}
    return {key: value for key, value in fields.items() if columns.get(key) != value}


def _from_row(
    event_id: str, author: str, invocation_id: str, seconds: float, content: Any, actions: dict[str, Any]
) -> Event:
    rest = actions.pop(REST, None)
    metadata = actions.pop(METADATA_KEY, None)
    if rest is None:
        return _from_elsewhere(event_id, author, invocation_id, seconds, content, actions, metadata)
    text = None if content is None else _text_alone(content)
    if text is not None and _is_plain(event_id, author, rest, actions):
        made = {"id": event_id, "author": author, "invocation_id": invocation_id, "timestamp": rest["timestamp"]}
        return _EVENT.make({**made, "actions": _ACTIONS.make(actions), "content": text})
    fields = {"id": event_id, "author": author, "invocationId": invocation_id, **rest, "actions": actions}
    if content is not None:
        fields["content"] = text or content
    return Event.model_validate(fields)


def _is_plain(event_id: str, author: str, rest: dict[str, Any], actions: dict[str, Any]) -> bool:
    """Whether an event has no other fields than a message's, and its actions none but a change of the state."""
    return (
        len(rest) == 1
        and isinstance(rest.get("timestamp"), float)
        and bool(event_id and author)
        and (not actions or (len(actions) == 1 and isinstance(actions.get("state_delta"), dict)))
    )


def _text_alone(content: Any) -> types.Content | None:
    """Return a content that has only text, the most frequent kind; None for any other."""
    if not isinstance(content, dict) or content.keys() != _CONTENT_KEYS:
        return None
    role, parts = content["role"], content["parts"]
    if not isinstance(role, str) or not isinstance(parts, list) or not all(map(_is_text, parts)):
        return None
    return _CONTENT.make({"role": role, "parts": list(map(_TEXT.make, parts))})


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and len(part) == 1 and isinstance(part.get("text"), str)


def _from_elsewhere(
    event_id: str,
    author: str,
    invocation_id: str,
    seconds: float,
    content: Any,
    actions: dict[str, Any],
    metadata: dict[str, Any] | None,
) -> Event:
    """Return an event that was appended without ADK: its text, call or result, its state delta and its metadata."""
    parts = [types.Part.model_validate(part) for part in pieces.parts_of_elsewhere(content)]
    # In ADK a tool is never an author: the user answers a call, as with its own long-running tools.
    author = "user" if any(part.function_response for part in parts) else author
    role = "user" if author == "user" else "model"
    return Event(
        id=event_id,
        author=author,
        invocation_id=invocation_id,
        timestamp=float(seconds),
        content=types.Content(role=role, parts=parts) if parts else None,
        actions=EventActions(state_delta=_as_adk(actions.get("state_delta") or {})),
        custom_metadata=metadata,
    )


def _as_adk(delta: dict[str, Any]) -> dict[str, Any]:
    """ADK has no deletion: to remove a key, it sets the key to None."""
    return {key: None if value is DELETED else value for key, value in delta.items()}


def _name_answers(events: Iterable[Event], unnamed: Collection[str]) -> None:
    """Set the missing function names of responses, from the calls that they answer.

    Args:
        unnamed: the ids of the events that may have such responses.
    """
    names: dict[str | None, str | None] = {}
    for event in events:
        names.update((call.id, call.name) for call in event.get_function_calls())
        if event.id in unnamed:
            for answer in event.get_function_responses():
                answer.name = answer.name or names.get(answer.id)
