"""Everything that may happen to sessions and their jobs at any time, as acts that take a pool and a
random generator."""

from __future__ import annotations

import asyncio
import datetime
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
from procrastinate.jobs import Job

from hippocampus.consolidation.backfill import backfill_embeddings
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import JobFencedError, TransientProviderError, WatermarkMovedError
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import (
    ConversationSlice,
    ExtractedFact,
    Origin,
    Reflection,
    Summary,
    Vector,
)
from pulse.postgres.statements import load_queries
from workers.queue import liveness
from workers.queue.claims import JobClaim

CLAIMS = load_queries("workers.queue", "claims.sql")
UPKEEP = load_queries("workers.queue", "upkeep.sql")
SESSIONS = 5
AGES = datetime.timedelta(0)
ORIGIN = Origin(provider="lock", model="lock", prompt_hash="0" * 64)
Act = Callable[[asyncpg.Pool, random.Random], Awaitable[object]]


@dataclass(slots=True)
class Gossip:
    """A model that extracts the same few facts from every session, some twice in one reply."""

    rng: random.Random
    name: str = "gossip"
    fingerprint: str = "gossip"

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        return [Summary(text="They spoke.", origin=ORIGIN) for _ in slices]

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        return [Reflection(facts=self._facts(slice_), insights=(), origin=ORIGIN) for slice_ in slices]

    async def close(self) -> None: ...

    def _facts(self, slice_: ConversationSlice) -> tuple[ExtractedFact, ...]:
        seq = slice_.turns[-1].sequence_num
        return tuple(
            ExtractedFact(
                fact_type="preference",
                key=self.rng.choice("abc"),
                value=self.rng.choice(("tea", "jam")),
                confidence=self.rng.choice((0.7, 0.9)),
                source_seqs=(seq,),
            )
            for _ in range(4)
        )


@dataclass(slots=True)
class FlatEmbedder:
    """Returns vectors immediately; one call in three fails, so that the backfill has work."""

    rng: random.Random
    model: str = "flat"

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        if task == "document" and self.rng.random() < 0.3:
            raise TransientProviderError("down")
        return [[1.0] * 384 for _ in texts]

    async def close(self) -> None: ...


def session(rng: random.Random) -> str:
    return f"s{rng.randrange(SESSIONS)}"


async def append(pool: asyncpg.Pool, rng: random.Random) -> None:
    """Append one event with a delta for each scope; create the session if it does not exist."""
    chosen = session(rng)
    delta = json.dumps({"a": 1})
    try:
        await pool.execute(
            "SELECT append_event('app', 'user', $1, NULL, $2, 'user', 'message', '{}', 'user', 'well', $3::text::jsonb,"
            " $3::text::jsonb, $3::text::jsonb)",
            chosen,
            str(uuid4()),
            delta,
        )
    except asyncpg.PostgresError as error:
        if error.sqlstate != "HP001":
            raise
        await pool.execute("SELECT create_session('app', 'user', $1)", chosen)


async def attempt(pool: asyncpg.Pool) -> tuple[tuple[int, int, int], UUID | None] | None:
    """Fetch a job as a new worker: the attempt, and its consolidation job."""
    worker = await pool.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    try:
        row = await pool.fetchrow(
            "SELECT id, worker_id, attempts, args FROM procrastinate_fetch_job_v2(NULL, $1)", worker
        )
    except asyncpg.UniqueViolationError:
        # At the same time another fetch took an older job of the same lock, one that was run again by hand.
        return None
    if row["id"] is None:
        return None
    job_id = row["args"].get("job_id")
    return (row["id"], row["worker_id"], row["attempts"]), UUID(job_id) if job_id else None


async def consolidate(pool: asyncpg.Pool, rng: random.Random) -> None:
    """Run a real job, from its slice to its end; or the backfill."""
    taken = await attempt(pool)
    if taken is None:
        return
    (queued, worker, before), job_id = taken
    if job_id is None:
        await backfill(pool, rng)
        await pool.execute(CLAIMS["finish_job"], queued, worker, before, None)
        return
    job = cast(Job, SimpleNamespace(id=queued, worker_id=worker, attempts=before))
    try:
        await MemoryConsolidationWorker(pool, Gossip(rng), FlatEmbedder(rng)).run(job_id, JobClaim(job))
    except (JobFencedError, WatermarkMovedError):
        # Cancelled, rescued, or another job was faster: the rescue gives it back.
        return


async def backfill(pool: asyncpg.Pool, rng: random.Random) -> None:
    try:
        await backfill_embeddings(pool, FlatEmbedder(rng))
    except TransientProviderError:
        return


async def fail(pool: asyncpg.Pool, _rng: random.Random) -> None:
    taken = await attempt(pool)
    if taken is not None:
        await pool.execute(CLAIMS["fail_job"], *taken[0], "x", "503", None)


async def delete(pool: asyncpg.Pool, rng: random.Random) -> None:
    await pool.execute("SELECT delete_session('app', 'user', $1)", session(rng))


