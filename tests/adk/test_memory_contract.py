"""The contract of ADK's memory services: the same tests for both of ADK's own, in memory and SQLite, and for ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from google.adk.events.event import Event
from google.adk.memory import BaseMemoryService, InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import InMemorySessionService, Session
from google.genai import types

from hippocampus.adk import PostgresMemoryService
from hippocampus.consolidation.rederive import rederive_slices
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.search import SearchFilter
from pulse import events as pulse_events
from pulse.adk import PostgresSessionService
from pulse.errors import InvalidInputError
from pulse.session_service import OpenSessionService
from tests.support.adk.services import differs
from tests.support.queue_claims import work_off

WHO = {"app_name": "app", "user_id": "ann"}
IN_MEMORY, SQLITE, OURS = "in_memory", "sqlite", "postgres"
DELETES_NOTHING = "cannot delete a single memory"


@pytest.fixture
def dsn(contract_dsn: str) -> Iterator[str]:
    """One database for all tests; each removes its sessions, memories and jobs."""
    yield contract_dsn
    with psycopg.connect(contract_dsn) as connection:
        connection.execute("TRUNCATE threads, memories, facts, fact_versions, memory_tombstones, erasures CASCADE")
        connection.execute("TRUNCATE procrastinate_jobs CASCADE")


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> BaseMemoryService:
    mark = request.node.get_closest_marker("differs")
    reason = mark.kwargs.get(request.param) if mark else None
    if reason:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    if request.param == IN_MEMORY:
        return InMemoryMemoryService()
    if request.param == SQLITE:
        # The oldest supported ADK has none.
        from google.adk.memory import SqliteMemoryService

        return SqliteMemoryService(str(tmp_path / "memory.db"))
    return PostgresMemoryService(request.getfixturevalue("pool"), LocalEmbedder())


every_service = pytest.mark.parametrize("service", [IN_MEMORY, SQLITE, OURS], indirect=True)
ours = pytest.mark.parametrize("service", [OURS], indirect=True)


def said(text: str, author: str = "user", *, id_: str = "", at: float = 1_700_000_000.25, **fields: Any) -> Event:
    content = types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=text)])
    return Event(id=id_, author=author, content=content, timestamp=at, invocation_id="i", **fields)


def session_of(*events: Event, session_id: str = "s", user_id: str = "ann", app_name: str = "app") -> Session:
    return Session(id=session_id, app_name=app_name, user_id=user_id, events=list(events))


async def texts(service: BaseMemoryService, query: str, **who: str) -> list[str]:
    found = await service.search_memory(**{**WHO, **who}, query=query)
    return ["".join(part.text or "" for part in entry.content.parts or []) for entry in found.memories]


@every_service
async def test_an_added_session_is_found_by_its_words(service: BaseMemoryService) -> None:
    await service.add_session_to_memory(session_of(said("My cat is called Pixel."), said("Noted.", "helper")))
    # Ours may also return the neighbours of a match.
    assert (await texts(service, "cat"))[0] == "My cat is called Pixel."


@every_service
async def test_an_entry_has_its_author_and_time(service: BaseMemoryService) -> None:
    await service.add_session_to_memory(session_of(said("The harbour opens at nine.", "helper", at=1_700_000_123.5)))
    [entry] = (await service.search_memory(**WHO, query="harbour")).memories
    assert entry.author == "helper"
    assert entry.content.role == "model"
    assert entry.timestamp is not None
    assert datetime.fromisoformat(entry.timestamp).timestamp() == 1_700_000_123.5
    assert entry.id


@every_service
async def test_adding_a_session_again_adds_only_new_events(service: BaseMemoryService) -> None:
    first, second = said("The harbour is deep.", id_="e1"), said("The harbour is old.", id_="e2")
    await service.add_session_to_memory(session_of(first))
    await service.add_session_to_memory(session_of(first, second))
    await service.add_session_to_memory(session_of(first, second))
    assert sorted(await texts(service, "harbour")) == ["The harbour is deep.", "The harbour is old."]


@differs(sqlite="the last event with an id wins")
@every_service
async def test_events_are_added_as_a_delta_and_the_first_with_an_id_wins(service: BaseMemoryService) -> None:
    for text in ("The harbour is deep.", "The harbour is shallow."):
        await service.add_events_to_memory(**WHO, events=[said(text, id_="e1")], session_id="s")
    await service.add_events_to_memory(**WHO, events=[said("The harbour is old.", id_="e2")], session_id="s")
    assert sorted(await texts(service, "harbour")) == ["The harbour is deep.", "The harbour is old."]


@every_service
async def test_events_can_be_added_without_a_session(service: BaseMemoryService) -> None:
    await service.add_events_to_memory(**WHO, events=[said("The harbour is deep.", id_="e1")])
    await service.add_events_to_memory(**WHO, events=[said("The harbour is deep.", id_="e1")])
    assert await texts(service, "harbour") == ["The harbour is deep."]


@every_service
async def test_an_event_without_text_is_skipped(service: BaseMemoryService) -> None:
    call = types.Content(role="model", parts=[types.Part(function_call=types.FunctionCall(name="harbour", args={}))])
    empty = [Event(author="user"), Event(author="user", content=types.Content()), Event(author="helper", content=call)]
    await service.add_session_to_memory(session_of(*empty, said("The harbour is deep.")))
    assert await texts(service, "harbour") == ["The harbour is deep."]


@every_service
async def test_memories_of_other_users_and_apps_are_never_found(service: BaseMemoryService) -> None:
    await service.add_session_to_memory(session_of(said("The harbour is deep.")))
    await service.add_session_to_memory(session_of(said("The harbour is mine."), user_id="ben"))
    await service.add_session_to_memory(session_of(said("The harbour is elsewhere."), app_name="other"))
    assert await texts(service, "harbour", user_id="ben") == ["The harbour is mine."]
    assert await texts(service, "harbour", app_name="other") == ["The harbour is elsewhere."]
    assert await texts(service, "harbour", user_id="app/ann") == []


@every_service
async def test_app_and_user_are_compared_separately(service: BaseMemoryService) -> None:
    """Joined by a slash, ('a/b', 'c') and ('a', 'b/c') would be equal."""
    await service.add_session_to_memory(session_of(said("The harbour is deep."), app_name="a/b", user_id="c"))
    assert await texts(service, "harbour", app_name="a", user_id="b/c") == []
    assert await texts(service, "harbour", app_name="a/b", user_id="c") == ["The harbour is deep."]


@every_service
@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
async def test_a_blank_query_finds_nothing(service: BaseMemoryService, query: str) -> None:
    await service.add_session_to_memory(session_of(said("The harbour is deep.")))
    assert await texts(service, query) == []


@every_service
async def test_any_word_of_the_query_matches_and_more_words_rank_higher(service: BaseMemoryService) -> None:
    await service.add_session_to_memory(
        session_of(said("The harbour is deep."), said("We sail tomorrow."), said("We leave the harbour tomorrow."))
    )
    found = await texts(service, "HARBOUR tomorrow")
    assert found[0] == "We leave the harbour tomorrow."
    assert sorted(found[1:]) == ["The harbour is deep.", "We sail tomorrow."]


@every_service
@pytest.mark.parametrize(
    "query", [pytest.param("火锅", marks=differs(sqlite="does not find words within Chinese text")), "Python"]
)
async def test_chinese_and_an_embedded_latin_word_are_found(service: BaseMemoryService, query: str) -> None:
    await service.add_session_to_memory(session_of(said("我喜欢火锅，也用Python写代码"), said("天气很好")))
    assert (await texts(service, query))[0] == "我喜欢火锅，也用Python写代码"


@every_service
@pytest.mark.parametrize(("kept", "asked"), [("Café", "cafe\u0301"), ("cafe\u0301", "CAFÉ")])
async def test_accents_match_in_either_normal_form(service: BaseMemoryService, kept: str, asked: str) -> None:
    """A letter with its accent is one character or two, depending on the normal form."""
    await service.add_session_to_memory(session_of(said(f"Our {kept} is open."), said("The harbour is deep.")))
    assert (await texts(service, asked))[0] == f"Our {kept} is open."


@differs(sqlite="returns fifty")
@every_service
async def test_at_most_ten_entries_are_returned(service: BaseMemoryService) -> None:
    await service.add_session_to_memory(session_of(*[said(f"The harbour, note {n}.") for n in range(30)]))
    assert len(await texts(service, "harbour")) == 10


@differs(sqlite=DELETES_NOTHING)
@every_service
async def test_a_deleted_memory_stays_deleted_when_its_session_is_added_again(service: BaseMemoryService) -> None:
    session = session_of(said("The harbour is deep.", id_="e1"), said("The harbour is old.", id_="e2"))
    await service.add_session_to_memory(session)
    found = await service.search_memory(**WHO, query="deep")
    await service.delete_memory(**WHO, memory_id=found.memories[0].id)
    assert await texts(service, "harbour") == ["The harbour is old."]
    await service.add_session_to_memory(session)
    await service.add_events_to_memory(**WHO, events=session.events, session_id="s")
    assert await texts(service, "harbour") == ["The harbour is old."]


@differs(sqlite=DELETES_NOTHING)
@every_service
async def test_a_deleted_memory_stays_deleted_when_it_is_added_with_another_session(service: BaseMemoryService) -> None:
    """It is the same event, also if it was first added without a session."""
    event = said("The harbour is deep.", id_="e1")
    await service.add_events_to_memory(**WHO, events=[event])
    await service.add_events_to_memory(**WHO, events=[event], session_id="s")
    found = await service.search_memory(**WHO, query="deep")
    await service.delete_memory(**WHO, memory_id=found.memories[0].id)
    assert await texts(service, "harbour") == []
    await service.add_session_to_memory(session_of(event, said("The harbour is old.", id_="e2"), session_id="t"))
    assert await texts(service, "harbour") == ["The harbour is old."]
    await service.add_events_to_memory(app_name="app", user_id="ben", events=[event])
    assert await texts(service, "harbour", user_id="ben") == ["The harbour is deep."]


@ours
async def test_another_event_with_the_same_id_is_not_deleted(service: BaseMemoryService) -> None:
    """Counters used as event ids are unique only within a session."""
    other = said("The harbour of Ghent.", id_="e1", at=1_700_000_999.5)
    await service.add_session_to_memory(session_of(said("The harbour is deep.", id_="e1")))
    await service.add_session_to_memory(session_of(other, session_id="t"))
    found = (await service.search_memory(**WHO, query="deep")).memories
    await service.delete_memory(**WHO, memory_id=found[0].id)
    assert await texts(service, "harbour") == ["The harbour of Ghent."]
    await service.add_session_to_memory(session_of(other, session_id="u"))
    assert await texts(service, "harbour") == ["The harbour of Ghent."] * 2


@differs(sqlite=DELETES_NOTHING)
@every_service
async def test_deleting_affects_no_other_user_and_an_unknown_id_is_not_an_error(service: BaseMemoryService) -> None:
    await service.add_session_to_memory(session_of(said("The harbour is deep.")))
    [entry] = (await service.search_memory(**WHO, query="harbour")).memories
    await service.delete_memory(app_name="app", user_id="ben", memory_id=entry.id)
    await service.delete_memory(app_name="other", user_id="ann", memory_id=entry.id)
    for nothing in (None, "", "no such id", "00000000-0000-0000-0000-000000000000"):
        await service.delete_memory(**WHO, memory_id=nothing)
    assert await texts(service, "harbour") == ["The harbour is deep."]


@every_service
async def test_concurrent_adds_and_searches_are_safe(service: BaseMemoryService) -> None:
    session = session_of(*[said(f"The harbour, note {n}.", id_=f"e{n}") for n in range(5)])
    await asyncio.gather(*[service.add_session_to_memory(session) for _ in range(8)], texts(service, "harbour"))
    assert len(await texts(service, "harbour")) == 5


@every_service
async def test_a_live_session_of_adks_own_service_can_be_added(service: BaseMemoryService) -> None:
    sessions = InMemorySessionService()
    session = await sessions.create_session(**WHO, session_id="live")
    await sessions.append_event(session, said("The harbour is deep."))
    await service.add_session_to_memory(session)
    await sessions.append_event(session, said("The harbour is old."))
    await service.add_session_to_memory(session)
    assert sorted(await texts(service, "harbour")) == ["The harbour is deep.", "The harbour is old."]


async def consolidate(pool: asyncpg.Pool) -> None:
    """Do the work of the workers, and re-extract slices."""
    await work_off(pool, MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder()))
    await rederive_slices(pool, LocalGenerator(), LocalEmbedder())


async def memories_with(pool: asyncpg.Pool, word: str) -> list[str]:
    """The memories with a word, slices included, and the facts."""
    rows = await pool.fetch(
        """SELECT content FROM (SELECT content FROM memories UNION ALL SELECT content FROM facts) AS known
           WHERE strpos(content, $1) > 0""",
        word,
    )
    return [row["content"] for row in rows]


@ours
async def test_adding_a_session_enqueues_its_consolidation_once(
    service: BaseMemoryService, conn: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    """No call waits for a model, and a session with nothing new enqueues nothing."""
    session = session_of(said("I live in Bruges."), said("I love plum jam."))
    for _ in range(3):
        await service.add_session_to_memory(session)
    waiting = "SELECT array_agg(job_type ORDER BY job_type) FROM consolidation_jobs WHERE status = 'pending'"
    assert await conn.fetchval(waiting) == ["deep_reflection", "fast_replay"]
    await consolidate(pool)
    await service.add_session_to_memory(session)
    assert await conn.fetchval(waiting) is None
    [fact] = [
        e
        for e in (await service.search_memory(**WHO, query="plum jam")).memories
        if e.custom_metadata["source"] == "fact"
    ]
    assert "plum jam" in (fact.content.parts or [types.Part()])[0].text  # type: ignore[operator]


@ours
async def test_an_entry_has_its_provenance_and_the_matched_terms(service: BaseMemoryService) -> None:
    await service.add_session_to_memory(session_of(said("The harbour is deep.", id_="e1")))
    [entry] = (await service.search_memory(**WHO, query="deep harbour")).memories
    meta = entry.custom_metadata
    assert (meta["source"], meta["session_id"], meta["event_id"], meta["source_seqs"]) == ("message", "s", "e1", [1])
    assert 0 < meta["relevance"] <= 1
    assert 0 < meta["score"] <= 1
    assert set(meta["matched_terms"]) == {"deep", "harbour"}
    assert MemoryEntry.model_validate_json(entry.model_dump_json()) == entry


@ours
async def test_sessions_with_long_ids_or_ids_like_the_memorys_threads_do_not_collide(
    service: BaseMemoryService, pool: asyncpg.Pool
) -> None:
    """512 characters leave no space for a prefix, and a session's id may equal that of one of the memory's threads."""
    sessions = OpenSessionService(pool)
    real = await sessions.create_session("app", "ann", session_id="memory:s")
    await sessions.append_event(
        real, pulse_events.Event(id="e1", author="user", content={"text": "The harbour of Ghent."})
    )
    await sessions.close()
    ids = ["x" * 511 + "1", "x" * 511 + "2", "memory:s", "s", " padded "]
    for _ in range(2):
        for number, id_ in enumerate(ids):
            event = said(f"The harbour, note {number}.", id_="e1")
            await service.add_session_to_memory(session_of(event, session_id=id_))
    found = (await service.search_memory(**WHO, query="harbour")).memories
    sessions_of_texts = {
        entry.content.parts[0].text: entry.custom_metadata["session_id"] for entry in found if entry.content.parts
    }
    assert len(found) == len(sessions_of_texts) == 5
    assert sessions_of_texts == {
        "The harbour, note 0.": ids[0],
        "The harbour, note 1.": ids[1],
        "The harbour of Ghent.": "memory:s",
        "The harbour, note 3.": "s",
        "The harbour, note 4.": "padded",
    }
    kept = await sessions.get_session("app", "ann", "memory:s")
    assert kept is not None
    assert (kept.version, len(kept.events)) == (1, 1)


@ours
async def test_a_session_of_the_engine_is_read_without_a_copy(
    service: BaseMemoryService, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Its events are not copied, and its version does not change."""
    sessions = OpenSessionService(pool)
    kept = await sessions.create_session("app", "ann", session_id="s")
    await sessions.append_event(
        kept, pulse_events.Event(id="e1", author="user", content={"text": "The harbour is deep."})
    )
    await service.add_session_to_memory(session_of(said("The harbour is deep.", id_="e1")))
    assert await texts(service, "harbour") == ["The harbour is deep."]
    assert await conn.fetchval("SELECT count(*) FROM threads") == 1
    await service.add_events_to_memory(**WHO, events=[said("A note aside on the harbour.", id_="x")], session_id="s")
    assert sorted(await texts(service, "harbour")) == ["A note aside on the harbour.", "The harbour is deep."]
    read = await sessions.get_session("app", "ann", "s")
    assert read is not None
    assert (read.version, [event.id for event in read.events]) == (1, ["e1"])
    await sessions.close()


