"""ADK's session objects from the rows that `sessions.sql` gives."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg
from google.adk.events import Event
from google.adk.sessions import Session

from pulse.adk import collecting
from pulse.adk.markers import Marker
from pulse.errors import InvalidInputError
from pulse.postgres.json_values import decode_body
from pulse.scopes import merge_state

_CHECKED = Session(id="", app_name="", user_id="", state={}, events=[], last_update_time=0.0)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@collecting.paused()
def read_sessions(rows: Sequence[asyncpg.Record], app_name: str) -> list[Session]:
    """Return the sessions of rows in which each user's state stands once, and the app's once.

    Thousands are read at once: their states as one JSON text.
    """
    states = decode_body(f"[{','.join([row['state'] for row in rows])}]")
    sessions = []
    app_state: Mapping[str, Any] = {}
    shared: dict[str, Any] = {}
    user_id = ""
    for place, (row, state) in enumerate(zip(rows, states, strict=True)):
        if place == 0:
            app_state = read_state(row["app_state"])
        if row["user_id"] != user_id:
            user_id = row["user_id"]
            shared = merge_state({}, read_state(row["user_state"]), app_state)
        session = new_session(app_name, user_id, row["session_id"], shared | state, [], _last_update(row))
        Marker.at(row).mark(session)
        sessions.append(session)
    return sessions


def new_session(
    app_name: str, user_id: str, session_id: str, state: dict[str, Any], events: list[Event], seconds: float
) -> Session:
    """Return a session of values that need no check, as a copy of one that was checked; `seconds` is of its update."""
    fields = {
        "id": session_id,
        "app_name": app_name,
        "user_id": user_id,
        "state": state,
        "events": events,
        "last_update_time": seconds,
    }
    copied: Session = _CHECKED.model_copy(update=fields)
    return copied


def read_session(
    row: asyncpg.Record,
    app_name: str,
    user_id: str,
    session_id: str,
    shared: tuple[Mapping[str, Any], Mapping[str, Any]],
    events: list[Event],
) -> Session:
    """Return the session of a row, with its marker; `shared` are the states of user and app."""
    state = merge_state(read_state(row["state"]), *shared)
    session = new_session(app_name, user_id, session_id, state, events, _last_update(row))
    Marker.at(row).mark(session)
    return session


def _last_update(row: asyncpg.Record) -> float:
    at: float | None = row["event_time"]
    return row["created_at"].timestamp() if at is None else at


def read_state(stored: str | None) -> dict[str, Any]:
    """Return one scope of state from its JSON text; empty where there is none."""
    return decode_body(stored) if stored else {}


def moment(seconds: float) -> datetime:
    """Return a moment as the database compares it; one out of its range is the end that is nearer."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return _LAST if seconds > 0 else _FIRST


def write_token(thread_id: uuid.UUID, user_id: str) -> str:
    """Return where the page after this session begins."""
    return base64.urlsafe_b64encode(thread_id.bytes + user_id.encode()).decode()


def read_token(token: str) -> tuple[str, uuid.UUID]:
    """Undo `write_token`.

    Raises:
        InvalidInputError: it is no such token.
    """
    try:
        content = base64.b64decode(token, altchars=b"-_", validate=True)
        return content[16:].decode(), uuid.UUID(bytes=content[:16])
    except ValueError as error:
        raise InvalidInputError(f"{token[:40]!r} is no page token; use next_page_token of the page before") from error
