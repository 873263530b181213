"""What a conversation takes back ends, with its history kept: from the model's reply to the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from hippocampus.consolidation.replay import MemoryReplay
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.facts.keys import normal_key
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.gemini.provider import GeminiConnection, GeminiGenerator
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.records import ExtractedFact, ExtractedInsight
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.fake_gemini import FakeGemini
from tests.support.queue_claims import work_off
from tests.support.scripted_provider import ScriptedEmbedder, ScriptedGenerator

APP, USER = "app", "ann"
DAY = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
async def api() -> AsyncIterator[FakeGemini]:
    async with FakeGemini() as running:
        yield running


@pytest.fixture
async def gemini(api: FakeGemini) -> AsyncIterator[GeminiGenerator]:
    generator = GeminiGenerator(GeminiConnection(api_key="k", base_url=api.base_url))
    yield generator
    await generator.close()


async def tell(pool: asyncpg.Pool, generator: Any, *texts: str, day: int = 0, session: str = "s") -> list[str]:
    """Append turns of one day, reflect on them, and return the outcomes of their facts."""
    sessions = OpenSessionService(pool)
    found = await sessions.get_session(APP, USER, session) or await sessions.create_session(
        APP, USER, session_id=session
    )
    times = [(DAY + timedelta(days=day, minutes=minute)).timestamp() for minute in range(len(texts))]
    events = [Event(author="user", content={"text": text}, timestamp=at) for text, at in zip(texts, times, strict=True)]
    await sessions.append(APP, USER, session, events)
    await sessions.close()
    worker = MemoryConsolidationWorker(pool, generator, LocalEmbedder())
    await worker.consolidate(found.thread_id, "deep_reflection", wait=False)
    (job,) = await work_off(pool, worker)
    return [each["outcome"] for each in job.result["facts"]]


async def holds(pool: asyncpg.Pool) -> dict[str, Any]:
    facts = await OpenMemoryService(pool, None).list_facts(app_name=APP, user_id=USER)
    return {fact.key: fact.value for fact in facts}


def fact(key: str, value: Any, *, ended: bool = False, confidence: float = 0.9, seq: int = 1) -> ExtractedFact:
    return ExtractedFact(
        fact_type="profile", key=key, value=value, confidence=confidence, source_seqs=(seq,), ended=ended
    )


def scripted(*facts: ExtractedFact) -> ScriptedGenerator:
    return ScriptedGenerator(reflections=[(facts, [])])


async def test_a_reply_that_takes_a_fact_back_ends_it(pool: asyncpg.Pool, gemini: GeminiGenerator) -> None:
    """The fact holds until the turn that took it back; its history and earlier times still show it."""
    await tell(pool, gemini, "I live in Lyon.")
    assert await tell(pool, gemini, "I no longer live in Lyon.", day=7) == ["ended"]
    assert await holds(pool) == {}
    service = OpenMemoryService(pool, None)
    (version,) = await service.fact_history(app_name=APP, user_id=USER, fact_type="profile", key="home_city")
    assert (version.value, version.outcome, version.valid_until) == ("Lyon", "superseded", DAY + timedelta(days=7))
    then = await service.list_facts(app_name=APP, user_id=USER, as_of=DAY + timedelta(days=1))
    assert [each.value for each in then] == ["Lyon"]


async def test_the_turn_that_took_it_back_is_named(pool: asyncpg.Pool, gemini: GeminiGenerator) -> None:
    """The history says which turn ended a fact."""
    await tell(pool, gemini, "I live in Lyon.")
    await tell(pool, gemini, "Good morning.", "I no longer live in Lyon.", day=7)
    service = OpenMemoryService(pool, None)
    (version,) = await service.fact_history(app_name=APP, user_id=USER, fact_type="profile", key="home_city")
    assert version.superseded_by_seq == 3


async def test_one_element_of_a_collection_ends(pool: asyncpg.Pool, gemini: GeminiGenerator) -> None:
    """The others stay."""
    await tell(pool, gemini, "My hobby is chess. My hobby is rowing.")
    assert await tell(pool, gemini, "I gave up Chess.", day=1) == ["ended"]
    assert await holds(pool) == {"hobbies:rowing": "rowing"}


async def test_the_new_value_of_the_same_reply_stands(pool: asyncpg.Pool, gemini: GeminiGenerator) -> None:
    """What ended and what took its place may come in one turn, in either order of the reply."""
    await tell(pool, gemini, "I live in Lyon.")
    await tell(pool, gemini, "I no longer live in Lyon. I live in Nice.", day=1)
    assert await holds(pool) == {"home_city": "Nice"}


async def test_what_a_later_turn_of_the_slice_ends_is_history(pool: asyncpg.Pool) -> None:
    """In either order of the reply, of one value and of a collection; what ended is as certain as its end at most."""
    reply = (
        fact("allergies", None, ended=True, confidence=0.7, seq=5),
        fact("allergies", ["nuts", "milk"], seq=2),
        fact("city", "Nice", confidence=0.6, seq=3),
        fact("city", "Lyon", ended=True, confidence=0.6, seq=3),
        fact("city", "Lyon", seq=2),
        fact("pet", "a cat", seq=4),
    )
    await tell(pool, scripted(*reply), "one", "two", "three", "four", "five")
    assert await holds(pool) == {"city": "Nice", "pet:a_cat": "a cat"}
    service = OpenMemoryService(pool, None)
    for key, outcomes in (
        ("city", [("Nice", "current"), ("Lyon", "superseded")]),
        ("allergies:nuts", [("nuts", "superseded")]),
        ("allergies:milk", [("milk", "superseded")]),
    ):
        history = await service.fact_history(app_name=APP, user_id=USER, fact_type="profile", key=key)
        assert [(each.value, each.outcome) for each in history] == outcomes


async def test_another_value_than_the_one_that_ended_stays(pool: asyncpg.Pool, gemini: GeminiGenerator) -> None:
    """A city that was left long ago does not end the present one."""
    await tell(pool, gemini, "I live in Lyon.")
    await tell(pool, gemini, "I live in Nice.", day=1)
    assert await tell(pool, gemini, "I no longer live in Lyon.", day=2) == ["unknown"]
    assert await holds(pool) == {"home_city": "Nice"}


async def test_it_can_be_stated_again(pool: asyncpg.Pool, gemini: GeminiGenerator) -> None:
    """A later statement reopens the fact; an earlier turn that is read later does not."""
    await tell(pool, gemini, "I live in Lyon.", day=1)
    await tell(pool, gemini, "I no longer live in Lyon.", day=2)
    assert await tell(pool, gemini, "I live in Lyon.", day=0, session="older") == ["confirmed"]
    assert await holds(pool) == {}
    assert await tell(pool, gemini, "I live in Lyon.", day=3) == ["reopened"]
    assert await holds(pool) == {"home_city": "Lyon"}


async def test_a_collection_ends_as_a_whole(pool: asyncpg.Pool) -> None:
    """A retraction of a collection's own key without a value ends every element, and nothing else."""
    await tell(pool, scripted(fact("allergies", ["nuts", "pollen"]), fact("pet", "a cat")), "...")
    assert await tell(pool, scripted(fact("allergies", None, ended=True)), "...", day=1) == ["ended"]
    assert list((await holds(pool)).values()) == ["a cat"]


