"""Events of Google ADK as events of the engine, and back without loss.

The content of an ADK event is the engine's: its parts are found by search. Whatever else the event holds stands beside
it under `REST`; its actions are the engine's actions, the state delta among them.
"""

from __future__ import annotations

from typing import Any, Final

from google.adk.events.event import Event as AdkEvent

from pulse.events import Event, EventActions

REST: Final = "adk"
#: The engine keeps these in columns of its own.
_COLUMNS: Final = ("id", "author", "invocation_id")


def to_engine(event: AdkEvent) -> Event:
    """Return an ADK event as it is stored. Its timestamp is kept twice: exactly, and as the engine's time."""
    fields: dict[str, Any] = event.model_dump(mode="json", exclude_none=True)
    actions = fields.pop("actions", {})
    delta = actions.pop("state_delta", {})
    content = fields.pop("content", {})
    rest = {name: value for name, value in fields.items() if name not in _COLUMNS}
    is_message = any(part.get("text") and not part.get("thought") for part in content.get("parts") or [])
    message = "user_message" if event.author == "user" else "assistant_message"
    return Event(
        id=event.id,
        author=event.author,
        event_type=message if is_message else "event",
        invocation_id=event.invocation_id,
        content={**content, REST: {**rest, "has_content": event.content is not None}},
        actions=EventActions(state_delta=delta, other=actions),
        timestamp=event.timestamp,
    )


def from_engine(event: Event) -> AdkEvent:
    """Undo `to_engine`."""
    content = dict(event.content)
    rest = dict(content.pop(REST))
    if rest.pop("has_content"):
        rest["content"] = content
    actions = dict(event.actions.other)
    if event.actions.state_delta:
        actions["state_delta"] = dict(event.actions.state_delta)
    columns = {"id": event.id, "author": event.author, "invocation_id": event.invocation_id}
    return AdkEvent.model_validate({**rest, **columns, "actions": actions})
