"""Copying sessions, events and states of ADK's DatabaseSessionService, in bounded batches, each thing once.

Killed at any moment, a later run goes on: sessions are known by their names, events by their ids. Events are kept with
the changes of state that they made, but those are not made again: states are copied as they stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.adk.events import to_engine
from pulse.errors import from_postgres
from pulse.events import Event
from pulse.json_values import escape_state
from pulse.session_service import OpenSessionService
from pulse.sql import load_queries
from workers.adk.source import Source, SourceSession, SourceState

if TYPE_CHECKING:
    from pulse.database import Pool

TABLES = ("sessions", "events", "app_states", "user_states")
_BATCH_BYTES_MAX = 4 << 20
_QUERIES = load_queries("workers.adk")


@dataclass(slots=True, kw_only=True)
class Copied:
    """What an import did, by table of the source.

    Attributes:
        source: rows that the source has now.
        here: rows of it that are stored here, as this database answered.
        new: sessions and events that this run stored.
        kept_keys: keys of app and user states that differ here, and were left as they are.
        moved_sessions: sessions that somebody has appended to here since an earlier import; their state is their own.
        taken_sessions: sessions that were not copied, because one of the same names exists that no import made.
    """

    source: Mapping[str, int] = field(default_factory=dict)
    here: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    new: dict[str, int] = field(default_factory=lambda: {"sessions": 0, "events": 0})
    kept_keys: int = 0
    moved_sessions: int = 0
    taken_sessions: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether every row of the source is here."""
        return all(self.source.get(table) == self.here[table] for table in TABLES)


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
        self._sessions = OpenSessionService(pool)
        self._overwrite_state = overwrite_state
        self._on_progress = on_progress
        self._copied = Copied()

    async def run(self) -> Copied:
        """Copy everything, and count both sides.

        Raises:
            SourceError: the source can't be read.
            PulseError: something was refused here, such as an event over the limit; what was copied stays.
        """
        try:
            async for state in self._source.states():
                await self._copy_state(state)
            async for session in self._source.sessions():
                await self._copy_session(session)
        finally:
            await self._sessions.close()
        self._copied.source = await self._source.counts()
        return self._copied

    async def _copy_state(self, state: SourceState) -> None:
        values = escape_state(state.state)
        names = (state.app_name, state.user_id)
        self._copied.kept_keys += await self._call("import_state", *names, values, self._overwrite_state)
        self._copied.here["app_states" if state.user_id is None else "user_states"] += 1

    async def _copy_session(self, session: SourceSession) -> None:
        names = (session.app_name, session.user_id, session.session_id)
        outcome = await self._call("import_session", *names, escape_state(session.state), session.created_at)
        if outcome == "taken":
            self._copied.taken_sessions.append(names)
            return
        self._copied.here["sessions"] += 1
        self._copied.new["sessions"] += outcome == "created"
        self._copied.moved_sessions += outcome == "moved"
        async for page in self._source.events(session):
            for batch in _batches([to_engine(event) for event in page]):
                await self._append(session, batch)
        if outcome != "moved":
            await self._call("finish_session_import", *names, session.updated_at)

    async def _append(self, session: SourceSession, batch: list[Event]) -> None:
        stored = await self._sessions.append(
            session.app_name,
            session.user_id,
            session.session_id,
            batch,
            apply_state=False,
        )
        self._copied.here["events"] += len(stored.events)
        self._copied.new["events"] += len(stored.new_events)
        if self._on_progress is not None:
            self._on_progress(len(batch))

    async def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return await self._pool.fetchval(_QUERIES[name], *arguments)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error


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
