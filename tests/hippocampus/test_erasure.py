"""Erasure on request: nothing remains of what was erased, everything else does, and nothing comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID, uuid4

import asyncpg
import pytest

from hippocampus.consolidation.rederive import rederive_slices
from hippocampus.erasure.service import Erasure, ErasureService
from hippocampus.errors import MemoryNotFoundError, WatermarkMovedError
from hippocampus.facts.ledger import FactLedger
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.records import ExtractedFact
from hippocampus.search import MemorySearch, SearchFilter
from pulse.errors import EventConflictError, InvalidInputError, SessionNotFoundError
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support import forgetting_scene as scene
from tests.support.forgetting_scene import APP, SECRET, consolidate, say, scan, thread_of
from tests.support.lock_gates import until_one_waits_for_a_lock
from tests.support.scripted_provider import ScriptedGenerator
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers

SAID = (
    f"My name is {SECRET} and I live in Bruges.",
    "I work as a bookbinder, and I love plum jam.",
    f"I love {SECRET} tea.",
    "Please never book anything on Fridays.",
)
TEXT_TYPES = "^(text|character|json|bytea|tsvector|vector|name|xml|hstore)"


async def fill(pool: asyncpg.Pool, user: str = "ana", session: str = "s1") -> UUID:
    """A consolidated session of a user, with the secret in every table that can hold it."""
    await say(pool, user, session, *SAID, secret=SECRET, user__secret=SECRET, plain=1)
    thread = await thread_of(pool, user, session)
    await consolidate(pool, thread)
    await pool.execute(
        """INSERT INTO runs (thread_id, app_name, run_id, status, holder, lease_until, first_seq, last_seq,
                             thinking_steps, error, completed_at)
           VALUES ($1, $2, $3, 'failed', 'somebody', now(), 1, 1, jsonb_build_array($4::text), $4, now())""",
        thread, APP, str(uuid4()), SECRET,
    )  # fmt: skip
    await pool.execute(
        """INSERT INTO snapshots (thread_id, version, sequence_num, state, events_summary)
           VALUES ($1, 1, 4, jsonb_build_object('secret', $2::text, 'plain', 1),
                   jsonb_build_object('said', $2::text))""",
        thread, SECRET,
    )  # fmt: skip
    await pool.execute("UPDATE consolidation_jobs SET raw_reply = $1, error = $1 WHERE thread_id = $2", SECRET, thread)
    await pool.execute(
        """INSERT INTO consolidation_jobs_archive (id, thread_id, job_type, status, attempts, upto_seq, result,
               raw_reply, created_at, app_name, user_id)
           VALUES (new_id(), $1, 'fast_replay', 'failed', 1, 4, '{}', $2, now(), $3, $4)""",
        thread, SECRET, APP, user,
    )  # fmt: skip
    await pool.execute(
        """INSERT INTO memories (thread_id, user_id, app_name, memory_type, content, from_seq, upto_seq, source_seqs)
           VALUES ($1, $2, $3, 'semantic', 'Ana mentions ' || $4, 1, 4, '{1}')""",
        thread, user, APP, SECRET,
    )  # fmt: skip
    await pool.execute("SELECT archive_weak_memories($1, 1000, p_threshold => 1, p_min_age_days => 0)", APP)
    await pool.execute(
        "SELECT restore_memories($1, $2, ARRAY[(SELECT min(id::text)::uuid FROM memories_archive)])", APP, user
    )
    version = {
        "id": str(uuid4()), "fact_id": str(uuid4()), "thread_id": str(thread), "user_id": user, "app_name": APP,
        "fact_type": "profile", "key": "nickname", "value": SECRET, "content": SECRET, "confidence": 0.4,
        "valid_from": "2024-01-01Z", "recorded_at": "2024-01-02Z", "superseded_at": "2024-01-02Z",
        "outcome": "less_sure", "source_seqs": [1], "from_seq": 1, "upto_seq": 4,
    }  # fmt: skip
    await pool.execute("INSERT INTO fact_versions SELECT (jsonb_populate_record(NULL::fact_versions, $1)).*", version)
    return thread


async def hits(pool: asyncpg.Pool, user: str = "ana") -> int:
    """Every search result that contains the secret."""
    found = await MemorySearch(pool, LocalEmbedder()).search(
        app_name=APP, user_id=user, query=SECRET, limit=50, narrow=SearchFilter(messages="all")
    )
    return sum(SECRET in each.content.lower() for each in found.memories)


@pytest.fixture
def forgetting(pool: asyncpg.Pool) -> ErasureService:
    return ErasureService(pool)


async def test_every_table_with_text_is_in_the_catalogue(conn: asyncpg.Connection) -> None:
    """A new table that can hold a user's text fails here until `data_catalogue` states what happens to its rows."""
    rows = await conn.fetch(
        """SELECT c.relname, string_agg(a.attname || ' ' || format_type(a.atttypid, NULL), ', ') AS columns
           FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
             AND format_type(a.atttypid, NULL) ~ $1
           GROUP BY c.relname""",
        TEXT_TYPES,
    )
    # The queue's arguments are ids; the migrations' tables hold the program's own data.
    ours = {row["relname"]: row["columns"] for row in rows}
    ours = {name: text for name, text in ours.items() if not name.startswith(("procrastinate_", "hippocampus_"))}
    named = {row["table_name"] for row in await conn.fetch("SELECT table_name FROM data_catalogue")}
    assert {name: text for name, text in ours.items() if name not in named} == {}
    existing = {row["name"] for row in await conn.fetch(scene.TABLES)}
    assert named <= existing


