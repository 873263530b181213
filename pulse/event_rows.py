"""Events as the database stores and returns them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from pulse.errors import InvalidInputError
from pulse.event_types import DELTA_EVENT_TYPES
from pulse.events import Appended, Event, EventActions, Role
from pulse.names import ID_LENGTH_MAX
from pulse.postgres.json_values import decode_body, encode_body, escape_state
from pulse.process.counts import COUNTS
from pulse.scopes import split_delta

#: The key of an event's stored actions that holds its metadata; SQL reads it: see `message_metadata`.
METADATA_KEY = "message_metadata"
METADATA_RULE = (
    "metadata are a JSON object without U+0000, lone surrogates, NaN, infinities and numbers that jsonb rewrites:"
    " keep such values in the content"
)


class EventInput(NamedTuple):
    """The SQL type ``event_input``: an event's row and its message."""

    id: str
    author: str
    event_type: str
    invocation_id: str
    content: str
    actions: str
    session_delta: Mapping[str, Any] | None
    user_delta: Mapping[str, Any] | None
    app_delta: Mapping[str, Any] | None
    role: Role | None
    message: str | None
    occurred_at: datetime | None


#: The fields that hold words of users; see `pulse.redaction.redact`.
EventInput.REDACTED = ("session_delta", "user_delta", "app_delta", "message")  # type: ignore[attr-defined]
EventInput.REDACTED_JSON = ("content", "actions")  # type: ignore[attr-defined]


def check_event_id(event_id: str) -> str:
    """Return an event's id.

    Raises:
        InvalidInputError: the id is empty, too long, or holds U+0000.
    """
    if not 1 <= len(event_id) <= ID_LENGTH_MAX or "\0" in event_id:
        raise InvalidInputError(
            f"an event id must have 1 to {ID_LENGTH_MAX} characters without U+0000, not {event_id[:40]!r}"
        )
    return event_id


def event_input(event: Event, *, apply_state: bool = True) -> EventInput:
    """Return an event as the database stores it.

    Args:
        event: to be appended.
        apply_state: False leaves the state as it is; the event still keeps its delta.

    Raises:
        InvalidInputError: the event is a piece of a stream, its id is out of bounds, or a value is not JSON.
    """
    if event.event_type in DELTA_EVENT_TYPES:
        raise InvalidInputError(
            f"{event.event_type} is a piece of a stream and is not stored; append the whole message when it is complete"
        )
    event_id = check_event_id(event.id)
    text = event.text
    delta = split_delta(event.actions.state_delta if apply_state else {})
    stored_delta = {key: value for key, value in event.actions.state_delta.items() if not key.startswith("temp:")}
    actions = {**event.actions.other, **({"state_delta": stored_delta} if stored_delta else {})}
    if METADATA_KEY in actions:
        raise InvalidInputError(f"actions.other has no key {METADATA_KEY!r}: give the event its metadata")
    if event.metadata:
        if not is_metadata(event.metadata):
            raise InvalidInputError(METADATA_RULE)
        actions[METADATA_KEY] = event.metadata
    return EventInput(
        event_id,
        event.author,
        event.event_type,
        event.invocation_id,
        encode_body(event.content, where="content"),
        encode_body(actions, where="actions", deletable_depth=2),
        escape_state(delta.session, where="state_delta") or None,
        escape_state(delta.user, where="state_delta") or None,
        escape_state(delta.app, where="state_delta") or None,
        event.role if text is not None else None,
        text,
        event.occurred_at,
    )


def is_metadata(value: Any) -> bool:
    """Whether `jsonb` stores a value as it is, and it is an object.

    Raises:
        InvalidInputError: it is not JSON, or is nested more than 200 deep.
    """
    return isinstance(value, Mapping) and bool(escape_state(value, where="metadata") == value)


def stored_keys(keys: Sequence[str] | None) -> tuple[list[str] | None, list[str] | None, list[str] | None]:
    """Return state keys as they are stored, by scope: session, user, app; three times None for None.

    Raises:
        InvalidInputError: a key is not a string.
    """
    if keys is None:
        return None, None, None
    delta = split_delta(dict.fromkeys(keys))
    return list(escape_state(delta.session)), list(escape_state(delta.user)), list(escape_state(delta.app))


def read_event(
    event_id: str,
    sequence_num: int,
    author: str,
    event_type: str,
    invocation_id: str,
    content: str,
    actions: str,
    occurred_at: Any,
    created_at: Any,
    *shared_versions: int | None,
) -> Event:
    """Return a stored event from its columns, in the order of every statement that reads events.

    Args:
        shared_versions: of the user's and the app's state; only statements for streams have these two columns.
    """
    other = decode_body(actions)
    return Event(
        id=event_id,
        author=author,
        event_type=event_type,
        invocation_id=invocation_id,
        content=decode_body(content),
        metadata=other.pop(METADATA_KEY, {}),
        actions=EventActions(state_delta=other.pop("state_delta", {}), other=other),
        timestamp=occurred_at.timestamp(),
        sequence_num=sequence_num,
        created_at=created_at,
        shared_versions=shared_versions or (None, None),  # type: ignore[arg-type]  # two or none
    )


def read_event_to_deliver(columns: Sequence[Any]) -> Event:
    """Return a stored event, or a placeholder for one that cannot be decoded.

    A client that writes plain SQL may store what this program cannot decode, such as JSON nested by the thousand. The
    followers of its thread get the placeholder, and other threads do not wait.
    """
    try:
        return read_event(*columns)
    except (ValueError, TypeError, AttributeError, RecursionError):
        event_id, number, author, kind, invocation, _, _, occurred_at, created_at, *_ = columns
        placeholder = '{"unreadable": true}'
        return read_event(event_id, number, author, kind, invocation, placeholder, "{}", occurred_at, created_at)


def read_appended(thread_id: uuid.UUID, events: Sequence[Event], rows: Iterable[asyncpg.Record]) -> Appended:
    """Return the outcome of an append from its rows, one for each event."""
    rows = list(rows)
    COUNTS.events_appended += sum(row["appended"] for row in rows)
    stored = tuple(
        replace(
            event,
            sequence_num=row["sequence_num"],
            created_at=row["created_at"],
            timestamp=row["occurred_at"].timestamp() if event.timestamp is None else event.timestamp,
        )
        for event, row in zip(events, rows, strict=True)
    )
    return Appended(
        thread_id=thread_id,
        version=rows[0]["version"],
        last_sequence_num=rows[0]["last_seq"],
        events=stored,
        new_events=tuple(event for event, row in zip(stored, rows, strict=True) if row["appended"]),
        user_version=rows[0]["user_version"],
        app_version=rows[0]["app_version"],
    )
