"""Consolidation: the entry point of the memory. A slice of conversation goes in, memories and facts come out.

    read      one statement; the connection goes back to the pool before a model is called
    derive    one generate call, one embedding call; both replies are kept until they are stored, so that a retry
              reuses them
    store     one transaction: lock the thread, compare the watermark, fence the job, write, end the job

A job may be delivered many times, and several attempts may run at once: the fence and the watermark admit the effects
of one of them. The transaction that ends a slice's job enqueues a job for the rest.

A generator that reads what is known of the user sees what the jobs before it have stored, even where jobs of the user's
sessions run at once: in one process they derive one after another; between processes, a job that finds at its end that
something else is known stores nothing, and derives again. No connection is held meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import UUID
from weakref import WeakValueDictionary

from hippocampus import jobs
from hippocampus.consolidation import isolation
from hippocampus.consolidation.derive import derive
from hippocampus.consolidation.effects import Cost, Effects, KnownFacts, SliceOrigin
from hippocampus.consolidation.replies import PaidReplies, PaidVectors, resumed
from hippocampus.consolidation.slices import (
    SLICE_TOKENS,
    Slice,
    Stage,
    read_known_facts,
    read_known_insights,
    read_slice,
)
from hippocampus.consolidation.statements import STATEMENTS
from hippocampus.errors import ProviderError, WatermarkMovedError
from hippocampus.facts import ledger
from hippocampus.providers.protocols import Embedder, Generator, reads_known_facts
from hippocampus.records import ConsolidationJob, JobStatus, JobType, MemoryType
from pulse.tracing.manager import current_tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from pulse.database import Connection, Pool

WAIT_SECONDS = 120.0
#: How often an attempt derives a slice, if what is known of the user changes each time; then the job is run again.
DERIVATIONS_MAX = 10
_SUMMARY_PREVIEW_CHARACTERS = 100
_NO_EVENTS = {"message": "No events to consolidate"}
_NO_THREAD = {"message": "The session was deleted"}


class JobClaim(Protocol):
    """One attempt's right to end a job. Both methods run inside the transaction that stores the job's effects.

    Attributes:
        is_last_attempt: a transport error would fail the job for good, since no attempts are left.
    """

    is_last_attempt: bool

    async def fence(self, connection: Connection) -> None:
        """Lock the job's row in the queue.

        Raises:
            JobFencedError: another attempt owns the job now.
        """

    async def finish(self, connection: Connection, result: Mapping[str, Any]) -> None:
        """End the job as completed, with this result. If the thread was deleted, so was the consolidation job."""


class _KnownFactsChangedError(Exception):
    """What is known of the user is not what the generator read; nothing was written."""


class MemoryConsolidationWorker:
    """Runs consolidation jobs, and enqueues them."""

    def __init__(
        self,
        pool: Pool,
        generator: Generator,
        embedder: Embedder,
        *,
        slice_tokens: int = SLICE_TOKENS,
        on_stored: Callable[[str, MemoryType, int], None] | None = None,
    ) -> None:
        """Consolidate on a pool.

        Args:
            slice_tokens: what one generate call reads at most, in estimated tokens; longer messages go in parts.
            on_stored: called after a commit with the app, a type of memory, and how many of it were stored.
        """
        if slice_tokens < 1:
            raise ValueError(f"slice_tokens must be at least 1, not {slice_tokens}")
        self._pool = pool
        self._generator = generator
        self._embedder = embedder
        self._slice_tokens = slice_tokens
        self._on_stored = on_stored
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def run(self, job_id: UUID, claim: JobClaim) -> ConsolidationJob | None:
        """Consolidate one slice for a job that this attempt has claimed, and end the job.

        A session that is deleted meanwhile is not an error: nothing is written, and the queue's job ends.

        Returns:
            The job as it is stored now. Its status is cancelled if the session was deleted during the call; None if it
            was deleted, with the job, before it.

        Raises:
            ProviderError: the generator failed; nothing was written.
            JobFencedError: another attempt owns the job now; nothing was written.
            WatermarkMovedError: another job consolidated this slice, or what is known of the user changed again and
                again; nothing was written, run again.
            EmbeddingDimensionError: the embedder's vectors are too long, or not of the dimensions of those stored of
                its model; nothing was written.
        """
        slice_ = await self._read(job_id)
        if slice_ is not None and slice_.stage is Stage.FAST and slice_.job.job_type is JobType.FULL_CONSOLIDATION:
            # The fast stage is committed before the deep one asks a model.
            job = await self._store(*await self._derive(slice_, claim), claim, {}, ends=False)
            if job.status is JobStatus.CANCELLED:
                return job
            slice_ = await self._read(job_id, Stage.DEEP)
        if slice_ is None:
            await self._end_without_thread(claim)
            return None
        async with self._turn_of(slice_):
            for _ in range(DERIVATIONS_MAX):
                try:
                    return await self._store(*await self._derive(slice_, claim), claim, slice_.job.result, ends=True)
                except _KnownFactsChangedError:
                    continue
        raise WatermarkMovedError(f"what is known of the user changed {DERIVATIONS_MAX} times")

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
        slice_ = await read_slice(self._pool, job_id, stage, slice_tokens=self._slice_tokens)
        if slice_ is None:
            return None
        current_tracing().annotate(**slice_.key._asdict())
        return resumed(slice_, self._generator, self._slice_tokens)

    def _turn_of(self, slice_: Slice) -> AbstractAsyncContextManager[object]:
        """Return what a job holds from when it reads what is known of its user until it has stored."""
        if slice_.stage is not Stage.DEEP or not reads_known_facts(self._generator):
            return nullcontext()
        return self._turns.setdefault((slice_.key.app_name, slice_.key.user_id), asyncio.Lock())

    async def _derive(self, slice_: Slice, claim: JobClaim) -> tuple[Slice, Effects]:
        """Ask the models about a slice; or about as much of it as they accept, if an earlier job failed on it."""
        try:
            return slice_, await self._ask(slice_)
        except ProviderError as error:
            is_last_attempt = claim.is_last_attempt
            if not slice_.is_stuck or isolation.is_to_be_retried(error, is_last_attempt=is_last_attempt):
                raise
            return await isolation.derive_beginning(
                self._ask, self._embedder, slice_, error, is_last_attempt=is_last_attempt
            )

    async def _ask(self, slice_: Slice) -> Effects:
        """Ask the models. No connection is held meanwhile."""
        if not slice_.turns:
            return Effects()
        replies = PaidReplies(self._pool, self._generator, slice_)
        deep = slice_.stage is Stage.DEEP
        thread_id = slice_.job.thread_id
        styles = await ledger.read_styles(self._pool, thread_id=thread_id) if deep else None
        facts = await read_known_facts(self._pool, self._generator, thread_id) if deep else ()
        compares = deep and replies.compares_insights
        insights = await read_known_insights(self._pool, thread_id, slice_.turns) if compares else ()
        derived = await derive(
            replies,
            PaidVectors(self._pool, self._embedder, self._generator, slice_),
            slice_.stage,
            slice_.turns,
            styles,
            facts,
            insights,
            slice_tokens=self._slice_tokens,
        )
        embed_calls = int(bool(derived.memories or derived.facts) and not derived.vectorless)
        cost = Cost(
            replies.calls, embed_calls, replies.usage.prompt_tokens, replies.usage.output_tokens, replies.reused
        )
        # What was paid for is stored as it is.
        is_free = not (cost.prompt_tokens or cost.output_tokens or cost.reused_replies)
        depends = deep and is_free and replies.reads_known_facts
        return replace(derived, cost=cost, known_facts=facts if depends else None)

    async def _store(
        self, slice_: Slice, derived: Effects, claim: JobClaim, before: Mapping[str, Any], *, ends: bool
    ) -> ConsolidationJob:
        """Write a stage's effects, its watermark and the job's result, all or nothing.

        Args:
            before: what an earlier stage of this job left in its result.
            ends: whether this is the job's last stage.
        """
        job, origin = slice_.job, _origin(slice_, derived)
        async with self._transaction() as connection:
            now = await STATEMENTS.fetchval(
                connection, "lock_slice", job.thread_id, slice_.stage, slice_.after_seq, slice_.erasures
            )
            await claim.fence(connection)
            if now is None:
                await claim.finish(connection, _NO_THREAD)
                return replace(job, status=JobStatus.CANCELLED, result=_NO_THREAD)
            if derived.known_facts is not None:
                await self._compare_known_facts(connection, slice_, derived.known_facts)
            stored = await STATEMENTS.fetch_one(
                connection,
                "store_slice",
                job.thread_id,
                slice_.stage,
                slice_.upto_seq,
                origin,
                derived.memories,
                derived.message_vectors,
                derived.facts,
                job.job_type if ends and not slice_.is_last else None,
                derived.vectorless,
                *derived.cost,
            )
            result = {**before, **_result(slice_, derived, stored, before)}
            if any(derived.cost):
                spent = before.get("cost", {})
                counts = {name: count + spent.get(name, 0) for name, count in derived.cost._asdict().items()}
                result["cost"] = {**counts, "model": origin.model}
            if derived.proposals:
                proposed = await STATEMENTS.fetchval(
                    connection, "propose_instructions", job.thread_id, origin, derived.proposals
                )
                result["proposals"] = [str(proposal) for proposal in proposed]
            if ends:
                result = result or _NO_EVENTS
                await claim.finish(connection, result)
            else:
                await STATEMENTS.execute(connection, "keep_job_result", job.id, result)
        if self._on_stored is not None:
            for memory_type, count in Counter(each.memory_type for each in derived.memories).items():
                self._on_stored(slice_.key.app_name, memory_type, count)
        if not ends:
            return replace(job, result=result)
        return replace(job, status=JobStatus.COMPLETED, result=result, completed_at=now)

    async def _compare_known_facts(self, connection: Connection, slice_: Slice, read: KnownFacts) -> None:
        """Keep what is known of the user as it is until the transaction ends, if it is what the generator read."""
        # In a statement of its own: one sees what was committed before it began, not while it waited.
        await STATEMENTS.execute(connection, "lock_user_memory", slice_.key.app_name, slice_.key.user_id)
        if await read_known_facts(connection, self._generator, slice_.job.thread_id) != read:
            raise _KnownFactsChangedError

    async def _end_without_thread(self, claim: JobClaim) -> None:
        async with self._transaction() as connection:
            await claim.fence(connection)
            await claim.finish(connection, _NO_THREAD)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        with STATEMENTS.translating():
            async with self._pool.acquire() as connection, connection.transaction():
                # The pool's proxy delegates every method to the connection.
                yield cast("Connection", connection)


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
        The last job that it took, since a long thread takes one job per slice; its status says how it ended, and a
        failed one carries its error. Without `wait`, the pending job.

    Raises:
        UnknownJobTypeError: there is no such type; nothing was enqueued.
        SessionNotFoundError: there is no such thread; nothing was enqueued.
        TimeoutError: no worker did it in time; it stays enqueued.
    """
    job = await jobs.enqueue(pool, thread_id, job_type)
    return await jobs.wait(pool, job, timeout_seconds=timeout_seconds) if wait else job


