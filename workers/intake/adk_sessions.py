"""A session as Google ADK dumps it: ``Session.model_dump_json()``, in camel case or snake case.

    {"id": "s1", "appName": "shop", "userId": "ann", "state": {…}, "events": [
      {"id": "e1", "invocationId": "i1", "author": "user", "timestamp": 1714550000.1,
       "content": {"role": "user", "parts": [{"text": "…"}]}, "actions": {"stateDelta": {…}}}, …]}

Events keep their own ids, so a session that was appended in another way before is not duplicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pulse.events import Event, EventActions, message_text
from workers.intake.documents import Parse, Record
from workers.intake.moments import moment
from workers.intake.records import BadRecordError, Item, Naming, Rejected, SessionHead

_HEAD = frozenset({"appName", "app_name", "userId", "user_id", "state", "id"})
_SHARED = ("app:", "user:", "temp:")


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a session."""
    is_session = isinstance(value, Mapping) and "events" in value and bool(value.keys() & _HEAD)
    return session if is_session else None


def session(record: Record, naming: Naming) -> Iterator[Item]:
    """Read a session, without the keys of its state that belong to the app or the user.

    Raises:
        BadRecordError: its events are not a list.
    """
    whole = record.value
    events, state = whole["events"], whole.get("state") or {}
    if isinstance(events, str | Mapping) or not isinstance(events, Iterable):
        raise BadRecordError("events must be a list")
    if not isinstance(state, Mapping):
        raise BadRecordError("state must be an object")
    user_id = _field(whole, "userId", "user_id")
    session_id = naming.session(whole.get("id"))
    yield SessionHead(
        session_id=session_id,
        user_id=None if user_id is None else str(user_id),
        line=record.line,
        state={key: value for key, value in state.items() if not key.startswith(_SHARED)},
    )
    for number, each in enumerate(events, 1):
        try:
            event = _event(each)
        except BadRecordError as error:
            yield Rejected(line=record.line, error=f"event {number}: {error}", record=each)
        else:
            has_id = bool(each.get("id"))
            yield naming.turn(session_id, event, record.line, own_id=has_id)


def _event(each: Any) -> Event:
    author = each.get("author") if isinstance(each, Mapping) else None
    if not isinstance(author, str) or not author:
        raise BadRecordError("an event needs an author")
    content = each.get("content") or {}
    given = each.get("timestamp")
    try:
        timestamp = None if given is None else moment(given)
    except ValueError as error:
        raise BadRecordError(str(error)) from None
    return Event(
        id=str(each.get("id") or ""),  # an empty one is replaced by a derived one
        author=author,
        event_type=_event_type(author, content),
        content=content,
        invocation_id=str(_field(each, "invocationId", "invocation_id") or ""),
        actions=_actions(each.get("actions") or {}),
        timestamp=timestamp,
    )


def _actions(given: Any) -> EventActions:
    delta = _field(given, "stateDelta", "state_delta") or {} if isinstance(given, Mapping) else None
    if not isinstance(delta, Mapping):
        raise BadRecordError("actions must be an object, and so must its stateDelta")
    other = {key: value for key, value in given.items() if key not in ("stateDelta", "state_delta") and value}
    shared = {key: value for key, value in delta.items() if key.startswith(_SHARED)}
    if shared:
        # An old file must not change the state that all sessions share now.
        other["sharedStateDelta"] = shared
    own = {key: value for key, value in delta.items() if key not in shared}
    return EventActions(state_delta=own, other=other)


def _event_type(author: str, content: Any) -> str:
    if message_text(content):
        return "user_message" if author == "user" else "assistant_message"
    parts = content.get("parts") if isinstance(content, Mapping) else None
    kinds = {key for part in parts or () if isinstance(part, Mapping) for key, value in part.items() if value}
    if kinds & {"functionCall", "function_call"}:
        return "tool_call"
    if kinds & {"functionResponse", "function_response"}:
        return "tool_result"
    return "attachment" if kinds else "state_update"


def _field(value: Mapping[str, Any], camel: str, snake: str) -> Any:
    return value.get(camel) if value.get(camel) is not None else value.get(snake)
