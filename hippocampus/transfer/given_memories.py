"""Memories from outside: turns of sessions that are stored elsewhere, and memories that the caller wrote.

Nothing here waits for a model: turns are found by their words at once, and workers consolidate them later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from hippocampus.erasure.service import ErasureService
from hippocampus.errors import BY_SQLSTATE, MemoryNotFoundError
from hippocampus.memory_types import initial_score
from hippocampus.names import check_word, check_zones
from hippocampus.records import Importance
from pulse.errors import InvalidInputError
from pulse.events import Event
from pulse.names import check_owner
from pulse.postgres.json_values import clean_text, escape_state
from pulse.postgres.statements import Statements
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService

if TYPE_CHECKING:
    from pulse.database import Pool

#: The prefix of the names of threads that hold turns of sessions that are stored elsewhere.
_THREAD_PREFIX = "memory"
MEMORIES_MAX = 1000
CONTENT_CHARACTERS_MAX = 100_000
_BATCH_EVENTS = 200
# For the ids of memories that their callers name: a constant of our own.
_NAMESPACE = uuid.UUID("6f2d7c1e-9a58-4b0e-8a3b-5a0e4c0b7d21")
_STATEMENTS = Statements("hippocampus.transfer", "given_memories.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenMemory:
    """A memory that the caller wrote.

    Attributes:
        name: giving the same name again replaces the memory; None makes a new one each time, except that
            `Hippocampus.remember` stores the same memory once.
        importance: decides its initial score; see `hippocampus.memory_types`.
        occurred_at: the time that it is about; None: now.
    """

    content: str
    name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    importance: Importance = "high"
    occurred_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.content.strip() or len(self.content) > CONTENT_CHARACTERS_MAX:
            raise InvalidInputError(
                f"a memory must be a text of 1 to {CONTENT_CHARACTERS_MAX} characters, not {len(self.content)}"
            )
        check_word("importance", self.importance, get_args(Importance))
        check_zones(occurred_at=self.occurred_at)


class Speaker(NamedTuple):
    """Who said a message, and in which event."""

    author: str
    event_id: str


@dataclass(frozen=True, slots=True)
class Sources:
    """Where hits of a search come from.

    Attributes:
        speakers: author and event id of messages, by the message's id.
        sessions: the session whose turns a thread of the memory's holds, by the thread's name.
    """

    speakers: Mapping[uuid.UUID, Speaker]
    sessions: Mapping[str, str]


class GivenMemories:
    """Stores turns and memories, and erases single ones."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def remember_turns(self, app_name: str, user_id: str, session_id: str, events: Sequence[Event]) -> int:
        """Store the turns of a session that is kept elsewhere, or here; return how many were new.

        An event whose id the session holds already, or that was given before, is skipped, even if it was erased; so is
        one that was erased from another session of the user. New events are stored in a thread of the memory's own, so
        that no session is changed.
        """
        check_owner(app_name, user_id)
        key = SessionKey(app_name, user_id, session_id)
        times = {event.id: event.occurred_at for event in reversed(events)}
        rows = await _STATEMENTS.fetch(self._pool, "unknown_events", *key, list(times), list(times.values()))
        unknown = {row["id"] for row in rows}
        fresh = list({event.id: event for event in reversed(events) if event.id in unknown}.values())[::-1]
        if not fresh:
            return 0
        thread = await _STATEMENTS.fetchval(self._pool, "memory_thread", *key)
        sessions = OpenSessionService(self._pool)
        stored = 0
        try:
            for start in range(0, len(fresh), _BATCH_EVENTS):
                batch = fresh[start : start + _BATCH_EVENTS]
                stored += len((await sessions.append(app_name, user_id, thread, batch)).new_events)
        finally:
            await sessions.close()
        return stored

    async def consolidate(self, app_name: str, user_id: str, session_id: str) -> int:
        """Enqueue what is not yet consolidated of a session and of its given turns; return how many jobs will do it."""
        jobs: int = await _STATEMENTS.fetchval(self._pool, "consolidate_session", app_name, user_id, session_id)
        return jobs

    async def give(self, app_name: str, user_id: str, memories: Sequence[GivenMemory]) -> int:
        """Store memories in one transaction; return how many were stored or changed. Vectors follow by backfill.

        Raises:
            InvalidInputError: there are more than `MEMORIES_MAX`, metadata is not JSON, or app or user is blank or
                the app is ``*``; nothing was stored.
        """
        check_owner(app_name, user_id)
        if len(memories) > MEMORIES_MAX:
            raise InvalidInputError(f"give at most {MEMORIES_MAX} memories at once, not {len(memories)}: split them")
        # If two have one name, the later counts; a statement can't write a row twice.
        rows = {row[0]: row for row in (memory_row(app_name, user_id, each) for each in memories)}
        if not rows:
            return 0
        inputs = list(rows.values())
        changed: int = await _STATEMENTS.fetchval(self._pool, "give_memories", app_name, user_id, inputs)
        return changed

    async def erase(self, app_name: str, user_id: str, memory_id: uuid.UUID) -> bool:
        """Erase a memory, a fact or a turn, whichever has this id; return whether this user had it.

        It is not extracted again from earlier events. With a turn, what was extracted from it is erased, and
        extracted again from the turns around it; its event stays in the session. An event that was given as part of
        several sessions is erased in all of them.
        """
        erased = False
        # The turn with this id comes last: if the process is interrupted, a second call finds it, and so the others.
        for turn in await _STATEMENTS.fetch(self._pool, "turns_of_event", app_name, user_id, memory_id):
            request_id = await _STATEMENTS.fetchval(self._pool, "erase_turn", app_name, user_id, turn["id"])
            erased = erased or request_id is not None
        if erased:
            return True
        try:
            await ErasureService(self._pool).erase_memory(app_name, user_id, memory_id)
        except MemoryNotFoundError:
            return False
        return True

    def id_of(self, app_name: str, user_id: str, name: str) -> uuid.UUID:
        """Return the id of the memory that a user has under a name."""
        return _named_id(app_name, user_id, name)

    async def sources(
        self, app_name: str, user_id: str, message_ids: Sequence[uuid.UUID], session_ids: Iterable[str]
    ) -> Sources:
        """Return who said messages, and which sessions the threads that a search names hold turns of."""
        threads = [name for name in set(session_ids) if name.startswith(_THREAD_PREFIX)]
        rows = []
        if message_ids or threads:
            rows = await _STATEMENTS.fetch(self._pool, "sources", app_name, user_id, list(message_ids), threads)
        return Sources(
            speakers={row["id"]: Speaker(row["author"], row["event_id"]) for row in rows if row["id"] is not None},
            sessions={row["thread"]: row["session_id"] for row in rows if row["thread"] is not None},
        )


def _named_id(app_name: str, user_id: str, name: str) -> uuid.UUID:
    return uuid.uuid5(_NAMESPACE, "\0".join((app_name, user_id, name)))


def _id(app_name: str, user_id: str, given: GivenMemory) -> uuid.UUID:
    return uuid.uuid4() if given.name is None else _named_id(app_name, user_id, given.name)


def memory_row(app_name: str, user_id: str, given: GivenMemory) -> tuple[Any, ...]:
    """Return a memory as the SQL type given_memory, its id first."""
    return (
        _id(app_name, user_id, given),
        clean_text(given.content),
        escape_state(given.metadata, where="metadata"),
        initial_score("semantic", given.importance),
        given.occurred_at,
    )
