"""Consolidation: the door of the memory. A slice of conversation goes in, memories and facts come out.

    read_slice       one statement; the connection is given back before a model is asked
    replay, reflect  one generate call, one embedding call; the reply is kept until it is stored, a retry takes it
    store            one transaction: lock the thread, compare the watermark, fence the job, write, end the job

A job may be delivered many times, and several attempts may run at once: the fence and the watermark let the effects of
one of them through. What is left past a slice is enqueued in the transaction that ends the slice's job.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import UUID

import asyncpg

from hippocampus import jobs
from hippocampus.consolidation import effects, isolation
from hippocampus.consolidation.effects import Cost, Effects
from hippocampus.consolidation.replies import PaidReplies
from hippocampus.consolidation.slices import Slice, Stage, read_slice
from hippocampus.errors import ProviderError, from_postgres
from hippocampus.facts import ledger
from hippocampus.providers.protocols import Embedder, Generator
from hippocampus.records import ConsolidationJob, JobStatus, JobType
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pulse.database import Connection, Pool

WAIT_SECONDS = 120.0
_NO_EVENTS = {"message": "No events to consolidate"}
_NO_THREAD = {"message": "The session was deleted"}
_QUERIES = load_queries("hippocampus")


class JobClaim(Protocol):
    """One attempt's right to end a job. Both methods run inside the transaction that stores the job's effects.

    Attributes:
        is_last_try: a fault of transport would fail the job for good: it had all of its tries.
    """

    is_last_try: bool

    async def fence(self, connection: Connection) -> None:
        """Lock the job's row in the queue.

        Raises:
            JobFencedError: another attempt owns the job now.
        """

    async def finish(self, connection: Connection, result: Mapping[str, Any]) -> None:
        """End the job as completed, with this result. The thread may be gone, and the consolidation job with it."""


class MemoryConsolidationWorker:
    """Runs consolidation jobs, and asks for them."""

    def __init__(self, pool: Pool, generator: Generator, embedder: Embedder, *, slice_tokens: int = 6000) -> None:
        """`slice_tokens` bounds what one generate call reads, in estimated tokens of message text."""
        if slice_tokens < 1:
            raise ValueError(f"slice_tokens must be at least 1, not {slice_tokens}")
        self._pool = pool
        self._generator = generator
        self._embedder = embedder
        self._slice_tokens = slice_tokens

    async def run(self, job_id: UUID, claim: JobClaim) -> ConsolidationJob | None:
        """Consolidate one slice for a job that this attempt has claimed, and end the job.

        A session that is deleted before the end is no error: nothing is written, and the queue's job ends.

        Returns:
            The job as it is stored now; as cancelled where the session was deleted during the call; None where it was
            gone, with the job, before it.

        Raises:
            ProviderError: the model could not answer; nothing was written.
            JobFencedError: the job runs elsewhere by now; nothing was written.
            WatermarkMovedError: another job was faster with this slice; nothing was written, run again.
            EmbeddingDimensionError: the embedder does not fit the schema; nothing was written.
        """
        part = await self._read(job_id)
        if part is not None and part.stage is Stage.FAST and part.job.job_type is JobType.FULL_CONSOLIDATION:
            replayed = await self._store(*await self._draw_part(part, claim), claim, {}, ends=False)
            if replayed.status is JobStatus.CANCELLED:
                return replayed
            part = await self._read(job_id, Stage.DEEP)
        if part is None:
            await self._end_without_thread(claim)
            return None
        return await self._store(*await self._draw_part(part, claim), claim, part.job.result, ends=True)

    async def consolidate(
        self,
        thread_id: UUID,
        job_type: JobType | str = JobType.FULL_CONSOLIDATION,
        *,
        wait: bool = True,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ConsolidationJob:
        """Enqueue the consolidation of a thread and wait until workers have done it; see `consolidate_thread`."""
        return await consolidate_thread(self._pool, thread_id, job_type, wait=wait, timeout_seconds=timeout_seconds)

    async def _read(self, job_id: UUID, stage: Stage | None = None) -> Slice | None:
        return await read_slice(self._pool, job_id, stage, slice_tokens=self._slice_tokens)

    async def _draw_part(self, part: Slice, claim: JobClaim) -> tuple[Slice, Effects]:
        """Ask the models for a slice; for as much of it as they take, where jobs before this one failed with it."""
        try:
            return part, await self._draw(part)
        except ProviderError as error:
            if not part.is_stuck or isolation.is_to_be_retried(error, is_last_try=claim.is_last_try):
                raise
            return await isolation.get_past(self._draw, self._embedder, part, error, is_last_try=claim.is_last_try)

    async def _draw(self, part: Slice) -> Effects:
        """Ask the models. No connection is held meanwhile."""
        if not part.turns:
            return Effects()
        paid = PaidReplies(self._pool, self._generator, part)
        if part.stage is Stage.FAST:
            drawn = await effects.replay(paid, self._embedder, part)
        else:
            styles = await ledger.read_styles(self._pool, part.job.thread_id)
            drawn = await effects.reflect(paid, self._embedder, part, styles=styles)
        return replace(
            drawn,
            cost=Cost(
                generate_calls=paid.calls,
                embed_calls=int(bool(drawn.memories or drawn.facts) and not drawn.vectorless),
                prompt_tokens=paid.usage.prompt_tokens,
                output_tokens=paid.usage.output_tokens,
                reused_replies=paid.reused,
            ),
        )

    async def _store(
        self, part: Slice, drawn: Effects, claim: JobClaim, before: Mapping[str, Any], *, ends: bool
    ) -> ConsolidationJob:
        """Write a stage's effects, its watermark and the job's result, all or nothing.

        Args:
            before: what an earlier stage of this job left in its result.
            ends: this is the job's last stage.
        """
        async with self._transaction() as connection:
            now = await connection.fetchval(
                _QUERIES["lock_slice"], part.job.thread_id, part.stage, part.after_seq, part.erasures
            )
            await claim.fence(connection)
            if now is None:
                await claim.finish(connection, _NO_THREAD)
                return replace(part.job, status=JobStatus.CANCELLED, result=_NO_THREAD)
            stored = await connection.fetchrow(
                _QUERIES["store_slice"],
                part.job.thread_id,
                part.stage,
                part.upto_seq,
                _origin(part, drawn),
                drawn.memories,
                drawn.message_vectors,
                drawn.facts,
                part.job.job_type if ends and not part.is_last else None,
                drawn.vectorless,
                *astuple(drawn.cost),
            )
            assert stored is not None  # noqa: S101  # the function returns one row or raises
            result = {**before, **_result(part, drawn, stored, before)}
            if drawn.proposals:
                proposed = await connection.fetchval(
                    _QUERIES["propose_instructions"], part.job.thread_id, _origin(part, drawn), drawn.proposals
                )
                result["proposals"] = [str(proposal) for proposal in proposed]
            if not ends:
                await connection.execute(_QUERIES["keep_job_result"], part.job.id, result)
                return replace(part.job, result=result)
            result = result or _NO_EVENTS
            await claim.finish(connection, result)
        return replace(part.job, status=JobStatus.COMPLETED, result=result, completed_at=now)

    async def _end_without_thread(self, claim: JobClaim) -> None:
        async with self._transaction() as connection:
            await claim.fence(connection)
            await claim.finish(connection, _NO_THREAD)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                # The pool's proxy has every method of the connection behind it.
                yield cast("Connection", connection)
        except asyncpg.PostgresError as error:
            known = from_postgres(error)
            if known is None:
                raise
            raise known from error


async def consolidate_thread(
    pool: Pool,
    thread_id: UUID,
    job_type: JobType | str = JobType.FULL_CONSOLIDATION,
    *,
    wait: bool = True,
    timeout_seconds: float = WAIT_SECONDS,
) -> ConsolidationJob:
    """Enqueue the consolidation of a thread and, if `wait`, wait until workers have done it.

    Returns:
        The last job that it took: long threads take one job per slice. Its status says how it ended; a failed one
        carries its error. Without `wait`, the pending job.

    Raises:
        UnknownJobTypeError: no such type; nothing was enqueued.
        SessionNotFoundError: no such thread; nothing was enqueued.
        TimeoutError: no worker did it in time; it stays enqueued.
    """
    job = await jobs.enqueue(pool, thread_id, job_type)
    return await jobs.wait(pool, job, timeout_seconds=timeout_seconds) if wait else job


def _origin(part: Slice, drawn: Effects) -> tuple[Any, ...]:
    """Provenance, as the SQL type slice_origin takes it."""
    if not part.turns:
        return (part.job.id, None, None, None, None, None)
    first, last = part.turns[0].sequence_num, part.turns[-1].sequence_num
    prompt_hash, model = (drawn.origin.prompt_hash, drawn.origin.model) if drawn.origin is not None else (None, None)
    return (part.job.id, first, last, prompt_hash, model, drawn.embedding_model)


def _result(part: Slice, drawn: Effects, stored: asyncpg.Record, before: Mapping[str, Any]) -> dict[str, Any]:
    """What a stage adds to its job's result; nothing where there was nothing to consolidate."""
    result: dict[str, Any] = {}
    if drawn.skipped is not None:
        skipped = [{"sequence_num": turn.sequence_num, "error_code": drawn.skipped} for turn in part.turns]
        result["skipped"] = [*before.get("skipped", ()), *skipped]
        if part.stage is Stage.FAST:
            result["episodic"] = {"memory_id": str(stored["memory_ids"][0])}
    elif part.turns and part.stage is Stage.FAST:
        summary_id, episodic_id = stored["memory_ids"]
        result["summary"] = effects.summary_result(drawn.memories[0][1], summary_id)
        result["episodic"] = {"memory_id": str(episodic_id)}
    elif part.turns:
        result["facts"] = [
            {"fact_id": str(fact_id), "key": fact[1], "outcome": outcome}
            for fact, fact_id, outcome in zip(drawn.facts, stored["fact_ids"], stored["fact_outcomes"], strict=True)
        ]
        result["insights"] = [
            {"memory_id": str(memory_id), "importance": memory[3]["importance"]}
            for memory, memory_id in zip(drawn.memories, stored["memory_ids"], strict=True)
        ]
    if stored["follow_up"] is not None:
        result["follow_up"] = str(stored["follow_up"])
    return result
