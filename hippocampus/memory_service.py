"""The memory service: enqueues consolidation and reads what it made, in the process of an agent's host.

Workers consolidate. Every reading method is one round trip, bounded to one app and user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args
from uuid import UUID

from hippocampus import jobs
from hippocampus.context_assembler import ContextAssembler, ContextWindow
from hippocampus.errors import BY_SQLSTATE, UnknownJobTypeError
from hippocampus.facts.keys import normal_key
from hippocampus.memory_types import MEMORY_TYPES
from hippocampus.names import PAGE_SIZE_MAX, check_names, check_word, check_zones, require_session
from hippocampus.records import (
    ConsolidationJob,
    Fact,
    FactType,
    FactVersion,
    HistoryPosition,
    JobStatus,
    JobType,
    Memory,
    MemoryPosition,
    MemoryType,
)
from hippocampus.rerank import RERANK_SECONDS, Reranker
from hippocampus.retention_manager import MemoryRetentionManager, MemoryStats
from hippocampus.search import MemorySearch, SearchFilter, SearchMemoryResponse
from pulse.postgres.json_values import unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    import asyncpg

    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool

WAIT_SECONDS = 120.0

_STATEMENTS = Statements("hippocampus", "memory.sql", errors=BY_SQLSTATE)

ConsolidationType: TypeAlias = Literal["fast", "deep", "full"]

#: The job types by the names that `add_session_to_memory` takes; their own names are accepted as well.
CONSOLIDATION_TYPES: Mapping[str, JobType] = MappingProxyType(
    {
        "fast": JobType.FAST_REPLAY,
        "deep": JobType.DEEP_REFLECTION,
        "full": JobType.FULL_CONSOLIDATION,
        **{job_type.value: job_type for job_type in JobType},
    }
)


class AddedSession(TypedDict):
    """The job that consolidates a session."""

    job_id: str
    status: str
    result: Mapping[str, Any]


class OpenMemoryService:
    """Enqueues sessions for consolidation, searches and lists memories and facts, and manages consolidation jobs.

    Raises, from every listing:
        InvalidInputError: `limit` is not 1 to 1,000, there is no such type or status, a time has no zone, or a name
            cannot be stored.
    """

    def __init__(
        self,
        pool: Pool,
        embedder: Embedder | None,
        *,
        max_search_results: int = 10,
        reranker: Reranker | None = None,
        rerank_seconds: float = RERANK_SECONDS,
    ) -> None:
        """Without an embedder, searches compare words alone; reranked as by `hippocampus.search.MemorySearch`."""
        self._pool = pool
        self._search = MemorySearch(pool, embedder, reranker=reranker, rerank_seconds=rerank_seconds)
        self._assembler = ContextAssembler(pool, embedder, reranker=reranker, rerank_seconds=rerank_seconds)
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
            wait: until workers have done it; otherwise the job is returned while it waits.

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
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> SearchMemoryResponse:
        """Find what matches a query best among memories, facts and turns.

        Args:
            limit: None for `max_search_results`.
            memory_type: only memories of this type.
            asked_at, time_zone: when the query is asked, and whose days its times mean; see `MemorySearch.search`.

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
            asked_at=asked_at,
            time_zone=time_zone,
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
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> ContextWindow:
        """Pack what a session's next turn needs into a budget; see `hippocampus.context_assembler`."""
        return await self._assembler.assemble(
            app_name=app_name,
            user_id=user_id,
            session_id=session_id,
            query=query,
            system_prompt=system_prompt,
            max_tokens=max_tokens,
            asked_at=asked_at,
            time_zone=time_zone,
        )

    async def cleanup_memories(self, threshold: float | None = None, min_age_days: float | None = None) -> MemoryStats:
        """Archive memories that became too weak; see `hippocampus.retention_manager`. None: each app's own policy."""
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
        after: MemoryPosition | None = None,
    ) -> list[Memory]:
        """List a user's memories without their vectors, the strongest first, then the newest.

        Args:
            since, until: the time of the last of its turns, `until` exclusive.
            after: the position of the last memory of the page before.

        Raises:
            SessionNotFoundError: no such session for this app and user.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        check_word("memory_type", memory_type, MEMORY_TYPES)
        check_zones(since=since, until=until)
        check_names(app_name=app_name, user_id=user_id, session_id=session_id)
        rows = await _STATEMENTS.fetch(
            self._pool,
            "list_memories",
            app_name,
            user_id,
            memory_type,
            session_id,
            since,
            until,
            limit,
            *((None,) * 4 if after is None else dataclasses.astuple(after)),
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
        """List the facts that hold of a user, by type and key.

        Args:
            key: the key of one fact, or a spelling that was merged into it; or of a collection, for its elements.
            as_of: what was true then; None: what is true now.
            known_at: as it was recorded at this time; None: now.
            after: type and key of the last fact of the page before.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        check_word("fact_type", fact_type, get_args(FactType))
        check_zones(as_of=as_of, known_at=known_at)
        check_names(app_name=app_name, user_id=user_id, key=key)
        rows = await _STATEMENTS.fetch(
            self._pool,
            "list_facts",
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
        after: HistoryPosition | None = None,
    ) -> list[FactVersion]:
        """List every statement about one key: what holds, what it ended and what was too unsure, newest first.

        For a key that was merged into another, the history is that of both.

        Args:
            limit: 1 to 1,000.
            after: where the page before ended.
        """
        check_limit(limit, PAGE_SIZE_MAX)
        check_word("fact_type", fact_type, get_args(FactType))
        check_names(app_name=app_name, user_id=user_id, key=key)
        position = (None, None, None, 0) if after is None else dataclasses.astuple(after)
        rows = await _STATEMENTS.fetch(self._pool, "fact_history", app_name, user_id, fact_type, key, limit, *position)
        return [_version(row) for row in rows]

    async def get_job(
        self, job_id: UUID, *, app_name: str | None = None, user_id: str | None = None
    ) -> ConsolidationJob:
        """Return a job; `JobNotFoundError` if this app and user have none of this id."""
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


def _memory(row: asyncpg.Record) -> Memory:
    return Memory(**{**row, "metadata": unescape(row["metadata"])})


def _fact(row: asyncpg.Record) -> Fact:
    return Fact(**{**row, "value": unescape(row["value"]), "source_seqs": tuple(row["source_seqs"])})


def _version(row: asyncpg.Record) -> FactVersion:
    return FactVersion(**{**row, "value": unescape(row["value"]), "source_seqs": tuple(row["source_seqs"])})