async def test_a_user_is_erased_everywhere_and_another_is_not(pool: asyncpg.Pool, forgetting: ErasureService) -> None:
    """The dry run reports what the run then deletes; no row, search or column holds the secret afterwards.

    Before, the secret is in every table of the catalogue that can hold a user's text; a new table is added here too.
    """
    await scene.hide(pool, "ana", await fill(pool))
    await scene.hide(pool, "ana", await fill(pool, session="s2"))
    await say(pool, "ben", "b1", "I live in Ghent.", user__plain=1)
    await consolidate(pool, await thread_of(pool, "ben", "b1"))
    before = {table: await pool.fetchval(f"SELECT count(*) FROM {table} WHERE user_id = 'ben'") for table in OWNED}
    users = await pool.fetch("SELECT table_name FROM data_catalogue WHERE user_rows IS NOT NULL")
    assert set(await scan(pool)) == {row["table_name"] for row in users} - WORDLESS | {
        "artifact_versions", "artifact_blobs", "traces_default",
    }  # fmt: skip
    assert await hits(pool) > 0

    shown = {each.table_name: each.rows for each in await forgetting.preview(APP, "ana")}
    assert await hits(pool) > 0
    report = await forgetting.erase_user(APP, "ana")
    assert report.is_complete
    # A fact that a later session repeats is restored when the first one is erased, then erased with that session.
    assert report.counts["facts"] >= shown["facts"]
    assert added({**report.counts, "facts": 0}) == added({**shown, "facts": 0})
    assert await scan(pool) == {}
    assert await hits(pool) == 0
    assert await forgetting.get(APP, "ana", report.id) == report
    assert {
        table: await pool.fetchval(f"SELECT count(*) FROM {table} WHERE user_id = 'ben'") for table in OWNED
    } == before
    with pytest.raises(MemoryNotFoundError):
        await forgetting.get(APP, "ben", report.id)


def added(counts: Mapping[str, int]) -> dict[str, int]:
    facts = counts.get("facts", 0) + counts.get("fact_versions", 0)
    return {**counts, "facts": facts, "fact_versions": 0}


# A user's items and documents.
ITEMS = {
    "store_items", "item_vectors", "corpus", "knowledge_documents", "knowledge_versions", "knowledge_base",
    "knowledge_vectors",
}  # fmt: skip
# Rows kept beside the events of a session.
BESIDE = {
    "artifacts", "artifact_versions", "artifact_blobs", "imported_origins", "imported_states", "initial_states",
    "live_messages", "stream_tickets", "api_keys",
} | ITEMS  # fmt: skip
# Ids, numbers, hashes and names of users only.
WORDLESS = {"corpus_access", "memory_tombstones", "slice_redraws", "replays", "erased_imports", "webhook_events"}
OWNED = ("threads", "messages", "memories", "facts", "user_states")


