"""Copying sessions, events and states of ADK's DatabaseSessionService, in bounded batches, each thing once.

Killed at any moment, a later run goes on: sessions are known by their names, events by their ids. A session's state is
what its events made of it, over what none of them set; so its past can be told here too. States that sessions share are
copied as they stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.adk.events import to_engine
from pulse.errors import EventConflictError, InvalidInputError
from pulse.event_rows import event_input
from pulse.events import Event, EventActions
from pulse.postgres.json_values import escape_state, unescape
from pulse.postgres.statements import load_queries, translate
from pulse.scopes import split_delta
from pulse.session_service import check_names
from workers.adk.source import Source, SourceSession, SourceState

if TYPE_CHECKING:
    from pulse.database import Pool

TABLES = ("sessions", "events", "app_states", "user_states")
_BATCH_BYTES_MAX = 4 << 20
_QUERIES = load_queries("workers.adk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A session of the source that can't be here whole, or with `session_id` None a shared state; and why."""

    app_name: str
    user_id: str | None
    session_id: str | None
    reason: str


@dataclass(slots=True, kw_only=True)
class Copied:
    """What an import did, by table of the source.

    Attributes:
        source: rows that the source has now.
        here: rows of it that are stored here, as this database answered.
        new: sessions and events that this run stored.
        kept_keys: keys of app and user states that differ here, and were left as they are.
        moved_sessions: sessions that somebody has appended to here since an earlier import; their state is their own.
        erased: sessions and their events that were forgotten here, and stay so.
        erased_keys: keys of app and user states that were forgotten here, and stay so.
        taken_sessions: sessions that were not copied, because one of the same names exists that no import made.
        refused: what this database can't hold; everything else was copied.
    """

    source: Mapping[str, int] = field(default_factory=dict)
    here: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    new: dict[str, int] = field(default_factory=lambda: {"sessions": 0, "events": 0})
    kept_keys: int = 0
    moved_sessions: int = 0
    erased: dict[str, int] = field(default_factory=lambda: {"sessions": 0, "events": 0})
    erased_keys: int = 0
    taken_sessions: list[tuple[str, str, str]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether every row of the source is here, but for what was forgotten here."""
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
            overwrite_state: the source's app and user states win over keys that are here already.
            on_progress: called with the number of events of each batch.
        """
        self._source = source
        self._pool = pool
        self._overwrite_state = overwrite_state
        self._on_progress = on_progress
        self._copied = Copied()
        self._stripped: set[tuple[str, str, str]] = set()

    async def run(self) -> Copied:
        """Copy everything that can be here, and count both sides.

        Raises:
            SourceError: the source can't be read.
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
        """Note what can't be here, such as an event over the limit, and go on: one session must not keep all others."""
        try:
            yield
        except (InvalidInputError, EventConflictError) as error:
            self._copied.refused.append(
                Refusal(app_name=app_name, user_id=user_id, session_id=session_id, reason=str(error))
            )

    async def _copy_state(self, state: SourceState) -> None:
        check_names(state.app_name, "-" if state.user_id is None else state.user_id, "-")
        values = escape_state(state.state)
        names = (state.app_name, state.user_id)
        row = await self._fetchrow("import_state", *names, values, self._overwrite_state)
        self._copied.kept_keys += row["kept"]
        self._copied.erased_keys += row["erased"]
        self._copied.here["app_states" if state.user_id is None else "user_states"] += 1

    async def _copy_session(self, session: SourceSession) -> None:
        names = await self._names_here(session)
        state = escape_state(split_delta(session.state).session)
        outcome = await self._call("import_session", *names, state, session.created_at)
        if outcome == "taken":
            self._copied.taken_sessions.append(names)
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
                stored, new = await self._append(names, batch, changes_state=not has_moved)
                self._copied.here["events"] += stored
                self._copied.new["events"] += new
                if self._on_progress is not None:
                    self._on_progress(len(batch))
        if not has_moved:
            await self._finish(names, session, state)

    async def _names_here(self, session: SourceSession) -> tuple[str, str, str]:
        """Return a session's names here: ADK's own service keeps blanks around an id, and ours looks for none.

        Raises:
            InvalidInputError: it can't have them here.
        """
        names = (session.app_name, session.user_id, session.session_id.strip())
        if not names[2]:
            raise InvalidInputError("its id is blank: give it another one in ADK's database")
        check_names(*names)
        if names[2] != session.session_id:
            if names in self._stripped or await self._source.has_session(*names):
                raise InvalidInputError(
                    "its id is another session's, but for blanks: give it another one in ADK's database"
                )
            self._stripped.add(names)
        return names

    async def _finish(self, names: tuple[str, str, str], session: SourceSession, state: Mapping[str, Any]) -> None:
        differs = await self._call("finish_session_import", *names, state, session.updated_at)
        if differs is not None:
            await self._append(names, [_correction(unescape(differs), session)], changes_state=True)
            await self._call("finish_session_import", *names, state, session.updated_at)

    async def _append(
        self, names: tuple[str, str, str], batch: Sequence[Event], *, changes_state: bool
    ) -> tuple[int, int]:
        """Store events; return how many of them are stored, and how many were not before."""
        rows = [event_input(event) for event in batch]
        row = await self._fetchrow("append_past_events", *names, rows, changes_state)
        return row["stored"], row["new"]

    async def _call(self, name: str, *arguments: Any) -> Any:
        return (await self._fetchrow(name, *arguments))[0]

    async def _fetchrow(self, name: str, *arguments: Any) -> asyncpg.Record:
        try:
            row = await self._pool.fetchrow(_QUERIES[name], *arguments)
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        assert row is not None  # noqa: S101  # each of the statements gives one
        return row


def _correction(differs: Mapping[str, Any], session: SourceSession) -> Event:
    """Return an event that sets what the session's own events, in the order of their times, lead elsewhere."""
    return Event(
        author="import",
        event_type="state_update",
        actions=EventActions(state_delta=differs),
        timestamp=session.updated_at.timestamp(),
    )


def _batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Cut a page into batches of bounded size; an event over the bytes is a batch of its own."""
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
