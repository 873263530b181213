"""Provenance: from a memory or a fact to its events, and from an event to what was extracted from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE, MemoryNotFoundError
from hippocampus.names import check_app_name
from pulse.errors import InvalidInputError
from pulse.postgres.statements import Statements
from pulse.session_key import SessionKey

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

DerivedSource: TypeAlias = Literal["memory", "archived_memory", "fact", "fact_version", "proposal", "turn"]

#: Events of one row, and rows of one event, at most.
EVENTS_MAX = 1000
DERIVED_MAX = 1000

_STATEMENTS = Statements("hippocampus.erasure", "provenance.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvent:
    """An event that something was extracted from.

    Attributes:
        text: the text of its message; None if it has none, or was erased.
        erased_at: when it was erased; None if it was not.
    """

    id: str
    sequence_num: int
    event_type: str
    author: str
    text: str | None
    occurred_at: datetime
    erased_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Something that was extracted from events, or a turn.

    Attributes:
        id: the id of the memory, the fact, the proposal or the turn; row_id: that of the version, if it is one.
        kind: the memory's or the fact's type; for a proposal the key of its instruction, for a turn its role.
        source_seqs: the events that it cites; empty if it comes from its whole slice, from_seq to upto_seq.
        session_id: None if the session was deleted; thread_id too, unless it was imported.
    """

    source: DerivedSource
    id: UUID
    row_id: UUID
    kind: str
    content: str
    thread_id: UUID | None
    session_id: str | None
    from_seq: int | None
    upto_seq: int | None
    source_seqs: tuple[int, ...]
    job_id: UUID | None
    prompt_hash: str | None
    model: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """A memory, or one statement of a fact, with the events that it comes from, in order; at most EVENTS_MAX."""

    drawn: Derived
    events: tuple[SourceEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """An event with what cites it, and what was extracted from a slice that holds it; at most DERIVED_MAX of both."""

    event: SourceEvent
    citing: tuple[Derived, ...]
    alongside: tuple[Derived, ...]


async def provenance(pool: Pool, app_name: str, user_id: str, derived_id: UUID) -> list[Provenance]:
    """Return the events that a memory, a fact or a proposal comes from; for a fact, its current statement first.

    A turn, by the id that a search or a citation gives it, comes from its own event.

    Raises:
        MemoryNotFoundError: no such memory, fact or turn of this app and user.
    """
    rows = await _STATEMENTS.fetch(pool, "origin_of", check_app_name(app_name), user_id, derived_id)
    if not rows:
        raise MemoryNotFoundError(
            f"there is no memory and no fact {derived_id} of app {app_name!r} and user {user_id!r}"
        )
    found = [_derived(row) for row in rows]
    events: list[list[SourceEvent]] = [[] for _ in found]
    for row in await _STATEMENTS.fetch(
        pool,
        "source_events",
        app_name,
        user_id,
        [each.thread_id for each in found],
        [each.from_seq for each in found],
        [each.upto_seq for each in found],
        [json.dumps(each.source_seqs) for each in found],
        EVENTS_MAX,
    ):
        events[row["position"]].append(_event(row))
    return [Provenance(drawn=each, events=tuple(sources)) for each, sources in zip(found, events, strict=True)]


async def consequences(
    pool: Pool,
    app_name: str,
    user_id: str,
    session_id: str,
    *,
    sequence_num: int | None = None,
    event_id: str | None = None,
) -> Consequences:
    """Return everything that was extracted from an event, which is named by its number or its id.

    Raises:
        MemoryNotFoundError: no such event in this app, user and session.
        InvalidInputError: both a number and an id were given, or neither.
    """
    if (sequence_num is None) == (event_id is None):
        raise InvalidInputError("name the event by sequence_num or by event_id")
    key = SessionKey(check_app_name(app_name), user_id, session_id)
    row = await _STATEMENTS.fetchrow(pool, "find_event", *key, sequence_num, event_id)
    if row is None:
        named = f"#{sequence_num}" if event_id is None else repr(event_id)
        raise MemoryNotFoundError(f"there is no event {named} in session {session_id!r} of {app_name!r}, {user_id!r}")
    rows = await _STATEMENTS.fetch(
        pool, "drawn_from", app_name, user_id, row["thread_id"], row["sequence_num"], DERIVED_MAX
    )
    return Consequences(
        event=_event(row),
        citing=tuple(_derived(each) for each in rows if each["cites"]),
        alongside=tuple(_derived(each) for each in rows if not each["cites"]),
    )


def _derived(row: asyncpg.Record) -> Derived:
    fields = {name: row[name] for name in Derived.__slots__}
    return Derived(**{**fields, "source_seqs": tuple(row["source_seqs"])})


def _event(row: asyncpg.Record) -> SourceEvent:
    return SourceEvent(**{name: row[name] for name in SourceEvent.__slots__})
