"""Google ADK's memory service on Hippocampus."""

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

from hippocampus.errors import BY_SQLSTATE
from hippocampus.search import (
    EVERYTHING,
    QUERY_LENGTH_MAX,
    USED_RELEVANCE_MIN,
    MemorySearch,
    SearchFilter,
    SearchMemoryResult,
)
from hippocampus.transfer.given_memories import GivenMemories, GivenMemory, Sources
from pulse.errors import InvalidInputError
from pulse.events import Event
from pulse.loop_pools import access
from pulse.postgres.json_values import escape_state
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements, without_secrets

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool
    from pulse.loop_pools import PoolAccess

__all__ = ["PostgresMemoryService"]

#: The session of events without one, as in ADK's own services.
UNKNOWN_SESSION_ID: Final = "__unknown_session_id__"
RESULTS_MAX: Final = 100
#: How many hits are read at most for those that are left.
_HITS_MAX: Final = 1000
#: How much of a turn and the query is compared, from their start.
_COMPARED_CHARACTERS: Final = 1000
#: The key in a memory's metadata for what its entry had besides its text.
_ENTRY = "adk"
#: Options that other services of ADK read from `custom_metadata`. Kept as metadata, they would seem to act.
_FOREIGN_OPTIONS: Final = frozenset(
    "allowed_topics consolidation_customizations description disable_consolidation disable_memory_revisions"
    " display_name enable_consolidation expire_time force_flush generation_trigger_config http_options memory_id"
    " metadata_merge_strategy revision_expire_time revision_labels revision_ttl stream_id topics ttl"
    " wait_for_completion".split()
)
_STATEMENTS = Statements("hippocampus", "adk.sql", errors=BY_SQLSTATE)


