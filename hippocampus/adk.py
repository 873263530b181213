"""Google ADK's memory service on the Hippocampus."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from google.adk.events.event import Event as AdkEvent
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types
from typing_extensions import override

from hippocampus.search import QUERY_LENGTH_MAX, USED_RELEVANCE_MIN, MemorySearch, SearchFilter, SearchMemoryResult
from hippocampus.transfer.given_memories import GivenMemories, GivenMemory, Sources
from pulse.errors import InvalidInputError
from pulse.events import Event
from pulse.loop_pools import access
from pulse.postgres.json_values import escape_state

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool
    from pulse.loop_pools import PoolAccess

__all__ = ["PostgresMemoryService"]

#: Where events are kept that come without a session, as in ADK's own services.
UNKNOWN_SESSION_ID: Final = "__unknown_session_id__"
#: Every turn of the user, not only those that no summary covers yet: a turn says who spoke, and when.
_EVERY_TURN = SearchFilter(messages="all")


class PostgresMemoryService(BaseMemoryService):
    """Stands in for ADK's memory services; see their base class for what each method means.

    What is given is found by the next search; workers consolidate it, and nothing here waits for a model but the
    query's own vector. Sessions of `PostgresSessionService` are read where they are; those of other services are
    copied, event by event, once.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds (a ValueError); nothing was changed.
    """

    def __init__(
        self, database: Pool | PoolAccess | str, embedder: Embedder | None = None, *, max_results: int = 10
    ) -> None:
        """Without an embedder, searches compare words alone.

        Args:
            database: a pool of the event loop that all calls come from, or a URL (``postgresql://…``) for any loops.
            embedder: must be the one that the workers use: vectors of two models are never compared.
        """
        if not 1 <= max_results <= 100:
            raise InvalidInputError(f"max_results is 1 to 100, not {max_results}")
        self._database = access(database)
        self._embedder = embedder
        self._max_results = max_results

    async def close(self) -> None:
        """Close the embedder and what a URL opened."""
        if self._embedder is not None:
            await self._embedder.close()
        await self._database.close()

    @override
    async def add_session_to_memory(self, session: Session) -> None:
        """Keep what is new of a session, have it consolidated, and return at once; see `add_events_to_memory`."""
        await self._remember(session.app_name, session.user_id, session.id, session.events)

    @override
    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[AdkEvent],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Keep those of the events that say something and are not known by their id, and have them consolidated.

        Args:
            custom_metadata: has no keys that mean something here.
        """
        await self._remember(app_name, user_id, session_id or "", events)

    @override
    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store memories as they are. The `id` of an entry names it: the same id again replaces what it says.

        Args:
            custom_metadata: kept with each memory, below the entry's own; ``importance`` (high, medium, low) says how
                long it lasts, high by default.

        Raises:
            InvalidInputError: an entry has no text, or parts that are no text: save those as artifacts.
        """
        given = [_given(entry, custom_metadata or {}) for entry in memories]
        await self._database.run(lambda pool: GivenMemories(pool).give(app_name, user_id, given))

    @override
    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Find what matches best among memories, facts and all turns; nothing for a blank query.

        A turn that says just the query is left out: it is most often the question itself. `custom_metadata` of an entry
        says why it matched and where it comes from.
        """
        text = query.strip()[:QUERY_LENGTH_MAX]
        if not text.replace("\0", " ").strip():
            return SearchMemoryResponse()
        return await self._database.run(lambda pool: self._search(pool, app_name, user_id, text))

    @override
    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget one entry of a search for good: nothing that was said until now brings it back.

        An id that this user does not have is no error.
        """
        try:
            wanted = UUID(memory_id or "")
        except ValueError:
            return
        await self._database.run(lambda pool: GivenMemories(pool).erase(app_name, user_id, wanted))

    async def _remember(self, app_name: str, user_id: str, session_id: str, events: Sequence[AdkEvent]) -> None:
        turns = [turn for turn in map(_turn, events) if turn is not None]
        session_id = session_id.strip() or UNKNOWN_SESSION_ID

        async def work(pool: Pool) -> None:
            given = GivenMemories(pool)
            await given.remember_turns(app_name, user_id, session_id, turns)
            await given.consolidate(app_name, user_id, session_id)

        await self._database.run(work)

    async def _search(self, pool: Pool, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        search = MemorySearch(pool, self._embedder)
        # Room for what is left out.
        found = await search.search(
            app_name=app_name,
            user_id=user_id,
            query=query,
            limit=2 * self._max_results + 1,
            narrow=_EVERY_TURN,
            record_access=False,
        )
        chosen = [hit for hit in found.memories if not _says_nothing_new(hit, query)][: self._max_results]
        await search.record_access(
            hit.memory_id for hit in chosen if hit.source == "memory" and hit.relevance_score >= USED_RELEVANCE_MIN
        )
        sources = await GivenMemories(pool).sources(
            app_name,
            user_id,
            [hit.memory_id for hit in chosen if hit.source == "message"],
            [hit.session_id for hit in chosen if hit.session_id],
        )
        return SearchMemoryResponse(memories=[_entry(hit, sources) for hit in chosen])


def _says_nothing_new(hit: SearchMemoryResult, query: str) -> bool:
    """Whether a hit is a slice, whose turns are found by themselves, or a turn that only says the query."""
    return hit.memory_type == "episodic" or (hit.source == "message" and hit.content.strip() == query)


def _turn(event: AdkEvent) -> Event | None:
    """Return an event as the memory keeps it: its text; None where it has none, or is a piece of a stream."""
    if event.partial or event.content is None or not event.content.parts:
        return None
    texts = [part.text for part in event.content.parts if part.text and not part.thought]
    if not "".join(texts).strip():
        return None
    is_user = event.author == "user"
    author = event.author or ("user" if event.content.role == "user" else "model")
    return Event(
        id=event.id or _content_id(author, event.timestamp, texts),
        author=author,
        event_type="user_message" if is_user else "assistant_message",
        invocation_id=event.invocation_id,
        content={"role": event.content.role, "parts": [{"text": text} for text in texts]},
        timestamp=event.timestamp,
    )


def _content_id(author: str, timestamp: float, texts: Sequence[str]) -> str:
    """An event without an id is known by what it says, so that it is kept once."""
    said = repr((author, timestamp, list(texts))).encode("utf-8", "backslashreplace")
    return hashlib.sha256(said).hexdigest()[:32]


def _given(entry: MemoryEntry, shared: Mapping[str, object]) -> GivenMemory:
    parts = entry.content.parts or []
    texts = [part.text for part in parts if part.text is not None]
    if len(texts) < len(parts) or not "".join(texts).strip():
        raise InvalidInputError(
            "a memory is text: this entry has none, or parts that are none; save those as artifacts"
        )
    metadata: dict[str, Any] = {**shared, **entry.custom_metadata}
    importance = metadata.pop("importance", "high")
    if entry.author is not None:
        metadata["author"] = entry.author
    if entry.id is not None:
        metadata["name"] = entry.id
    return GivenMemory(
        content="\n".join(texts),
        name=entry.id,
        metadata=metadata,
        importance=importance,
        occurred_at=_moment(entry.timestamp),
    )


def _moment(timestamp: str | None) -> datetime | None:
    """Read an ISO time; one without a zone is local, as ADK writes it."""
    if timestamp is None:
        return None
    try:
        return datetime.fromisoformat(timestamp).astimezone()
    except ValueError as error:
        raise InvalidInputError(f"timestamp is an ISO 8601 time, not {timestamp!r:.80}") from error


def _entry(hit: SearchMemoryResult, sources: Sources) -> MemoryEntry:
    author, event_id = sources.speakers.get(hit.memory_id, (None, None))
    written = author or hit.metadata.get("author")
    session_id = sources.sessions.get(hit.session_id or "", hit.session_id)
    origin = {
        "source": hit.source,
        "memory_type": hit.memory_type,
        "score": hit.score,
        "relevance": hit.relevance_score,
        "matched_terms": list(hit.why.matched_terms),
        "similarity": hit.why.similarity,
        "retention": hit.why.retention,
        "session_id": None if session_id == UNKNOWN_SESSION_ID else session_id,
        "event_id": event_id,
        "source_seqs": list(hit.source_seqs),
        "metadata": escape_state(hit.metadata, where="metadata"),
    }
    return MemoryEntry(
        id=str(hit.memory_id),
        content=types.Content(role="user" if written == "user" else "model", parts=[types.Part(text=hit.content)]),
        author=written if isinstance(written, str) else None,
        timestamp=None if hit.occurred_at is None else hit.occurred_at.astimezone(UTC).isoformat(),
        custom_metadata={name: value for name, value in origin.items() if value not in (None, [], {})},
    )
