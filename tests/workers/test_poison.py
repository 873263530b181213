"""A conversation that always fails: others are not affected, and its own later events become memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import CallPostponedError, PermanentProviderError, ProviderError, TransientProviderError
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.records import ConsolidationJob, ConversationSlice, JobStatus, Reflection, Summary
from pulse.events import Event
from pulse.postgres.statements import load_queries
from pulse.session_service import OpenSessionService
from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.queue_claims import RowClaim, claim_next
from tests.support.scraping import scrape, targets
from tests.support.scripted_provider import ScriptedGenerator
from tests.support.waiting import until
from tests.support.worker_harness import Workers

CLAIMS = load_queries("workers.queue", "claims.sql")
POISON = "arsenic"


class Refusing(ScriptedGenerator):
    """Refuses every slice with the poison; refuses everything if `down` is set."""

    down: ProviderError | None = None
    faulty: str | None = None  # the transport fails for a slice that consists of this turn only

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        self._refuse(slices)
        return await super().summarize(slices)

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        self._refuse(slices)
        return await super().reflect(slices)

    def _refuse(self, slices: Sequence[ConversationSlice]) -> None:
        self.slices.extend(slices)
        if self.down is not None:
            raise self.down
        if self.faulty is not None and any([turn.text for turn in slice_.turns] == [self.faulty] for slice_ in slices):
            raise TransientProviderError("the line broke", code="503")
        if any(POISON in turn.text for slice_ in slices for turn in slice_.turns):
            raise PermanentProviderError("no", code="400")


async def say(pool: asyncpg.Pool, *texts: str, session_id: str = "s1") -> UUID:
    sessions = OpenSessionService(pool)
    found = await sessions.get_session("app", "user", session_id)
    found = found or await sessions.create_session("app", "user", session_id=session_id)
    await sessions.append("app", "user", session_id, [Event(author="user", content={"text": text}) for text in texts])
    return found.thread_id


async def run_next(pool: asyncpg.Pool, generator: Refusing, job_type: str) -> ConsolidationJob | ProviderError | None:
    """Run the next job as a pool does, but fail it permanently on an error. None if none is waiting."""
    claim = await claim_next(pool, ["fast_replay", "deep_reflection"])
    if claim is None:
        return None
    try:
        job = await MemoryConsolidationWorker(pool, generator, LocalEmbedder()).run(_job(claim), claim)
    except ProviderError as error:
        attempt = (claim.queued_id, claim.worker_id, claim.attempts)
        await pool.execute(CLAIMS["fail_job"], *attempt, str(error), error.code, error.raw_reply)
        return error
    assert job is not None
    assert job.job_type == job_type
    return job


def _job(claim: RowClaim) -> UUID:
    assert claim.job_id is not None
    return claim.job_id


async def enqueue(pool: asyncpg.Pool, thread: UUID, job_type: str) -> None:
    await pool.execute("SELECT enqueue_consolidation($1, $2)", thread, job_type)


@pytest.mark.parametrize("job_type", ["fast_replay", "deep_reflection", "full_consolidation"])
async def test_later_events_get_past_a_turn_that_the_model_refuses(pool: asyncpg.Pool, job_type: str) -> None:
    """The first job fails; those of later events store all but that turn, report it, and make few model calls."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    thread = await say(pool, *(f"well {n}" for n in range(9)), f"some {POISON}", *(f"so {n}" for n in range(6)))
    generator = Refusing()
    await enqueue(pool, thread, job_type)
    assert isinstance(await run_next(pool, generator, job_type), PermanentProviderError)
    assert await run_next(pool, generator, job_type) is None
    await say(pool, "and then")
    await enqueue(pool, thread, job_type)
    generator.slices.clear()
    skipped: list[dict[str, Any]] = []
    for _ in range(20):
        job = await run_next(pool, generator, job_type)
        if job is None:
            break
        assert isinstance(job, ConsolidationJob)
        assert job.status is JobStatus.COMPLETED
        skipped += job.result.get("skipped", [])
    stages = {"fast_replay": ["fast"], "deep_reflection": ["deep"]}.get(job_type, ["fast", "deep"])
    assert skipped == [{"sequence_num": 10, "error_code": "400"}] * len(stages)
    assert len(generator.slices) <= 40 * len(stages)
    for stage in stages:
        assert await pool.fetchval(f"SELECT {stage}_upto_seq = last_seq FROM threads")
    if "fast" in stages:
        seqs = await pool.fetchval("SELECT array_agg(s ORDER BY s) FROM memories, unnest(source_seqs) AS s "
                                   "WHERE memory_type = 'episodic'")  # fmt: skip
        assert seqs == list(range(1, 18))
        summarised = await pool.fetchval("SELECT array_agg(s ORDER BY s) FROM memories, unnest(source_seqs) AS s "
                                         "WHERE memory_type = 'summary'")  # fmt: skip
        assert summarised == [seq for seq in range(1, 18) if seq != 10]
    # The failed job is still there for inspection.
    assert await pool.fetchval("SELECT count(*) FROM consolidation_jobs WHERE status = 'failed'") == 1