@pytest.mark.parametrize(
    ("held", "ended", "left"),
    [
        ("peanuts", "peanuts", {}),
        ("peanuts", None, {}),
        ("peanuts", "milk", {"caroline_allergy": "peanuts"}),
        (["peanuts", "milk"], "peanuts", {"caroline_allergy": ["milk"]}),
    ],
)
async def test_what_was_stored_before_its_key_held_many_ends(
    pool: asyncpg.Pool, held: Any, ended: Any, left: dict[str, Any]
) -> None:
    """A retraction of one element reaches the value of the collection's own key; the same value is not stored twice."""
    style = "INSERT INTO fact_styles (app_name, fact_type, normal_key, style) VALUES ($1, 'profile', $2, 'profile')"
    await pool.execute(style, APP, normal_key("caroline_allergy"))
    await tell(pool, scripted(fact("caroline_allergy", held)), "...")
    await pool.execute("DELETE FROM fact_styles")
    if isinstance(held, str):
        assert await tell(pool, scripted(fact("caroline_allergy", held)), "...", day=1) == ["confirmed"]
    assert await holds(pool) == {"caroline_allergy": held}
    outcomes = await tell(pool, scripted(fact("caroline_allergy", ended, ended=True)), "...", day=2)
    assert outcomes == ["unknown" if ended == "milk" and isinstance(held, str) else "ended"]
    assert await holds(pool) == left


@pytest.mark.parametrize(
    ("key", "values", "left"),
    [
        ("nut_allergy", ["yes", "no"], {"nut_allergy": "no"}),
        ("坚果过敏", ["有", "没有"], {"坚果过敏": "没有"}),
        ("food_allergies", ["none", "peanuts"], {"food_allergies": "peanuts"}),
        ("food_allergies", ["None.", "peanuts", "milk"], {"food_allergies": "peanuts", "food_allergies:milk": "milk"}),
    ],
)
async def test_whether_there_is_any_is_one_value(
    pool: asyncpg.Pool, key: str, values: list[str], left: dict[str, Any]
) -> None:
    """What a collection's own key says in a word of yes or no does not stand beside its contrary."""
    for number, value in enumerate(values):
        await tell(pool, scripted(fact(key, value)), "...", day=number)
    assert await holds(pool) == left