class PostgresMemoryService(BaseMemoryService):
    """Replaces ADK's memory services; see their base class for the meaning of each method.

    What is added is found by the next search, and consolidated by workers. Only a search waits for a model, which
    embeds the query. Sessions of `PostgresSessionService` are read in place; those of other services are copied, each
    event once.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds (a ValueError); nothing was changed.
    """

    def __init__(
        self,
        database: Pool | PoolAccess | str,
        embedder: Embedder | None = None,
        *,
        max_results: int = 10,
        include_running_session: bool = False,
    ) -> None:
        """Create the service. Without an embedder, searches compare words only.

        Args:
            database: a pool of the event loop that all calls come from, or a URL (``postgresql://…``) for any loops.
            embedder: must be the workers' embedder: vectors of different models are never compared.
            max_results: 1 to 100.
            include_running_session: whether a search for what a user has just said finds turns of the same session;
                see `search_memory`.
        """
        self._max_results = check_limit(max_results, RESULTS_MAX, name="max_results")
        self._includes_running = include_running_session
        self._database = access(database)
        self._embedder = embedder

    async def close(self) -> None:
        """Close the embedder, and the pools that a URL opened."""
        if self._embedder is not None:
            await self._embedder.close()
        await self._database.close()

    @override
    async def add_session_to_memory(self, session: Session) -> None:
        """Store a session's new events, enqueue their consolidation, and return; see `add_events_to_memory`."""
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
        """Store the events that have text and whose ids are new, and enqueue their consolidation.

        Args:
            custom_metadata: none: turns have no metadata of their own here, and no option is known.

        Raises:
            InvalidInputError: there is custom metadata; nothing was stored.
        """
        if custom_metadata:
            raise InvalidInputError(
                f"add_events_to_memory has no option {', '.join(sorted(custom_metadata))}: turns are kept as long as"
                " their memory, and consolidated by workers. Nothing was stored; give metadata to add_memory"
            )
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
        """Store memories unchanged. An entry with the `id` of an earlier one replaces its content.

        Args:
            custom_metadata: stored with each memory; the entry's own metadata takes precedence. ``importance`` (high,
                medium, low) determines how long it lasts, high by default. A mapping called ``metadata`` is stored as
                if its keys stood beside it, which take precedence, as in Vertex AI's service.

        Raises:
            InvalidInputError: an entry has no text, or parts that are not text: save those as artifacts; or an option
                of another service, such as ``ttl``. Nothing was stored.
        """
        given = [_given(entry, custom_metadata or {}) for entry in memories]
        await self._database.run(lambda pool: GivenMemories(pool).give(app_name, user_id, given))

    @override
    async def search_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        query: str,
        limit: int | None = None,
        filter: SearchFilter | None = None,
    ) -> SearchMemoryResponse:
        """Find the best matches among memories, facts and all turns; none for a blank query.

        Left out are turns that a rewind took back, with what was extracted from them alone, and turns whose text is the
        query: usually the question itself. If the query is the newest turn of a session, as ``preload_memory`` asks,
        that session is the running one: its turns are in the prompt already, and they and its memories are left out
        unless the service was made with `include_running_session`. Facts stay, and so do turns that were given by
        `add_events_to_memory` or from a session of another service.

        The `custom_metadata` of an entry contains that of the memory, its scores and its origin.

        Args:
            limit: 1 to 100; None: the service's `max_results`.
            filter: which rows may match; the running session is not left out if it names one.
        """
        limit = self._max_results if limit is None else check_limit(limit, RESULTS_MAX, name="limit")
        text = query.strip()[:QUERY_LENGTH_MAX]
        if not text.replace("\0", " ").strip():
            return SearchMemoryResponse()
        return await self._database.run(lambda pool: self._search(pool, app_name, user_id, text, limit, filter))

    @override
    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Erase an entry of a search: no event so far will restore it.

        Args:
            memory_id: the entry's id, or the id that its memory was given to `add_memory` with. One that this user does
                not have is not an error.
        """
        if not memory_id:
            return

        async def erase(pool: Pool) -> None:
            given = GivenMemories(pool)
            for wanted in (_uuid(memory_id), given.id_of(app_name, user_id, memory_id)):
                if wanted is not None and await given.erase(app_name, user_id, wanted):
                    return

        await self._database.run(erase)

    async def _remember(self, app_name: str, user_id: str, session_id: str, events: Sequence[AdkEvent]) -> None:
        turns = [turn for turn in map(_turn, events) if turn is not None]
        session_id = session_id.strip() or UNKNOWN_SESSION_ID

        async def work(pool: Pool) -> None:
            given = GivenMemories(pool)
            await given.remember_turns(app_name, user_id, session_id, turns)
            await given.consolidate(app_name, user_id, session_id)

        await self._database.run(work)

    async def _search(
        self, pool: Pool, app_name: str, user_id: str, query: str, limit: int, narrowed: SearchFilter | None
    ) -> SearchMemoryResponse:
        search = MemorySearch(pool, self._embedder)
        # As a turn of these words is stored.
        (stored,) = await without_secrets(pool, app_name, [query])
        running: str | None = None
        if not self._includes_running and (narrowed is None or narrowed.session_id is None):
            asked = " ".join(stored.split())[:_COMPARED_CHARACTERS]
            running = await _STATEMENTS.fetchval(
                pool, "running_session", app_name, user_id, asked, len(asked), _COMPARED_CHARACTERS
            )
        # More than needed, since some are left out.
        wanted = 2 * limit + 1
        while True:
            found = await search.search(
                app_name=app_name,
                user_id=user_id,
                query=query,
                limit=wanted,
                narrow=narrowed or EVERYTHING,
                record_access=False,
            )
            chosen = [hit for hit in found.memories if not _is_redundant(hit, stored) and not _is_running(hit, running)]
            chosen = await _not_rewound(pool, app_name, user_id, chosen)
            if len(chosen) >= limit or len(found.memories) < wanted or wanted == _HITS_MAX:
                break
            wanted = _HITS_MAX
        chosen = chosen[:limit]
        await search.record_access(
            (hit.memory_id for hit in chosen if hit.source == "memory" and hit.relevance_score >= USED_RELEVANCE_MIN),
            app_name=app_name,
            user_id=user_id,
        )
        sources = await GivenMemories(pool).sources(
            app_name,
            user_id,
            [hit.memory_id for hit in chosen if hit.source == "message"],
            [hit.session_id for hit in chosen if hit.session_id],
        )
        return SearchMemoryResponse(memories=[_entry(hit, sources) for hit in chosen])


def _is_redundant(hit: SearchMemoryResult, query: str) -> bool:
    """Whether a hit is a turn that only repeats the query."""
    return hit.source == "message" and hit.content.strip() == query


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _is_running(hit: SearchMemoryResult, running: str | None) -> bool:
    """Whether a hit only repeats the running session. A fact may have been stated there again, and stays."""
    return running is not None and hit.session_id == running and hit.source != "fact"


async def _not_rewound(
    pool: Pool, app_name: str, user_id: str, hits: list[SearchMemoryResult]
) -> list[SearchMemoryResult]:
    """Return the hits without those all of whose turns a rewind took back."""
    names = list({hit.session_id for hit in hits if hit.session_id and hit.source_seqs})
    rows = await _STATEMENTS.fetch(pool, "rewinds", app_name, user_id, names) if names else []
    if not rows:
        return hits
    taken: dict[str, list[range]] = {}
    for row in rows:
        ranges = taken.setdefault(row["session_id"], [])
        # The last comes first: a rewind that a later one took back has no effect, as in ADK.
        is_undone = bool(ranges) and row["sequence_num"] >= ranges[-1].start
        if row["first_seq"] is not None and not is_undone:
            ranges.append(range(row["first_seq"], row["sequence_num"]))
    return [
        hit
        for hit in hits
        if not hit.source_seqs
        or not all(any(seq in each for each in taken.get(hit.session_id or "", ())) for seq in hit.source_seqs)
    ]


def _turn(event: AdkEvent) -> Event | None:
    """Return an event with its text only; None if it has none, or is partial."""
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
    """Return an id for an event without one, from its content, so that it is stored once."""
    content = repr((author, timestamp, list(texts))).encode("utf-8", "backslashreplace")
    return hashlib.sha256(content).hexdigest()[:32]


def _given(entry: MemoryEntry, shared: Mapping[str, object]) -> GivenMemory:
    parts = entry.content.parts or []
    texts = [part.text for part in parts if part.text is not None]
    if len(texts) < len(parts) or not "".join(texts).strip():
        raise InvalidInputError(
            "a memory is text: this entry has no text, or parts that are not text; save those as artifacts"
        )
    options: dict[str, Any] = {**shared, **entry.custom_metadata}
    refused = sorted(_FOREIGN_OPTIONS & options.keys())
    if refused:
        raise InvalidInputError(
            f"add_memory has no option {', '.join(refused)}: how long a memory lasts follows from its `importance` and"
            " the app's policy, and it is stored when the call returns. Nothing was stored"
        )
    metadata = {**_metadata(shared), **_metadata(entry.custom_metadata)}
    own = {name: value for name, value in (("author", entry.author), ("id", entry.id)) if value is not None}
    if own:
        metadata[_ENTRY] = own
    return GivenMemory(
        content="\n".join(texts),
        name=entry.id,
        metadata=metadata,
        importance=options.get("importance", "high"),
        occurred_at=_moment(entry.timestamp),
    )


def _metadata(given: Mapping[str, object]) -> dict[str, Any]:
    """Return what is stored of `custom_metadata`: its keys, and those of its ``metadata``, as in Vertex AI's service.

    Raises:
        InvalidInputError: its ``metadata`` is not a mapping.
    """
    inner = given.get("metadata")
    if inner is not None and not isinstance(inner, Mapping):
        raise InvalidInputError(
            f"custom_metadata['metadata'] must be a mapping of metadata, not {inner!r:.80}. Nothing was stored"
        )
    return {**(inner or {}), **{key: value for key, value in given.items() if key not in ("importance", "metadata")}}


def _moment(timestamp: str | None) -> datetime | None:
    """Return an ISO 8601 time; one without a zone is local, as ADK writes it."""
    if timestamp is None:
        return None
    try:
        return datetime.fromisoformat(timestamp).astimezone()
    except ValueError as error:
        raise InvalidInputError(f"timestamp must be an ISO 8601 time, not {timestamp!r:.80}") from error


def _entry(hit: SearchMemoryResult, sources: Sources) -> MemoryEntry:
    author, event_id = sources.speakers.get(hit.memory_id, (None, None))
    metadata = dict(hit.metadata)
    own = metadata.pop(_ENTRY, None)
    # Memories of earlier releases have the author beside their own metadata.
    written = author or (own.get("author") if isinstance(own, dict) else metadata.get("author"))
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
    }
    return MemoryEntry(
        id=str(hit.memory_id),
        content=types.Content(role="user" if written == "user" else "model", parts=[types.Part(text=hit.content)]),
        author=written if isinstance(written, str) else None,
        timestamp=None if hit.occurred_at is None else hit.occurred_at.astimezone(UTC).isoformat(),
        custom_metadata={
            **{name: value for name, value in origin.items() if value not in (None, [], {})},
            **escape_state(metadata, where="metadata"),
        },
    )
