"""Parts of the translation to AG-UI: the frames around a message, and events that agents write in the protocol's terms.

    custom                            CUSTOM            name, value
    activity, activity_delta          ACTIVITY_…        message_id, activity_type, content or patch
    subagent_start, _end, _error      SUBAGENT_…        subagent_run_id, name, result, message, code

The content of any event of a subagent has its ``subagent_run_id``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from pulse.agui import types as agui
from pulse.live_text import Kind
from pulse.postgres.json_values import clean_text, escape_state

#: A mark in the metadata of a message, and of the frame that ends it: the run ended before the message did.
PARTIAL_KEY: Final = "hippocampus:partial"
#: A mark in the metadata of a tool's result: the tool failed.
ERROR_KEY: Final = "hippocampus:isError"

_TRANSIENT_TYPES: Final = ("custom", "activity", "activity_delta")


@functools.cache
def _as_agui() -> Mapping[str, type[agui.BaseEvent]]:
    """Return the events whose content is that of an AG-UI event, by the names of its fields in Python."""
    return {
        "custom": agui.CustomEvent,
        "activity": agui.ActivitySnapshotEvent,
        "activity_delta": agui.ActivityDeltaEvent,
        "subagent_start": agui.SubagentStartedEvent,
        "subagent_end": agui.SubagentFinishedEvent,
        "subagent_error": agui.SubagentErrorEvent,
    }


def begin(
    message_id: str, kind: Kind, role: str = "assistant", meta: Mapping[str, Any] | None = None
) -> agui.BaseEvent:
    """Return the event that opens a message, a thought within its span, or a call of a tool."""
    fields = meta or {}
    if kind == "thought":
        return agui.ReasoningMessageStartEvent(message_id=message_id, role="reasoning")
    if kind == "act":
        name = clean_text(str(fields.get("tool_name") or "tool"))
        return agui.ToolCallStartEvent(tool_call_id=message_id, tool_call_name=name, parent_message_id=message_id)
    return agui.TextMessageStartEvent.model_validate({"messageId": message_id, "role": role})


def open_span(message_id: str) -> agui.BaseEvent:
    """Return the event that opens the span of a thought."""
    return agui.ReasoningStartEvent(message_id=message_id)


def content(message_id: str, kind: Kind, text: str) -> agui.BaseEvent:
    """Return the event of a piece of a message."""
    if kind == "thought":
        return agui.ReasoningMessageContentEvent(message_id=message_id, delta=text)
    if kind == "act":
        return agui.ToolCallArgsEvent(tool_call_id=message_id, delta=text)
    return agui.TextMessageContentEvent(message_id=message_id, delta=text)


def close(message_id: str, kind: Kind, fields: Mapping[str, Any] | None = None) -> list[agui.BaseEvent]:
    """Return the events that close a message, with its mark and its encrypted reasoning, if the content has them."""
    fields = fields or {}
    metadata = {PARTIAL_KEY: True} if fields.get("partial") is True else None
    encrypted = encrypted_value(fields)
    more: list[agui.BaseEvent] = []
    if encrypted is not None:
        subtype = "tool-call" if kind == "act" else "message"
        found = {"subtype": subtype, "entityId": message_id, "encryptedValue": encrypted}
        more = [agui.ReasoningEncryptedValueEvent.model_validate(found)]
    if kind == "thought":
        ended = agui.ReasoningMessageEndEvent(message_id=message_id, metadata=metadata)
        return [ended, *more, agui.ReasoningEndEvent(message_id=message_id)]
    if kind == "act":
        return [agui.ToolCallEndEvent(tool_call_id=message_id, metadata=metadata), *more]
    return [agui.TextMessageEndEvent(message_id=message_id, metadata=metadata), *more]


def encrypted_value(fields: Mapping[str, Any]) -> str | None:
    """Return the encrypted reasoning in an event's content."""
    found = fields.get("encrypted_value")
    return clean_text(found) if isinstance(found, str) and found else None


def subagent_of(fields: Mapping[str, Any]) -> str | None:
    """Return the subagent to which an event's content attributes it."""
    found = fields.get("subagent_run_id")
    return clean_text(found) if isinstance(found, str) and found else None


def attributed(events: Sequence[agui.BaseEvent], fields: Mapping[str, Any]) -> Sequence[agui.BaseEvent]:
    """Return the events, attributed to the subagent that an event's content names."""
    subagent = subagent_of(fields)
    for each in events if subagent is not None else ():
        each.subagent_run_id = subagent  # type: ignore[attr-defined]  # each but those of runs has it
    return events


def in_its_own_terms(event_type: str, fields: Any) -> agui.BaseEvent | None:
    """Return the AG-UI event of a stored event that has its fields; None for other events, and for wrong fields."""
    model = _as_agui().get(event_type)
    if model is None or not isinstance(fields, Mapping):
        return None
    if model is agui.CustomEvent and "value" not in fields:
        fields = {**fields, "value": None}
    known = {name for name in model.model_fields if name not in ("type", "timestamp", "raw_event")}
    try:
        given = escape_state({key: value for key, value in fields.items() if key in known and value is not None})
        if model is agui.CustomEvent:
            given.setdefault("value", None)
        found = model.model_validate(given)
    except ValueError:
        return None
    if isinstance(found, agui.CustomEvent) and not found.name:
        return None
    return found


def transient(sent: Mapping[str, Any]) -> agui.BaseEvent | None:
    """Return the AG-UI event of an event that is not stored; None if it is not one."""
    kind = sent.get("event_type")
    return in_its_own_terms(kind, sent.get("content")) if kind in _TRANSIENT_TYPES else None


def legacy_of(event: agui.BaseEvent) -> agui.BaseEvent | None:
    """Return what replaces an event for clients before protocol 1.0: they refuse types that they do not know."""
    if isinstance(event, agui.SubagentStartedEvent | agui.SubagentFinishedEvent | agui.SubagentErrorEvent):
        fields = event.model_dump(by_alias=True, exclude={"type", "timestamp"}, exclude_none=True, mode="json")
        return agui.CustomEvent(name=f"hippocampus:{event.type.value.lower()}", value=fields)
    return None


def usage_of(fields: Mapping[str, Any]) -> list[agui.TokenUsage] | None:
    """Return the tokens that a run used, from the content of its last event; None if that has none."""
    found = fields.get("usage")
    if not isinstance(found, list) or not found:
        return None
    try:
        return [agui.TokenUsage.model_validate(each) for each in found]
    except ValidationError:
        return None
