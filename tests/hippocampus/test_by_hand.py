"""People write: remember, correct, retire, confirm; and what earlier turns say does not undo it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hippocampus import Edit, GivenFact, GivenMemory, Hippocampus
from hippocampus.by_hand import _input, _whole
from hippocampus.consolidation.replay import MemoryReplay
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import MemoryNotFoundError
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.records import ExtractedFact, ExtractedInsight, FactVersion, JobType
from hippocampus.transfer.given_memories import GivenMemories
from hippocampus.transfer.memory_file import export_memory, import_memory
from pulse.errors import InvalidInputError
from pulse.events import Event
from tests.support.lock_gates import until_one_waits_for_a_lock
from tests.support.queue_claims import work_off
from tests.support.scripted_provider import ScriptedEmbedder, ScriptedGenerator

APP, USER = "app", "ann"
DAY = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
async def memory(pool: asyncpg.Pool) -> AsyncIterator[Hippocampus]:
    async with Hippocampus(pool, app=APP) as opened:
        yield opened


def generator(
    *facts: tuple[str, Any], insights: tuple[str, ...] = (), confidence: float = 0.95, fingerprint: str = "1"
) -> ScriptedGenerator:
    extracted = [
        ExtractedFact(fact_type="profile", key=key, value=value, confidence=confidence, source_seqs=(1,))
        for key, value in facts
    ]
    found = [ExtractedInsight(content=text, importance="low", source_seqs=(1,)) for text in insights]
    return ScriptedGenerator(reflections=[(extracted, found)] * 9, fingerprint=fingerprint)


async def tell(memory: Hippocampus, given: ScriptedGenerator, *, session: str = "s", at: datetime = DAY) -> None:
    """Append a turn and consolidate it."""
    await memory.sessions.create_session(APP, USER, session_id=session)
    event = Event(author="user", content={"text": "..."}, timestamp=at.timestamp())
    await memory.sessions.append(APP, USER, session, [event])
    worker = MemoryConsolidationWorker(memory.pool, given, LocalEmbedder())
    thread = await memory.pool.fetchval("SELECT id FROM threads WHERE session_id = $1", session)
    await worker.consolidate(thread, JobType.FULL_CONSOLIDATION, wait=False)
    await work_off(memory.pool, worker)


async def replay(memory: Hippocampus, given: ScriptedGenerator) -> None:
    await MemoryReplay(memory.pool, given, ScriptedEmbedder()).replay(APP, USER, apply=True)


async def facts(memory: Hippocampus) -> dict[str, Any]:
    return {each.key: each.value for each in await memory.memory.list_facts(app_name=APP, user_id=USER)}


async def fact_id(memory: Hippocampus, key: str) -> UUID:
    return next(e.id for e in await memory.memory.list_facts(app_name=APP, user_id=USER) if e.key == key)


async def history(memory: Hippocampus, key: str) -> list[FactVersion]:
    return await memory.memory.fact_history(app_name=APP, user_id=USER, fact_type="profile", key=key)


async def memories(memory: Hippocampus, memory_type: Any = "semantic") -> list[str]:
    found = await memory.memory.list_memories(app_name=APP, user_id=USER, memory_type=memory_type)
    return sorted(each.content for each in found)


async def memory_id(memory: Hippocampus, content: str) -> UUID:
    return next(e.id for e in await memory.memory.list_memories(app_name=APP, user_id=USER) if e.content == content)


# Remember


async def test_a_text_is_remembered_and_found_at_once(memory: Hippocampus) -> None:
    """It is found by its words before any worker ran, and says that a person wrote it, and who."""
    edit = await memory.remember(USER, "Ann signs as Ann B.", by="support")
    assert (edit.kind, edit.changed) == ("memory", True)
    (found,) = await memory.search(USER, "how does Ann sign?")
    assert (found.memory_id, found.content) == (edit.ids[0], "Ann signs as Ann B.")
    (listed,) = await memory.memory.list_memories(app_name=APP, user_id=USER)
    assert (listed.metadata["source"], listed.metadata["by"]) == ("by hand", "support")


async def test_a_name_makes_it_idempotent(memory: Hippocampus) -> None:
    """The same name replaces the memory; with the same words, it is unchanged."""
    first = await memory.remember(USER, GivenMemory(content="tea", name="drink"))
    assert await memory.remember(USER, GivenMemory(content="coffee", name="drink")) == first
    assert await memories(memory) == ["coffee"]
    again = await memory.remember(USER, GivenMemory(content="coffee", name="drink"), by="bo")
    assert (again.ids, again.changed) == (first.ids, False)


async def test_a_text_that_is_remembered_again_is_stored_once(memory: Hippocampus) -> None:
    """Whoever writes it, and also if it was confirmed meanwhile."""
    first = await memory.remember(USER, "Ann likes tea.", by="ann")
    await memory.confirm(USER, first.ids[0], by="cy")
    again = await memory.remember(USER, "Ann likes tea.", by="bo")
    assert (again.ids, again.changed) == (first.ids, False)
    (corrected,) = (await memory.correct(USER, first.ids[0], "Ann likes mate.")).ids
    assert (await memory.remember(USER, "Ann likes mate.")).ids == (corrected,)
    assert await memories(memory) == ["Ann likes mate."]


async def test_a_text_is_stored_again_if_it_differs_or_no_longer_holds(memory: Hippocampus) -> None:
    """For another user, with other metadata, importance or time, or after it was retired."""
    text = "Ann likes tea."
    edits = [await memory.remember(USER, text)]
    await memory.retire(USER, edits[0].ids[0])
    edits += [
        await memory.remember(USER, text),
        await memory.remember("bo", text),
        await memory.remember(USER, GivenMemory(content=text, metadata={"n": 1})),
        await memory.remember(USER, GivenMemory(content=text, importance="low")),
        await memory.remember(USER, GivenMemory(content=text, occurred_at=DAY)),
    ]
    assert all(each.changed for each in edits)
    assert len({each.ids for each in edits}) == 6


async def test_a_text_that_several_remember_at_once_is_stored_once(memory: Hippocampus) -> None:
    """The first call stores it; the others see it."""
    edits = await asyncio.gather(*(memory.remember(USER, "Ann likes tea.") for _ in range(4)))
    assert sorted(edit.changed for edit in edits) == [False, False, False, True]
    assert await memories(memory) == ["Ann likes tea."]


async def test_a_corrected_name_that_is_remembered_again_stands_once(memory: Hippocampus) -> None:
    """The correction is replaced, whatever corrected it, with its history kept; a retired one comes back."""
    (named,) = (await memory.remember(USER, GivenMemory(content="tea", name="drink"))).ids
    (second,) = (await memory.correct(USER, named, "green tea")).ids
    (third,) = (await memory.correct(USER, second, "black tea")).ids
    edit = await memory.remember(USER, GivenMemory(content="coffee", name="drink", metadata={"n": 1}), by="ann")
    (left,) = await memory.memory.list_memories(app_name=APP, user_id=USER)
    assert (left.id, left.content) == (edit.ids[0], "coffee")
    assert left.metadata == {"source": "by hand", "by": "ann", "n": 1, "corrects": str(third)}
    assert {each.content for each in await memory.archive.page(APP, USER)} == {"tea", "green tea", "black tea"}
    again = await memory.remember(USER, GivenMemory(content="coffee", name="drink"))
    assert again.ids == edit.ids
    await memory.retire(USER, edit.ids[0])
    assert (await memory.remember(USER, GivenMemory(content="mate", name="drink"))).ids == (named,)
    assert await memories(memory) == ["mate"]
    await memory.retire(USER, named)
    assert await memories(memory) == []
    await memory.remember("bob", GivenMemory(content="water", name="drink"))
    assert await memories(memory) == []


async def test_an_import_does_not_bring_back_what_a_person_corrected_or_retired(memory: Hippocampus) -> None:
    """Given again in the same words; in other words it is new."""
    imported = [GivenMemory(content=text, name=text) for text in ("tea", "milk")]
    given = GivenMemories(memory.pool)
    assert await given.give(APP, USER, imported) == 2
    await memory.correct(USER, given.id_of(APP, USER, "tea"), "green tea")
    await memory.retire(USER, given.id_of(APP, USER, "milk"))
    assert await given.give(APP, USER, imported) == 0
    assert await memories(memory) == ["green tea"]
    await given.give(APP, USER, [GivenMemory(content="oat milk", name="milk")])
    assert await memories(memory) == ["green tea", "oat milk"]


async def test_a_fact_is_remembered(memory: Hippocampus) -> None:
    """It is certain, has its provenance, and stated again it is unchanged."""
    home = GivenFact(key="home_city", value="Lyon")
    edit = await memory.remember(USER, home, by="ann")
    assert await facts(memory) == {"home_city": "Lyon"}
    (version,) = await history(memory, "home_city")
    assert (version.written_by, version.confidence, version.thread_id, version.job_id) == ("ann", 1.0, None, None)
    assert await memory.remember(USER, home) == Edit(kind="fact", ids=edit.ids, changed=False)
    assert await memory.pool.fetchval("SELECT count(*) FROM fact_versions") == 1


async def test_a_collection_takes_its_values_side_by_side(memory: Hippocampus) -> None:
    edit = await memory.remember(USER, GivenFact(key="allergies", value=["nuts", "pollen"]))
    assert len(edit.ids) == 2
    assert await facts(memory) == {"allergies:nuts": "nuts", "allergies:pollen": "pollen"}


async def test_since_dates_a_fact_back(memory: Hippocampus) -> None:
    """It is true since then, and what an old turn said of the time in between does not outlive it."""
    await tell(memory, generator(("home_city", "Paris")))
    await memory.remember(USER, GivenFact(key="home_city", value="Lyon", since=DAY - timedelta(days=30)))
    assert await facts(memory) == {"home_city": "Lyon"}
    then = await memory.memory.list_facts(app_name=APP, user_id=USER, as_of=DAY - timedelta(days=1))
    assert [each.value for each in then] == ["Lyon"]
    with pytest.raises(InvalidInputError, match="future"):
        GivenFact(key="home_city", value="Lyon", since=datetime.now(UTC) + timedelta(days=1))


@pytest.mark.parametrize("value", [None, "", " ", [], {}])
def test_a_fact_needs_a_value(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="needs a value"):
        GivenFact(key="pet", value=value)


# Correct


async def test_a_corrected_fact_keeps_its_history(memory: Hippocampus) -> None:
    """What was extracted is superseded from now on; who corrected it is known."""
    await tell(memory, generator(("home_city", "Paris")))
    target = await fact_id(memory, "home_city")
    assert await memory.correct(USER, target, "Lyon", by="ann") == Edit(kind="fact", ids=(target,), changed=True)
    now, before = await history(memory, "home_city")
    assert (now.value, now.outcome, now.written_by) == ("Lyon", "current", "ann")
    assert (before.value, before.outcome, before.written_by, before.superseded_by) == (
        "Paris",
        "superseded",
        None,
        "ann",
    )
    assert not (await memory.correct(USER, target, "Lyon")).changed
    earlier = await memory.memory.list_facts(app_name=APP, user_id=USER, known_at=before.recorded_at)
    assert [each.value for each in earlier] == ["Paris"]


@pytest.mark.parametrize("key", ["home_city", "residence"])
async def test_an_old_turn_does_not_undo_a_correction(memory: Hippocampus, key: str) -> None:
    """Neither when another session is consolidated later, nor when a replay extracts everything again."""
    await tell(memory, generator(("home_city", "Paris")))
    await memory.correct(USER, await fact_id(memory, "home_city"), "Lyon")
    await tell(memory, generator((key, "Rome")), session="older", at=DAY + timedelta(days=3))
    assert await facts(memory) == {"home_city": "Lyon"}
    await replay(memory, generator((key, "Berlin"), fingerprint="2"))
    assert await facts(memory) == {"home_city": "Lyon"}


async def test_a_turn_dated_in_the_future_does_not_undo_it_in_a_replay(memory: Hippocampus) -> None:
    """It was said when it was recorded."""
    await tell(memory, generator(("home_city", "Paris")), at=datetime.now(UTC) + timedelta(days=400))
    await memory.correct(USER, await fact_id(memory, "home_city"), "Lyon")
    await replay(memory, generator(("home_city", "Rome"), fingerprint="2"))
    assert await facts(memory) == {"home_city": "Lyon"}


async def test_a_newer_turn_may_change_it(memory: Hippocampus) -> None:
    """A later statement counts, unless it is much less certain: then it is a candidate."""
    await memory.remember(USER, GivenFact(key="home_city", value="Lyon"))
    await tell(memory, generator(("home_city", "Rome"), confidence=0.7), at=datetime.now(UTC))
    assert await facts(memory) == {"home_city": "Lyon"}
    assert [each.value for each in await memory.facts.list_candidates(app_name=APP, user_id=USER)] == ["Rome"]
    await tell(memory, generator(("home_city", "Nice")), session="t", at=datetime.now(UTC))
    assert await facts(memory) == {"home_city": "Nice"}


async def test_an_element_gives_way_to_another(memory: Hippocampus) -> None:
    """The corrected element ends, the others stay."""
    await memory.remember(USER, GivenFact(key="allergies", value=["nuts", "pollen"]))
    edit = await memory.correct(USER, await fact_id(memory, "allergies:nuts"), "peanuts")
    assert await facts(memory) == {"allergies:peanuts": "peanuts", "allergies:pollen": "pollen"}
    assert edit.ids == (await fact_id(memory, "allergies:peanuts"),)
    assert not (await memory.correct(USER, edit.ids[0], "peanuts")).changed


async def test_a_corrected_insight_stays_corrected(memory: Hippocampus) -> None:
    """The new words are found, the old ones are in the archive, and a replay does not bring them back."""
    await tell(memory, generator(insights=("Ann hates rain.",)))
    former = await memory_id(memory, "Ann hates rain.")
    edit = await memory.correct(USER, former, "Ann likes rain.", by="ann")
    assert await memories(memory) == ["Ann likes rain."]
    (archived,) = await memory.archive.page(APP, USER)
    assert (archived.id, archived.archive_reason) == (former, "corrected by hand")
    await replay(memory, generator(insights=("Ann hates rain!",), fingerprint="2"))
    assert await memories(memory) == ["Ann likes rain."]
    assert not (await memory.correct(USER, edit.ids[0], "Ann likes rain.")).changed


async def test_a_corrected_summary_stays_corrected(memory: Hippocampus) -> None:
    """However a replay words the summary of the same turns."""
    await tell(memory, generator())
    await memory.correct(USER, await memory_id(memory, "A summary."), "A better summary.")
    other = generator(fingerprint="2")
    other.summary = "Another summary."
    await replay(memory, other)
    assert await memories(memory, "summary") == ["A better summary."]


async def test_a_slice_cannot_be_corrected(memory: Hippocampus) -> None:
    """It holds what was said."""
    await tell(memory, generator())
    (spoken,) = await memory.memory.list_memories(app_name=APP, user_id=USER, memory_type="episodic")
    with pytest.raises(InvalidInputError, match="word for word"):
        await memory.correct(USER, spoken.id, "something else")


async def test_erasing_a_turn_reaches_what_corrected_it(memory: Hippocampus) -> None:
    """A correction of what was extracted from a turn goes with the turn."""
    await tell(memory, generator(insights=("Ann hates rain.",)))
    await memory.correct(USER, await memory_id(memory, "Ann hates rain."), "Ann likes rain.")
    await memory.erasure.erase_events(APP, USER, "s", sequence_nums=[1])
    assert await memory.pool.fetchval("SELECT count(*) FROM memories") == 0
    assert await memory.pool.fetchval("SELECT count(*) FROM memories_archive") == 0


# Retire


async def test_a_retired_fact_no_longer_holds_and_stays_so(memory: Hippocampus) -> None:
    """Its history stays; old turns do not bring it back, not even if a replay withdraws what it rested on."""
    await tell(memory, generator(("home_city", "Paris")))
    target = await fact_id(memory, "home_city")
    assert (await memory.retire(USER, target, by="ann")).changed
    assert not (await memory.retire(USER, target)).changed
    assert await facts(memory) == {}
    (version,) = await history(memory, "home_city")
    assert (version.value, version.outcome, version.superseded_by) == ("Paris", "superseded", "ann")
    await tell(memory, generator(("residence", "Paris")), session="older", at=DAY - timedelta(days=3))
    await replay(memory, generator(("home_city", "Paris"), confidence=0.9, fingerprint="2"))
    assert await facts(memory) == {}
    await replay(memory, generator(fingerprint="3"))
    await replay(memory, generator(("residence", "Paris"), fingerprint="4"))
    assert await facts(memory) == {}
    await tell(memory, generator(("home_city", "Nice")), session="new", at=datetime.now(UTC))
    assert list((await facts(memory)).values()) == ["Nice"]


async def test_a_retired_insight_stays_retired(memory: Hippocampus) -> None:
    """A replay, another old session and the purge of the archive do not bring it back; a newer turn may."""
    await tell(memory, generator(insights=("Ann hates rain.",)))
    target = await memory_id(memory, "Ann hates rain.")
    assert (await memory.retire(USER, target, by="ann")).changed
    assert not (await memory.retire(USER, target)).changed
    assert await memory.search(USER, "rain", limit=5) == []
    await memory.pool.execute("UPDATE app_policies SET archive_days = 0")
    assert await memory.archive.purge() == 0
    await tell(memory, generator(insights=("Ann hates rain",)), session="older")
    await replay(memory, generator(insights=("Ann hates rain!",), fingerprint="2"))
    assert await memories(memory) == []
    assert await memory.archive.restore(APP, USER) == []
    await tell(memory, generator(insights=("Ann hates rain.",)), session="new", at=datetime.now(UTC))
    assert await memories(memory) == ["Ann hates rain."]


async def test_a_retirement_can_be_undone(memory: Hippocampus) -> None:
    """By name: a memory is restored or confirmed, a fact confirmed."""
    (kept,) = (await memory.remember(USER, "Ann likes tea.")).ids
    await memory.retire(USER, kept)
    assert await memory.archive.restore(APP, USER, [kept]) == [kept]
    await memory.retire(USER, kept)
    await memory.confirm(USER, kept)
    assert await memories(memory) == ["Ann likes tea."]
    (home,) = (await memory.remember(USER, GivenFact(key="home_city", value="Lyon"))).ids
    await memory.retire(USER, home)
    await memory.confirm(USER, home)
    assert await facts(memory) == {"home_city": "Lyon"}


# Confirm


async def test_a_confirmed_fact_is_certain(memory: Hippocampus) -> None:
    """Its confidence is 1 and it says who confirmed it when; a less certain statement no longer replaces it."""
    await tell(memory, generator(("home_city", "Paris"), confidence=0.7))
    target = await fact_id(memory, "home_city")
    begin = datetime.now(UTC)
    await memory.confirm(USER, target, by="ann")
    (version,) = await history(memory, "home_city")
    assert (version.confidence, version.written_by, version.confirmed_by) == (1.0, None, "ann")
    assert version.confirmed_at is not None
    assert begin - timedelta(seconds=5) <= version.confirmed_at <= datetime.now(UTC) + timedelta(seconds=5)
    await memory.confirm(USER, target, by="bo")
    assert [each.confirmed_by for each in await history(memory, "home_city")] == ["bo"]
    await tell(memory, generator(("home_city", "Rome"), confidence=0.8), session="new", at=datetime.now(UTC))
    assert await facts(memory) == {"home_city": "Paris"}


async def test_an_element_is_confirmed_as_itself(memory: Hippocampus) -> None:
    """It stays an element of its collection, and no second fact appears."""
    await tell(memory, generator(("allergies", ["nuts", "pollen"])))
    await memory.confirm(USER, await fact_id(memory, "allergies:nuts"))
    assert await memory.pool.fetchval("SELECT count(*) FROM facts WHERE collection IS NOT NULL") == 2
    assert await memory.pool.fetchval("SELECT confidence FROM facts WHERE key = 'allergies:nuts'") == 1.0


async def test_a_confirmed_memory_is_strong_again(memory: Hippocampus) -> None:
    """Its decay begins anew, slower, and it knows who confirmed it."""
    (target,) = (await memory.remember(USER, "Ann likes tea.")).ids
    await memory.pool.execute("UPDATE memories SET last_accessed_at = now() - interval '90 days'")
    (before,) = await memory.memory.list_memories(app_name=APP, user_id=USER)
    await memory.confirm(USER, target, by="bo")
    (after,) = await memory.memory.list_memories(app_name=APP, user_id=USER)
    assert after.retention_score > before.retention_score + 0.5
    assert after.access_count == before.access_count + 1
    assert after.metadata["confirmed_by"] == "bo"


async def test_support_renews_an_insight(memory: Hippocampus) -> None:
    """An insight that recurs counts as used: its decay begins again."""
    await tell(memory, generator(insights=("Ann hates rain.",)))
    await memory.pool.execute("UPDATE memories SET last_accessed_at = now() - interval '30 days'")
    query = (
        "SELECT access_count, last_accessed_at > now() - interval '1 hour' FROM memories WHERE memory_type = 'semantic'"
    )
    assert tuple(await memory.pool.fetchrow(query)) == (0, False)
    await tell(memory, generator(insights=("Ann hates rain!",)), session="again", at=DAY + timedelta(days=1))
    assert tuple(await memory.pool.fetchrow(query)) == (1, True)


# At the same time


@pytest.mark.parametrize("change", ["value", "erased"])
async def test_a_change_between_reading_and_writing_is_not_undone(memory: Hippocampus, change: str) -> None:
    """What is confirmed is what holds by then; a fact that was erased meanwhile is not written again."""
    (home,) = (await memory.remember(USER, GivenFact(key="home_city", value="Lyon"))).ids
    act = memory.confirm(USER, home) if change == "value" else memory.correct(USER, home, "Nice")
    async with memory.pool.acquire() as other, other.transaction():
        await other.execute("SELECT lock_user_memory($1, $2)", APP, USER)
        waiting = asyncio.create_task(act)
        await until_one_waits_for_a_lock(memory.pool)
        if change == "value":
            rome = _input(_whole(GivenFact(key="home_city", value="Rome")), None)
            await other.fetch("SELECT * FROM write_facts_by_hand($1, $2, 'eve', NULL, $3, false)", APP, USER, [rome])
        else:
            await other.fetchval("SELECT (erase_memory($1, $2, $3)).id", APP, USER, home)
    if change == "value":
        assert (await waiting).ids == (home,)
        assert await facts(memory) == {"home_city": "Rome"}
        assert [each.value for each in await history(memory, "home_city")] == ["Rome", "Lyon"]
    else:
        with pytest.raises(MemoryNotFoundError, match=str(home)):
            await waiting
        assert await facts(memory) == {}


async def test_two_who_remember_a_name_leave_one_memory(memory: Hippocampus) -> None:
    """Also one that was corrected before."""
    (first,) = (await memory.remember(USER, GivenMemory(content="tea", name="drink"))).ids
    await memory.correct(USER, first, "coffee")
    texts = [f"mate {n}" for n in range(4)]
    await asyncio.gather(*(memory.remember(USER, GivenMemory(content=text, name="drink")) for text in texts))
    (left,) = await memories(memory)
    assert left in texts


# Delete


async def test_what_was_deleted_stays_deleted(memory: Hippocampus, pool: asyncpg.Pool) -> None:
    """A memory and a fact by hand, across a replay and the import of an earlier export; a person may write again."""
    (tea,) = (await memory.remember(USER, GivenMemory(content="Ann likes tea.", name="drink"))).ids
    await tell(memory, generator(("home_city", "Paris")))
    home = await fact_id(memory, "home_city")
    await memory.correct(USER, home, "Lyon")
    lines = [line async for line in export_memory(pool, APP, USER)]
    await memory.erasure.erase_memory(APP, USER, tea)
    await memory.erasure.erase_memory(APP, USER, home)
    await replay(memory, generator(("home_city", "Paris"), fingerprint="2"))
    await import_memory(pool, iter(lines))
    assert await facts(memory) == {}
    assert await memories(memory) == []
    await memory.remember(USER, GivenFact(key="home_city", value="Rome"))
    await memory.remember(USER, GivenMemory(content="Ann likes mate.", name="drink"))
    await replay(memory, generator(("home_city", "Paris"), fingerprint="3"))
    assert await facts(memory) == {"home_city": "Rome"}
    assert [each.value for each in await history(memory, "home_city")] == ["Rome"]
    assert await memories(memory) == ["Ann likes mate."]


async def test_what_was_written_survives_an_export(memory: Hippocampus, pool: asyncpg.Pool) -> None:
    """An import for another user keeps who wrote what, and what was retired."""
    await memory.remember(USER, GivenFact(key="home_city", value="Lyon"), by="ann")
    (pet,) = (await memory.remember(USER, GivenFact(key="car", value="a red one"))).ids
    await memory.retire(USER, pet)
    lines = [line async for line in export_memory(pool, APP, USER)]
    await memory.erasure.erase_user(APP, USER)
    await import_memory(pool, iter(lines))
    assert await facts(memory) == {"home_city": "Lyon"}
    assert [each.written_by for each in await history(memory, "home_city")] == ["ann"]


# Bad input


@pytest.mark.parametrize("verb", ["correct", "retire", "confirm"])
async def test_an_unknown_id_changes_nothing(memory: Hippocampus, verb: str) -> None:
    """Nor does the id of another user's."""
    (theirs,) = (await memory.remember("bo", "Bo likes tea.")).ids
    for target in (uuid4(), theirs):
        with pytest.raises(MemoryNotFoundError, match=str(target)):
            await getattr(memory, verb)(USER, target, *(["x"] if verb == "correct" else []))


async def test_bad_values_are_refused(memory: Hippocampus) -> None:
    (text,) = (await memory.remember(USER, "Ann likes tea.")).ids
    (home,) = (await memory.remember(USER, GivenFact(key="home_city", value="Lyon"))).ids
    for target, value in ((text, 7), (text, " "), (home, None), (home, "")):
        with pytest.raises(InvalidInputError):
            await memory.correct(USER, target, value)
    with pytest.raises(InvalidInputError, match="by must have at most"):
        await memory.retire(USER, home, by="x" * 256)
    assert await facts(memory) == {"home_city": "Lyon"}
    assert await memories(memory) == ["Ann likes tea."]
