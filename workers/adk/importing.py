"""Copying the sessions, events and states of ADK's DatabaseSessionService, in bounded batches, each exactly once.

After a crash a later run continues: sessions are identified by their names, events by their ids. A session's state is
rebuilt from its events, over the keys that none of them set, so that its history can be read here too. Shared states
are copied as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pulse.adk.events import to_engine
from pulse.errors import EventConflictError, InvalidInputError
from pulse.event_rows import event_input
from pulse.events import Event, EventActions
from pulse.names import check_app, check_filled, check_session_names
from pulse.postgres.json_values import escape_state, unescape
from pulse.postgres.statements import Statements
from pulse.scopes import split_delta
from pulse.session_key import SessionKey
from workers.adk.source import Source, SourceSession, SourceState

if TYPE_CHECKING:
    from pulse.database import Pool

TABLES = ("sessions", "events", "app_states", "user_states")
_BATCH_BYTES_MAX = 4 << 20
_STATEMENTS = Statements("workers.adk", "importing.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A session that could not be copied completely, or a shared state where `session_id` is None; and why."""

    app_name: str
    user_id: str | None
    session_id: str | None
    reason: str


@dataclass(slots=True, kw_only=True)
class Copied:
    """The outcome of an import, by table of the source.

    Attributes:
        source: the rows of the source.
        here: the rows of it that this database reported as stored.
        new: the sessions and events that this run stored.
        kept_keys: keys of app and user states that differ here, and were not changed.
        moved_sessions: sessions that were appended to here since an earlier import; their state was not changed.
        erased: sessions and events that were erased here; they are not copied again.
        erased_keys: keys of app and user states that were erased here; they are not copied again.
        taken_sessions: sessions that were not copied, because one with the same names exists that no import created.
        refused: what this database cannot store; everything else was copied.
    """

    source: Mapping[str, int] = field(default_factory=dict)
    here: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    new: dict[str, int] = field(default_factory=lambda: {"sessions": 0, "events": 0})
    kept_keys: int = 0
    moved_sessions: int = 0
    erased: dict[str, int] = field(default_factory=lambda: {"sessions": 0, "events": 0})
    erased_keys: int = 0
    taken_sessions: list[SessionKey] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether every row of the source is here, except those that were erased here."""
        return not self.refused and all(
            self.source.get(table) == self.here[table] + self.erased.get(table, 0) for table in TABLES
        )


class AdkImport:
    """One run of the import."""

    def __init__(
        self,
        source: Source,
        pool: Pool,
        *,
        overwrite_state: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            overwrite_state: the source's app and user states replace keys that exist here.
            on_progress: called with the number of events of each batch.
        """
        self._source = source
        self._pool = pool
        self._overwrite_state = overwrite_state
        self._on_progress = on_progress
        self._copied = Copied()
        self._stripped: set[SessionKey] = set()

    async def run(self) -> Copied:
        """Copy everything that this database can store, and count both sides.

        Raises:
            SourceError: the source cannot be read.
        """
        async for state in self._source.states():
            with self._refusing(state.app_name, state.user_id, None):
                await self._copy_state(state)
        async for session in self._source.sessions():
            with self._refusing(session.app_name, session.user_id, session.session_id):
                await self._copy_session(session)
        self._copied.source = await self._source.counts()
        return self._copied

    @contextmanager
    def _refusing(self, app_name: str, user_id: str | None, session_id: str | None) -> Iterator[None]:
        """Record what cannot be stored, such as an event over the limit, and continue with the next session."""
        try:
            yield
        except (InvalidInputError, EventConflictError) as error:
            self._copied.refused.append(
                Refusal(app_name=app_name, user_id=user_id, session_id=session_id, reason=str(error))
            )

    async def _copy_state(self, state: SourceState) -> None:
        check_app(state.app_name)
        if state.user_id is not None:
            check_filled("user_id", state.user_id)
        values = escape_state(state.state)
        row = await _STATEMENTS.fetch_one(
            self._pool, "import_state", state.app_name, state.user_id, values, self._overwrite_state
        )
        self._copied.kept_keys += row["kept"]
        self._copied.erased_keys += row["erased"]
        self._copied.here["app_states" if state.user_id is None else "user_states"] += 1

    async def _copy_session(self, session: SourceSession) -> None:
        key = await self._key_here(session)
        state = escape_state(split_delta(session.state).session)
        outcome = await _STATEMENTS.fetchval(self._pool, "import_session", *key, state, session.created_at)
        if outcome == "taken":
            self._copied.taken_sessions.append(key)
            return
        if outcome == "erased":
            self._copied.erased["sessions"] += 1
            self._copied.erased["events"] += await self._source.count_events(session)
            return
        has_moved = outcome == "moved"
        self._copied.here["sessions"] += 1
        self._copied.new["sessions"] += outcome == "created"
        self._copied.moved_sessions += has_moved
        async for page in self._source.events(session):
            for batch in _batches([to_engine(event) for event in page]):
                stored, new = await self._append(key, batch, changes_state=not has_moved)
                self._copied.here["events"] += stored
                self._copied.new["events"] += new
                if self._on_progress is not None:
                    self._on_progress(len(batch))
        if not has_moved:
            await self._finish(key, session, state)

    async def _key_here(self, session: SourceSession) -> SessionKey:
        """Return a session's key here: ADK's own service keeps blanks around an id, and ours removes them.

        Raises:
            InvalidInputError: the key is not valid, or belongs to another session.
        """
        key = SessionKey(session.app_name, session.user_id, session.session_id.strip())
        if not key.session_id:
            raise InvalidInputError("its id is blank: give it another one in ADK's database")
        check_session_names(*key)
        if key.session_id != session.session_id:
            if key in self._stripped or await self._source.has_session(*key):
                raise InvalidInputError(
                    "its id differs from another session's only in blanks: give it another one in ADK's database"
                )
            self._stripped.add(key)
        return key

    async def _finish(self, key: SessionKey, session: SourceSession, state: Mapping[str, Any]) -> None:
        arguments = (*key, state, session.updated_at)
        differs = await _STATEMENTS.fetchval(self._pool, "finish_session_import", *arguments)
        if differs is not None:
            await self._append(key, [_correction(unescape(differs), session)], changes_state=True)
            await _STATEMENTS.fetchval(self._pool, "finish_session_import", *arguments)

    async def _append(self, key: SessionKey, batch: Sequence[Event], *, changes_state: bool) -> tuple[int, int]:
        """Store events; return how many of them are stored, and how many of those are new."""
        rows = [event_input(event) for event in batch]
        row = await _STATEMENTS.fetch_one(self._pool, "append_past_events", *key, rows, changes_state)
        return row["stored"], row["new"]


def _correction(differs: Mapping[str, Any], session: SourceSession) -> Event:
    """Return an event that sets the keys whose values differ from those of the session's events, in time order."""
    return Event(
        author="import",
        event_type="state_update",
        actions=EventActions(state_delta=differs),
        timestamp=session.updated_at.timestamp(),
    )


def _batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Split a page into batches of bounded size; an event over the limit is a batch of its own."""
    batch: list[Event] = []
    size_bytes = 0
    for event in events:
        event_bytes = len(json.dumps(event.content))
        if batch and size_bytes + event_bytes > _BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append(event)
        size_bytes += event_bytes
    if batch:
        yield batch