@ours
async def test_a_deleted_turn_is_in_no_summary_and_is_not_extracted_again(
    service: BaseMemoryService, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """When a consolidated turn is deleted, its summary, slice and facts lose it, and no later job brings it back."""
    session = session_of(
        said("I love plum jam.", id_="e1"), said("I live in Bruges.", id_="e2"), said("I work as a baker.", id_="e3")
    )
    await service.add_session_to_memory(session)
    await consolidate(pool)
    assert len(await memories_with(pool, "plum")) >= 2
    found = await service.search_memory(**WHO, query="plum jam")
    [turn] = [entry for entry in found.memories if entry.custom_metadata.get("event_id") == "e1"]
    await service.delete_memory(**WHO, memory_id=turn.id)
    assert await memories_with(pool, "plum") == []
    await consolidate(pool)
    await service.add_session_to_memory(session_of(*session.events, said("What a day.", id_="e4")))
    await consolidate(pool)
    assert await memories_with(pool, "plum") == []
    assert [text for text in await memories_with(pool, "Bruges") if "baker" in text], "the slice was not re-extracted"
    assert await conn.fetchval("SELECT count(*) FROM events WHERE id = 'e1' AND content::text LIKE '%plum%'") == 1


@ours
async def test_a_deleted_fact_is_not_extracted_again_from_the_same_turns(
    service: BaseMemoryService, pool: asyncpg.Pool
) -> None:
    session = session_of(said("I love plum jam.", id_="e1"), said("I live in Bruges.", id_="e2"))
    await service.add_session_to_memory(session)
    await consolidate(pool)

    async def facts() -> list[str | None]:
        found = (await service.search_memory(**WHO, query="plum jam")).memories
        return [entry.id for entry in found if entry.custom_metadata["source"] == "fact"]

    assert await facts()
    for fact in await facts():
        await service.delete_memory(**WHO, memory_id=fact)
    await service.add_session_to_memory(session)
    await pool.execute("UPDATE threads SET deep_upto_seq = 0, fast_upto_seq = 0")
    await service.add_session_to_memory(session)
    await pool.execute("DELETE FROM memories")
    await consolidate(pool)
    assert await facts() == []


@ours
async def test_an_added_memory_is_found_replaced_by_its_id_and_deleted(service: BaseMemoryService) -> None:
    def entry(text: str) -> MemoryEntry:
        content = types.Content(role="user", parts=[types.Part(text=text)])
        return MemoryEntry(id="diet", content=content, author="doctor", timestamp="2026-01-02T03:04:05+00:00")

    await service.add_memory(**WHO, memories=[entry("Ann must not eat nuts.")], custom_metadata={"ward": 7})
    [found] = (await service.search_memory(**WHO, query="nuts")).memories
    assert found.author == "doctor"
    assert found.timestamp == "2026-01-02T03:04:05+00:00"
    assert found.custom_metadata["ward"] == 7
    assert {"author", "name", "adk", "metadata"}.isdisjoint(found.custom_metadata)
    await service.add_memory(**WHO, memories=[entry("Ann may eat nuts again.")])
    assert await texts(service, "nuts") == ["Ann may eat nuts again."]
    await service.add_memory(app_name="app", user_id="ben", memories=[entry("Ben hates nuts.")])
    assert await texts(service, "nuts") == ["Ann may eat nuts again."]
    # By the id of the search, or by the one that it was given with.
    await service.delete_memory(**WHO, memory_id=found.id)
    assert await texts(service, "nuts") == []
    await service.add_memory(**WHO, memories=[entry("Ann must not eat nuts.")])
    await service.delete_memory(**WHO, memory_id="diet")
    assert await texts(service, "nuts") == []
    assert await texts(service, "nuts", user_id="ben") == ["Ben hates nuts."]


@ours
async def test_options_of_a_call_act_or_are_refused_by_name(service: BaseMemoryService) -> None:
    assert isinstance(service, PostgresMemoryService)
    entries = [
        MemoryEntry(content=types.Content(parts=[types.Part(text=text)]), custom_metadata={"place": place})
        for text, place in (("The harbour is deep.", "Ghent"), ("The harbour is old.", "Bruges"))
    ]
    for option in ("ttl", "topics", "wait_for_completion", "enable_consolidation"):
        with pytest.raises(InvalidInputError, match=f"no option {option}:"):
            await service.add_memory(**WHO, memories=entries, custom_metadata={option: True})
        with pytest.raises(InvalidInputError, match=f"no option {option}:"):
            await service.add_events_to_memory(**WHO, events=[said("The harbour.")], custom_metadata={option: True})
    assert await texts(service, "harbour") == []
    await service.add_memory(**WHO, memories=entries)
    assert len((await service.search_memory(**WHO, query="harbour", limit=1)).memories) == 1
    narrow = SearchFilter(metadata={"place": "Bruges"})
    [found] = (await service.search_memory(**WHO, query="harbour", filter=narrow)).memories
    assert found.custom_metadata["place"] == "Bruges"
    with pytest.raises(InvalidInputError, match="limit"):
        await service.search_memory(**WHO, query="harbour", limit=0)


@ours
async def test_nested_metadata_is_stored_as_that_of_the_memory(service: BaseMemoryService) -> None:
    """As Vertex AI's service takes it: a filter finds it, and keys beside it take precedence. Nothing in it is an
    option."""
    assert isinstance(service, PostgresMemoryService)
    content = types.Content(parts=[types.Part(text="The harbour is deep.")])
    inner = {"place": "Ghent", "desk": 1, "importance": "a word", "ttl": "a word"}
    shared = {"metadata": inner, "desk": 2, "importance": "low"}
    await service.add_memory(
        **WHO,
        memories=[MemoryEntry(content=content, custom_metadata={"metadata": {"desk": 3}})],
        custom_metadata=shared,
    )
    narrow = SearchFilter(metadata={"place": "Ghent"})
    [found] = (await service.search_memory(**WHO, query="harbour", filter=narrow)).memories
    kept = {key: found.custom_metadata.get(key) for key in ("place", "desk", "importance", "ttl", "metadata")}
    assert kept == {"place": "Ghent", "desk": 3, "importance": "a word", "ttl": "a word", "metadata": None}
    assert found.custom_metadata["retention"] < 0.5
    with pytest.raises(InvalidInputError, match="must be a mapping of metadata, not 'Ghent'"):
        await service.add_memory(**WHO, memories=[MemoryEntry(content=content)], custom_metadata={"metadata": "Ghent"})
    await service.add_memory(**WHO, memories=[MemoryEntry(content=content)], custom_metadata={"metadata": None})


@ours
async def test_one_invalid_memory_refuses_the_whole_call(service: BaseMemoryService) -> None:
    good = MemoryEntry(content=types.Content(parts=[types.Part(text="The harbour is deep.")]))
    picture = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x"))
    for bad in (
        MemoryEntry(content=types.Content(parts=[])),
        MemoryEntry(content=types.Content(parts=[types.Part(text="  ")])),
        MemoryEntry(content=types.Content(parts=[types.Part(text="a"), picture])),
        MemoryEntry(content=good.content, timestamp="yesterday"),
        MemoryEntry(content=good.content, custom_metadata={"importance": "huge"}),
        MemoryEntry(content=good.content, custom_metadata={"object": object()}),
    ):
        with pytest.raises(InvalidInputError):
            await service.add_memory(**WHO, memories=[good, bad])
    assert await texts(service, "harbour") == []


@ours
async def test_the_question_is_not_its_own_answer(service: BaseMemoryService) -> None:
    """The turn with the question is stored before the memory is searched for it."""
    await service.add_session_to_memory(session_of(said("The harbour is deep."), said("How deep is the harbour?")))
    assert await texts(service, "How deep is the harbour?") == ["The harbour is deep."]


@ours
async def test_a_service_with_a_url_works_in_any_number_of_event_loops(dsn: str, service: BaseMemoryService) -> None:
    """Each call runs in its own thread and event loop, as in a Runner."""
    del service
    by_url = PostgresMemoryService(dsn, LocalEmbedder())

    def in_a_new_loop(work: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work()

        return asyncio.run(run())

    for number in range(3):
        session = session_of(said(f"The harbour, note {number}."), session_id=f"s{number}")
        await asyncio.to_thread(in_a_new_loop, lambda session=session: by_url.add_session_to_memory(session))
    found = await asyncio.gather(
        *[asyncio.to_thread(in_a_new_loop, lambda: texts(by_url, "harbour")) for _ in range(3)]
    )
    assert [len(each) for each in found] == [3, 3, 3]
    await by_url.close()
    await by_url.close()
    assert len(await texts(by_url, "harbour")) == 3, "a closed service did not reopen"
    await by_url.close()


@ours
async def test_adks_list_of_sessions_excludes_the_memorys_threads(
    service: BaseMemoryService, pool: asyncpg.Pool
) -> None:
    """Sessions of another service are not listed as ours, and their ids stay free."""
    await service.add_session_to_memory(session_of(said("The harbour is deep."), session_id="elsewhere"))
    sessions = PostgresSessionService(pool)
    assert (await sessions.list_sessions(app_name="app", user_id="ann")).sessions == []
    assert await sessions.get_session(**WHO, session_id="elsewhere") is None
    await sessions.create_session(**WHO, session_id="elsewhere")
    assert [each.id for each in (await sessions.list_sessions(app_name="app")).sessions] == ["elsewhere"]
    await sessions.close()


@ours
async def test_a_live_session_of_ours_is_searched_without_a_copy(
    service: BaseMemoryService, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    sessions = PostgresSessionService(pool)
    session = await sessions.create_session(**WHO, session_id="s")
    await sessions.append_event(session, said("The harbour is deep."))
    assert await texts(service, "harbour") == ["The harbour is deep."], "not found before it was added"
    await service.add_session_to_memory(session)
    assert await texts(service, "harbour") == ["The harbour is deep."]
    assert await conn.fetchval("SELECT count(*) FROM threads") == 1
    await sessions.append_event(session, said("The harbour is old."))
    await sessions.close()