def _origin(slice_: Slice, derived: Effects) -> SliceOrigin:
    turns = slice_.turns
    bounds = (turns[0].sequence_num, turns[-1].sequence_num) if turns else (None, None)
    return derived.slice_origin(slice_.job.id, *bounds)


def _result(slice_: Slice, derived: Effects, stored: asyncpg.Record, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a stage adds to its job's result; nothing if there was nothing to consolidate."""
    result: dict[str, Any] = {}
    if derived.skipped is not None:
        skipped = [{"sequence_num": turn.sequence_num, "error_code": derived.skipped} for turn in slice_.turns]
        result["skipped"] = [*before.get("skipped", ()), *skipped]
        if slice_.stage is Stage.FAST:
            result["episodic"] = {"memory_id": str(stored["memory_ids"][0])}
    elif slice_.turns and slice_.stage is Stage.FAST:
        summary_id, episodic_id = stored["memory_ids"]
        result["summary"] = {"memory_id": str(summary_id), "content": _preview(derived.memories[0].content)}
        result["episodic"] = {"memory_id": str(episodic_id)}
    elif slice_.turns:
        result["facts"] = [
            {"fact_id": None if fact_id is None else str(fact_id), "key": fact.key, "outcome": outcome}
            for fact, fact_id, outcome in zip(derived.facts, stored["fact_ids"], stored["fact_outcomes"], strict=True)
        ]
        result["insights"] = [
            {"memory_id": str(memory_id), "importance": memory.metadata["importance"]}
            for memory, memory_id in zip(derived.memories, stored["memory_ids"], strict=True)
        ]
    if stored["follow_up"] is not None:
        result["follow_up"] = str(stored["follow_up"])
    return result


def _preview(summary: str) -> str:
    shown = summary[:_SUMMARY_PREVIEW_CHARACTERS]
    return shown + ("..." if len(summary) > len(shown) else "")