async def test_a_session_is_erased_with_everything_derived_from_it(
    pool: asyncpg.Pool, forgetting: ErasureService
) -> None:
    """What another session said of the same key is in force again, in that session's words."""
    await say(pool, "ana", "old", "I live in Ghent.")
    await consolidate(pool, await thread_of(pool, "ana", "old"))
    known = await pool.fetch("SELECT key, value FROM facts ORDER BY key")
    assert known
    await scene.hide(pool, "ana", await fill(pool, session="s1"))
    preview = {each.table_name: each.rows for each in await forgetting.preview(APP, "ana", session_id="s1")}
    report = await forgetting.erase_session(APP, "ana", "s1")
    assert report.is_complete
    assert dict(report.counts) == preview
    # The user's state and keys belong to no session.
    assert set(await scan(pool)) == {"user_states", "imported_states", "api_keys"} | ITEMS
    assert await pool.fetch("SELECT key, value FROM facts ORDER BY key") == known
    assert await pool.fetchval("SELECT count(*) FROM fact_versions WHERE value::text LIKE '%Bruges%'") == 0
    with pytest.raises(SessionNotFoundError):
        await forgetting.erase_session(APP, "ana", "s1")


async def test_a_current_fact_falls_back_to_the_previous_one(pool: asyncpg.Pool, forgetting: ErasureService) -> None:
    """Bruges replaced Ghent; once Bruges is erased, Ghent holds, without an end, as if never contradicted."""
    for session, city in (("one", "Ghent"), ("two", "Bruges")):
        await say(pool, "ana", session, f"I live in {city}.")
        await consolidate(pool, await thread_of(pool, "ana", session))
    before = await pool.fetchrow("SELECT id, key, value FROM facts")
    assert before is not None
    assert "Bruges" in str(before["value"])
    # A key that was separated from it stays separated.
    await pool.execute(
        """INSERT INTO fact_aliases (app_name, user_id, fact_type, from_key, to_key, fact_id, method, similarity,
                                     undone_at)
           VALUES ($1, 'ana', 'profile', 'domicile', 'home', $2, 'meaning', 0.5, now())""",
        APP,
        before["id"],
    )
    assert (await forgetting.erase_session(APP, "ana", "two")).is_complete
    assert await pool.fetchval("SELECT count(*) FROM fact_aliases WHERE from_key = 'domicile'") == 1
    [after] = await pool.fetch("SELECT id, key, value, content, valid_until FROM facts")
    assert (after["id"], after["key"], after["valid_until"]) == (before["id"], before["key"], None)
    assert "Ghent" in str(after["value"])
    assert "Ghent" in after["content"]
    [held] = await pool.fetch("SELECT value FROM facts_as_of($1, 'ana', now(), now())", APP)
    assert "Ghent" in str(held["value"])
    assert await pool.fetchval("SELECT count(*) FROM fact_versions WHERE value::text LIKE '%Bruges%'") == 0