async def finalise(pool: asyncpg.Pool, rng: random.Random) -> None:
    await pool.execute("SELECT finalize_session('app', 'user', $1)", session(rng))


async def idle(pool: asyncpg.Pool, _rng: random.Random) -> None:
    """Every timer is due at once."""
    await pool.execute(
        "UPDATE threads SET fast_due_at = now(), deep_due_at = now(), last_event_at = now() - interval '1 day'"
        " WHERE id = (SELECT id FROM threads ORDER BY random() LIMIT 1)"
    )
    await pool.execute(UPKEEP["enqueue_idle"])


async def archive(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.fetchval(UPKEEP["archive_jobs"], AGES, AGES, 20)


async def prune(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.fetchval(UPKEEP["prune_queue"], AGES, 20)


async def clean_up(pool: asyncpg.Pool, _rng: random.Random) -> None:
    """Run a clean-up for which every memory is too weak."""
    await pool.execute("SELECT archive_weak_memories(p_threshold => 1, p_min_age_days => 0, p_decay_rate => 100)")


async def erase(pool: asyncpg.Pool, rng: random.Random) -> None:
    """Erase an event."""
    await pool.execute(
        "SELECT erase_events('app', 'user', $1, ARRAY[$2::bigint], NULL)", session(rng), rng.randrange(1, 9)
    )


async def forget(pool: asyncpg.Pool, rng: random.Random) -> None:
    """Erase a session, and now and then a step of a user."""
    if rng.random() < 0.8:
        await pool.execute("SELECT erase_session('app', 'user', $1)", session(rng))
    else:
        await pool.execute("SELECT advance_erasure(r.id, 10) FROM request_user_erasure('app', 'user') AS r")


async def access(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.execute("SELECT record_memory_access(ARRAY(SELECT id FROM memories ORDER BY random() LIMIT 10))")


async def reconcile(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.fetchval("SELECT reconcile_jobs(500, 0)")


async def rescue(pool: asyncpg.Pool, _rng: random.Random) -> None:
    """Every worker counts as dead: no process holds a lock."""
    async with pool.acquire() as connection:
        suspects, *_ = await liveness.poll(connection, frozenset())
        await liveness.poll(connection, suspects)


async def cancel(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.execute("SELECT cancel_job(id) FROM (SELECT id FROM consolidation_jobs ORDER BY random() LIMIT 1) AS j")


async def retry(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.execute(
        "SELECT retry_failed_job(id) FROM"
        " (SELECT id FROM consolidation_jobs WHERE status = 'failed' ORDER BY random() LIMIT 1) AS j"
    )


async def execute(pool: asyncpg.Pool, rng: random.Random) -> None:
    """Execute a run with state for every scope, and its heartbeat meanwhile."""
    run_id = str(uuid4())
    delta = {"n": rng.randrange(9)}
    row = await pool.fetchrow(
        """SELECT (s.run).id FROM start_run('app', 'user', $1, $2, 'holder', 3600, ARRAY[ROW($2 || '-a', 'user',
           'user_message', $2, '{}', '{}', $3, $3, $3, 'user', 'well', NULL)::event_input]) AS s""",
        session(rng),
        run_id,
        delta,
    )
    assert row is not None
    beats = pool.fetch("SELECT status FROM renew_runs('holder', (SELECT array_agg(id) FROM runs), 3600)")
    end = pool.execute(
        """SELECT FROM end_run('app', $1, 'holder', 'completed', ARRAY[ROW($1 || '-z', 'system', 'complete', $1,
           '{}', '{}', $2, $2, $2, NULL, NULL, NULL)::event_input])""",
        run_id,
        delta,
    )
    for outcome in await asyncio.gather(beats, end, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def reap(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.execute(
        "UPDATE runs SET lease_until = now() - interval '1 s' WHERE id IN"
        " (SELECT id FROM runs WHERE status = 'running' ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED)"
    )
    await pool.fetchval("SELECT reap_runs(3)")


async def stop(pool: asyncpg.Pool, _rng: random.Random) -> None:
    await pool.execute(
        "SELECT request_cancel('app', 'user', run_id) FROM (SELECT run_id FROM runs ORDER BY random() LIMIT 1) AS r"
    )


#: Each with the frequency of its occurrences here.
ACTS: tuple[Act, ...] = (
    append, append, append, append, consolidate, consolidate, consolidate, consolidate, fail, delete, finalise, idle,
    archive, prune, clean_up, erase, forget, access, backfill, reconcile, rescue, cancel, retry,
    execute, execute, reap, stop,
)  # fmt: skip


async def sqlstate_of(act: Awaitable[Any]) -> str | None:
    """Await an act; return the SQLSTATE of its refusal, or None."""
    try:
        await act
    except asyncpg.PostgresError as error:
        return error.sqlstate
    except Exception as error:
        cause = error.__cause__
        if isinstance(cause, asyncpg.PostgresError):
            return cause.sqlstate
        raise
    return None