@pytest.mark.parametrize(
    "down",
    [
        PermanentProviderError("the key is not valid", code="400"),
        CallPostponedError("nobody may call", code="limited", retry_after_seconds=9),
    ],
)
async def test_no_turn_is_skipped_while_the_model_refuses_everything(pool: asyncpg.Pool, down: ProviderError) -> None:
    """A wrong key refuses everything: the next job fails like the first, and no event is skipped."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    thread = await say(pool, "well", "so")
    generator = Refusing()
    generator.down = down
    for _ in range(2):
        await enqueue(pool, thread, "fast_replay")
        assert await run_next(pool, generator, "fast_replay") is down
        await say(pool, "and then")
    assert await pool.fetchval("SELECT fast_upto_seq FROM threads") == 0
    assert await harness.count(pool, "memories") == 0


async def test_a_transport_fault_is_retried_and_not_a_refusal(pool: asyncpg.Pool) -> None:
    """A healthy turn next to a refused one is not skipped if the connection drops: the job is retried, and extracts
    from it. Only a turn that drops the connection at the job's last attempt too is skipped."""
    await pool.execute("UPDATE app_policies SET consolidate = false")
    thread = await say(pool, "well", POISON)
    generator = Refusing()
    await enqueue(pool, thread, "fast_replay")
    assert isinstance(await run_next(pool, generator, "fast_replay"), PermanentProviderError)
    await say(pool, "and then")
    await enqueue(pool, thread, "fast_replay")
    claim = await claim_next(pool, ["fast_replay"])
    assert claim is not None
    worker = MemoryConsolidationWorker(pool, generator, LocalEmbedder())
    generator.faulty = "well"
    with pytest.raises(TransientProviderError):
        await worker.run(_job(claim), claim)
    assert await pool.fetchval("SELECT fast_upto_seq FROM threads") == 0
    generator.faulty = None
    job = await worker.run(_job(claim), claim)
    assert job is not None
    assert (job.status, job.result.get("skipped")) == (JobStatus.COMPLETED, None)
    assert await pool.fetchval("SELECT source_seqs FROM memories WHERE memory_type = 'summary'") == [1]

    generator.faulty = POISON
    claim = await claim_next(pool, ["fast_replay"])
    assert claim is not None
    with pytest.raises(TransientProviderError):
        await worker.run(_job(claim), claim)
    claim.is_last_attempt = True
    job = await worker.run(_job(claim), claim)
    assert job is not None
    assert job.result["skipped"] == [{"sequence_num": 2, "error_code": "503"}]


async def test_poison_stops_neither_other_sessions_nor_its_own_later_events(
    pool: asyncpg.Pool, workers: Workers
) -> None:
    """Real workers: one conversation is refused for its content, one drops the connection each
    time; two are healthy."""
    async with FakeGemini() as gemini:
        gemini.poison(POISON, "status", code=400)
        gemini.poison("cyanide", "status", code=500)
        settings = {
            "provider": "gemini",
            "provider_api_key": "AIza-not-a-key-0123456789abcdefghij",
            "provider_base_url": gemini.base_url,
            "provider_attempts_max": "1",
            "job_attempts_max": "3",
        }
        for role in ("fast_replay", "deep_reflection"):
            await workers.start(role, module="workers.worker", **settings)
        bad = {"arsenic": POISON, "cyanide": "cyanide"}
        for session_id, word in {**bad, "first": "tea", "second": "jam"}.items():
            await say(pool, "I like plums.", f"I love {word}.", session_id=session_id)
            await pool.execute("SELECT finalize_session('app', 'user', $1)", session_id)

        async def settled() -> bool:
            rows = await pool.fetch(
                "SELECT t.session_id, j.status FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id"
            )
            return len(rows) == 8 and all(
                row["status"] == ("failed" if row["session_id"] in bad else "completed") for row in rows
            )

        await until(settled)
        for session_id in bad:
            await say(pool, "I live in Bruges.", session_id=session_id)
            await pool.execute("SELECT finalize_session('app', 'user', $1)", session_id)

        async def consolidated() -> bool:
            return bool(
                await pool.fetchval(
                    "SELECT bool_and(fast_upto_seq = last_seq AND deep_upto_seq = last_seq) FROM threads"
                )
            )

        await until(consolidated)
        found = await targets(pool)

        async def counted(role: str) -> bool:
            return (await scrape(found[role][0]))["consolidation_turns_skipped_total",] == 2

        for role in ("fast_replay", "deep_reflection"):
            await until(lambda role=role: counted(role), f"{role} has counted both turns")  # after their commit
    assert await pool.fetchval("SELECT value FROM facts WHERE key = 'home_city'") == "Bruges"
    failed = "SELECT error_code FROM consolidation_jobs WHERE status = 'failed' ORDER BY 1"
    assert [row["error_code"] for row in await pool.fetch(failed)] == ["400", "400", "500", "500"]
