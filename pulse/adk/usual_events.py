"""A fast path for usual events of ADK: pydantic and json alone write them for the database.

`pulse.adk.events.to_engine` visits every value of an event, since JSON, PostgreSQL or pydantic could change it. Few
events have such a value, and their JSON text shows which.
"""

from __future__ import annotations

import json
from typing import Final

from google.adk.events import Event, EventActions
from google.genai import types
from pydantic_core import PydanticSerializationError

from pulse.adk.events import AUTHOR_LENGTH_MAX, INVOCATION_LENGTH_MAX, event_type_of
from pulse.adk.pieces import REST
from pulse.event_rows import EventInput, check_event_id
from pulse.events import moment, role_of
from pulse.postgres.json_values import MARK, clean_text
from pulse.scopes import split_delta

#: A null may have been NaN; jsonb rewrites exponents and the sign of zero, and refuses NUL.
_SUSPECT: Final = ("null", "e+", "-0.0", "\\u0000", MARK)
#: Characters: an integer that is too long to be read again is longer.
_LENGTH_MAX: Final = 4000
_DEPTH_MAX: Final = 100
#: The fields of actions that have no effect, or change only the state.
_CHANGES: Final = frozenset({"state_delta", "artifact_delta", "requested_auth_configs", "requested_tool_confirmations"})
_COLUMNS: Final = {"id", "author", "invocation_id", "content", "actions"}
_COLUMNS_AND_NODE: Final = _COLUMNS | {"node_info"}
_DELTA: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def usual_input(event: Event) -> EventInput | None:
    """Return ``event_input(to_engine(event))`` in a third of its time; None for an event that is not usual.

    Raises:
        InvalidInputError: as `event_input`.
    """
    if not _has_usual_columns(event):
        return None
    content, delta = event.content, event.actions.state_delta
    try:
        body = "null" if content is None else content.model_dump_json(exclude_none=True, by_alias=True)
        rest = event.model_dump_json(exclude=_written_elsewhere(event), exclude_none=True, by_alias=True)
        changes = _DELTA.encode(delta)
        changes.encode()
        text = _text(event)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError):
        return None
    if not (_is_exact(rest) and _is_exact(changes) and (content is None or _is_exact(body))):
        return None
    # A copy: the caller may change nested values before the event is stored.
    split = split_delta(json.loads(changes))
    if split.temp:
        return None
    event_type = event_type_of(event, text)
    return EventInput(
        check_event_id(event.id),
        event.author,
        event_type,
        event.invocation_id,
        body,
        f'{{"{REST}":{rest},"state_delta":{changes}}}' if delta else f'{{"{REST}":{rest}}}',
        split.session or None,
        split.user or None,
        split.app or None,
        None if text is None else role_of(event_type, event.author),
        text,
        moment(event.timestamp),
    )


def _has_usual_columns(event: Event) -> bool:
    actions = event.actions
    return (
        isinstance(actions, EventActions)
        and type(actions.state_delta) is dict
        and all(isinstance(key, str) for key in actions.state_delta)
        and _has_usual_content(event)
        and not event.custom_metadata
        and actions.model_fields_set <= _CHANGES
        and not (actions.artifact_delta or actions.requested_auth_configs or actions.requested_tool_confirmations)
        and 1 <= len(event.author) <= AUTHOR_LENGTH_MAX
        and len(event.invocation_id) <= INVOCATION_LENGTH_MAX
        and clean_text(event.author) == event.author
        and clean_text(event.invocation_id) == event.invocation_id
    )


def _has_usual_content(event: Event) -> bool:
    """Whether the models are ADK's own: an assigned field may have any value, and a subclass has more fields."""
    content = event.content
    return content is None or (
        type(content) is types.Content and all(isinstance(part, types.Part) for part in content.parts or ())
    )


def _written_elsewhere(event: Event) -> set[str]:
    node = getattr(event, "node_info", None)  # since ADK 2.10
    return _COLUMNS if node is None or node.path or node.model_fields_set - {"path"} else _COLUMNS_AND_NODE


def _is_exact(text: str) -> bool:
    return (
        len(text) <= _LENGTH_MAX
        and text.count("{") + text.count("[") <= _DEPTH_MAX
        and not any(sign in text for sign in _SUSPECT)
    )


def _text(event: Event) -> str | None:
    parts = (event.content and event.content.parts) or ()
    text = "\n".join([part.text for part in parts if part.text and not part.thought])
    return text if text.strip() else None
