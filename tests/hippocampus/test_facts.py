"""Facts: what a repeated key does, and which value was valid when."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.records import ExtractedFact, FactType, FactVersion, HistoryPosition
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.lock_gates import until_one_waits_for_a_lock
from tests.support.queue_claims import work_off
from tests.support.scripted_provider import ScriptedEmbedder, ScriptedGenerator

APP, USER, KEY = "app", "mei", "home_city"
DAY_1 = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOCK_FACT = "SELECT FROM facts WHERE key = $1 FOR UPDATE"
DAY_2, DAY_3, DAY_4 = (DAY_1 + timedelta(days=n) for n in (1, 2, 3))


@pytest.fixture
def service(pool: asyncpg.Pool) -> OpenMemoryService:
    return OpenMemoryService(pool, LocalEmbedder())


def fact(
    value: Any, confidence: float = 0.9, *, key: str = KEY, kind: FactType = "profile", ended: bool = False
) -> ExtractedFact:
    return ExtractedFact(fact_type=kind, key=key, value=value, confidence=confidence, source_seqs=(1,), ended=ended)


async def learn(
    pool: asyncpg.Pool,
    *facts: ExtractedFact,
    at: datetime,
    user: str = USER,
    session_id: str | None = None,
    embedder: ScriptedEmbedder | None = None,
) -> list[str]:
    """Learn these facts of a user at a time, in a new session or the given one; return the outcomes."""
    sessions = OpenSessionService(pool)
    session = await sessions.get_session(APP, user, session_id) if session_id else None
    session = session or await sessions.create_session(APP, user, session_id=session_id)
    event = Event(author="user", content={"text": "..."}, timestamp=at.timestamp())
    (stored,) = (await sessions.append(APP, user, session.id, [event])).events
    assert stored.sequence_num is not None
    extracted = [
        ExtractedFact(
            fact_type=f.fact_type,
            key=f.key,
            value=f.value,
            confidence=f.confidence,
            source_seqs=(stored.sequence_num,),
            ended=f.ended,
        )
        for f in facts
    ]
    worker = MemoryConsolidationWorker(
        pool, ScriptedGenerator(reflections=[(extracted, [])]), embedder or ScriptedEmbedder()
    )
    await worker.consolidate(session.thread_id, "deep_reflection", wait=False)
    (job,) = await work_off(pool, worker)
    return [stored_fact["outcome"] for stored_fact in job.result["facts"]]


async def current(pool: asyncpg.Pool) -> asyncpg.Record:
    row = await pool.fetchrow("SELECT * FROM facts")
    assert row is not None
    return row


async def versions(pool: asyncpg.Pool) -> list[tuple[Any, ...]]:
    """Superseded versions, ordered by when they were said."""
    rows = await pool.fetch(
        """SELECT h.value, h.outcome, h.valid_from, h.valid_until
           FROM facts AS f CROSS JOIN LATERAL fact_history(f.app_name, f.user_id, f.fact_type, f.key) AS h
           WHERE h.outcome <> 'current' ORDER BY h.valid_from, h.recorded_at"""
    )
    return [tuple(row) for row in rows]


async def test_a_first_statement_is_valid_from_when_it_was_said(pool: asyncpg.Pool) -> None:
    assert await learn(pool, fact("Lisbon"), at=DAY_1) == ["created"]
    row = await current(pool)
    assert (row["value"], row["valid_from"], row["valid_until"]) == ("Lisbon", DAY_1, None)
    assert row["recorded_at"] > DAY_4
    assert row["content"] == "home_city: Lisbon"
    assert await versions(pool) == []


async def test_a_newer_statement_replaces_and_keeps_the_old_one(pool: asyncpg.Pool) -> None:
    await learn(pool, fact("Lisbon"), at=DAY_1)
    before = await current(pool)
    assert await learn(pool, fact("Porto", 0.8), at=DAY_2) == ["updated"]
    row = await current(pool)
    assert (row["id"], row["value"], row["confidence"], row["valid_from"]) == (before["id"], "Porto", 0.8, DAY_2)
    assert row["thread_id"] != before["thread_id"]
    assert row["created_at"] == before["created_at"]
    assert list(row["embedding"].to_list()) != list(before["embedding"].to_list())
    assert await versions(pool) == [("Lisbon", "superseded", DAY_1, DAY_2)]
    kept = await pool.fetchrow(
        "SELECT * FROM fact_history($1, $2, 'profile', $3) WHERE outcome <> 'current'", APP, USER, KEY
    )
    assert kept is not None
    assert kept["superseded_at"] == row["recorded_at"]
    event = await pool.fetchrow("SELECT * FROM events WHERE thread_id = $1", row["thread_id"])
    assert event is not None
    ender = (kept["superseded_by_thread_id"], kept["superseded_by_seq"], kept["superseded_by_event_id"])
    assert ender == (row["thread_id"], 1, event["id"])
    provenance = ("fact_id", "thread_id", "confidence", "recorded_at", "source_seqs", "job_id", "prompt_hash", "model")
    old = {**dict(before), "fact_id": before["id"]}
    assert {name: kept[name] for name in provenance} == {name: old[name] for name in provenance}


async def test_a_repeated_value_raises_the_confidence_and_adds_its_turns(pool: asyncpg.Pool) -> None:
    await learn(pool, fact({"b": 1, "a": [2]}, 0.6), at=DAY_1, session_id="s")
    assert await learn(pool, fact({"a": [2], "b": 1}, 0.9), at=DAY_2, session_id="s") == ["confirmed"]
    assert await learn(pool, fact({"a": [2], "b": 1.0}, 0.3), at=DAY_3, session_id="s") == ["confirmed"]
    row = await current(pool)
    assert (row["confidence"], row["source_seqs"], row["valid_from"]) == (0.9, [1, 2, 3], DAY_1)
    assert (row["from_seq"], row["upto_seq"]) == (1, 3)
    assert await versions(pool) == []


async def test_turns_of_another_thread_are_never_added(pool: asyncpg.Pool) -> None:
    """Sequence numbers mean nothing outside their thread."""
    await learn(pool, fact("Lisbon"), at=DAY_1, session_id="a")
    first = await current(pool)
    await learn(pool, fact("x", key="other"), at=DAY_1, session_id="b")
    await learn(pool, fact("Lisbon", 1.0), at=DAY_2, session_id="b")
    row = await pool.fetchrow("SELECT * FROM facts WHERE key = $1", KEY)
    assert row is not None
    assert (row["thread_id"], row["source_seqs"], row["confidence"]) == (first["thread_id"], [1], 1.0)
    await OpenSessionService(pool).delete_session(APP, USER, "a")
    await learn(pool, fact("Lisbon"), at=DAY_3, session_id="b")
    row = await pool.fetchrow(
        "SELECT f.*, t.session_id FROM facts f JOIN threads t ON t.id = thread_id WHERE key = $1", KEY
    )
    assert row is not None
    assert (row["session_id"], row["source_seqs"]) == ("b", [2, 3])


async def test_a_much_less_certain_statement_does_not_overwrite(pool: asyncpg.Pool) -> None:
    await learn(pool, fact("Lisbon", 0.9), at=DAY_1)
    assert await learn(pool, fact("Mars", 0.3), at=DAY_2) == ["candidate"]
    assert (await current(pool))["value"] == "Lisbon"
    assert await versions(pool) == [("Mars", "candidate", DAY_2, None)]


async def test_a_statement_of_similar_confidence_replaces(pool: asyncpg.Pool) -> None:
    """A person who moves is believed even if the model's confidence in the new sentence is slightly lower."""
    await learn(pool, fact("Lisbon", 1.0), at=DAY_1)
    assert await learn(pool, fact("Porto", 0.9), at=DAY_2) == ["updated"]
    assert await learn(pool, fact("Faro", 0.79), at=DAY_3) == ["candidate"]


