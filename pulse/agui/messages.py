"""Stored events as the messages of a conversation, in the form that a client has after following the stream."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Any

from ag_ui.core import (
    AssistantMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

from pulse.events import Event, message_text
from pulse.postgres.json_values import clean_text, escape_state

#: Events that become messages.
MESSAGE_TYPES = frozenset({"user_message", "assistant_message", "message", "thought", "act", "observe"})


def content_of(event: Event) -> Mapping[str, Any]:
    """Return the fields of an event's content; none if it is not an object."""
    return event.content if isinstance(event.content, Mapping) else {}


def message_id(event: Event) -> str:
    """Return the id of an event's message: the one in its content, otherwise the event's own."""
    named = content_of(event).get("message_id")
    return clean_text(named) if isinstance(named, str) and named else clean_text(event.id)


def text_of(event: Event) -> str:
    """Return the text of an event; '' if it has none."""
    thought = content_of(event).get("thought") if event.event_type == "thought" else None
    return clean_text(thought) if isinstance(thought, str) and thought else message_text(event.content) or ""


def as_text(value: Any) -> str:
    """Return a tool's arguments or result as text, as AG-UI sends them."""
    if isinstance(value, str):
        return clean_text(value)
    return json.dumps(escape_state(value), ensure_ascii=False, separators=(",", ":"))


def tool_name(event: Event) -> str:
    """Return the name of an event's tool."""
    return clean_text(str(content_of(event).get("tool_name") or "tool"))


def tool_input(event: Event) -> str:
    """Return a call's arguments as text."""
    return as_text(content_of(event).get("tool_input", {}))


def tool_output(event: Event) -> str:
    """Return a result as text."""
    content = content_of(event)
    return as_text(content.get("observation", content.get("tool_output", "")))


class CallIds:
    """Matches results to calls: by the id that both have, otherwise to the oldest open call of the same tool."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._used: set[str] = set()

    @property
    def unanswered(self) -> list[str]:
        """The calls without a result, in order."""
        return list(self._open)

    def has_seen(self, event: Event) -> bool:
        """Whether the call of a result was seen."""
        given = self._given(event)
        return given in self._used if given is not None else tool_name(event) in self._open.values()

    def call(self, event: Event) -> str:
        """Return the id of a call, and record the call as open."""
        found = self._given(event) or message_id(event)
        if found in self._used:
            found = f"{found}#{event.sequence_num}"
        self._used.add(found)
        self._open[found] = tool_name(event)
        return found

    def result(self, event: Event) -> str:
        """Return the id of the call of a result."""
        name = tool_name(event)
        found = self._given(event) or next((each for each, tool in self._open.items() if tool == name), None)
        if found is None:
            return message_id(event)
        self._open.pop(found, None)
        return found

    @staticmethod
    def _given(event: Event) -> str | None:
        content = content_of(event)
        for field in ("tool_call_id", "tool_execution_id"):
            if isinstance(content.get(field), str) and content[field]:
                return clean_text(content[field])
        return None


def messages_of(events: Iterable[Event], *, is_cut: bool = False) -> list[Message]:
    """Return the messages of a thread's events, in order. A message whose id is taken gets its event's id.

    Args:
        events: in sequence.
        is_cut: older events are left out, and therefore the results of their calls: no model accepts a result without
            its call.
    """
    messages: dict[str, Message] = {}
    calls = CallIds()
    for event in events:
        if event.event_type == "act":
            _add_call(messages, event, calls.call(event))
        elif event.event_type == "observe":
            if is_cut and not calls.has_seen(event):
                continue
            own = unique_id(event, messages)
            messages[own] = ToolMessage(id=own, tool_call_id=calls.result(event), content=tool_output(event))
        elif event.event_type in MESSAGE_TYPES and (text := text_of(event)):
            _add_text(messages, event, text)
    return list(messages.values())


def unique_id(event: Event, taken: Container[str]) -> str:
    """Return the id of an event's message, or the event's own id if an earlier message has it."""
    named = message_id(event)
    return clean_text(event.id) if named in taken else named


def _add_call(messages: dict[str, Message], event: Event, call_id: str) -> None:
    """Add a call to its message, or to a new message."""
    call = ToolCall(id=call_id, function=FunctionCall(name=tool_name(event), arguments=tool_input(event)))
    carrier = messages.setdefault(message_id(event), AssistantMessage(id=message_id(event)))
    if isinstance(carrier, AssistantMessage):
        carrier.tool_calls = [*(carrier.tool_calls or ()), call]


def _add_text(messages: dict[str, Message], event: Event, text: str) -> None:
    carrier = messages.get(message_id(event))
    if isinstance(carrier, AssistantMessage) and carrier.content is None and event.role == "assistant":
        carrier.content = text
        return
    own = unique_id(event, messages)
    if event.event_type == "thought":
        messages[own] = ReasoningMessage(id=own, content=text)
    elif event.role == "user":
        messages[own] = UserMessage(id=own, content=text)
    else:
        messages[own] = AssistantMessage(id=own, content=text)