async def test_an_event_leaves_a_tombstone_and_its_slice_is_extracted_again(
    pool: asyncpg.Pool, forgetting: ErasureService
) -> None:
    """Number, id and time stay; the text is gone; summaries and facts of its slice are derived again from the rest."""
    thread = await fill(pool)
    events = await pool.fetch("SELECT id, sequence_num, occurred_at FROM events ORDER BY sequence_num")
    # The rows that `fill` adds beside the events belong to runs without an event.
    await pool.execute("DELETE FROM runs; UPDATE user_states SET state = state - 'other'")
    await scene.hide(pool, "ana", thread)
    report = await forgetting.erase_events(
        APP, "ana", "s1", sequence_nums=[1, 4], event_ids=[events[2]["id"], events[2]["id"]]
    )
    assert report.is_complete, report
    assert report.sequence_nums == (1, 3, 4)
    # Rows that belong to no event stay.
    assert set(await scan(pool)) == BESIDE
    for table in BESIDE - {"artifact_versions", "artifact_blobs"}:
        await pool.execute(f"DELETE FROM {table}")
    assert await scan(pool) == {}
    assert await hits(pool) == 0
    after = await pool.fetch(
        "SELECT id, sequence_num, occurred_at, event_type, content::text, erased_at FROM events ORDER BY 2"
    )
    assert [(row[0], row[1], row[2]) for row in after] == [tuple(row) for row in events]
    assert [row["event_type"] for row in after] == ["erased", "user_message", "erased", "erased"]
    assert {row["content"] for row in after if row["erased_at"]} == {'{"erased": true}'}

    assert await rederive_slices(pool, LocalGenerator(), LocalEmbedder()) == 2
    assert await scan(pool) == {}
    kinds = await pool.fetch("SELECT memory_type, content FROM memories WHERE memory_type <> 'semantic' ORDER BY 1")
    assert [row["memory_type"] for row in kinds] == ["episodic", "summary"]
    assert all("plum jam" in row["content"] for row in kinds)
    assert await pool.fetchval("SELECT count(*) FROM slice_redraws") == 0
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE content LIKE '%plum jam%'") == 1
    assert await pool.fetchval("SELECT last_seq FROM threads WHERE id = $1", thread) == 4
    # A repeated request changes nothing.
    assert (await forgetting.get(APP, "ana", report.id)).is_complete
    assert (await forgetting.erase_events(APP, "ana", "s1", sequence_nums=[1])).counts == {}


async def test_a_turn_erased_from_memory_remains_only_in_its_session(pool: asyncpg.Pool) -> None:
    """Everything extracted from it, pending for it or proposed after it is deleted; the event, its run and the state
    stay."""
    thread = await fill(pool)
    await scene.hide(pool, "ana", thread)
    for number in (1, 3):
        message = await pool.fetchval("SELECT id FROM messages WHERE sequence_num = $1", number)
        assert await pool.fetchval("SELECT (erase_turn($1, 'ana', $2)).finished_at IS NOT NULL", APP, message)
    assert set(await scan(pool)) == BESIDE | {
        "events", "threads", "user_states", "snapshots", "runs", "tool_executions", "sandbox_executions",
        "traces", "traces_default",
    }  # fmt: skip


async def test_state_and_snapshots_are_as_if_an_erased_event_had_never_existed(
    pool: asyncpg.Pool, forgetting: ErasureService
) -> None:
    """A key falls back to the newest other event that set it, in its own scope; a key that only it set is removed."""
    await say(pool, "ana", "s", "a", colour="red", user__lang="nl", depth=1)
    await say(
        pool, "ana", "s", "b", colour="blue", user__lang="fr", only="here", user__only=1, app__x=SECRET, kept=1e22
    )
    await say(pool, "ana", "s", "c", depth=3)
    await say(pool, "ana", "other", "d", user__late="stays")
    thread = await thread_of(pool, "ana", "s")
    for version, seq, state in ((1, 1, '{"colour": "red"}'), (2, 2, '{"colour": "blue", "only": "here"}')):
        await pool.execute(
            "INSERT INTO snapshots (thread_id, version, sequence_num, state) VALUES ($1, $2, $3, $4::text::jsonb)",
            thread, version, seq, state,
        )  # fmt: skip
    service = OpenSessionService(pool)
    stale = await service.get_session(APP, "ana", "s")
    assert stale is not None
    await forgetting.erase_events(APP, "ana", "s", sequence_nums=[2])
    session = await service.get_session(APP, "ana", "s")
    assert session is not None
    assert session.state == {"colour": "red", "depth": 3, "user:lang": "nl", "user:late": "stays"}
    assert session.version == stale.version + 1
    states = await pool.fetch("SELECT state FROM snapshots ORDER BY version")
    assert [row["state"] for row in states] == [{"colour": "red"}, {"colour": "red"}]
    assert [event.event_type for event in session.events] == ["user_message", "erased", "user_message"]


