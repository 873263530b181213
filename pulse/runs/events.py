"""The events of a turn: whole messages, thoughts, calls of tools and their results."""

from __future__ import annotations

import uuid
from typing import Any

from pulse.events import Event


def user_message(text: str, message_id: str | None = None) -> Event:
    """Return a message of the user, with a new id by default."""
    return _message("user", "user_message", text, message_id)


def assistant_message(text: str, message_id: str | None = None) -> Event:
    """Return a whole answer, with the id under which its pieces were streamed."""
    return _message("model", "assistant_message", text, message_id)


def thought(text: str, event_id: str | None = None) -> Event:
    """Return a whole thought."""
    return _event("model", "thought", {"content": text}, event_id)


def act(tool_name: str, tool_input: Any, *, tool_call_id: str, event_id: str | None = None) -> Event:
    """Return the call of a tool."""
    content = {"tool_name": tool_name, "tool_input": tool_input, "tool_call_id": tool_call_id}
    return _event("model", "act", content, event_id)


def observe(
    tool_name: str, observation: Any, *, tool_call_id: str, is_error: bool = False, event_id: str | None = None
) -> Event:
    """Return the result of a tool, under the id of its call."""
    content = {
        "tool_name": tool_name,
        "observation": observation,
        "is_error": is_error,
        "tool_call_id": tool_call_id,
    }
    return _event("tool", "observe", content, event_id)


def system_event(event_type: str, content: Any, *, event_id: str | None = None) -> Event:
    """Return an event of the system, such as a run's start or end."""
    return _event("system", event_type, content, event_id)


def _message(author: str, event_type: str, text: str, message_id: str | None) -> Event:
    message_id = message_id or str(uuid.uuid4())
    return _event(author, event_type, {"content": text, "message_id": message_id}, message_id)


def _event(author: str, event_type: str, content: Any, event_id: str | None) -> Event:
    return Event(author=author, event_type=event_type, content=content, id=event_id or str(uuid.uuid4()))
