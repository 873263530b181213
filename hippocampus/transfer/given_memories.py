"""What is given to the memory from outside: turns of sessions that are kept elsewhere, and memories written by hand.

Nothing here waits for a model: turns are found by their words at once, and workers consolidate them later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from hippocampus.consolidation.effects import INSIGHT_SCORES
from hippocampus.erasure.service import Forgetting
from hippocampus.errors import MemoryNotFoundError, from_postgres
from hippocampus.records import Importance
from pulse.errors import InvalidInputError
from pulse.events import Event
from pulse.postgres.json_values import clean_text, escape_state
from pulse.postgres.statements import load_queries
from pulse.session_service import OpenSessionService

if TYPE_CHECKING:
    from pulse.database import Pool

#: What the names begin with of threads that hold what the memory was given of other sessions.
_THREAD_PREFIX = "memory"
MEMORIES_MAX = 1000
CONTENT_CHARACTERS_MAX = 100_000
_BATCH_EVENTS = 200
# The ids of memories that their callers name; any constant of our own.
_NAMESPACE = uuid.UUID("6f2d7c1e-9a58-4b0e-8a3b-5a0e4c0b7d21")
_QUERIES = load_queries("hippocampus", "given_memories.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenMemory:
    """A memory that somebody wrote.

    Attributes:
        name: the same name again replaces the memory; None makes a new one each time.
        importance: how strong it is at first; see `hippocampus.consolidation.effects.INSIGHT_SCORES`.
        occurred_at: when it was so; None: now.
    """

    content: str
    name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    importance: Importance = "high"
    occurred_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.content.strip() or len(self.content) > CONTENT_CHARACTERS_MAX:
            raise InvalidInputError(
                f"a memory is a text of 1 to {CONTENT_CHARACTERS_MAX} characters, not {len(self.content)}"
            )
        if self.importance not in INSIGHT_SCORES:
            raise InvalidInputError(f"importance is one of {', '.join(INSIGHT_SCORES)}, not {self.importance!r:.80}")
        if self.occurred_at is not None and self.occurred_at.tzinfo is None:
            raise InvalidInputError("occurred_at needs a time zone, such as datetime.now(timezone.utc)")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where hits of a search come from.

    Attributes:
        speakers: author and event id of messages, by the message's id.
        sessions: the session that a thread of the memory's holds turns of, by the thread's name.
    """

    speakers: Mapping[uuid.UUID, tuple[str, str]]
    sessions: Mapping[str, str]


class GivenMemories:
    """Takes turns and memories, and forgets single ones."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def remember_turns(self, app_name: str, user_id: str, session_id: str, events: Sequence[Event]) -> int:
        """Keep the turns of a session that is kept elsewhere, or here; return how many were new.

        An event whose id the session holds already, or that the memory was given before, is left as it is, forgotten
        ones too; so is one that was forgotten of another session of the user. What is new is kept in a thread of the
        memory's own, so that no session is changed.
        """
        times = {event.id: event.occurred_at for event in reversed(events)}
        rows = await self._call("unknown_events", app_name, user_id, session_id, list(times), list(times.values()))
        unknown = {row["id"] for row in rows}
        fresh = list({event.id: event for event in reversed(events) if event.id in unknown}.values())[::-1]
        if not fresh:
            return 0
        [thread] = await self._call("memory_thread", app_name, user_id, session_id)
        sessions = OpenSessionService(self._pool)
        stored = 0
        try:
            for start in range(0, len(fresh), _BATCH_EVENTS):
                batch = fresh[start : start + _BATCH_EVENTS]
                stored += len((await sessions.append(app_name, user_id, thread["session_id"], batch)).new_events)
        finally:
            await sessions.close()
        return stored

    async def consolidate(self, app_name: str, user_id: str, session_id: str) -> int:
        """Enqueue what is not yet consolidated of a session, here or given; return how many jobs will do it."""
        [row] = await self._call("consolidate_session", app_name, user_id, session_id)
        return int(row[0])

    async def give(self, app_name: str, user_id: str, memories: Sequence[GivenMemory]) -> int:
        """Store memories in one transaction; return how many were stored or changed. Vectors follow by backfill.

        Raises:
            InvalidInputError: there are more than `MEMORIES_MAX`, or metadata is no JSON; nothing was stored.
        """
        if len(memories) > MEMORIES_MAX:
            raise InvalidInputError(f"give at most {MEMORIES_MAX} memories at once, not {len(memories)}: split them")
        # Of two with one name the later counts; a statement can't write a row twice.
        rows = {_id(app_name, user_id, each): each for each in memories}
        if not rows:
            return 0
        [row] = await self._call("give_memories", app_name, user_id, [_input(id_, each) for id_, each in rows.items()])
        return int(row[0])

    async def forget(self, app_name: str, user_id: str, memory_id: uuid.UUID) -> bool:
        """Forget a memory, a fact or a turn, whichever has this id; return whether this user had it.

        Nothing that was said until now brings it back. Of a turn, what was drawn from it goes as well, and is drawn
        anew from the turns around it; its event stays in the session. An event that was given as several sessions' own
        is forgotten in all of them.
        """
        erased = False
        # This one last: who is interrupted finds it again, and so the others.
        for turn in await self._call("turns_of_event", app_name, user_id, memory_id):
            [row] = await self._call("erase_turn", app_name, user_id, turn["id"])
            erased = erased or row[0] is not None
        if erased:
            return True
        try:
            await Forgetting(self._pool).forget_memory(app_name, user_id, memory_id)
        except MemoryNotFoundError:
            return False
        return True

    async def sources(
        self, app_name: str, user_id: str, message_ids: Sequence[uuid.UUID], session_ids: Iterable[str]
    ) -> Sources:
        """Return who said messages, and which sessions stand behind those that a search names."""
        threads = [name for name in set(session_ids) if name.startswith(_THREAD_PREFIX)]
        rows = []
        if message_ids or threads:
            rows = await self._call("sources", app_name, user_id, list(message_ids), threads)
        return Sources(
            speakers={row["id"]: (row["author"], row["event_id"]) for row in rows if row["id"] is not None},
            sessions={row["thread"]: row["session_id"] for row in rows if row["thread"] is not None},
        )

    async def _call(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        try:
            return await self._pool.fetch(_QUERIES[name], *arguments)
        except asyncpg.DataError as error:
            # Its text may quote the argument.
            raise InvalidInputError(f"{name}: an argument is nothing that PostgreSQL can hold") from error
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error


def _id(app_name: str, user_id: str, given: GivenMemory) -> uuid.UUID:
    if given.name is None:
        return uuid.uuid4()
    return uuid.uuid5(_NAMESPACE, "\0".join((app_name, user_id, given.name)))


def _input(id_: uuid.UUID, given: GivenMemory) -> tuple[Any, ...]:
    return (
        id_,
        clean_text(given.content),
        escape_state(given.metadata, where="metadata"),
        INSIGHT_SCORES[given.importance],
        given.occurred_at,
    )
