"""Sessions with their events and states as JSONL, and back: what is exported, imported and exported again is the same.

    {"kind": "header", "format": "hippocampus sessions", "version": 1}
    {"kind": "app_state", "app_name": …, "state": …, "updated_at": …}
    {"kind": "user_state", "app_name": …, "user_id": …, "state": …, "updated_at": …}
    {"kind": "session", "id": …, "app_name": …, "user_id": …, "session_id": …, "state": …, "version": …, …}
    {"kind": "event", "sequence_num": 1, "id": …, "content": …, "actions": …, "message": {…} or null, …}

The events of a session follow it; an erased one is a tombstone there as here. Vectors are not in it: they are made
again. Runs, snapshots, costs and memories are not either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from pulse.errors import InvalidInputError
from pulse.postgres.statements import load_queries
from workers.intake.documents import Record, read_lines
from workers.intake.records import Rejected
from workers.intake.source import Source

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from pulse.database import Connection, Pool

QUERIES = load_queries("workers", "transfer.sql")
FORMAT = "hippocampus sessions"
VERSION = 1
_DECODER = json.JSONDecoder()
LINES_AT_ONCE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024

# What a line can be refused for: a value of another type, a number that is taken, a name that is too long.
_REFUSALS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, InvalidInputError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """How much was written."""

    sessions: int
    events: int


@dataclass(slots=True, kw_only=True)
class Imported:
    """What became of a file.

    Attributes:
        sessions_known: there already; nothing of them was changed.
        states_kept: of users and apps that have one already; it stays.
    """

    sessions: int = 0
    events: int = 0
    sessions_known: int = 0
    states: int = 0
    states_kept: int = 0
    rejected: list[Rejected] = field(default_factory=list)


async def export_sessions(
    pool: Pool,
    write: Callable[[str], object],
    *,
    app_name: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
) -> Exported:
    """Write the sessions that fit, as of one moment, line by line."""
    write(json.dumps({"kind": "header", "format": FORMAT, "version": VERSION}) + "\n")
    sessions = events = 0
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(QUERIES["plain_values"])
        lines = connection.cursor(QUERIES["export_lines"], app_name, user_id, session_id, prefetch=LINES_AT_ONCE)
        async for (line,) in lines:
            write(line + "\n")
            sessions += line.startswith('{"kind" : "session"')
            events += line.startswith('{"kind" : "event"')
    return Exported(sessions=sessions, events=events)


async def import_sessions(
    pool: Pool, source: Source, *, consolidate: bool = False, on_progress: Callable[[int], object] | None = None
) -> Imported:
    """Store what a file holds, each session in one transaction: all of it or nothing.

    A session that exists already is left as it is, so that a run that was interrupted is completed by the next.

    Args:
        consolidate: draw memories from the sessions anew, from their first event.

    Raises:
        InvalidInputError: the file is no such export, or one of a newer program. Nothing was changed.
    """
    lines = read_lines(source)
    _check_header(next(lines, None))
    done = Imported()
    for part in _parts(lines, done.rejected):
        async with pool.acquire() as connection:
            try:
                async with connection.transaction():
                    await _store(connection, part, done, consolidate=consolidate, on_progress=on_progress)
            except _REFUSALS as error:
                done.rejected.append(Rejected(line=part.head.line, error=f"{part.name} is refused: {error}"))
                part.skip()
    return done


@dataclass(slots=True)
class _Part:
    """A state, or a session and its events, which are taken once."""

    head: Record
    events: Iterator[Record]

    @property
    def kind(self) -> str:
        return str(self.head.value["kind"])

    @property
    def name(self) -> str:
        value = self.head.value
        names = [str(value[key]) for key in ("app_name", "user_id", "session_id") if key in value]
        return f"the {self.kind.replace('_', ' ')} {' / '.join(names)}"

    def skip(self) -> None:
        for _ in self.events:
            pass


def _check_header(first: Record | Rejected | None) -> None:
    header = first.value if isinstance(first, Record) and isinstance(first.value, dict) else {}
    if header.get("kind") != "header" or header.get("format") != FORMAT:
        raise InvalidInputError(
            "This is no export of sessions: its first line is not"
            f' {{"kind": "header", "format": "{FORMAT}", …}}. Conversations of other programs go in by'
            " `hippocampus ingest`."
        )
    if header.get("version") != VERSION:
        raise InvalidInputError(
            f"This is an export of version {header.get('version')!r}, and this program reads {VERSION}: use the"
            " program that wrote it, or a newer one."
        )


def _parts(lines: Iterable[Record | Rejected], rejected: list[Rejected]) -> Iterator[_Part]:
    """Group lines into states, and sessions with their events; each is to be taken before the next."""
    waiting: list[Record] = []
    stream = iter(lines)

    def events() -> Iterator[Record]:
        for record in stream:
            if isinstance(record, Rejected):
                # The session then has fewer events than it says, and is refused.
                rejected.append(record)
                continue
            if _kind(record) != "event":
                waiting.append(record)
                return
            yield record

    while True:
        record = waiting.pop() if waiting else next(stream, None)
        if record is None:
            return
        kind = None if isinstance(record, Rejected) else _kind(record)
        if isinstance(record, Rejected):
            rejected.append(record)
        elif kind in ("app_state", "user_state"):
            yield _Part(record, iter(()))
        elif kind == "session":
            part = _Part(record, events())
            yield part
            part.skip()
        else:
            error = "an event without its session" if kind == "event" else f"a line of an unknown kind, {kind!r}"
            rejected.append(Rejected(line=record.line, error=error))


def _kind(record: Record) -> Any:
    return record.value.get("kind") if isinstance(record.value, dict) else None


async def _store(
    connection: Connection | PoolConnectionProxy,
    part: _Part,
    done: Imported,
    *,
    consolidate: bool,
    on_progress: Callable[[int], object] | None,
) -> None:
    if part.kind != "session":
        is_new = await connection.fetchval(QUERIES["import_state"], part.head.text)
        done.states += is_new
        done.states_kept += not is_new
        return
    thread_id = await connection.fetchval(QUERIES["import_session"], part.head.text, consolidate)
    if thread_id is None:
        done.sessions_known += 1
        return
    await connection.execute(QUERIES["silence"])
    stored = 0
    for batch in _batches(part.events):
        columns = zip(*(_columns(record) for record in batch), strict=True)
        stored += await connection.fetchval(QUERIES["import_events"], thread_id, *map(list, columns))
        if on_progress is not None:
            on_progress(len(batch))
    await _check_whole(connection, thread_id)
    done.sessions += 1
    done.events += stored


async def _check_whole(connection: Connection | PoolConnectionProxy, thread_id: UUID) -> None:
    row = await connection.fetchrow(QUERIES["count_events"], thread_id)
    assert row is not None  # noqa: S101 - it was stored in this transaction
    if not row["events"] == row["last_seq"] == row["last_stored"]:
        raise InvalidInputError(f"it says {row['last_seq']} events, and {row['events']} follow it")


def _batches(events: Iterator[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size_bytes = 0
    for record in events:
        batch.append(record)
        size_bytes += len(record.text)
        if len(batch) == LINES_AT_ONCE or size_bytes > BYTES_AT_ONCE:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _columns(record: Record) -> Iterator[str | None]:
    """Yield an event's columns and its message's, each as its text."""
    texts = _member_texts(record.text)
    for name in ("sequence_num", "id", "invocation_id", "author", "event_type"):
        yield _text(record.value.get(name))
    yield texts.get("content", "null")
    yield texts.get("actions", "{}")
    for name in ("occurred_at", "created_at", "erased_at"):
        yield _text(record.value.get(name))
    for name in ("version", "session_delta", "user_delta", "app_delta"):
        yield None if record.value.get(name) is None else texts[name]
    message = record.value.get("message")
    message = message if isinstance(message, dict) else {}
    for name in ("role", "content", "token_estimate"):
        yield _text(message.get(name))
    yield json.dumps(message.get("metadata", {}))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _member_texts(text: str) -> dict[str, str]:
    """Return each member's value as it stands in the line: opaque bodies are stored to the letter.

    PostgreSQL can't take a member out of a JSON text that holds a NUL anywhere.
    """
    found: dict[str, str] = {}
    at = text.index("{") + 1
    while True:
        key, at = _DECODER.raw_decode(text, _past(text, at, ","))
        start = _past(text, at, ":")
        _, at = _DECODER.raw_decode(text, start)
        found[key] = text[start:at]
        if text[_past(text, at, "")] == "}":
            return found


def _past(text: str, at: int, sign: str) -> int:
    """Return where the next value starts, past blanks and one sign."""
    while text[at].isspace() or (sign and text[at] == sign):
        at += 1
    return at