async def test_an_erased_event_does_not_come_back_by_its_id(pool: asyncpg.Pool, forgetting: ErasureService) -> None:
    """A repeated append is reported as stored; the text is not stored again."""
    [event] = await say(pool, "ana", "s", SECRET)
    await forgetting.erase_events(APP, "ana", "s", sequence_nums=[1])
    again = await OpenSessionService(pool).append(
        APP, "ana", "s", [Event(id=event.id, author="user", content={"text": SECRET})]
    )
    assert again.new_events == ()
    assert await scan(pool) == {}
    [kept] = await say(pool, "ana", "s", "kept")
    with pytest.raises(EventConflictError):
        await OpenSessionService(pool).append(
            APP, "ana", "s", [Event(id=kept.id, author="user", content={"text": "x"})]
        )


async def test_history_changes_only_by_the_privileged_function(pool: asyncpg.Pool) -> None:
    """A plain UPDATE is refused as before, even one that makes a tombstone; other roles may not call the function."""
    await say(pool, "ana", "s", "hello")
    for change in ("content = '{}'", "content = '{}', erased_at = now()"):
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            await pool.execute(f"UPDATE events SET {change}")
    assert not await pool.fetchval(
        """SELECT coalesce(bool_or(a.grantee IS NULL OR a.grantee = 0), false)
           FROM pg_proc AS p LEFT JOIN aclexplode(p.proacl) AS a ON true
           WHERE p.proname IN ('erase_events', 'erase_session', 'erase_memory', 'request_user_erasure',
                               'advance_erasure', 'erase_rows', 'erase_drawn', 'erase_thread')"""
    )


async def test_a_job_that_read_an_erased_event_stores_nothing(pool: asyncpg.Pool, forgetting: ErasureService) -> None:
    """The event is erased during the model call: the reply is discarded, and the next attempt reads the rest."""
    await say(pool, "ana", "s", *SAID)
    thread = await thread_of(pool, "ana", "s")

    class Slow(LocalGenerator):
        async def summarize(self, slices):  # type: ignore[no-untyped-def]
            summaries = await super().summarize(slices)
            if not await pool.fetchval("SELECT erasures FROM threads WHERE id = $1", thread):
                await forgetting.erase_events(APP, "ana", "s", sequence_nums=[1, 3])
            return summaries

    with pytest.raises(WatermarkMovedError):
        await consolidate(pool, thread, Slow())
    assert await scan(pool) == {}
    await pool.execute("UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, attempts = attempts + 1")
    await consolidate(pool, thread)
    assert await scan(pool) == {}
    assert await pool.fetchval("SELECT count(*) FROM memories WHERE content LIKE '%plum jam%'") >= 2


async def test_a_reextraction_that_read_an_erased_event_stores_nothing(
    pool: asyncpg.Pool, forgetting: ErasureService
) -> None:
    """A second erasure overtakes the re-extraction of the first one's slice; the slice waits, and is extracted without
    both."""
    await say(pool, "ana", "s", *SAID)
    thread = await thread_of(pool, "ana", "s")
    await consolidate(pool, thread)
    await forgetting.erase_events(APP, "ana", "s", sequence_nums=[2])

    class Slow(LocalGenerator):
        async def summarize(self, slices):  # type: ignore[no-untyped-def]
            summaries = await super().summarize(slices)
            await forgetting.erase_events(APP, "ana", "s", sequence_nums=[1, 3])
            return summaries

    await rederive_slices(pool, Slow(), LocalEmbedder())
    assert await scan(pool) == {}
    await rederive_slices(pool, LocalGenerator(), LocalEmbedder())
    assert await scan(pool) == {}
    assert await pool.fetchval("SELECT content FROM memories WHERE memory_type = 'episodic'") == f"User: {SAID[3]}"
    assert await pool.fetchval("SELECT count(*) FROM slice_redraws") == 0


