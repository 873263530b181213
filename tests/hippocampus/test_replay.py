"""Replay: re-extract, show the difference, swap atomically; no call is repeated, and no running job is disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hippocampus.consolidation.replay import MemoryReplay, ReplayReport
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.erasure.service import ErasureService
from hippocampus.errors import ReplayOvertakenError, TransientProviderError
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.gemini.provider import GeminiConnection, GeminiEmbedder, GeminiGenerator
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.records import ExtractedFact, ExtractedInsight
from pulse.errors import SessionNotFoundError
from pulse.session_service import OpenSessionService
from tests.support import cli_process
from tests.support.fake_gemini import FakeGemini
from tests.support.forked import ForkedProcess
from tests.support.lock_gates import until_one_waits_for_a_lock
from tests.support.memory_rows import APP, say
from tests.support.queue_claims import claim_next, work_off
from tests.support.scripted_provider import ScriptedEmbedder, ScriptedGenerator
from tests.support.waiting import WAIT_SECONDS

USER = "ann"
# Backends whose last statement is a swap; their client may be gone. Not the ones that asked this question.
SWAPS = """SELECT count(*) FROM pg_stat_activity
           WHERE query LIKE '%swap_replay($1)%' AND query NOT LIKE '%pg_stat_activity%'
             AND datname = current_database() AND pid <> pg_backend_pid()"""
TABLES = ("memories", "facts", "fact_versions", "threads", "messages")


async def everything(pool: asyncpg.Pool) -> dict[str, list[Any]]:
    """Every row that a replay could change."""
    return {name: [tuple(row) for row in await pool.fetch(f"SELECT * FROM {name} ORDER BY 1")] for name in TABLES}


async def consolidate(pool: asyncpg.Pool, generator: Any, embedder: Any, *session_ids: str) -> None:
    worker = MemoryConsolidationWorker(pool, generator, embedder)
    for session_id in session_ids:
        thread = await pool.fetchval("SELECT id FROM threads WHERE session_id = $1", session_id)
        await worker.consolidate(thread, wait=False)
    await work_off(pool, worker)


def reflection(home: str, *insights: str, seq: int = 1) -> tuple[list[ExtractedFact], list[ExtractedInsight]]:
    fact = ExtractedFact(fact_type="profile", key="home_city", value=home, confidence=0.9, source_seqs=(seq,))
    return [fact], [ExtractedInsight(content=text, importance="low", source_seqs=(seq,)) for text in insights]


def contents(report: ReplayReport, change: str, kind: str) -> list[str]:
    return sorted(each.content for each in report.changes if each.change == change and each.kind == kind)


async def test_a_diff_changes_nothing_and_the_swap_applies_the_diff(pool: asyncpg.Pool) -> None:
    """The new prompts read another home and another insight; unchanged results keep their rows."""
    await say(pool, USER, "s", "I live in Lyon", "It is nice")
    old = ScriptedGenerator(reflections=[reflection("Lyon", "Likes walks.", "Is new in town.")])
    await consolidate(pool, old, ScriptedEmbedder(), "s")
    kept = await pool.fetchval("UPDATE memories SET access_count = 7 WHERE content = 'Likes walks.' RETURNING id")
    before = await everything(pool)

    new = ScriptedGenerator(summary="Better.", reflections=[reflection("Lyons", "Likes walks.", "Moved lately.")])
    replay = MemoryReplay(pool, new, ScriptedEmbedder())
    shown = await replay.replay(APP, USER, "s")
    assert await everything(pool) == before
    assert (shown.applied, shown.slices, len(new.slices)) == (False, 2, 2)
    assert shown.counts == {"added": 3, "dropped": 3, "kept": 2}
    assert contents(shown, "dropped", "semantic") == ["Is new in town."]
    assert contents(shown, "added", "summary") == ["Better."]
    assert [(f.key, f.before, f.after) for f in shown.facts] == [("home_city", "Lyon", "Lyons")]

    known = await pool.fetchval("SELECT clock_timestamp()")
    done = await replay.replay(APP, USER, "s", apply=True)
    assert (done.applied, done.slices, len(new.slices)) == (True, 0, 2)
    assert done.changes == shown.changes
    rows = await pool.fetch("SELECT id, content, access_count FROM memories WHERE memory_type = 'semantic' ORDER BY 2")
    assert [(row["content"], row["access_count"]) for row in rows] == [("Likes walks.", 7), ("Moved lately.", 0)]
    assert rows[0]["id"] == kept
    service = OpenMemoryService(pool, None)
    assert [f.value for f in await service.list_facts(app_name=APP, user_id=USER)] == ["Lyons"]
    assert [f.value for f in await service.list_facts(app_name=APP, user_id=USER, known_at=known)] == ["Lyon"]
    history = await service.fact_history(app_name=APP, user_id=USER, fact_type="profile", key="home_city")
    assert [(v.value, v.outcome) for v in history] == [("Lyons", "current"), ("Lyon", "retracted")]
    assert await pool.fetchval("SELECT count(*) FROM replay_draws") == 0
    threads = await everything(pool)
    assert threads["threads"] == before["threads"]


async def test_the_same_provider_extracts_the_same_and_keeps_all(pool: asyncpg.Pool) -> None:
    """With the local provider, over every session of a user; memories archived as too weak do not come back."""
    await say(pool, USER, "a", "I live in Lyon.", "My sister Eva is a nurse.", "I decided to learn Greek this year.")
    await say(pool, USER, "b", "我住在里昂。", "我对花生过敏。")
    generator, embedder = LocalGenerator(), LocalEmbedder()
    await consolidate(pool, generator, embedder, "a", "b")
    await pool.execute(
        """INSERT INTO memories_archive SELECT m.*, 'weak', 0.01 FROM memories AS m WHERE memory_type = 'semantic';
           DELETE FROM memories WHERE memory_type = 'semantic'"""
    )
    before = await everything(pool)
    assert len(before["facts"]) >= 4
    report = await MemoryReplay(pool, generator, embedder).replay(APP, USER, apply=True)
    assert report.counts["added"] == report.counts["dropped"] == 0
    assert report.counts["kept"] == len(before["memories"]) + len(before["fact_versions"])
    assert await everything(pool) == before


async def test_a_replay_that_died_continues_where_it_was_with_gemini(pool: asyncpg.Pool) -> None:
    """Long sessions, a call that hangs: answered calls are not repeated, not even by the next diff."""
    for session_id in ("a", "b"):
        await say(pool, USER, session_id, *(f"I live in Town{n} and I like tea{n}." for n in range(6)))
    await consolidate(pool, LocalGenerator(), LocalEmbedder(), "a", "b")
    async with FakeGemini() as gemini:
        connection = GeminiConnection(api_key="k", base_url=gemini.base_url, timeout_seconds=WAIT_SECONDS, attempts=1)
        generator, embedder = GeminiGenerator(connection), GeminiEmbedder(connection)
        replay = MemoryReplay(pool, generator, embedder, slice_tokens=30)
        gemini.latency_seconds = 0.02
        dying = asyncio.create_task(replay.replay(APP, USER, apply=True))
        async with asyncio.timeout(WAIT_SECONDS):
            while gemini.counts.calls["generateContent"] < 4:
                await asyncio.sleep(0.01)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        kept = await pool.fetchval("SELECT count(*) FROM replay_draws")
        assert kept > 0
        before = await everything(pool)
        gemini.script("status", operation="generateContent", code=503)
        with pytest.raises(TransientProviderError):
            await replay.replay(APP, USER)
        gemini.reset()
        report = await replay.replay(APP, USER)
        assert await everything(pool) == before
        asked = gemini.counts.calls["generateContent"]
        assert asked == report.slices < kept + asked == await pool.fetchval("SELECT count(*) FROM replay_draws")
        assert (await replay.replay(APP, USER, apply=True)).slices == 0
        assert gemini.counts.calls["generateContent"] == asked
        models = await pool.fetch("SELECT DISTINCT model, embedding_model FROM memories")
        assert len(models) == 1
        assert models[0]["embedding_model"] == embedder.model
        assert await pool.fetchval("SELECT count(*) FROM facts WHERE model LIKE 'local%'") == 0
        await generator.close()
        await embedder.close()


async def test_a_replay_killed_during_a_call_or_the_swap_changes_nothing_and_is_completed(
    pool: asyncpg.Pool, dsn: str, tmp_path: Path
) -> None:
    """The real command and SIGKILL: replies are kept, a partial swap is rolled back, and the next run completes it."""
    for session_id, town in (("a", "Lyon"), ("b", "Brest")):
        await say(pool, USER, session_id, f"I live in {town}.", "I like tea.")
    await consolidate(pool, LocalGenerator(), LocalEmbedder(), "a", "b")
    before = await everything(pool)

    def start(gemini: FakeGemini) -> ForkedProcess:
        settings = {"DATABASE_URL": dsn, "GOOGLE_API_KEY": "k", "HIPPOCAMPUS_PROVIDER_BASE_URL": gemini.base_url}
        arguments = ("replay", "--app", APP, "--user", USER, "--apply")
        environment = cli_process.environment(tmp_path, **settings)
        return ForkedProcess("workers", *arguments, environment=environment, log=tmp_path / "log")

    async with FakeGemini() as hanging, FakeGemini() as gemini:
        hanging.poison("Brest", "hang")
        asking = start(hanging)
        async with asyncio.timeout(WAIT_SECONDS):
            while not hanging.counts.faults:
                assert asking.poll() is None, (tmp_path / "log").read_text()
                await asyncio.sleep(0.02)
        asking.kill()
        asking.wait(WAIT_SECONDS)
        kept = await pool.fetchval("SELECT count(*) FROM replay_draws")
        assert 1 <= kept < 4
        assert await everything(pool) == before

        async with pool.acquire() as holder, holder.transaction():
            await holder.execute("SELECT FROM facts FOR UPDATE")
            swapping = start(gemini)
            await until_one_waits_for_a_lock(pool)
            swapping.kill()
            swapping.wait(WAIT_SECONDS)
        async with asyncio.timeout(WAIT_SECONDS):
            while await pool.fetchval(SWAPS):
                await asyncio.sleep(0.02)
        assert await everything(pool) == before

        connection = GeminiConnection(api_key="k", base_url=gemini.base_url)
        generator, embedder = GeminiGenerator(connection), GeminiEmbedder(connection)
        assert (await MemoryReplay(pool, generator, embedder).replay(APP, USER, apply=True)).slices == 0
        await generator.close()
        await embedder.close()
        assert gemini.counts.calls["generateContent"] == 4 - kept
    assert await pool.fetchval("SELECT bool_and(model LIKE 'gemini%') FROM facts")
    assert await pool.fetchval("SELECT count(*) FROM replays WHERE applied_at IS NULL") == 0


async def test_identical_turns_are_sent_once(pool: asyncpg.Pool) -> None:
    """A session and all sessions of its user are two replays; the second reuses the replies of the first."""
    await say(pool, USER, "s", "I live in Lyon")
    await consolidate(pool, ScriptedGenerator(), ScriptedEmbedder(), "s")
    generator = ScriptedGenerator(summary="Anew.")
    replay = MemoryReplay(pool, generator, ScriptedEmbedder())
    await replay.replay(APP, USER, "s")
    report = await replay.replay(APP, USER)
    assert (report.slices, report.reused, len(generator.slices)) == (0, 2, 2)
    # The same words of another user are asked again: a reply is never carried from one user to another.
    await pool.execute("UPDATE threads SET user_id = 'someone else'")
    await say(pool, USER, "t", "I live in Lyon")
    await consolidate(pool, ScriptedGenerator(), ScriptedEmbedder(), "t")
    assert (await replay.replay(APP, USER, "t")).reused == 0


@pytest.mark.parametrize("happening", ["consolidated", "changed"])
async def test_changes_during_a_replay_are_detected_and_extracted_next_time(pool: asyncpg.Pool, happening: str) -> None:
    """At the swap, under the sessions' locks, nothing is changed; another replay sends only what is new."""
    await say(pool, USER, "s", "I live in Lyon")
    await consolidate(pool, ScriptedGenerator(), ScriptedEmbedder(), "s")

    async def happen() -> None:
        if happening == "changed":
            await pool.execute("UPDATE messages SET content = 'I live in Nice'")
        elif not await pool.fetchval("SELECT last_seq > 1 FROM threads"):
            await say(pool, USER, "s", "I like tea")
            await consolidate(pool, ScriptedGenerator(), ScriptedEmbedder(), "s")

    calls = 0

    async def on_the_last_call() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            await happen()

    generator = ScriptedGenerator(summary="Anew.", during=on_the_last_call)
    replay = MemoryReplay(pool, generator, ScriptedEmbedder())
    if happening == "changed":
        # The fast stage was extracted from the earlier text.
        with pytest.raises(ReplayOvertakenError, match="replay again"):
            await replay.replay(APP, USER, "s", apply=True)
        assert await pool.fetchval("SELECT count(*) FROM memories WHERE content = 'Anew.'") == 0
    report = await replay.replay(APP, USER, "s", apply=True)
    assert report.applied
    assert await pool.fetchval("SELECT count(*) FROM memories WHERE content = 'Anew.'") == (
        1 if happening == "changed" else 2
    )


