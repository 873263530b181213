"""Operations on single memories: pins, the archive, explanations, policy comparison, provenance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.erasure.provenance import consequences, provenance
from hippocampus.erasure.service import ErasureService
from hippocampus.errors import MemoryNotFoundError
from hippocampus.memory_service import OpenMemoryService
from hippocampus.retention import advice, curves, policies
from hippocampus.retention.archive import MemoryArchive
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import MemorySearch
from pulse import database
from pulse.errors import InvalidInputError
from tests.support.forgetting_scene import APP, consolidate, say, thread_of
from tests.support.properties import examples

NOW = datetime(2031, 5, 4, 12, tzinfo=UTC)
UNUSED = "SELECT set_config('hippocampus.fake_time', $1, false)"


@pytest.fixture
async def clock(dsn: str) -> AsyncIterator[asyncpg.Pool]:
    """A pool of one connection, with its clock set to NOW."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as opened:
        await opened.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
        await travel(opened, 0)
        yield opened


async def travel(pool: asyncpg.Pool, days: float) -> None:
    await pool.execute(UNUSED, str(NOW + timedelta(days=days)))


async def add(pool: asyncpg.Pool, *, user: str = "ana", initial: float = 0.5, count: int = 0, days: float = 0) -> UUID:
    found: UUID = await pool.fetchval(
        """INSERT INTO memories (app_name, user_id, content, initial_score, access_count, last_accessed_at, created_at)
           VALUES ($1, $2, 'Ana likes tea', $3, $4, $5, $5) RETURNING id""",
        APP, user, initial, count, NOW - timedelta(days=days),
    )  # fmt: skip
    return found


# Pins


async def test_a_pinned_memory_neither_fades_nor_is_removed(clock: asyncpg.Pool) -> None:
    """After ten years it is as strong as at first, wherever scores are read, and every clean-up skips it."""
    pinned, other = await add(clock, initial=0.4), await add(clock, initial=0.4)
    archive = MemoryArchive(clock)
    assert await archive.pin(APP, "ana", pinned)
    assert not await archive.pin(APP, "ana", pinned)
    await policies.set_policy(clock, APP, cleanup_threshold=1.0)
    await travel(clock, 3650)
    manager = MemoryRetentionManager(clock)
    shown = await OpenMemoryService(clock, None).list_memories(app_name=APP, user_id="ana")
    assert {each.id: round(each.retention_score, 6) for each in shown} == {pinned: 0.4, other: 0.0}
    assert [each.id for each in await manager.preview()] == [other]
    assert (await manager.cleanup_low_value_memories()).cleaned_count == 1
    assert await clock.fetchval("SELECT cleanup_low_value_memories(1.0, 0)") == 0
    explained = await advice.explain(clock, APP, "ana", pinned)
    assert (explained.falls_below_at, explained.score) == (None, pytest.approx(0.4))
    # Pinning also applies to the archive; unpinned, it fades from its last access on.
    assert await archive.pin(APP, "ana", other)
    assert await archive.unpin(APP, "ana", pinned)
    assert (await manager.cleanup_low_value_memories()).cleaned_count == 1
    assert await clock.fetchval("SELECT array_agg(id) FROM memories") == [other]
    with pytest.raises(MemoryNotFoundError):
        await archive.pin(APP, "ben", other)


# The archive


async def test_an_archived_memory_is_restored_completely_until_it_is_purged(clock: asyncpg.Pool) -> None:
    """Each column is as before, except the last access, which is now: the next clean-up does not take it again."""
    ids = [await add(clock, days=40) for _ in range(3)] + [await add(clock, user="ben", days=40)]
    row = "SELECT to_jsonb(m) - 'search' - 'last_accessed_at' FROM memories AS m WHERE id = $1"
    before = await clock.fetchval(row, ids[0])
    manager, archive = MemoryRetentionManager(clock), MemoryArchive(clock)
    assert (await manager.cleanup_low_value_memories()).cleaned_count == 4
    listed = await archive.page(APP, "ana")
    assert [each.id for each in listed] == sorted(ids[:3])
    assert {each.purged_after for each in listed} == {NOW + timedelta(days=90)}
    assert await archive.restore(APP, "ana", [ids[0], ids[3], uuid4()]) == [ids[0]]
    assert await clock.fetchval(row, ids[0]) == before
    assert (await manager.cleanup_low_value_memories()).cleaned_count == 0
    assert await archive.restore(APP, "ana", [ids[0]]) == []

    await travel(clock, 89.9)
    assert await archive.purge() == 0
    await policies.set_policy(clock, "bank", archive_days=1)
    assert await archive.purge() == 0
    await travel(clock, 90)
    assert await archive.purge("bank") == 0
    assert await archive.purge(batch_rows=2) == 3
    assert await archive.restore(APP, "ana") == []
    with pytest.raises(InvalidInputError):
        await archive.purge(batch_rows=1001)