async def test_a_memory_or_a_fact_is_erased_by_itself(pool: asyncpg.Pool, forgetting: ErasureService) -> None:
    """With its versions and its job's text; its turns stay, and later jobs do not extract it again."""
    await say(pool, "ana", "s", *SAID)
    thread = await thread_of(pool, "ana", "s")
    await consolidate(pool, thread)
    summary = await pool.fetchval("SELECT id FROM memories WHERE memory_type = 'summary'")
    fact = await pool.fetchrow("SELECT * FROM facts WHERE content LIKE '%plum jam%'")
    assert fact is not None
    preview = {each.table_name: each.rows for each in await forgetting.preview(APP, "ana", memory_id=fact["id"])}
    assert preview["facts"] == 1
    for forgotten, scope in ((summary, "memory"), (fact["id"], "fact")):
        report = await forgetting.erase_memory(APP, "ana", forgotten)
        assert (report.scope, report.is_complete) == (scope, True)
        with pytest.raises(MemoryNotFoundError):
            await forgetting.erase_memory(APP, "ana", forgotten)
    assert not await pool.fetchval("SELECT count(*) FROM consolidation_jobs WHERE result::text LIKE '%Bruges%'")

    for stage in ("fast", "deep"):
        await pool.execute(
            "INSERT INTO slice_redraws (thread_id, stage, from_seq, upto_seq) VALUES ($1, $2, 1, 4)", thread, stage
        )
    await pool.execute("DELETE FROM memories")
    await rederive_slices(pool, LocalGenerator(), LocalEmbedder())
    assert await pool.fetchval("SELECT array_agg(memory_type::text ORDER BY 1) FROM memories") == ["episodic"]
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE content LIKE '%plum jam%'") == 0
    # Said again, it is learned again.
    await say(pool, "ana", "s", "I work as a bookbinder, and I love plum jam.")
    await consolidate(pool, thread)
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE content LIKE '%plum jam%'") == 1


async def test_facts_are_derived_again_by_the_apps_policy_on_keys(pool: asyncpg.Pool) -> None:
    """A key that the app declares a collection stays one."""
    await FactLedger(pool).set_style(APP, "profile", "car", "collection")
    await say(pool, "ana", "s", "I drive a Volvo and a Fiat.")
    thread = await thread_of(pool, "ana", "s")
    await consolidate(pool, thread)
    await pool.execute(
        "INSERT INTO slice_redraws (thread_id, stage, from_seq, upto_seq) VALUES ($1, 'deep', 1, 1)", thread
    )
    cars = ExtractedFact(fact_type="profile", key="car", value=["Volvo", "Fiat"], confidence=0.9, source_seqs=(1,))
    assert await rederive_slices(pool, ScriptedGenerator(reflections=[([cars], [])]), LocalEmbedder()) == 1
    keys = await pool.fetch("SELECT key FROM facts WHERE fact_type = 'profile' ORDER BY key")
    assert [row["key"] for row in keys] == ["car:fiat", "car:volvo"]


async def test_another_users_data_is_not_found(pool: asyncpg.Pool, forgetting: ErasureService) -> None:
    await fill(pool)
    memory = await pool.fetchval("SELECT id FROM memories LIMIT 1")
    before = await scan(pool)
    for call in (
        forgetting.erase_memory(APP, "ben", memory),
        forgetting.erase_memory("bank", "ana", memory),
        forgetting.erase_events(APP, "ana", "s1", sequence_nums=[1, 99]),
        forgetting.erase_events(APP, "ana", "s1", event_ids=["nowhere"]),
        forgetting.preview(APP, "ben", memory_id=memory),
    ):
        with pytest.raises(MemoryNotFoundError):
            await call
    for call in (
        forgetting.erase_session(APP, "ben", "s1"),
        forgetting.erase_events(APP, "ben", "s1", sequence_nums=[1]),
        forgetting.preview(APP, "ben", session_id="s1"),
    ):
        with pytest.raises(SessionNotFoundError):
            await call
    for call in (forgetting.erase_user(APP, ""), forgetting.erase_events(APP, "ana", "s1")):
        with pytest.raises(InvalidInputError):
            await call
    assert (await forgetting.erase_user(APP, "nobody")).counts == {}
    assert await scan(pool) == before


