"""ADK's session objects from the rows of `sessions.sql`."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from google.adk.events import Event
from google.adk.sessions import Session

from pulse.adk.markers import Marker
from pulse.errors import InvalidInputError
from pulse.postgres.json_values import decode_body
from pulse.process import gc_pause
from pulse.scopes import merge_state
from pulse.session_key import SessionKey

_VALIDATED = Session(id="", app_name="", user_id="", state={}, events=[], last_update_time=0.0)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class CreatedRow(NamedTuple):
    """A row of ``create_adk_session``."""

    thread_id: uuid.UUID
    version: int
    user_state: str | None
    app_state: str | None
    created_at: datetime


class AppendedRow(NamedTuple):
    """A row of ``append_adk_event`` or ``append_seen_event``."""

    sequence_num: int
    created_at: datetime
    appended: bool
    thread_id: uuid.UUID
    version: int
    last_seq: int


class SessionRow(NamedTuple):
    """A row of ``get_adk_session``."""

    thread_id: uuid.UUID
    version: int
    created_at: datetime
    event_time: float | None
    state: str
    user_state: str | None
    app_state: str | None
    events: str | None


class ListedRow(NamedTuple):
    """A row of ``list_adk_sessions``."""

    thread_id: uuid.UUID
    user_id: str
    session_id: str
    version: int
    created_at: datetime
    event_time: float | None
    state: str
    user_state: str | None
    app_state: str | None


@gc_pause.paused()
def read_sessions(records: Iterable[Iterable[Any]], app_name: str) -> tuple[list[Session], list[ListedRow]]:
    """Return the sessions of listed records, and their rows. Each user's state is in one row only, and the app's too.

    There may be thousands: their states are decoded as one JSON text.
    """
    rows = list(map(ListedRow._make, records))
    states = decode_body(f"[{','.join([row.state for row in rows])}]")
    sessions = []
    app_state = read_state(rows[0].app_state) if rows else {}
    shared: dict[str, Any] = {}
    user_id = ""
    # One unpacking of a row costs less than the look-ups of its fields by name.
    for (thread_id, owner, session_id, version, created_at, event_time, _, user_state, _), state in zip(
        rows, states, strict=True
    ):
        if owner != user_id:
            user_id = owner
            shared = merge_state({}, read_state(user_state), app_state)
        updated = created_at.timestamp() if event_time is None else event_time
        session = _copy(session_id, app_name, user_id, shared | state, [], updated)
        Marker.at(thread_id, version).mark(session)
        sessions.append(session)
    return sessions, rows


def new_session(key: SessionKey, state: dict[str, Any], events: list[Event], last_update_time: float) -> Session:
    """Return a session of values that need no validation, as a copy of a validated one."""
    return _copy(key.session_id, key.app_name, key.user_id, state, events, last_update_time)


def _copy(
    session_id: str, app_name: str, user_id: str, state: dict[str, Any], events: list[Event], last_update_time: float
) -> Session:
    fields = {
        "id": session_id,
        "app_name": app_name,
        "user_id": user_id,
        "state": state,
        "events": events,
        "last_update_time": last_update_time,
    }
    copied: Session = _VALIDATED.model_copy(update=fields)
    return copied


def created_session(row: CreatedRow, key: SessionKey, own_state: Mapping[str, Any]) -> Session:
    """Return the session that was created, with its marker."""
    state = merge_state(own_state, read_state(row.user_state), read_state(row.app_state))
    session = new_session(key, state, [], row.created_at.timestamp())
    Marker.at(row.thread_id, row.version).mark(session)
    return session


def read_session(row: SessionRow, key: SessionKey, events: list[Event]) -> Session:
    """Return the session of a row, with its marker."""
    state = merge_state(read_state(row.state), read_state(row.user_state), read_state(row.app_state))
    session = new_session(key, state, events, _last_update(row))
    Marker.at(row.thread_id, row.version).mark(session)
    return session


def _last_update(row: SessionRow | ListedRow) -> float:
    return row.created_at.timestamp() if row.event_time is None else row.event_time


def read_state(stored: str | None) -> dict[str, Any]:
    """Return one scope of state from its JSON text; empty if there is none."""
    return decode_body(stored) if stored else {}


def moment(seconds: float) -> datetime:
    """Return a time as the database compares it; one out of its range becomes the nearer end of the range."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return _LAST if seconds > 0 else _FIRST


def write_token(thread_id: uuid.UUID, user_id: str) -> str:
    """Return the token of the page after a session."""
    return base64.urlsafe_b64encode(thread_id.bytes + user_id.encode()).decode()


def read_token(token: str) -> tuple[str, uuid.UUID]:
    """Undo `write_token`.

    Raises:
        InvalidInputError: it is not a page token.
    """
    try:
        content = base64.b64decode(token, altchars=b"-_", validate=True)
        return content[16:].decode(), uuid.UUID(bytes=content[:16])
    except ValueError as error:
        raise InvalidInputError(
            f"{token[:40]!r} is not a page token; use next_page_token of the previous page"
        ) from error