async def test_a_users_whole_archive_is_restored_in_batches(clock: asyncpg.Pool) -> None:
    await clock.execute(
        """INSERT INTO memories (app_name, user_id, content, last_accessed_at, created_at)
           SELECT $1, 'ana', 'm' || n, $2, $2 FROM generate_series(1, 2500) AS n""",
        APP, NOW - timedelta(days=40),
    )  # fmt: skip
    await MemoryRetentionManager(clock).cleanup_low_value_memories(batch_rows=1000, rest_factor=0)
    assert len(await MemoryArchive(clock).restore(APP, "ana")) == 2500
    assert await clock.fetchval("SELECT count(*) FROM memories_archive") == 0


# Explanations


@examples(25)
@given(
    curve=st.sampled_from(["strength", "classic"]),
    initial=st.floats(0.2, 1),
    count=st.integers(0, 1000),
    rate=st.floats(0.01, 1),
    threshold=st.floats(0.01, 0.19),
)
async def test_the_time_at_which_a_memory_falls_is_exact_to_the_second(
    explained: asyncpg.Pool, curve: curves.Curve, initial: float, count: int, rate: float, threshold: float
) -> None:
    """The database's own function is above the threshold one second before, and below it one second after."""
    pool = explained
    await policies.set_policy(pool, APP, retention_curve=curve, decay_rate=rate, cleanup_threshold=threshold)
    memory = await add(pool, initial=initial, count=count, days=1)
    found = await advice.explain(pool, APP, "ana", memory)
    falls = found.falls_below_at
    assert falls is not None
    before, after = await pool.fetch(
        """SELECT retention_score(m, p, at) FROM app_policy($1) AS p, memories AS m,
           unnest($3::timestamptz[]) AS at WHERE m.id = $2""",
        APP, memory, [falls - timedelta(seconds=1), falls + timedelta(seconds=1)],
    )  # fmt: skip
    assert before[0] > threshold > after[0]
    # The memory may have fallen before the day it is read; then the day before is nearer to its access.
    assert found.scores_around[0] > threshold > found.scores_around[2]
    assert found.scores_around[1] == pytest.approx(threshold, rel=1e-6)
    assert found.cleaned_from == max(falls, found.created_at + timedelta(days=7))
    assert found.points[0][1] == pytest.approx(found.score, abs=1e-9)
    assert [score for _, score in found.points] == sorted((score for _, score in found.points), reverse=True)


@pytest.fixture
async def explained(clock: asyncpg.Pool) -> asyncpg.Pool:
    return clock


async def test_a_memory_that_never_falls_is_reported_so(clock: asyncpg.Pool) -> None:
    memory = await add(clock)
    for fields in ({"decay_rate": 0.0}, {"cleanup_threshold": 0.0, "decay_rate": 0.1}):
        await policies.set_policy(clock, APP, **fields)
        found = await advice.explain(clock, APP, "ana", memory)
        assert (found.falls_below_at, found.cleaned_from, found.scores_around) == (None, None, ())
    with pytest.raises(MemoryNotFoundError):
        await advice.explain(clock, APP, "ben", memory)


# Policy comparison