async def test_a_user_of_many_sessions_is_erased_in_steps_that_survive(
    pool: asyncpg.Pool, forgetting: ErasureService
) -> None:
    """Each step is a transaction and leaves whole sessions behind; any process can continue."""
    for number in range(5):
        await say(pool, "ana", f"s{number}", SECRET)
    await pool.execute(
        "INSERT INTO memories (app_name, user_id, content) SELECT $1, 'ana', $2 || n FROM generate_series(1, 25) AS n",
        APP, SECRET,
    )  # fmt: skip
    begun = await forgetting.erase_user(APP, "ana", seconds_max=0)
    assert begun.finished_at is None
    assert begun.remaining["threads"] == 5
    assert (await forgetting.erase_user(APP, "ana", seconds_max=0)).id == begun.id
    left = []
    for _ in range(100):
        row = await pool.fetchrow("SELECT * FROM advance_erasure($1, 10)", begun.id)
        assert row is not None
        threads, messages, memories = await pool.fetchrow(
            "SELECT (SELECT count(*) FROM threads), (SELECT count(*) FROM messages), (SELECT count(*) FROM memories)"
        )
        left.append((threads, memories))
        assert threads == messages
        if row["finished_at"]:
            break
    assert left == [(n, 25) for n in (4, 3, 2, 1, 0)] + [(0, 15), (0, 5), (0, 0), (0, 0)]
    assert await forgetting.resume() == 0
    assert (await forgetting.get(APP, "ana", begun.id)).counts == {
        "threads": 5, "events": 5, "messages": 5, "memories": 25,
    }  # fmt: skip


async def test_a_session_begun_after_the_request_is_kept(pool: asyncpg.Pool, forgetting: ErasureService) -> None:
    await say(pool, "ana", "old", SECRET)
    begun: Erasure = await forgetting.erase_user(APP, "ana", seconds_max=0)
    await say(pool, "ana", "new", "I live in Ghent.")
    await consolidate(pool, await thread_of(pool, "ana", "new"))
    assert await forgetting.resume() == 1
    assert (await forgetting.get(APP, "ana", begun.id)).is_complete
    assert await scan(pool) == {}
    assert await pool.fetchval("SELECT array_agg(session_id) FROM threads") == ["new"]
    assert await pool.fetchval("SELECT count(*) FROM facts") == 1


async def test_an_append_that_waits_for_an_erasure_finds_the_session_gone(
    pool: asyncpg.Pool, forgetting: ErasureService
) -> None:
    """The erasure waits for running writers, and a writer that waits for the erasure writes nothing."""
    await say(pool, "ana", "s", SECRET)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM threads FOR NO KEY UPDATE")
        erasing = asyncio.create_task(forgetting.erase_session(APP, "ana", "s"))
        await until_one_waits_for_a_lock(pool)
        appending = asyncio.create_task(say(pool, "ana", "s", f"{SECRET} again"))
        async with asyncio.timeout(WAIT_SECONDS):
            while await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < 2:
                await asyncio.sleep(0.01)
    assert (await erasing).is_complete
    with pytest.raises(SessionNotFoundError):
        await appending
    assert await scan(pool) == {}


async def test_a_worker_extracts_the_slices_again(
    pool: asyncpg.Pool, forgetting: ErasureService, workers: Workers
) -> None:
    """What an erasure enqueues has a consumer: a real worker of the pool that calls the models."""
    await say(pool, "ana", "s", *SAID)
    await consolidate(pool, await thread_of(pool, "ana", "s"))
    await forgetting.erase_events(APP, "ana", "s", sequence_nums=[1, 3])
    assert await pool.fetchval("SELECT count(*) FROM memories") == 0
    await workers.start("deep_reflection", module="workers.worker")

    async def is_done() -> bool:
        return not await pool.fetchval("SELECT count(*) FROM slice_redraws")

    await until(is_done)
    assert await pool.fetchval("SELECT count(*) FROM memories WHERE content LIKE '%plum jam%'") == 2
    assert await scan(pool) == {}
