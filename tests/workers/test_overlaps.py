"""Jobs of one user's sessions that run at once, with a generator that reads what is known of the user: each stores what
it would have stored after the one that ended before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import asyncpg
import pytest

from hippocampus import consolidation_worker
from hippocampus.by_hand import GivenFact, MemoryEditor
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import WatermarkMovedError
from hippocampus.records import ConversationSlice, ExtractedFact, Reflection, Usage
from tests.support import worker_harness as harness
from tests.support.lock_gates import WAITING
from tests.support.queue_claims import claim_next
from tests.support.real_worker import PRODUCT
from tests.support.scripted_provider import Gate, ScriptedEmbedder, ScriptedGenerator
from tests.support.waiting import until
from tests.support.worker_harness import Workers

APP, USER = "app", "user"
DOG = GivenFact(
    fact_type="profile", key="pet:dog_called_rex", value={"subject": "user", "text": "has a dog called Rex"}
)
LOCAL = {"provider": "local", "metrics_host": "127.0.0.1"}
CURRENT = "SELECT key FROM facts WHERE valid_until IS NULL OR valid_until > now()"
LOCKS = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def say(pool: asyncpg.Pool, session: str, text: str) -> UUID:
    """A session of one turn, without a job."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    await pool.execute("SELECT create_session($1, $2, $3)", APP, USER, session)
    append = "SELECT append_event($1, $2, $3, NULL, 'e1', 'user', 'message', $4, 'user', $5)"
    await pool.execute(append, APP, USER, session, json.dumps({"text": text}), text)
    thread: UUID = await pool.fetchval("SELECT id FROM threads WHERE session_id = $1", session)
    return thread


async def current(pool: asyncpg.Pool) -> set[str]:
    return {row["key"] for row in await pool.fetch(CURRENT)}


async def until_waiting(pool: asyncpg.Pool, count: int) -> None:
    async def are_waiting() -> bool:
        return bool(await pool.fetchval(WAITING) == count)

    await until(are_waiting, f"{count} sessions wait for a lock")


async def ended(pool: asyncpg.Pool, *jobs: UUID) -> None:
    """Wait until jobs are completed, each at its first attempt and with nothing kept from it."""
    for job in jobs:
        await harness.wait_for_status(pool, job, "completed")
        assert await pool.fetchval("SELECT attempts FROM consolidation_jobs WHERE id = $1", job) == 1
    assert await pool.fetchval("SELECT max(attempts) FROM procrastinate_jobs") == 1


@pytest.mark.parametrize("job_type", ["deep_reflection", "full_consolidation"])
async def test_a_job_sees_the_facts_of_one_that_ended_while_it_ran(
    pool: asyncpg.Pool, workers: Workers, job_type: str
) -> None:
    """In two processes, both have read what is known, and derived, before either stores: the second ends what the first
    has stated."""
    stated = await say(pool, "first", "I work as a nurse.")
    changed = await say(pool, "second", "I quit nursing and now I drive trams.")
    for _ in range(2):
        await workers.start("deep_reflection", module=PRODUCT, deep_reflection_concurrency="1", **LOCAL)
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT lock_user_memory($1, $2)", APP, USER)
        jobs = [await harness.enqueue(pool, stated, "deep_reflection")]
        await until_waiting(pool, 1)
        jobs.append(await harness.enqueue(pool, changed, job_type))
        await until_waiting(pool, 2)
    await ended(pool, *jobs)
    assert await current(pool) == {"work_change:quit_nursing"}
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE embedding IS NULL") == 0
    history = await pool.fetch("SELECT value IS NULL AS ends FROM fact_versions WHERE key = 'occupation' ORDER BY id")
    assert [row["ends"] for row in history] == [False, True]


@pytest.mark.parametrize("change", ["remember", "retire"])
async def test_a_job_sees_what_a_person_changed_while_it_ran(pool: asyncpg.Pool, workers: Workers, change: str) -> None:
    """'Rex' is the dog that the person told of meanwhile; or nobody's, once the dog is retired."""
    editor = MemoryEditor(pool)
    thread = await say(pool, "s", "Rex died last week.")
    if change == "retire":
        (dog,) = (await editor.remember(APP, USER, DOG)).ids
    await workers.start("deep_reflection", module=PRODUCT, **LOCAL)
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT lock_user_memory($1, $2)", APP, USER)
        edit = editor.remember(APP, USER, DOG) if change == "remember" else editor.retire(APP, USER, dog)
        editing = asyncio.create_task(edit)
        await until_waiting(pool, 1)
        job = await harness.enqueue(pool, thread, "deep_reflection")
        await until_waiting(pool, 2)
    assert (await editing).changed
    await ended(pool, job)
    loss = {"remember": {"family:dog:loss", DOG.key}, "retire": {"family:rex:rex:loss"}}
    assert await current(pool) == loss[change]
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE key LIKE '%loss' AND embedding IS NULL") == 0


