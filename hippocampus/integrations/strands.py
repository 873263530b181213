"""A memory store for Strands Agents on Hippocampus. Needs the extra ``[strands]``."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hippocampus.engine import Hippocampus
from hippocampus.integrations.extras import missing_library
from hippocampus.integrations.session_events import session_key
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.search import QUERY_LENGTH_MAX
from hippocampus.transfer.given_memories import GivenMemories, GivenMemory
from pulse.loop_pools import access

try:
    from strands.memory import InvocationTrigger, MemoryEntry
except ModuleNotFoundError as error:
    raise missing_library("strands", error) from error

if TYPE_CHECKING:
    from strands.memory import AddMessagesContext, ExtractionConfig, SearchOptions
    from strands.types.content import Message

    from hippocampus.providers.protocols import Embedder
    from hippocampus.search import SearchMemoryResult
    from pulse.database import Pool
    from pulse.loop_pools import PoolAccess

__all__ = ["HippocampusMemoryStore"]

Result = TypeVar("Result")


class HippocampusMemoryStore:
    """A `MemoryStore` of Strands Agents: the memory of one user::

        store = HippocampusMemoryStore("postgresql://localhost/agents", app="shop", user="ann")
        manager = MemoryManager(stores=[store])
        agent = Agent(model=model, memory_manager=manager)
        await agent.invoke_async("I'm allergic to peanuts.")
        await manager.flush()

    What the user and the agent say is appended to a session after each invocation, found by the next search, and
    consolidated by workers: no model is called here. `MemoryManager.flush` waits for the last append.

    A store of a URL serves any event loop, with a pool for each: `agent(…)` starts a loop per call. One of a pool
    serves the loop that opened it. `close` the store at the end.

    Attributes:
        session: the id of the session that holds the conversation.
    """

    def __init__(
        self,
        database: Pool | PoolAccess | str,
        *,
        app: str,
        user: str,
        session: str | None = None,
        name: str = "hippocampus",
        description: str | None = "What is known of the user from all conversations: facts, summaries, turns.",
        max_search_results: int | None = 10,
        writable: bool = True,
        extraction: ExtractionConfig | bool = True,
        embedder: Embedder | Literal["local"] | None = "local",
    ) -> None:
        """Connect to nothing yet.

        Args:
            database: a URL (``postgresql://…``), or a pool of `pulse.create_pool`, which stays the caller's to close.
            app, user: whose memory it is.
            session: None: a new one.
            name, description, max_search_results, writable: see `MemoryStore`.
            extraction: when messages are appended; True: after each invocation. False: never.
            embedder: must be the one that the workers use: vectors of two models are never compared. None: searches
                compare words alone. It stays the caller's to close.

        Raises:
            InvalidInputError: a name is blank or too long.
        """
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        is_default = extraction is True and writable
        self.extraction: ExtractionConfig | bool = {"trigger": InvocationTrigger()} if is_default else extraction
        self.session = session or str(uuid.uuid4())
        self._app = app
        self._user = user
        self._access = access(database)
        self._embedder: Embedder | None = LocalEmbedder() if isinstance(embedder, str) else embedder
        # The ids of messages whose append failed, which may have been stored: a repeated append has the same.
        self._unsettled: dict[tuple[int, str], str] = {}
        session_key(app, user, self.session)

    async def close(self) -> None:
        """Close the pools that a URL opened."""
        await self._access.close()

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return what matches a query best among the user's memories, facts and turns; nothing for a blank query.

        The metadata of an entry are its own, and under ``hippocampus`` its ``id``, ``kind``, ``score``, ``session_id``
        and ``occurred_at``.
        """
        text = query.replace("\0", " ").strip()[:QUERY_LENGTH_MAX]
        limit = (options or {}).get("max_search_results") or self.max_search_results or 10
        if not text:
            return []
        found = await self._run(lambda memory: memory.search(self._user, text, limit=limit))
        return [_entry(result) for result in found]

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Store a memory of the user as it is. The same content again changes its metadata alone.

        Raises:
            InvalidInputError: the content is blank or too long, or the metadata is not JSON.
        """
        name = f"strands-{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:32]}"
        given = GivenMemory(content=content, name=name, metadata=metadata or {})
        await self._run(lambda memory: GivenMemories(memory.pool).give(self._app, self._user, [given]))

    async def add_messages(self, messages: list[Message], context: AddMessagesContext | None = None) -> None:
        """Append the texts of messages to the session as turns. A batch that is repeated after an error is stored once.

        Raises:
            ConcurrencyConflictError: other writers of the session appended first each time.
        """
        said = [(message["role"], "\n".join(_texts(message))) for message in messages]
        numbers = context.sequence_numbers if context is not None else None
        keys = [(numbers[place] if numbers else -1 - place, text) for place, (_, text) in enumerate(said)]
        ids = {
            key: self._unsettled.setdefault(key, str(uuid.uuid4())) if numbers else str(uuid.uuid4()) for key in keys
        }
        turns = [
            {"role": role, "content": text, "id": ids[key]}
            for (role, text), key in zip(said, keys, strict=True)
            if text.strip()
        ]
        if turns:
            await self._run(lambda memory: memory.add(self._user, turns, session=self.session))
        for key in keys:
            self._unsettled.pop(key, None)

    async def _run(self, work: Callable[[Hippocampus], Awaitable[Result]]) -> Result:
        async def with_pool(pool: Pool) -> Result:
            async with Hippocampus(pool, app=self._app, embedder=self._embedder) as memory:
                return await work(memory)

        return await self._access.run(with_pool)


def _entry(result: SearchMemoryResult) -> MemoryEntry:
    occurred_at = result.occurred_at
    origin = {
        "id": str(result.memory_id),
        "kind": result.memory_type,
        "score": result.score,
        "session_id": result.session_id,
        "occurred_at": occurred_at.isoformat() if occurred_at is not None else None,
    }
    return MemoryEntry(content=result.content, metadata={**result.metadata, "hippocampus": origin})


def _texts(message: Message) -> list[str]:
    return [block["text"] for block in message["content"] if isinstance(block.get("text"), str)]
