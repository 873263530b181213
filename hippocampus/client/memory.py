"""The calls about memories and facts: search, context, lists, jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import (
    Answer,
    Citation,
    FactCandidate,
    FactMerge,
    FactRecord,
    FactType,
    FactVersion,
    JobRecord,
    MemoryRecord,
    MemoryType,
    Profile,
    ProfileLine,
    SearchResult,
    Window,
    pick,
)

#: Time for the request and the response, beyond the time that the writer has for an answer.
_ANSWER_MARGIN_SECONDS = 5.0


class SearchOptions(TypedDict, total=False):
    """The filters of a search; see the API's document."""

    sources: Sequence[Literal["memory", "fact", "message"]]
    messages: Literal["recent", "all", "none"]
    memory_types: Sequence[MemoryType]
    session_id: str
    since: datetime
    until: datetime
    metadata: Mapping[str, Any]
    as_of: datetime
    known_at: datetime
    asked_at: datetime
    time_zone: str
    min_relevance: float
    query_embedding: Sequence[float]
    embedding_model: str
    weights: Mapping[str, float]
    explain: bool


class MemoryOptions(TypedDict, total=False):
    """The filters of a list of memories."""

    memory_type: MemoryType
    session_id: str
    since: datetime
    until: datetime


class FactOptions(TypedDict, total=False):
    """The filters of a list of facts: type, key, true at a time, known at a time."""

    fact_type: FactType
    key: str
    as_of: datetime
    known_at: datetime


class JobOptions(TypedDict, total=False):
    """The filters of a list of jobs."""

    session_id: str
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    job_type: Literal["fast_replay", "deep_reflection", "full_consolidation"]
    error_code: str