@pytest.mark.parametrize(
    ("held", "ended", "left"),
    [
        ("Acme Ltd.", "acme", None),
        ("海鲜过敏", "海鲜", None),
        ("Acme Ltd.", None, None),
        ("Acme Ltd.", "Globex", "Acme Ltd."),
        (["Thai food", "Indian food"], "Thai food", ["Indian food"]),
        (["Thai food"], "thai", None),
        (["Thai food"], "Greek food", ["Thai food"]),
    ],
)
async def test_what_ended_is_recognised_by_its_words(pool: asyncpg.Pool, held: Any, ended: Any, left: Any) -> None:
    """A retraction ends what it names, in other words as well; of a list only that."""
    await tell(pool, scripted(fact("employer", held)), "...")
    await tell(pool, scripted(fact("employer", ended, ended=True)), "...", day=1)
    assert await holds(pool) == ({} if left is None else {"employer": left})


async def test_an_unsure_retraction_is_a_candidate(pool: asyncpg.Pool) -> None:
    """What holds is not ended by what is much less certain; a person may promote it."""
    await tell(pool, scripted(fact("employer", "Acme", confidence=0.95)), "...")
    assert await tell(pool, scripted(fact("employer", "Acme", ended=True, confidence=0.6)), "...", day=1) == [
        "candidate"
    ]
    assert await holds(pool) == {"employer": "Acme"}
    candidate = await pool.fetchval("SELECT id FROM fact_versions WHERE accepted_at IS NULL")
    await pool.execute("SELECT promote_candidate($1, $2, $3)", APP, USER, candidate)
    assert await holds(pool) == {}


async def test_a_retraction_of_what_is_not_known_stores_nothing(pool: asyncpg.Pool) -> None:
    """Nothing can be ended that was never stated."""
    assert await tell(pool, scripted(fact("employer", "Acme", ended=True)), "...") == ["unknown"]
    assert await pool.fetchval("SELECT count(*) FROM fact_versions") == 0


async def test_a_replay_keeps_what_ended(pool: asyncpg.Pool, gemini: GeminiGenerator) -> None:
    """Extracting the same turns again changes nothing, and does not bring back what was taken back."""
    await tell(pool, gemini, "I live in Lyon. My hobby is chess.")
    await tell(pool, gemini, "I no longer live in Lyon. I gave up chess.", day=1)
    before = await pool.fetch("SELECT * FROM fact_versions ORDER BY id")
    report = await MemoryReplay(pool, gemini, ScriptedEmbedder()).replay(APP, USER, apply=True)
    assert report.facts == ()
    assert {each.change for each in report.changes if each.kind == "fact"} == {"kept"}
    assert await pool.fetch("SELECT * FROM fact_versions ORDER BY id") == before
    assert await holds(pool) == {}


async def test_an_insight_in_other_words_supports_the_known_one(
    pool: asyncpg.Pool, gemini: GeminiGenerator, api: FakeGemini
) -> None:
    """The reply names the known insight that it repeats, without another call; another user's are never shown."""
    await pool.execute(
        """INSERT INTO memories (app_name, user_id, memory_type, content)
           VALUES ('app', 'bo', 'semantic', 'Bo decided to move'), ('other', 'ann', 'semantic', 'decided to move')"""
    )
    await tell(pool, gemini, "We decided: a move to Lyon after Christmas.")
    assert "KNOWN INSIGHTS" not in str(api.requests[-1].body["contents"])
    await pool.execute("UPDATE memories SET last_accessed_at = now() - interval '30 days'")
    await tell(
        pool,
        gemini,
        "After Christmas comes the move to Lyon, decided at last.",
        "We decided upon buying another yellow rowing boat.",
        day=1,
    )
    assert api.stats()["calls"] == {"generateContent": 2}
    asked = api.requests[-1].body["contents"][0]["parts"][0]["text"]
    assert (
        asked.partition("KNOWN INSIGHTS\n")[2]
        == '1 "A decision was taken: We decided: a move to Lyon after Christmas."'
    )
    rows = await pool.fetch(
        """SELECT metadata, last_accessed_at > now() - interval '1 day' AS is_fresh FROM memories
           WHERE app_name = $1 AND user_id = $2 AND memory_type = 'semantic' ORDER BY id""",
        APP,
        USER,
    )
    assert [(row["metadata"].get("support"), row["is_fresh"]) for row in rows] == [(2, True), (None, True)]
    assert not any("repeats" in row["metadata"] for row in rows)


async def test_a_known_insight_that_was_retired_meanwhile_is_not_supported(pool: asyncpg.Pool) -> None:
    """What was found is stored as an insight of its own."""
    target = await pool.fetchval(
        """INSERT INTO memories (app_name, user_id, memory_type, content) VALUES ($1, $2, 'semantic', 'old')
           RETURNING id""",
        APP,
        USER,
    )
    found = ExtractedInsight(content="new", importance="low", source_seqs=(1,), repeats=str(target))

    async def retire() -> None:
        await pool.execute("SELECT retire_memory_by_hand($1, $2, '', $3)", APP, USER, target)

    await tell(pool, ScriptedGenerator(reflections=[([], [found])], during=retire), "the old and the new")
    rows = await pool.fetch("SELECT content, metadata FROM memories WHERE memory_type = 'semantic'")
    assert [(row["content"], row["metadata"].get("support")) for row in rows] == [("new", None)]