async def test_a_running_job_and_a_swap_wait_for_each_other(pool: asyncpg.Pool) -> None:
    """The job read its slice before the swap and stores it afterwards: both take effect, without duplicates."""
    await say(pool, USER, "s", "I live in Lyon")
    await consolidate(pool, ScriptedGenerator(), ScriptedEmbedder(), "s")
    await say(pool, USER, "s", "I like tea")

    async def in_the_middle(run: Callable[[], Awaitable[object]]) -> None:
        await run()

    replay = MemoryReplay(pool, ScriptedGenerator(summary="Anew."), ScriptedEmbedder())
    worker = MemoryConsolidationWorker(
        pool,
        ScriptedGenerator(
            summary="Job.", during=lambda: in_the_middle(lambda: replay.replay(APP, USER, "s", apply=True))
        ),
        ScriptedEmbedder(),
    )
    thread = await pool.fetchval("SELECT id FROM threads")
    await worker.consolidate(thread, "fast_replay", wait=False)
    claim = await claim_next(pool, ["fast_replay"])
    assert claim is not None
    assert claim.job_id is not None
    await worker.run(claim.job_id, claim)
    rows = await pool.fetch("SELECT content, from_seq FROM memories WHERE memory_type = 'summary' ORDER BY from_seq")
    assert [tuple(row) for row in rows] == [("Anew.", 1), ("Job.", 2)]

    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM threads FOR NO KEY UPDATE")
        swapping = asyncio.create_task(replay.replay(APP, USER, "s", apply=True))
        await until_one_waits_for_a_lock(pool)
    assert (await swapping).applied