class MemoryCalls(Calls):
    """Searches, packs context, lists memories and facts, and manages consolidation jobs."""

    async def search(
        self, user_id: str, query: str, *, limit: int = 10, **narrow: Unpack[SearchOptions]
    ) -> tuple[SearchResult, ...]:
        """Search memories, facts and turns, best first."""
        body = {"query": query, "limit": limit, **plain(narrow)}
        found = await self._call("POST", self._user(user_id, "search"), json=body, is_safe=True)
        return tuple(pick(SearchResult, each) for each in found["results"])

    async def context(
        self, user_id: str, query: str = "", *, session_id: str | None = None, max_tokens: int = 8000, **more: Any
    ) -> Window:
        """Pack a context window; `more` as in the API's body, such as system_prompt."""
        body = {"query": query, "session_id": session_id, "max_tokens": max_tokens, **plain(more)}
        return pick(Window, await self._call("POST", self._user(user_id, "context"), json=body, is_safe=True))

    async def recall(self, user_id: str, query: str = "", *, max_tokens: int = 1000, **more: Any) -> str:
        """Return what is known for a query as one text: facts, then passages with their dates; `more` as in the API."""
        body = {"query": query, "max_tokens": max_tokens, **plain(more)}
        found = await self._call("POST", self._user(user_id, "recall"), json=body, is_safe=True)
        return str(found["text"])

    async def ask(self, user_id: str, question: str, *, max_seconds: float = 60.0, **more: Any) -> Answer:
        """Answer a question from what is remembered, with citations; `more` as in the API's body.

        Raises:
            UnavailableError: the model did not answer in time; ask again later.
        """
        body = {"question": question, "max_seconds": max_seconds, **plain(more)}
        # Sent once: the writer has repeated what may be repeated, and each call of a model costs money.
        timeout_seconds = max_seconds + _ANSWER_MARGIN_SECONDS
        found = await self._call("POST", self._user(user_id, "ask"), json=body, timeout=timeout_seconds)
        return pick(Answer, {**found, "citations": tuple(pick(Citation, each) for each in found["citations"])})

    async def profile(self, user_id: str, **more: Any) -> Profile:
        """Read what is known of a user, on one page with its sources; `more`: max_tokens, language, as_of."""
        found = await self._call("GET", self._user(user_id, "profile"), params=plain(more))
        return pick(Profile, {**found, "lines": tuple(pick(ProfileLine, each) for each in found["lines"])})

    async def memories(
        self, user_id: str, *, page_size: int = 100, **narrow: Unpack[MemoryOptions]
    ) -> AsyncIterator[MemoryRecord]:
        """Yield a user's memories, strongest first."""
        async for each in self._pages(self._user(user_id, "memories"), "memories", limit=page_size, **narrow):
            yield pick(MemoryRecord, each)

    async def facts(
        self, user_id: str, *, page_size: int = 100, **narrow: Unpack[FactOptions]
    ) -> AsyncIterator[FactRecord]:
        """Yield the facts about a user, current or at another time, by type and key."""
        async for each in self._pages(self._user(user_id, "facts"), "facts", limit=page_size, **narrow):
            yield pick(FactRecord, each)

    async def fact_history(
        self, user_id: str, fact_type: FactType, key: str, *, page_size: int = 100
    ) -> AsyncIterator[FactVersion]:
        """Yield every statement about one key: the current one, then the others, newest first.

        Raises:
            NotFoundError: there is no statement about it.
        """
        path = self._user(user_id, "facts", fact_type, key, "history")
        async for each in self._pages(path, "versions", limit=page_size):
            yield pick(FactVersion, each)

    async def fact_candidates(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[FactCandidate]:
        """Yield the statements that were too uncertain to replace a fact, by type and key."""
        async for each in self._pages(self._user(user_id, "fact-candidates"), "candidates", limit=page_size):
            yield pick(FactCandidate, each)

    async def promote_candidate(self, user_id: str, candidate_id: str) -> str:
        """Make a candidate a fact; return the fact's id."""
        path = self._user(user_id, "fact-candidates", candidate_id, "promote")
        return str((await self._call("POST", path))["fact_id"])

    async def fact_merges(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[FactMerge]:
        """Yield the keys that were recognized as other spellings of a fact's key, newest first."""
        async for each in self._pages(self._user(user_id, "fact-merges"), "merges", limit=page_size):
            yield pick(FactMerge, each)

    async def undo_merge(self, user_id: str, merge_id: str) -> str | None:
        """Make the statements under a merged key a separate fact; return its id, None if none remain."""
        found: str | None = (await self._call("POST", self._user(user_id, "fact-merges", merge_id, "undo")))["fact_id"]
        return found

    async def consolidate(self, user_id: str, session_id: str, job_type: str = "full_consolidation") -> str:
        """Enqueue a consolidation and return its job's id."""
        path = self._user(user_id, "sessions", session_id, "jobs")
        # While a job waits, a second request returns the same job.
        return str((await self._call("POST", path, json={"job_type": job_type}, is_safe=True))["job_id"])

    async def job(self, user_id: str, job_id: str) -> JobRecord:
        """Read a job."""
        return pick(JobRecord, await self._call("GET", self._user(user_id, "jobs", job_id)))

    async def jobs(
        self, user_id: str, *, page_size: int = 100, **narrow: Unpack[JobOptions]
    ) -> AsyncIterator[JobRecord]:
        """Yield a user's jobs, newest first."""
        async for each in self._pages(self._user(user_id, "jobs"), "jobs", limit=page_size, **narrow):
            yield pick(JobRecord, each)

    async def job_effects(self, user_id: str, job_id: str) -> Mapping[str, Any]:
        """Read the turns of a job's slice, and what is stored of them, as the API's document describes it."""
        found: Mapping[str, Any] = await self._call("GET", self._user(user_id, "jobs", job_id, "effects"))
        return found

    async def replay(
        self, user_id: str, *, session_id: str | None = None, apply: bool = False, slices: int = 5
    ) -> Mapping[str, Any]:
        """Extract the memories of a session or a user again, and compare or swap them.

        Until `is_complete`, call again: each call sends at most `slices` slices to the model.
        """
        body = {"session_id": session_id, "apply": apply, "slices": slices}
        found: Mapping[str, Any] = await self._call("POST", self._user(user_id, "replays"), json=body)
        return found

    async def retry_job(self, user_id: str, job_id: str) -> JobRecord:
        """Run a failed job again, with all its attempts; ConflictError if it has not failed."""
        return pick(JobRecord, await self._call("POST", self._user(user_id, "jobs", job_id, "retry")))

    async def cancel_job(self, user_id: str, job_id: str) -> JobRecord:
        """Cancel a job: at once if it waits, soon if it runs. A job that has ended is not changed."""
        return pick(JobRecord, await self._call("POST", self._user(user_id, "jobs", job_id, "cancel")))