async def test_an_old_statement_that_arrives_late_is_history(pool: asyncpg.Pool) -> None:
    await learn(pool, fact("Lisbon", 0.5), at=DAY_1)
    await learn(pool, fact("Faro", 0.5), at=DAY_4)
    assert await learn(pool, fact("Porto", 1.0), at=DAY_2) == ["out_of_order"]
    assert await learn(pool, fact("Braga", 1.0), at=DAY_3) == ["out_of_order"]
    assert (await current(pool))["value"] == "Faro"
    assert await versions(pool) == [
        ("Lisbon", "superseded", DAY_1, DAY_2),
        ("Porto", "superseded", DAY_2, DAY_3),
        ("Braga", "out_of_order", DAY_3, DAY_4),
    ]


async def test_a_value_on_both_sides_of_a_late_statement_holds_on_both_sides(
    pool: asyncpg.Pool, service: OpenMemoryService
) -> None:
    await learn(pool, fact("Lisbon"), at=DAY_1)
    await learn(pool, fact("Lisbon"), at=DAY_3)
    assert await learn(pool, fact("Porto"), at=DAY_2) == ["out_of_order"]
    row = await current(pool)
    assert (row["value"], row["valid_from"], row["last_said_at"]) == ("Lisbon", DAY_3, DAY_3)
    assert sorted(await versions(pool)) == [
        ("Lisbon", "superseded", DAY_1, DAY_2),
        ("Porto", "out_of_order", DAY_2, DAY_3),
    ]