@examples(15)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 50), st.floats(0, 60), st.booleans()), min_size=1, max_size=12
    ),
    other=st.fixed_dictionaries(
        {
            "retention_curve": st.sampled_from(["strength", "classic"]),
            "decay_rate": st.floats(0.01, 1),
            "cleanup_threshold": st.floats(0, 1),
            "min_age_days": st.floats(0, 20),
        }
    ),
    days=st.floats(0, 40),
)
async def test_a_comparison_and_a_dry_run_predict_the_clean_up(
    clock: asyncpg.Pool,
    rows: list[tuple[float, int, float, bool]],
    other: dict[str, object],
    days: float,
) -> None:
    """Random memories, a random policy: comparison, change, dry run and run report the same rows."""
    await clock.execute("TRUNCATE memories, memories_archive CASCADE")
    await clock.execute("DELETE FROM app_policies WHERE app_name <> '*'")
    await travel(clock, 0)
    for initial, count, age, pinned in rows:
        memory = await add(clock, initial=initial, count=count, days=age)
        if pinned:
            await MemoryArchive(clock).pin(APP, "ana", memory)
    found = await advice.compare(clock, APP, other, days=days, limit=1000)
    assert found.total == len(rows)
    assert len(found.differing) == found.only_by_one + found.only_by_other
    await policies.set_policy(clock, APP, **other)  # type: ignore[arg-type]
    await travel(clock, days)
    dry = {each.id for each in await MemoryRetentionManager(clock).preview(app_name=APP)}
    stats = await MemoryRetentionManager(clock).cleanup_low_value_memories(app_name=APP, rest_factor=0)
    gone = {row["id"] for row in await clock.fetch("SELECT id FROM memories_archive")}
    assert gone == dry
    assert stats.cleaned_count == found.only_by_one + found.kept_by_none == len(gone)
    assert {each.id for each in found.differing if each.one} <= gone
    assert not {each.id for each in found.differing if each.other} & gone


async def test_a_comparison_rejects_an_invalid_policy(clock: asyncpg.Pool) -> None:
    for other in ({"preset": "wild"}, {"decay_rate": -1}, {"fast_events": 3}, {"retention_curve": "steep"}):
        with pytest.raises(InvalidInputError):
            await advice.compare(clock, APP, other)
    found = await advice.compare(clock, APP, {"preset": "knowledge"})
    assert (found.total, found.other["decay_rate"], found.one["decay_rate"]) == (0, 0.02, 0.1)


async def test_an_access_is_counted_for_its_user_alone(pool: asyncpg.Pool) -> None:
    """An id of another user's memory is skipped. Programs of earlier releases give no user."""
    id_ = await pool.fetchval(
        "INSERT INTO memories (app_name, user_id, content) VALUES ($1, 'ana', 'm') RETURNING id", APP
    )
    manager, search = MemoryRetentionManager(pool), MemorySearch(pool)
    assert not await manager.record_access(id_, app_name=APP, user_id="ben")
    assert await search.record_access([id_], app_name="other", user_id="ana") == 0
    assert await manager.record_access(id_, app_name=APP, user_id="ana")
    assert await search.record_access([id_], app_name=APP, user_id="ana") == 1
    assert await pool.fetchval("SELECT record_memory_access($1)", [id_]) == 1
    assert await pool.fetchval("SELECT access_count FROM memories") == 3


# Storage


async def test_accesses_stay_on_their_page(pool: asyncpg.Pool) -> None:
    """Recording an access touches no index: every update is heap-only while the page has room for another version."""
    await pool.execute(
        "INSERT INTO memories (app_name, user_id, content)"
        " SELECT 'a', 'u', 'memory ' || n FROM generate_series(1, 500) AS n"
    )
    async with pool.acquire() as connection, connection.transaction():
        ids = [row["id"] for row in await connection.fetch("SELECT id FROM memories ORDER BY ctid")]
        await connection.fetchval("SELECT record_memory_access($1)", ids[::20])
        updated, hot = await connection.fetchrow(
            "SELECT pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_hot_updated(c)"
            " FROM (SELECT 'memories'::regclass::oid AS c) AS t"
        )
    assert (updated, hot) == (25, 25)
    options = await pool.fetchval("SELECT reloptions FROM pg_class WHERE oid = 'memories'::regclass")
    assert {"fillfactor=85", "autovacuum_vacuum_scale_factor=0.02"} <= set(options)


