"""Sessions with their events and states as JSONL, and back: an export of an import is the same to the byte.

    {"kind": "header", "format": "hippocampus sessions", "version": 1}
    {"kind": "app_state", "app_name": …, "state": …, "updated_at": …}
    {"kind": "user_state", "app_name": …, "user_id": …, "state": …, "updated_at": …}
    {"kind": "session", "id": …, "app_name": …, "user_id": …, "session_id": …, "state": …, "version": …, …}
    {"kind": "event", "sequence_num": 1, "id": …, "content": …, "actions": …, "message": {…} or null, …}

The events of a session follow it; an erased one stays a tombstone. Vectors are not included: they are computed again.
Neither are runs, snapshots, costs and memories.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pulse.audit import AuditLog
from pulse.errors import BY_SQLSTATE, InvalidInputError
from pulse.postgres.statements import Statements, redaction_mode
from pulse.redaction import RedactionMode, redact
from workers.intake.documents import Record, read_lines
from workers.intake.records import Rejected
from workers.intake.source import Source

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from pulse.database import Connection, Pool

FORMAT = "hippocampus sessions"
VERSION = 1
_DECODER = json.JSONDecoder()
LINES_AT_ONCE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024

# A line is refused also for a value of a wrong type, a member that is missing, or a number that is taken.
_REFUSALS = {"22": InvalidInputError, "23": InvalidInputError}
_STATEMENTS = Statements("workers.transfer", "sessions.sql", errors={**BY_SQLSTATE, **_REFUSALS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """How much was written."""

    sessions: int
    events: int


@dataclass(slots=True, kw_only=True)
class Imported:
    """What became of a file.

    Attributes:
        sessions_known: existed already; they were not changed.
        states_kept: states of users and apps that existed already, and were not changed.
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
    """Write the sessions that match, as of one moment, line by line."""
    target = {} if session_id is None else {"session_id": session_id}
    await AuditLog(pool).note("sessions_exported", app_name=app_name, user_id=user_id, target=target, outcome="begun")
    write(json.dumps({"kind": "header", "format": FORMAT, "version": VERSION}) + "\n")
    sessions = events = 0
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        await _STATEMENTS.execute(connection, "plain_values")
        lines = connection.cursor(_STATEMENTS["export_lines"], app_name, user_id, session_id, prefetch=LINES_AT_ONCE)
        async for (line,) in lines:
            write(line + "\n")
            sessions += line.startswith('{"kind" : "session"')
            events += line.startswith('{"kind" : "event"')
    return Exported(sessions=sessions, events=events)


def is_export(source: Source) -> bool:
    """Return whether a file begins as an export of any version."""
    first = next(read_lines(source), None)
    value = first.value if isinstance(first, Record) else None
    return isinstance(value, dict) and value.get("kind") == "header"


async def import_sessions(
    pool: Pool, source: Source, *, consolidate: bool = False, on_progress: Callable[[int], object] | None = None
) -> Imported:
    """Store the sessions of a file, each in one transaction: all of it or nothing.

    A session that exists already is not changed, so the next run completes one that was interrupted.

    Args:
        consolidate: consolidate the sessions again, from their first event.

    Raises:
        InvalidInputError: the file is not such an export, or is one of a newer program. Nothing was changed.
    """
    lines = read_lines(source)
    _check_header(next(lines, None))
    done = Imported()
    for entry in _entries(lines, done.rejected):
        async with pool.acquire() as connection:
            try:
                # A deferred constraint fails at the transaction's end.
                with _STATEMENTS.translating():
                    async with connection.transaction():
                        await _store(connection, entry, done, consolidate=consolidate, on_progress=on_progress)
            except InvalidInputError as error:
                # The database's own message names the value, which is the file's.
                reason = error.__cause__ or error
                done.rejected.append(Rejected(line=entry.head.line, error=f"{entry.name} is refused: {reason}"))
                entry.skip()
    return done


@dataclass(slots=True)
class _Entry:
    """A state, or a session and its events, which can be read once."""

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
            "This is not an export of sessions: its first line is not"
            f' {{"kind": "header", "format": "{FORMAT}", …}}. Use `hippocampus ingest`'
            " for conversations of other programs."
        )
    if header.get("version") != VERSION:
        raise InvalidInputError(
            f"This export has version {header.get('version')!r}, and this program reads {VERSION}: use the program that"
            " wrote it, or a newer one."
        )


def _entries(lines: Iterable[Record | Rejected], rejected: list[Rejected]) -> Iterator[_Entry]:
    """Group lines into states, and sessions with their events; each must be read before the next."""
    waiting: list[Record] = []
    stream = iter(lines)

    def events() -> Iterator[Record]:
        for record in stream:
            if isinstance(record, Rejected):
                # The session then has fewer events than it claims, and is refused.
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
            yield _Entry(record, iter(()))
        elif kind == "session":
            entry = _Entry(record, events())
            yield entry
            entry.skip()
        else:
            error = "an event without its session" if kind == "event" else f"a line of an unknown kind, {kind!r}"
            rejected.append(Rejected(line=record.line, error=error))


def _kind(record: Record) -> Any:
    return record.value.get("kind") if isinstance(record.value, dict) else None


async def _store(
    connection: Connection | PoolConnectionProxy,
    entry: _Entry,
    done: Imported,
    *,
    consolidate: bool,
    on_progress: Callable[[int], object] | None,
) -> None:
    mode = await redaction_mode(connection, str(entry.head.value.get("app_name")))
    head = redact(entry.head.text, mode, as_json=True)
    if entry.kind != "session":
        is_new = await _STATEMENTS.fetchval(connection, "import_state", head)
        done.states += is_new
        done.states_kept += not is_new
        return
    thread_id = await _STATEMENTS.fetchval(connection, "import_session", head, consolidate)
    if thread_id is None:
        done.sessions_known += 1
        return
    await _STATEMENTS.execute(connection, "silence")
    stored = 0
    for batch in _batches(_redacted(entry.events, mode)):
        columns = zip(*(_columns(record) for record in batch), strict=True)
        stored += await _STATEMENTS.fetchval(connection, "import_events", thread_id, *map(list, columns))
        if on_progress is not None:
            on_progress(len(batch))
    await _check_whole(connection, thread_id)
    done.sessions += 1
    done.events += stored


async def _check_whole(connection: Connection | PoolConnectionProxy, thread_id: UUID) -> None:
    row = await _STATEMENTS.fetch_one(connection, "count_events", thread_id)
    if not row["events"] == row["last_seq"] == row["last_stored"]:
        raise InvalidInputError(f"it claims {row['last_seq']} events, and {row['events']} follow")


def _redacted(events: Iterator[Record], mode: RedactionMode) -> Iterator[Record]:
    """Apply an app's policy on secrets to the lines of events."""
    for record in events:
        text = redact(record.text, mode, as_json=True)
        yield record if text is record.text else replace(record, text=text, value=json.loads(text))


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
    """Return the text of each member as it stands in the line: opaque bodies are stored to the byte.

    PostgreSQL can't extract a member from a JSON text that holds a NUL anywhere.
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