async def test_the_last_one_said_holds_in_whatever_order_statements_arrive(
    pool: asyncpg.Pool, service: OpenMemoryService
) -> None:
    """If their values differ, each holds at its own time."""
    days = [DAY_1, DAY_2, DAY_3, DAY_4]
    for n, arrival in enumerate(itertools.permutations(range(4))):
        for values in ("abcd", "abab", "aaba", "abba"):
            user = f"{values}{n}"
            for said in arrival:
                await record(pool, user, values[said], days[said])
            (held,) = await service.list_facts(app_name=APP, user_id=user)
            assert held.value == values[3], (values, arrival)
            if values != "abcd":
                continue
            for day, value in zip(days, values, strict=True):
                (then,) = await service.list_facts(app_name=APP, user_id=user, as_of=day + timedelta(hours=1))
                assert then.value == value, (values, arrival)


async def record(pool: asyncpg.Pool, user: str, value: str, at: datetime) -> None:
    """Store one fact as a job does, without the job."""
    await pool.execute(
        """SELECT record_fact(
               ROW(t.*)::threads, ROW(NULL, 1, 1, NULL, NULL, NULL)::slice_origin,
               ROW('profile', 'k', to_jsonb($2::text), 'k', NULL, 0.9, '{1}', $3::timestamptz, 'k',
                   NULL, '')::fact_input)
           FROM (SELECT (jsonb_populate_record(NULL::threads,
                     jsonb_build_object('app_name', 'app', 'user_id', $1::text))).*) AS t""",
        user,
        value,
        at,
    )


