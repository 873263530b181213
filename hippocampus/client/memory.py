"""The calls about memories and facts: search, context, lists, jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import (
    FactCandidate,
    FactMerge,
    FactRecord,
    FactType,
    FactVersion,
    JobRecord,
    MemoryRecord,
    MemoryType,
    SearchResult,
    Window,
    pick,
)


class SearchOptions(TypedDict, total=False):
    """What a search can be narrowed by; see the API's document."""

    sources: Sequence[Literal["memory", "fact", "message"]]
    messages: Literal["recent", "all", "none"]
    memory_types: Sequence[MemoryType]
    session_id: str
    since: datetime
    until: datetime
    metadata: Mapping[str, Any]
    as_of: datetime
    known_at: datetime
    min_relevance: float
    query_embedding: Sequence[float]
    embedding_model: str


class MemoryOptions(TypedDict, total=False):
    """What a list of memories can be narrowed by."""

    memory_type: MemoryType
    session_id: str
    since: datetime
    until: datetime


class FactOptions(TypedDict, total=False):
    """What a list of facts can be narrowed by: their type and key, what was true then, as it was known then."""

    fact_type: FactType
    key: str
    as_of: datetime
    known_at: datetime


class JobOptions(TypedDict, total=False):
    """What a list of jobs can be narrowed by."""

    session_id: str
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    job_type: Literal["fast_replay", "deep_reflection", "full_consolidation"]
    error_code: str


class MemoryCalls(Calls):
    """Searches, packs context, lists memories and facts, and looks after the jobs that make them."""

    async def search(
        self, user_id: str, query: str, *, limit: int = 10, **narrow: Unpack[SearchOptions]
    ) -> tuple[SearchResult, ...]:
        """Search memories, facts and recent turns, the best first."""
        body = {"query": query, "limit": limit, **plain(narrow)}
        found = await self._call("POST", self._user(user_id, "search"), json=body, is_safe=True)
        return tuple(pick(SearchResult, each) for each in found["results"])

    async def context(
        self, user_id: str, query: str = "", *, session_id: str | None = None, max_tokens: int = 8000, **more: Any
    ) -> Window:
        """Pack a context window; `more` as in the API's body, such as system_prompt."""
        body = {"query": query, "session_id": session_id, "max_tokens": max_tokens, **more}
        return pick(Window, await self._call("POST", self._user(user_id, "context"), json=body, is_safe=True))

    async def memories(
        self, user_id: str, *, page_size: int = 100, **narrow: Unpack[MemoryOptions]
    ) -> AsyncIterator[MemoryRecord]:
        """Yield a user's memories, the strongest first."""
        async for each in self._pages(self._user(user_id, "memories"), "memories", limit=page_size, **narrow):
            yield pick(MemoryRecord, each)

    async def facts(
        self, user_id: str, *, page_size: int = 100, **narrow: Unpack[FactOptions]
    ) -> AsyncIterator[FactRecord]:
        """Yield what holds of a user, or held, by type and key."""
        async for each in self._pages(self._user(user_id, "facts"), "facts", limit=page_size, **narrow):
            yield pick(FactRecord, each)

    async def fact_history(
        self, user_id: str, fact_type: FactType, key: str, *, page_size: int = 100
    ) -> AsyncIterator[FactVersion]:
        """Yield every statement about one key: what holds, then the others, newest first.

        Raises:
            NotFoundError: nothing was ever said of it.
        """
        path = self._user(user_id, "facts", fact_type, key, "history")
        async for each in self._pages(path, "versions", limit=page_size):
            yield pick(FactVersion, each)

    async def fact_candidates(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[FactCandidate]:
        """Yield statements that were too unsure to replace what held, by type and key."""
        async for each in self._pages(self._user(user_id, "fact-candidates"), "candidates", limit=page_size):
            yield pick(FactCandidate, each)

    async def promote_candidate(self, user_id: str, candidate_id: str) -> str:
        """Let a candidate count from now on; return the fact's id."""
        path = self._user(user_id, "fact-candidates", candidate_id, "promote")
        return str((await self._call("POST", path))["fact_id"])

    async def fact_merges(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[FactMerge]:
        """Yield the keys that were taken for other spellings of a fact's key, the newest first."""
        async for each in self._pages(self._user(user_id, "fact-merges"), "merges", limit=page_size):
            yield pick(FactMerge, each)

    async def undo_merge(self, user_id: str, merge_id: str) -> str | None:
        """Make what was said under a merged key a fact of its own; return its id, None where nothing is left."""
        found: str | None = (await self._call("POST", self._user(user_id, "fact-merges", merge_id, "undo")))["fact_id"]
        return found

    async def consolidate(self, user_id: str, session_id: str, job_type: str = "full_consolidation") -> str:
        """Enqueue a consolidation and return its job's id."""
        path = self._user(user_id, "sessions", session_id, "jobs")
        # A second one joins the first, as long as that waits.
        return str((await self._call("POST", path, json={"job_type": job_type}, is_safe=True))["job_id"])

    async def job(self, user_id: str, job_id: str) -> JobRecord:
        """Read how a job stands."""
        return pick(JobRecord, await self._call("GET", self._user(user_id, "jobs", job_id)))

    async def jobs(
        self, user_id: str, *, page_size: int = 100, **narrow: Unpack[JobOptions]
    ) -> AsyncIterator[JobRecord]:
        """Yield a user's jobs, the newest first."""
        async for each in self._pages(self._user(user_id, "jobs"), "jobs", limit=page_size, **narrow):
            yield pick(JobRecord, each)

    async def retry_job(self, user_id: str, job_id: str) -> JobRecord:
        """Give a failed job all its tries again; ConflictError where it has not failed."""
        return pick(JobRecord, await self._call("POST", self._user(user_id, "jobs", job_id, "retry")))

    async def cancel_job(self, user_id: str, job_id: str) -> JobRecord:
        """Cancel a job: at once where it waits, soon where it runs; one that has ended stays as it ended."""
        return pick(JobRecord, await self._call("POST", self._user(user_id, "jobs", job_id, "cancel")))
