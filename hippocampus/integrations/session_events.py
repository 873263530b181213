"""Events of a session that a framework keeps its own records in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pulse.errors import InvalidInputError
from pulse.events import Event, EventActions
from pulse.names import check_session_names
from pulse.session_key import SessionKey

#: The key of a framework's record in an event. No reader but its adapter shows it, and an erasure removes it.
RECORD = "record"


def session_key(app: str, user: str, session_id: str) -> SessionKey:
    """Return the key of a session.

    Raises:
        InvalidInputError: a name is blank, too long, or holds U+0000; or the id begins or ends with whitespace.
    """
    if session_id != session_id.strip():
        raise InvalidInputError(f"a session id must begin and end without whitespace, not {session_id[:40]!r}")
    check_session_names(app, user, session_id)
    return SessionKey(app, user, session_id)


def record_event(
    record: Any,
    event_type: str,
    *,
    said_by: str | None = None,
    text: str = "",
    is_rebuilt: bool = False,
    state_delta: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> Event:
    """Return the event of a framework's record: a turn if it has the words of a user or an assistant.

    Args:
        event_type: the type of a record that is not a turn.
        said_by: ``user`` or ``assistant``; None if no participant said it.
        is_rebuilt: the record follows from the text, and is not stored.
        fields: further fields of the event.
    """
    actions = EventActions(state_delta=state_delta, other={} if is_rebuilt else {RECORD: record})
    if said_by is None or not text.strip():
        return Event(author="agent", event_type=event_type, actions=actions, **fields)
    author = "user" if said_by == "user" else "model"
    return Event(author=author, content={"text": text}, actions=actions, **fields)