async def test_a_value_said_earlier_was_true_earlier(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    """Unless another value lies between: then it is an interval of its own."""
    await learn(pool, fact("Porto"), at=DAY_4)
    assert await learn(pool, fact("Porto"), at=DAY_3) == ["confirmed"]
    assert (await current(pool))["valid_from"] == DAY_3
    assert await learn(pool, fact("Lisbon"), at=DAY_2) == ["out_of_order"]
    assert await learn(pool, fact("Porto"), at=DAY_1) == ["out_of_order"]
    row = await current(pool)
    assert (row["value"], row["valid_from"], row["last_said_at"]) == ("Porto", DAY_3, DAY_4)
    assert sorted(await versions(pool)) == [
        ("Lisbon", "out_of_order", DAY_2, DAY_3),
        ("Porto", "out_of_order", DAY_1, DAY_2),
    ]


async def test_an_expired_fact_that_recurs_is_open_again(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    """Whether with the same value or another, and however certain the expired one was."""
    for value, confidence in (("Lisbon", 1.0), ("Lisbon", 0.4), ("Porto", 0.1)):
        await pool.execute("UPDATE facts SET valid_until = valid_from + interval '1 hour'")
        assert await service.list_facts(app_name=APP, user_id=USER) == []
        at = {1.0: DAY_1, 0.4: DAY_2, 0.1: DAY_3}[confidence]
        outcome = await learn(pool, fact(value, confidence), at=at)
        assert outcome == (["created"] if at == DAY_1 else ["reopened"])
        (listed,) = await service.list_facts(app_name=APP, user_id=USER)
        assert (listed.value, listed.confidence, listed.valid_from, listed.valid_until) == (value, confidence, at, None)
    hour = timedelta(hours=1)
    assert await versions(pool) == [
        ("Lisbon", "superseded", DAY_1, DAY_1 + hour),
        ("Lisbon", "superseded", DAY_2, DAY_2 + hour),
    ]


async def test_two_statements_of_one_key_in_one_reply_apply_in_order(
    pool: asyncpg.Pool, service: OpenMemoryService
) -> None:
    outcomes = await learn(pool, fact("a", key="z"), fact("Lisbon"), fact("Porto"), fact("Porto"), at=DAY_1)
    assert outcomes == ["created", "created", "updated", "confirmed"]
    history = await service.fact_history(app_name=APP, user_id=USER, fact_type="profile", key=KEY)
    assert [(v.value, v.outcome) for v in history] == [("Porto", "current"), ("Lisbon", "superseded")]
    (held,) = await service.list_facts(app_name=APP, user_id=USER, key=KEY, as_of=DAY_1)
    assert held.value == "Porto"


async def test_a_history_is_read_page_by_page(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    """For any page size, also if many statements have the same times."""
    await learn(pool, *(fact(f"city {number}") for number in range(4)), at=DAY_1)
    await learn(pool, *(fact(f"town {number}") for number in range(3)), fact("unsure", 0.1), at=DAY_2)
    asked = {"app_name": APP, "user_id": USER, "fact_type": "profile", "key": KEY}
    whole = await service.fact_history(**asked)
    assert len(whole) > 7
    for limit in (1, 2, 3, len(whole)):
        found, place = list[FactVersion](), None
        while page := await service.fact_history(**asked, limit=limit, after=place):
            found += page
            place = HistoryPosition.after(page, place)
        assert found == whole


async def test_type_user_and_app_keep_equal_keys_apart(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    await learn(pool, fact("a"), fact("b", kind="preference"), at=DAY_1)
    await learn(pool, fact("c"), at=DAY_2, user="tom")
    listed = await service.list_facts(app_name=APP, user_id=USER)
    assert [(f.fact_type, f.value) for f in listed] == [("preference", "b"), ("profile", "a")]
    assert [f.value for f in await service.list_facts(app_name=APP, user_id="tom")] == ["c"]
    assert await service.list_facts(app_name="other", user_id=USER) == []


async def test_what_was_true_when_and_what_was_known_when(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    """The two clocks are independent: Porto is learned late, and was true before Faro all along."""

    async def held(as_of: datetime | None, known_at: datetime | None = None) -> list[Any]:
        facts = await service.list_facts(app_name=APP, user_id=USER, as_of=as_of, known_at=known_at)
        return [f.value for f in facts]

    recorded = []
    for value, at in (("Lisbon", DAY_1), ("Faro", DAY_3), ("Porto", DAY_2), ("Mars", DAY_4)):
        await learn(pool, fact(value, 0.1 if value == "Mars" else 0.9), at=at)
        recorded.append(await pool.fetchval("SELECT clock_timestamp()"))
    after_lisbon, after_faro, after_porto, _ = recorded
    second = timedelta(seconds=1)
    assert await held(DAY_1 - second) == []
    assert await held(DAY_1) == ["Lisbon"]
    assert await held(DAY_2 - second) == ["Lisbon"]
    assert await held(DAY_2) == ["Porto"]
    assert await held(DAY_3) == ["Faro"]
    assert await held(None) == ["Faro"]
    assert await held(DAY_4, after_lisbon) == ["Lisbon"]
    assert await held(DAY_2, after_faro) == ["Lisbon"]
    assert await held(DAY_2, after_porto) == ["Porto"]
    assert await held(DAY_4, DAY_4) == []


async def test_a_late_statement_of_the_same_moment_is_valid_from_then(
    pool: asyncpg.Pool, service: OpenMemoryService
) -> None:
    """Lisbon was said on day 1 and day 3; Porto, also said on day 1, is learned last."""
    for value, at in (("Lisbon", DAY_1), ("Lisbon", DAY_3), ("Porto", DAY_1)):
        await learn(pool, fact(value), at=at)
    for as_of, expected in ((DAY_1, "Porto"), (DAY_2, "Porto"), (DAY_3, "Lisbon")):
        (held,) = await service.list_facts(app_name=APP, user_id=USER, as_of=as_of)
        assert held.value == expected


async def test_jobs_of_one_user_lock_the_same_keys_in_one_order(pool: asyncpg.Pool, conn: asyncpg.Connection) -> None:
    """Another thread's job holds the first key and waits for the next; the order in a model's reply does not matter."""
    await learn(pool, fact("x", key="a"), fact("x", key="b"), at=DAY_1)
    async with conn.transaction():
        await conn.execute(LOCK_FACT, "a")
        learning = asyncio.create_task(learn(pool, fact("y", key="b"), fact("y", key="a"), at=DAY_2))
        await until_one_waits_for_a_lock(pool)
        await conn.execute(LOCK_FACT, "b")
    assert await learning == ["updated", "updated"]


async def test_a_key_that_two_threads_learn_concurrently_keeps_both_statements(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """The row that another transaction is about to commit is waited for, and then counts."""
    async with conn.transaction():
        await conn.execute(
            """INSERT INTO facts (app_name, user_id, fact_type, key, value, content, valid_from)
               VALUES ($1, $2, 'profile', $3, to_jsonb('Lisbon'::text), 'home_city: Lisbon', $4)""",
            APP,
            USER,
            KEY,
            DAY_1,
        )
        learning = asyncio.create_task(learn(pool, fact("Porto", 1.0), at=DAY_2))
        await until_one_waits_for_a_lock(pool)
    assert await learning == ["updated"]
    assert await versions(pool) == [("Lisbon", "superseded", DAY_1, DAY_2)]


async def test_a_fact_added_by_plain_sql_has_one_statement(pool: asyncpg.Pool) -> None:
    await learn(pool, fact("Lisbon"), at=DAY_2)
    await pool.execute("UPDATE facts SET last_said_at = NULL")
    assert await learn(pool, fact("Porto"), at=DAY_1) == ["out_of_order"]
    assert await learn(pool, fact("Lisbon"), at=DAY_4) == ["confirmed"]
    assert await learn(pool, fact("Faro"), at=DAY_3) == ["out_of_order"]


async def test_the_history_names_its_sources(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    await learn(pool, fact("Lisbon"), at=DAY_1)
    await learn(pool, fact("Mars", 0.1), at=DAY_2)
    await learn(pool, fact("Porto"), at=DAY_3)
    history = await service.fact_history(app_name=APP, user_id=USER, fact_type="profile", key=KEY)
    assert [(v.value, v.outcome) for v in history] == [
        ("Porto", "current"),
        ("Mars", "candidate"),
        ("Lisbon", "superseded"),
    ]
    assert len({v.job_id for v in history}) == len({v.thread_id for v in history}) == 3
    assert all(isinstance(v.job_id, UUID) for v in history)
    assert {(v.source_seqs, v.model) for v in history} == {((1,), "scripted-1")}
    assert len({v.fact_id for v in history}) == 1


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("Lisbon", "home_city: Lisbon"),
        ({"subject": "user", "text": "lives in Lisbon"}, "home_city: lives in Lisbon"),
        ({"subject": "Ann", "text": "lives in Lisbon"}, "home_city: Ann lives in Lisbon"),
        (["茶", 2, True], 'home_city: ["茶", 2, true]'),
        ({"a": "茶"}, 'home_city: {"a": "茶"}'),
    ],
)
async def test_a_fact_is_found_by_natural_wording(pool: asyncpg.Pool, value: Any, content: str) -> None:
    embedder = ScriptedEmbedder()
    await learn(pool, fact(value), at=DAY_1, embedder=embedder)
    assert (await current(pool))["content"] == content
    assert embedder.batches == [[content]]


async def test_a_history_belongs_to_its_user(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    """For an equal key, another user sees neither the current version nor earlier ones."""
    await learn(pool, fact("Lisbon"), at=DAY_1)
    await learn(pool, fact("Porto"), at=DAY_2)
    assert await service.fact_history(app_name=APP, user_id="tom", fact_type="profile", key=KEY) == []
    assert await service.fact_history(app_name="other", user_id=USER, fact_type="profile", key=KEY) == []
    assert len(await service.fact_history(app_name=APP, user_id=USER, fact_type="profile", key=KEY)) == 2


async def test_deleting_a_session_locks_its_facts_in_the_order_of_every_job(
    pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """A job of another thread holds the first key and waits for the next: neither of the two deadlocks."""
    await learn(pool, fact("x", key="b"), fact("x", key="c"), at=DAY_1, session_id="s")
    await learn(pool, fact("x", key="a"), at=DAY_2, session_id="s")
    async with conn.transaction():
        await conn.execute(LOCK_FACT, "a")
        deleting = asyncio.create_task(OpenSessionService(pool).delete_session(APP, USER, "s"))
        await until_one_waits_for_a_lock(pool)
        for key in ("b", "c"):
            await conn.execute(LOCK_FACT, key)
    await deleting
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE thread_id IS NULL") == 3


async def test_a_statement_dated_in_the_future_does_not_outrank_later_ones(pool: asyncpg.Pool) -> None:
    """It counts as said when it was recorded."""
    await learn(pool, fact("Lisbon"), at=datetime.now(UTC) + timedelta(days=30_000))
    assert (await current(pool))["valid_from"] <= datetime.now(UTC)
    assert await learn(pool, fact("Porto"), at=datetime.now(UTC)) == ["updated"]
    assert (await current(pool))["value"] == "Porto"


async def test_what_is_taken_back_ends_and_stays_in_the_history(pool: asyncpg.Pool) -> None:
    """A retraction ends the fact from when it was made; earlier times still see it."""
    await learn(pool, fact("Lisbon"), at=DAY_1)
    assert await learn(pool, fact("Lisbon", ended=True), at=DAY_2) == ["ended"]
    row = await current(pool)
    assert (row["value"], row["valid_from"], row["valid_until"]) == ("Lisbon", DAY_1, DAY_2)
    assert await versions(pool) == [("Lisbon", "superseded", DAY_1, DAY_2)]
    seen = [
        await pool.fetchval("SELECT count(*) FROM facts_as_of($1, $2, $3, NULL)", APP, USER, at)
        for at in (DAY_1, DAY_2, DAY_3)
    ]
    assert seen == [1, 0, 0]
    assert await learn(pool, fact("Lisbon", ended=True), at=DAY_3) == ["unknown"]
    assert await learn(pool, fact("Lisbon"), at=DAY_4) == ["reopened"]
    assert (await current(pool))["valid_until"] is None


async def test_a_retraction_at_the_time_of_the_statement_ends_it(pool: asyncpg.Pool) -> None:
    """Imported turns often share one time."""
    await learn(pool, fact("Lisbon"), at=DAY_1)
    assert await learn(pool, fact("Lisbon", ended=True), at=DAY_1) == ["ended"]
    assert (await current(pool))["valid_until"] is not None


async def test_nothing_is_stored_where_nothing_was_held(pool: asyncpg.Pool) -> None:
    """What was never stated cannot be taken back, and neither what another user stated."""
    await learn(pool, fact("Lisbon"), at=DAY_1, user="bo")
    assert await learn(pool, fact("Lisbon", ended=True), at=DAY_2) == ["unknown"]
    assert await pool.fetchval("SELECT count(*) FROM fact_versions") == 1


async def test_one_element_of_a_collection_ends(pool: asyncpg.Pool) -> None:
    """Taking back one allergy keeps the others."""
    await learn(pool, fact(["nuts", "pollen"], key="allergies"), at=DAY_1)
    assert await learn(pool, fact("nuts", key="allergies", ended=True), at=DAY_2) == ["ended"]
    rows = await pool.fetch("SELECT key, valid_until FROM facts ORDER BY key")
    assert [tuple(row) for row in rows] == [("allergies:nuts", DAY_2), ("allergies:pollen", None)]
