"""Where things come from, and what came of them: from a memory or a fact to its events, and from an event onwards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import UUID

from hippocampus.errors import MemoryNotFoundError
from hippocampus.retention.policies import check_app_name
from pulse.errors import InvalidInputError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

DrawnSource: TypeAlias = Literal["memory", "archived_memory", "fact", "fact_version", "proposal"]

#: Events of one row, and rows of one event, at most.
EVENTS_MAX = 1000
DRAWN_MAX = 1000

_QUERIES = load_queries("hippocampus", "memory_care.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvent:
    """An event that something was drawn from.

    Attributes:
        text: what it says; None where it says nothing, or was erased.
        erased_at: when it was forgotten; None where it stands.
    """

    id: str
    sequence_num: int
    event_type: str
    author: str
    text: str | None
    occurred_at: datetime
    erased_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Something that was drawn from events.

    Attributes:
        id: of the memory, the fact or the proposal; row_id: of the version, where it is one.
        kind: the memory's or the fact's type; of a proposal the key of its instruction.
        source_seqs: the events that it cites; empty where it rests on its whole slice, from_seq to upto_seq.
        session_id: None where the session was deleted; thread_id too, unless it was imported.
    """

    source: DrawnSource
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
    """A memory, or one statement of a fact, with the events that it rests on, in order; at most EVENTS_MAX."""

    drawn: Drawn
    events: tuple[SourceEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """An event with what cites it, and what was drawn from a slice that holds it; at most DRAWN_MAX of both."""

    event: SourceEvent
    citing: tuple[Drawn, ...]
    alongside: tuple[Drawn, ...]


async def provenance(pool: Pool, app_name: str, user_id: str, drawn_id: UUID) -> list[Provenance]:
    """Return where a memory, a fact or a proposal comes from; of a fact the current statement, then the others.

    Raises:
        MemoryNotFoundError: no such memory or fact of this app and user.
    """
    rows = await pool.fetch(_QUERIES["origin_of"], check_app_name(app_name), user_id, drawn_id)
    if not rows:
        raise MemoryNotFoundError(f"there is no memory and no fact {drawn_id} of app {app_name!r} and user {user_id!r}")
    found = [_drawn(row) for row in rows]
    events: list[list[SourceEvent]] = [[] for _ in found]
    for row in await pool.fetch(
        _QUERIES["source_events"],
        [each.thread_id for each in found],
        [each.from_seq for each in found],
        [each.upto_seq for each in found],
        [json.dumps(each.source_seqs) for each in found],
        EVENTS_MAX,
    ):
        events[row["place"]].append(_event(row))
    return [Provenance(drawn=each, events=tuple(said)) for each, said in zip(found, events, strict=True)]


async def consequences(
    pool: Pool,
    app_name: str,
    user_id: str,
    session_id: str,
    *,
    sequence_num: int | None = None,
    event_id: str | None = None,
) -> Consequences:
    """Return everything that was drawn from an event, which is named by its number or its id.

    Raises:
        MemoryNotFoundError: no such event in this app, user and session.
        InvalidInputError: not exactly one name was given.
    """
    if (sequence_num is None) == (event_id is None):
        raise InvalidInputError("name the event by sequence_num or by event_id")
    who = (check_app_name(app_name), user_id)
    row = await pool.fetchrow(_QUERIES["find_event"], *who, session_id, sequence_num, event_id)
    if row is None:
        named = f"#{sequence_num}" if event_id is None else repr(event_id)
        raise MemoryNotFoundError(f"there is no event {named} in session {session_id!r} of {app_name!r}, {user_id!r}")
    rows = await pool.fetch(_QUERIES["drawn_from"], *who, row["thread_id"], row["sequence_num"], DRAWN_MAX)
    return Consequences(
        event=_event(row),
        citing=tuple(_drawn(each) for each in rows if each["cites"]),
        alongside=tuple(_drawn(each) for each in rows if not each["cites"]),
    )


def _drawn(row: asyncpg.Record) -> Drawn:
    fields = {name: row[name] for name in Drawn.__slots__}
    return Drawn(**{**fields, "source_seqs": tuple(row["source_seqs"])})


def _event(row: asyncpg.Record) -> SourceEvent:
    return SourceEvent(**{name: row[name] for name in SourceEvent.__slots__})