async def test_an_insight_that_another_session_supports_survives_a_replay_of_one(pool: asyncpg.Pool) -> None:
    for session_id in ("a", "b"):
        await say(pool, USER, session_id, "hello")
        await consolidate(
            pool, ScriptedGenerator(reflections=[reflection("Lyon", "Likes walks.")]), ScriptedEmbedder(), session_id
        )
    report = await MemoryReplay(pool, ScriptedGenerator(), ScriptedEmbedder()).replay(APP, USER, "a", apply=True)
    assert contents(report, "kept", "semantic") == ["Likes walks."]
    assert await pool.fetchval("SELECT count(*) FROM memories WHERE memory_type = 'semantic'") == 1


async def test_a_missing_session_is_an_error_and_a_user_without_memories_has_none(
    pool: asyncpg.Pool,
) -> None:
    replay = MemoryReplay(pool, ScriptedGenerator(), ScriptedEmbedder())
    with pytest.raises(SessionNotFoundError):
        await replay.replay(APP, USER, "nowhere")
    await OpenSessionService(pool).create_session(APP, USER, session_id="s")
    report = await replay.replay(APP, USER, "s", apply=True)
    assert (report.changes, report.slices) == ((), 0)


async def test_erased_and_pinned_memories_stay_so(pool: asyncpg.Pool) -> None:
    """An erased fact does not come back under another spelling, nor an erased insight; a pinned one is not dropped."""
    await say(pool, USER, "s", "I live in Lyon")
    first = reflection("Lyon", "Likes walks.", "Is new in town.")
    await consolidate(pool, ScriptedGenerator(reflections=[first]), ScriptedEmbedder(), "s")
    forgetting = ErasureService(pool)
    home = await pool.fetchval("SELECT id FROM facts")
    insight = await pool.fetchval("SELECT id FROM memories WHERE content = 'Likes walks.'")
    for target in (home, insight):
        await forgetting.erase_memory(APP, USER, target)
    await pool.execute("UPDATE memories SET pinned = true WHERE content = 'Is new in town.'")
    facts, insights = reflection("Lyon", "Likes walks.")
    again = ([replace(facts[0], key="city_of_home")], insights)
    report = await MemoryReplay(pool, ScriptedGenerator(reflections=[again]), ScriptedEmbedder()).replay(
        APP, USER, apply=True
    )
    assert report.counts["added"] == 0
    assert await pool.fetchval("SELECT count(*) FROM facts") == 0
    found = await pool.fetch("SELECT content FROM memories WHERE memory_type = 'semantic'")
    assert [row["content"] for row in found] == ["Is new in town."]
