"""Stored events as the messages of a conversation, in the form that a client has after following the stream."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import jsonpatch
from pydantic import TypeAdapter, ValidationError

from pulse import message_parts
from pulse.agui import types as agui
from pulse.agui.wire import ERROR_KEY, PARTIAL_KEY, encrypted_value, in_its_own_terms, subagent_of
from pulse.events import Event, message_text
from pulse.postgres.json_values import clean_text, escape_state

#: Events that become messages.
MESSAGE_TYPES = frozenset(
    {"user_message", "assistant_message", "message", "thought", "act", "observe", "activity", "activity_delta"}
)


@functools.cache
def _parts() -> TypeAdapter[list[agui.ContentPart]]:
    return TypeAdapter(list[agui.ContentPart])


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


def shown_arguments(content: Mapping[str, Any]) -> str:
    """Return the arguments in a call's content as text: as they were streamed, if they were."""
    streamed = content.get("tool_args")
    return clean_text(streamed) if isinstance(streamed, str) else as_text(content.get("tool_input", {}))


def shown_result(content: Mapping[str, Any]) -> str:
    """Return the result in an event's content as text."""
    return as_text(content.get("observation", content.get("tool_output", "")))


def is_partial_call(event: Event) -> bool:
    """Whether an event is a call whose arguments were being streamed when its run ended."""
    return event.event_type == "act" and content_of(event).get("partial") is True


class CallIds:
    """Matches results to calls: by the id that both have, otherwise to the oldest open call of the same tool."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._used: set[str] = set()

    @property
    def unanswered(self) -> list[str]:
        """The calls without a result, in order."""
        return list(self._open)

    def has_call(self, call_id: str) -> bool:
        """Whether a call with this id was seen."""
        return call_id in self._used

    def has_seen(self, event: Event) -> bool:
        """Whether the call of a result was seen."""
        given = self.given(event)
        return given in self._used if given is not None else tool_name(event) in self._open.values()

    def call(self, event: Event) -> str:
        """Return the id of a call, and record the call as open."""
        found = self.given(event) or message_id(event)
        if found in self._used:
            found = f"{found}#{event.sequence_num}"
        self._used.add(found)
        self._open[found] = tool_name(event)
        return found

    def result(self, event: Event) -> str:
        """Return the id of the call of a result."""
        name = tool_name(event)
        found = self.given(event) or next((each for each, tool in self._open.items() if tool == name), None)
        if found is None:
            return message_id(event)
        self._open.pop(found, None)
        return found

    @staticmethod
    def given(event: Event) -> str | None:
        """Return the id of a call as its event has it; None if it has none."""
        content = content_of(event)
        for field in ("tool_call_id", "tool_execution_id"):
            if isinstance(content.get(field), str) and content[field]:
                return clean_text(content[field])
        return None


def messages_of(events: Iterable[Event], *, is_cut: bool = False) -> list[agui.Message]:
    """Return the messages of a thread's events, in order. A message whose id is taken gets its event's id.

    Args:
        events: in sequence.
        is_cut: events are left out, and therefore the results of their calls: no model accepts a result without its
            call.
    """
    messages: dict[str, agui.Message] = {}
    calls = CallIds()
    for event in events:
        if event.event_type == "act":
            _add_call(messages, event, calls.call(event))
        elif event.event_type == "observe":
            if is_cut and not calls.has_seen(event):
                continue
            own = unique_id(event, messages)
            messages[own] = agui.ToolMessage(
                id=own, tool_call_id=calls.result(event), content=shown_result(content_of(event)), **_marks(event)
            )
        elif event.event_type in ("activity", "activity_delta"):
            _add_activity(messages, event)
        elif event.event_type in MESSAGE_TYPES:
            _add_text(messages, event, text_of(event))
    return list(messages.values())


def unique_id(event: Event, taken: Container[str]) -> str:
    """Return the id of an event's message, or the event's own id if an earlier message has it."""
    named = message_id(event)
    return clean_text(event.id) if named in taken else named


def parts_of(event: Event) -> list[agui.ContentPart] | None:
    """Return the parts of a message of the user, if one of them is not text."""
    shown = message_parts.parts_of(event.content) if event.role == "user" else []
    return valid_parts(escape_state(shown)) if shown else None


def valid_parts(parts: Sequence[Mapping[str, Any]]) -> list[agui.ContentPart] | None:
    """Return parts as AG-UI's types; None if a client would refuse one of them, so that only the text is sent."""
    try:
        return _parts().validate_python(parts)
    except ValidationError:
        return None


def _marks(event: Event) -> dict[str, Any]:
    """Return the fields of a message that say more of it than its content."""
    fields = content_of(event)
    metadata = {PARTIAL_KEY: True} if fields.get("partial") is True else {}
    if event.event_type == "observe" and fields.get("is_error") is True:
        metadata[ERROR_KEY] = True
    encrypted = None if event.event_type in ("act", "observe") else encrypted_value(fields)
    return {
        **({"metadata": metadata} if metadata else {}),
        **({"encrypted_value": encrypted} if encrypted is not None else {}),
        **({"subagent_run_id": subagent} if (subagent := subagent_of(fields)) is not None else {}),
    }


def _add_call(messages: dict[str, agui.Message], event: Event, call_id: str) -> None:
    """Add a call to its message, or to a new message."""
    marks = _marks(event)
    call = agui.ToolCall(
        id=call_id,
        function=agui.FunctionCall(name=tool_name(event), arguments=shown_arguments(content_of(event))),
        encrypted_value=encrypted_value(content_of(event)),
        metadata=marks.pop("metadata", None),
    )
    carrier = messages.setdefault(message_id(event), agui.AssistantMessage(id=message_id(event), **marks))
    if isinstance(carrier, agui.AssistantMessage):
        carrier.tool_calls = [*(carrier.tool_calls or ()), call]


def _add_text(messages: dict[str, agui.Message], event: Event, text: str) -> None:
    parts = parts_of(event)
    if not text and parts is None:
        return
    carrier = messages.get(message_id(event))
    marks = _marks(event)
    if isinstance(carrier, agui.AssistantMessage) and carrier.content is None and event.role == "assistant":
        carrier.content = text
        for name, value in marks.items():
            setattr(carrier, name, value)
        return
    own = unique_id(event, messages)
    if event.event_type == "thought":
        messages[own] = agui.ReasoningMessage(id=own, content=text, **marks)
    elif event.role == "user":
        messages[own] = agui.UserMessage(id=own, content=parts or text)
    else:
        messages[own] = agui.AssistantMessage(id=own, content=text, **marks)


def _add_activity(messages: dict[str, agui.Message], event: Event) -> None:
    """Add an activity, or change one that is there."""
    found = in_its_own_terms(event.event_type, event.content)
    if isinstance(found, agui.ActivitySnapshotEvent):
        before = messages.get(found.message_id)
        if before is None or (isinstance(before, agui.ActivityMessage) and found.replace is not False):
            messages[found.message_id] = agui.ActivityMessage(
                id=found.message_id,
                activity_type=found.activity_type,
                content=found.content,
                subagent_run_id=found.subagent_run_id,
            )
    elif isinstance(found, agui.ActivityDeltaEvent):
        activity = messages.get(found.message_id)
        if isinstance(activity, agui.ActivityMessage):
            patch = [each.model_dump(by_alias=True, exclude_unset=True, mode="json") for each in found.patch]
            # As clients do: a patch that does not fit changes nothing.
            with contextlib.suppress(jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                activity.content = jsonpatch.apply_patch(activity.content, patch)