@dataclass
class Reader(ScriptedGenerator):
    """A generator that is given what is known, and whose replies cost `tokens`."""

    tokens: int = 0
    reads_known_facts: bool = True
    known: list[set[str]] = field(default_factory=list)

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        self.known += [{fact.key for fact in slice_.known_facts} for slice_ in slices]
        replies = await super().reflect(slices)
        return [replace(reply, usage=Usage(prompt_tokens=self.tokens)) for reply in replies]


async def started(pool: asyncpg.Pool, session: str) -> Callable[[MemoryConsolidationWorker], Awaitable[object]]:
    """A session of one turn whose job is claimed; returned is what runs it."""
    await harness.enqueue(pool, await say(pool, session, "My name is Mei."), "deep_reflection")
    claim = await claim_next(pool)
    assert claim is not None
    assert claim.job_id is not None
    job_id = claim.job_id
    return lambda worker: worker.run(job_id, claim)


async def overlapped(
    pool: asyncpg.Pool, generator: ScriptedGenerator, meanwhile: Callable[[], Awaitable[object]]
) -> None:
    """Run a job during whose call something happens."""
    run = await started(pool, "s")
    generator.during = gate = Gate()
    running = asyncio.ensure_future(run(MemoryConsolidationWorker(pool, generator, ScriptedEmbedder())))
    await gate.reached.wait()
    await meanwhile()
    gate.open.set()
    await running
    assert await pool.fetchval("SELECT status FROM consolidation_jobs") == "completed"


def name(key: str = "name") -> ExtractedFact:
    return ExtractedFact(fact_type="profile", key=key, value="Mei", confidence=0.9, source_seqs=(1,))


@pytest.mark.parametrize("tokens", [None, 7])
async def test_a_generator_that_is_paid_or_reads_nothing_known_is_asked_once(
    pool: asyncpg.Pool, tokens: int | None
) -> None:
    """The generator does not read it, or its reply was paid for."""
    again = [([name()], [])] * 2
    generator = ScriptedGenerator(reflections=again) if tokens is None else Reader(reflections=again, tokens=tokens)
    await overlapped(pool, generator, lambda: MemoryEditor(pool).remember(APP, USER, DOG))
    assert len(generator.slices) == 1
    assert await current(pool) == {DOG.key, "name"}


async def test_what_changes_nothing_that_is_known_derives_nothing_again(pool: asyncpg.Pool) -> None:
    """A memory of the user is not a fact, and another user's fact is not this one's."""
    generator = Reader(reflections=[([name()], [])] * 2)

    async def meanwhile() -> None:
        await MemoryEditor(pool).remember(APP, USER, "Mei likes tea.")
        await MemoryEditor(pool).remember(APP, "another", DOG)

    await overlapped(pool, generator, meanwhile)
    assert generator.known == [set()]


async def test_jobs_of_one_process_derive_one_after_another(pool: asyncpg.Pool) -> None:
    """The second reads what the first has stored, so neither derives twice."""
    runs = [await started(pool, session) for session in ("first", "second")]
    generator = Reader(reflections=[([name()], []), ([name("nickname")], [])])
    generator.during = gate = Gate()
    worker = MemoryConsolidationWorker(pool, generator, ScriptedEmbedder())
    running = [asyncio.ensure_future(run(worker)) for run in runs]
    await gate.reached.wait()
    gate.open.set()
    await asyncio.gather(*running)
    assert generator.known == [set(), {"name"}]
    assert await current(pool) == {"name", "nickname"}


async def test_a_job_that_is_overtaken_each_time_is_run_again(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the queue, which does not count it as a failure; nothing of it is stored, and no connection is held."""
    monkeypatch.setattr(consolidation_worker, "DERIVATIONS_MAX", 2)
    run = await started(pool, "s")
    generator = Reader(reflections=[([name()], [])] * 2)
    held: list[int] = []

    async def overtake() -> None:
        held.append(await pool.fetchval(LOCKS))
        await MemoryEditor(pool).remember(APP, USER, replace(DOG, key=f"pet:{len(generator.known)}"))

    generator.during = overtake
    with pytest.raises(WatermarkMovedError, match="what is known of the user changed 2 times"):
        await run(MemoryConsolidationWorker(pool, generator, ScriptedEmbedder()))
    assert [len(known) for known in generator.known] == [0, 1]
    assert held == [0, 0]
    assert await current(pool) == {"pet:1", "pet:2"}