async def test_decay_rewrites_no_row(clock: asyncpg.Pool) -> None:
    """A year passes and scores are read in every possible way: each row keeps its version and its position."""
    await clock.execute(
        "INSERT INTO memories (app_name, user_id, content) SELECT $1, 'u', 'm' || n FROM generate_series(1, 3000) AS n",
        APP,
    )
    versions = "SELECT md5(string_agg(xmin::text || ctid::text, ',' ORDER BY ctid)) FROM memories"
    before = await clock.fetchval(versions)
    manager = MemoryRetentionManager(clock)
    totals = []
    for days in (0, 30, 365):
        await travel(clock, days)
        await manager.preview()
        await advice.compare(clock, APP, {"preset": "knowledge"})
        totals.append((await manager.cleanup_low_value_memories(dry_run=True)).avg_retention_score)
    assert totals == sorted(totals, reverse=True)
    assert await clock.fetchval(versions) == before


# Provenance


async def test_a_memory_leads_to_its_events_and_an_event_to_everything_derived(pool: asyncpg.Pool) -> None:
    """In both directions, with the archive, superseded facts and proposals; an erased event is shown as such; other
    users see nothing."""
    events = await say(pool, "ana", "s", "I live in Ghent.", "I love plum jam.")
    thread = await thread_of(pool, "ana", "s")
    await consolidate(pool, thread)
    events += await say(pool, "ana", "s", "I moved to Bruges. I live in Bruges now.")
    await consolidate(pool, thread)
    await pool.execute("SELECT archive_weak_memories($1, 1, p_threshold => 1, p_min_age_days => 0)", APP)
    proposal = await pool.fetchval(
        """INSERT INTO instruction_proposals (app_name, user_id, thread_id, instruction_key, content, base_version,
                                              source_seqs)
           VALUES ($1, 'ana', $2, 'tone', 'Be brief.', 0, '{1}') RETURNING id""",
        APP,
        thread,
    )
    [proposed] = await provenance(pool, APP, "ana", proposal)
    assert (proposed.drawn.source, proposed.drawn.kind) == ("proposal", "tone")
    assert [event.text for event in proposed.events] == ["I live in Ghent."]

    city = await pool.fetchval("SELECT id FROM facts WHERE content LIKE '%Bruges%'")
    found = await provenance(pool, APP, "ana", city)
    assert found[0].drawn.source == "fact"
    assert {each.drawn.source for each in found} == {"fact", "fact_version"}
    assert [event.text for event in found[0].events] == ["I moved to Bruges. I live in Bruges now."]
    assert found[0].events[0].id == events[2].id
    assert found[0].drawn.model is not None
    assert found[0].drawn.prompt_hash is not None
    assert "I live in Ghent." in [event.text for each in found[1:] for event in each.events]

    drawn = await consequences(pool, APP, "ana", "s", sequence_num=1)
    sources = {each.source for each in (*drawn.citing, *drawn.alongside)}
    assert {"fact_version", "memory", "archived_memory", "proposal"} <= sources
    assert all(1 in each.source_seqs for each in drawn.citing)
    assert await consequences(pool, APP, "ana", "s", event_id=events[0].id) == drawn
    every = {row["id"] for row in await pool.fetch("SELECT row_id AS id FROM drawn WHERE 1 = ANY (source_seqs)")}
    assert {each.row_id for each in drawn.citing} == every

    slice_ = await pool.fetchval("SELECT id FROM drawn WHERE kind = 'episodic' AND from_seq = 1")
    await pool.execute("UPDATE memories SET source_seqs = '{}' WHERE id = $1", slice_)
    await pool.execute("UPDATE memories_archive SET source_seqs = '{}' WHERE id = $1", slice_)
    [whole] = await provenance(pool, APP, "ana", slice_)
    assert [event.sequence_num for event in whole.events] == [1, 2]
    for call in (
        provenance(pool, APP, "ben", city),
        consequences(pool, APP, "ben", "s", sequence_num=1),
        consequences(pool, APP, "ana", "s", sequence_num=9),
    ):
        with pytest.raises(MemoryNotFoundError):
            await call
    with pytest.raises(InvalidInputError):
        await consequences(pool, APP, "ana", "s")
    await ErasureService(pool).erase_events(APP, "ana", "s", sequence_nums=[1])
    erased = await consequences(pool, APP, "ana", "s", sequence_num=1)
    assert (erased.event.text, erased.event.author, erased.citing) == (None, "erased", ())
    assert erased.event.erased_at is not None
