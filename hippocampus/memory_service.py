"""The memory service: what an agent's host asks of the memory, from its own process, with nothing but a pool.

It enqueues and reads; the workers consolidate. Every reading method is one round trip, bounded to one app and user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args
from uuid import UUID

from hippocampus import jobs
from hippocampus.context_assembler import ContextAssembler, ContextWindow
from hippocampus.errors import UnknownJobTypeError
from hippocampus.facts.keys import normal_key
from hippocampus.names import check_names, require_session
from hippocampus.records import (
    ConsolidationJob,
    Fact,
    FactType,
    FactVersion,
    HistoryPlace,
    JobStatus,
    JobType,
    Memory,
    MemoryPlace,
    MemoryType,
)
from hippocampus.retention_manager import MemoryRetentionManager, MemoryStats
from hippocampus.search import MemorySearch, SearchFilter, SearchMemoryResponse
from pulse.errors import InvalidInputError
from pulse.postgres.json_values import unescape
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    import asyncpg

    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool

PAGE_SIZE_MAX = 1000
WAIT_SECONDS = 120.0

ConsolidationType: TypeAlias = Literal["fast", "deep", "full"]

#: What `add_session_to_memory` calls the job types; their own names are understood as well.
CONSOLIDATION_TYPES: Mapping[str, JobType] = MappingProxyType(
    {
        "fast": JobType.FAST_REPLAY,
        "deep": JobType.DEEP_REFLECTION,
        "full": JobType.FULL_CONSOLIDATION,
        **{job_type.value: job_type for job_type in JobType},
    }
)


class AddedSession(TypedDict):
    """What became of a session that was given to the memory."""

    job_id: str
    status: str
    result: Mapping[str, Any]


class OpenMemoryService:
    """Gives sessions to the memory, searches it, lists what it holds, and looks after its jobs.

    Raises, from every listing:
        InvalidInputError: `limit` is not 1 to 1,000, there is no such type or status, a time
            has no zone, or a name cannot be stored.
    """

    def __init__(self, pool: Pool, embedder: Embedder | None, *, max_search_results: int = 10) -> None:
        """Without an embedder, searches compare words alone."""
        self._pool = pool
        self._queries = load_queries("hippocampus")
        self._search = MemorySearch(pool, embedder)
        self._assembler = ContextAssembler(pool, embedder)
        self._max_search_results = max_search_results

    async def add_session_to_memory(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        consolidation_type: ConsolidationType | JobType | str = "full",
        *,
        wait: bool = False,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> AddedSession:
        """Enqueue the consolidation of what is new in a session.

        Args:
            wait: until workers have done it; otherwise the job is returned as it waits.

        Raises:
            UnknownJobTypeError: no such type; nothing was enqueued.
            SessionNotFoundError: no such session for this app and user; nothing was enqueued.
            TimeoutError: no worker did it in time; it stays enqueued.
        """
        job_type = CONSOLIDATION_TYPES.get(consolidation_type)
        if job_type is None:
            raise UnknownJobTypeError(
                f"unknown consolidation type {consolidation_type!r}: use {', '.join(CONSOLIDATION_TYPES)}"
            )
        job = await jobs.enqueue_session(self._pool, app_name, user_id, session_id, job_type)
        if wait:
            job = await jobs.wait(self._pool, job, timeout_seconds=timeout_seconds)
        return {"job_id": str(job.id), "status": job.status.value, "result": job.result}

    async def search_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        query: str,
        limit: int | None = None,
        memory_type: MemoryType | None = None,
        min_relevance: float = 0.0,
    ) -> SearchMemoryResponse:
        """Find what matches a query best among memories, facts and turns that are not yet consolidated.

        Args:
            limit: None for `max_search_results`.
            memory_type: only memories of this type.

        Raises:
            as `hippocampus.search.MemorySearch.search`, which also narrows by session, time and metadata.
        """
        return await self._search.search(
            app_name=app_name,
            user_id=user_id,
            query=query,
            limit=self._max_search_results if limit is None else limit,
            narrow=SearchFilter(
                memory_types=None if memory_type is None else (memory_type,), min_relevance=min_relevance
            ),
        )

    async def get_context_window(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str | None,
        query: str,
        system_prompt: str | None = None,
        max_tokens: int = 8000,
    ) -> ContextWindow:
        """Pack what a session's next turn needs into a budget; see `hippocampus.context_assembler`."""
        return await self._assembler.assemble(
            user_id, app_name, session_id, query, system_prompt=system_prompt, max_tokens=max_tokens
        )

    async def cleanup_memories(self, threshold: float | None = None, min_age_days: float | None = None) -> MemoryStats:
        """Archive what became too weak; see `hippocampus.retention_manager`. None: each app's own policy."""
        manager = MemoryRetentionManager(self._pool)
        return await manager.cleanup_low_value_memories(threshold, min_age_days)

    async def list_memories(
        self,
        *,
        app_name: str,
        user_id: str,
        memory_type: MemoryType | None = None,
        session_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        after: MemoryPlace | None = None,
    ) -> list[Memory]:
        """List a user's memories without their vectors, the strongest first, then the newest.

        Args:
            since, until: when the last of its turns was said, `until` exclusive.
            after: the place of the last memory of the page before.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        _check_page(limit)
        _check_word("memory_type", memory_type, get_args(MemoryType))
        _check_zones(since=since, until=until)
        check_names(app_name=app_name, user_id=user_id, session_id=session_id)
        rows = await self._pool.fetch(
            self._queries["list_memories"],
            app_name,
            user_id,
            memory_type,
            session_id,
            since,
            until,
            limit,
            *((None,) * 4 if after is None else (after.scored_at, after.score, after.created_at, after.id)),
        )
        if session_id is not None and not rows:
            await require_session(self._pool, app_name, user_id, session_id)
        return [_memory(row) for row in rows]

    async def list_facts(
        self,
        *,
        app_name: str,
        user_id: str,
        fact_type: FactType | None = None,
        key: str | None = None,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        limit: int = 50,
        after: tuple[str, str] | None = None,
    ) -> list[Fact]:
        """List what holds of a user, by type and key.

        Args:
            key: of one fact, also in a spelling that was merged into it; or of a collection, for its elements.
            as_of: what was true then; None: what is true now.
            known_at: as it was recorded by then; None: by now.
            after: type and key of the last fact of the page before.
        """
        _check_page(limit)
        _check_word("fact_type", fact_type, get_args(FactType))
        _check_zones(as_of=as_of, known_at=known_at)
        check_names(app_name=app_name, user_id=user_id, key=key)
        rows = await self._pool.fetch(
            self._queries["list_facts"],
            app_name,
            user_id,
            fact_type,
            key,
            as_of,
            known_at,
            limit,
            None if key is None else normal_key(key),
            *(after or (None, None)),
        )
        return [_fact(row) for row in rows]

    async def fact_history(
        self,
        *,
        app_name: str,
        user_id: str,
        fact_type: FactType,
        key: str,
        limit: int = 1000,
        after: HistoryPlace | None = None,
    ) -> list[FactVersion]:
        """List all that was ever said about one key: what holds, what it ended and what was too unsure, newest first.

        A key that was merged into another tells the whole story of both.

        Args:
            limit: 1 to 1,000.
            after: where the page before ended.
        """
        _check_page(limit)
        _check_word("fact_type", fact_type, get_args(FactType))
        check_names(app_name=app_name, user_id=user_id, key=key)
        place = (None, None, None, 0) if after is None else dataclasses.astuple(after)
        rows = await self._pool.fetch(self._queries["fact_history"], app_name, user_id, fact_type, key, limit, *place)
        return [_version(row) for row in rows]

    async def get_job(
        self, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
    ) -> ConsolidationJob:
        """Look a job up; `JobNotFoundError` where there is none, or not of this app and user."""
        return await jobs.get(self._pool, job_id, app_name=app_name, user_id=user_id)

    async def list_jobs(
        self,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        status: JobStatus | None = None,
        job_type: JobType | None = None,
        error_code: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[ConsolidationJob]:
        """List jobs, the newest first; `before` is the id of the last job of the page before."""
        _check_page(limit)
        _check_word("status", status, tuple(JobStatus))
        _check_word("job_type", job_type, tuple(JobType))
        return await jobs.list_jobs(
            self._pool,
            app_name=app_name,
            user_id=user_id,
            session_id=session_id,
            status=status,
            job_type=job_type,
            error_code=error_code,
            before=before,
            limit=limit,
        )

    async def retry_job(
        self, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
    ) -> ConsolidationJob:
        """Run a failed job again; see `hippocampus.jobs.retry`."""
        return await jobs.retry(self._pool, job_id, app_name=app_name, user_id=user_id)

    async def cancel_job(
        self, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
    ) -> ConsolidationJob:
        """Cancel a job; see `hippocampus.jobs.cancel`."""
        return await jobs.cancel(self._pool, job_id, app_name=app_name, user_id=user_id)


def _check_page(limit: int) -> None:
    if not 1 <= limit <= PAGE_SIZE_MAX:
        raise InvalidInputError(f"limit is 1 to {PAGE_SIZE_MAX}, not {limit}")


def _check_word(what: str, word: str | None, allowed: Collection[str]) -> None:
    """Refuse a word that no row can have: its list would be empty, and look like an answer."""
    if word is not None and word not in allowed:
        raise InvalidInputError(f"{what} is one of {', '.join(allowed)}, not {word!r:.80}")


def _check_zones(**moments: datetime | None) -> None:
    for what, moment in moments.items():
        if moment is not None and moment.tzinfo is None:
            raise InvalidInputError(f"{what} needs a time zone, such as datetime.now(timezone.utc)")


def _memory(row: asyncpg.Record) -> Memory:
    return Memory(
        id=row["id"],
        thread_id=row["thread_id"],
        user_id=row["user_id"],
        app_name=row["app_name"],
        memory_type=row["memory_type"],
        content=row["content"],
        metadata=unescape(row["metadata"]),
        retention_score=row["retention_score"],
        access_count=row["access_count"],
        pinned=row["pinned"],
        from_seq=row["from_seq"],
        upto_seq=row["upto_seq"],
        created_at=row["created_at"],
        occurred_at=row["occurred_at"],
        scored_at=row["scored_at"],
    )


def _fact(row: asyncpg.Record) -> Fact:
    return Fact(
        id=row["id"],
        thread_id=row["thread_id"],
        user_id=row["user_id"],
        app_name=row["app_name"],
        fact_type=row["fact_type"],
        key=row["key"],
        value=unescape(row["value"]),
        confidence=row["confidence"],
        source_seqs=tuple(row["source_seqs"]),
        valid_from=row["valid_from"],
        valid_until=row["valid_until"],
        recorded_at=row["recorded_at"],
    )


def _version(row: asyncpg.Record) -> FactVersion:
    return FactVersion(**{**row, "value": unescape(row["value"]), "source_seqs": tuple(row["source_seqs"])})
