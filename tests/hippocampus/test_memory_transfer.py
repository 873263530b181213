"""Export and import of a user's memory: exact, bounded, atomic."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import asyncpg
import psycopg
import pytest

from hippocampus.erasure.provenance import provenance
from hippocampus.erasure.service import ErasureService
from hippocampus.errors import ErasureRunningError, ImportFileError
from hippocampus.memory_service import OpenMemoryService
from hippocampus.transfer.memory_file import export_memory, import_memory
from pulse import database
from tests.conftest import cloned, dsn_of
from tests.support.forgetting_scene import APP, consolidate, say, thread_of
from workers.embedded.server import EmbeddedServer

# Tables of decisions about memories: erased, separated, proposed.
REMEMBERED = ("memory_tombstones", "fact_aliases", "instruction_proposals")
STRANGE = 'tab\there, "quotes", \\ backslash, 火锅, 🦊, \u2028'


@pytest.fixture
async def elsewhere(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> AsyncIterator[asyncpg.Pool]:
    """A pool on an empty database."""
    with cloned(admin, template) as name:
        async with await database.create_pool(dsn_of(server, name), min_size=1, max_size=2) as opened:
            yield opened


async def fill(pool: asyncpg.Pool, rows: int = 1200) -> None:
    """Memories of every kind, an archive, facts with versions and a separated key, an erased memory, a proposal, and
    unusual values."""
    await say(pool, "ana", "s", "I live in Ghent.", "I love plum jam. " + STRANGE)
    await consolidate(pool, await thread_of(pool, "ana", "s"))
    await say(pool, "ana", "s", "I moved to Bruges. I live in Bruges now.")
    await consolidate(pool, await thread_of(pool, "ana", "s"))
    await pool.execute("SELECT archive_weak_memories($1, 2, p_threshold => 1, p_min_age_days => 0)", APP)
    value = '{"n": 0.12345678901234567890, "big": 1e300, "x": {"$hippocampus": ["float", "nan"]}}'
    await pool.execute(
        """INSERT INTO facts (app_name, user_id, key, value, content, confidence, valid_from, valid_until)
           VALUES ($1, 'ana', 'strange', $2::text::jsonb, $3, 0.1, '1887-01-02 03:04:05.678901+01', '294276-12-31')""",
        APP,
        value,
        STRANGE,
    )
    await pool.execute(
        "INSERT INTO memories (app_name, user_id, content, metadata, initial_score, pinned)"
        " SELECT $1, 'ana', 'row ' || n, '{\"a\": [1, 2.50]}', 1 / 3.0, n = 7 FROM generate_series(1, $2) AS n",
        APP,
        rows,
    )
    await pool.execute(
        """INSERT INTO instruction_proposals (app_name, user_id, thread_id, instruction_key, content, base_version,
                                              source_seqs)
           SELECT app_name, user_id, id, 'tone', 'Be brave.', 0, '{1}' FROM threads WHERE user_id = 'ana'"""
    )
    await pool.execute(
        """INSERT INTO fact_aliases (app_name, user_id, fact_type, from_key, to_key, fact_id, method, similarity,
                                     undone_at)
           SELECT app_name, user_id, fact_type, 'odd', key, id, 'meaning', 1 / 3.0, now() FROM facts
           WHERE key = 'strange'"""
    )
    summary = await pool.fetchval("SELECT id FROM memories WHERE memory_type = 'summary' ORDER BY from_seq LIMIT 1")
    await ErasureService(pool).erase_memory(APP, "ana", summary)
    await say(pool, "ben", "b", "I live in Namur.")
    await consolidate(pool, await thread_of(pool, "ben", "b"))
    for content in ("Be brief.", "Be kind."):
        await pool.execute("SELECT put_instruction($1, 'tone', $2, '{}', NULL)", APP, content)


async def exported(pool: asyncpg.Pool, user: str = "ana", app: str = APP, *, vectors: bool = True) -> list[str]:
    return [line async for line in export_memory(pool, app, user, vectors=vectors)]


async def test_a_round_trip_is_exact_to_the_byte(pool: asyncpg.Pool, elsewhere: asyncpg.Pool) -> None:
    """Exported, imported into an empty database, exported again: the same file. It has no other
    user's data, and works."""
    await fill(pool)
    lines = await exported(pool)
    kinds = [json.loads(line)["kind"] for line in lines[1:]]
    assert {kind: kinds.count(kind) for kind in sorted(set(kinds))} == {
        "archived_memory": 2,
        "end": 1,
        "fact": await pool.fetchval("SELECT count(*) FROM facts WHERE user_id = 'ana'"),
        "fact_version": await pool.fetchval("SELECT count(*) FROM fact_versions WHERE user_id = 'ana'"),
        "instruction": 2,
        "memory": await pool.fetchval("SELECT count(*) FROM memories WHERE user_id = 'ana'"),
        "merge": 1,
        "proposal": 1,
        "tombstone": 1,
    }
    assert not any("Namur" in line for line in lines)
    imported = await import_memory(elsewhere, (line + "\n" for line in lines))
    assert (sum(imported.stored.values()), imported.skipped) == (len(lines) - 2, 0)
    assert await exported(elsewhere) == lines
    # The same file imported again stores nothing twice.
    again = await import_memory(elsewhere, lines)
    assert (sum(again.stored.values()), again.skipped) == (0, len(lines) - 2)
    assert await exported(elsewhere) == lines
    found = await OpenMemoryService(elsewhere, None).search_memory(app_name=APP, user_id="ana", query="plum jam")
    assert any("plum jam" in each.content for each in found.memories)
    # If its session exists, a row is attached to it again.
    await ErasureService(elsewhere).erase_user(APP, "ana")
    assert await elsewhere.fetchval("SELECT count(*) FROM imported_origins") == 0
    assert len(await exported(elsewhere)) == 2 + 2
    for table in ("memories", "facts", "fact_versions", "memories_archive", "instructions", *REMEMBERED):
        await pool.execute(f"DELETE FROM {table}")
    await import_memory(pool, lines)
    assert await exported(pool) == lines
    assert await pool.fetchval("SELECT count(*) FROM imported_origins") == 0
    assert await pool.fetchval("SELECT count(*) FROM memories WHERE thread_id IS NOT NULL") > 0


async def test_without_vectors_the_backfill_computes_them(pool: asyncpg.Pool, elsewhere: asyncpg.Pool) -> None:
    await fill(pool)
    lines = await exported(pool, vectors=False)
    assert not any('"embedding"' in line for line in lines)
    imported = await import_memory(elsewhere, lines, app_name="other", user_id="anna")
    assert (imported.app_name, imported.user_id) == ("other", "anna")
    assert (
        await elsewhere.fetchval("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'embedding_backfill'") == 1
    )
    assert (await exported(elsewhere, "anna", "other", vectors=False))[1:] == lines[1:]


async def test_a_bad_file_changes_nothing_and_the_error_names_the_lines(
    pool: asyncpg.Pool, elsewhere: asyncpg.Pool
) -> None:
    await fill(pool, rows=20)
    good = await exported(pool)
    place = next(n for n, line in enumerate(good) if '"kind": "memory"' in line)
    last = max(n for n, line in enumerate(good) if '"kind": "memory"' in line)
    memory = json.loads(good[place])

    def spoiled(**fields: object) -> list[str]:
        return [*good[:place], json.dumps({**memory, **fields}), *good[place + 1 :]]

    cases = [
        ([], [1]),
        (["{}"], [1]),
        ([good[0].replace('"version": 1', '"version": 2'), *good[1:]], [1]),
        (good[1:], [1]),
        (good[:-1], []),
        ([*good, good[place]], [len(good) + 1]),
        ([*good[:place], *good[place + 1 :]], [len(good) - 1]),
        ([*good[:place], "{nonsense", *good[place:]], [place + 1]),
        ([*good[:place], "[1]", *good[place:]], [place + 1]),
        (spoiled(kind="dream"), [place + 1]),
        (spoiled(colour="red"), [place + 1]),
        (spoiled(user_id="ben"), [place + 1]),
        (spoiled(memory_type="dream"), [place + 1]),
        (spoiled(content=None), [place + 1]),
        (spoiled(content="\0"), [place + 1]),
        (spoiled(created_at="yesterdayish"), [place + 1]),
        (spoiled(embedding="[1,2"), [place + 1]),
        ([*good[:last], json.dumps({**json.loads(good[last]), "embedding": "[1,2]"}), *good[last + 1 :]], [last + 1]),
        (spoiled(initial_score=7), [place + 1]),
    ]
    for lines, numbers in cases:
        with pytest.raises(ImportFileError) as caught:
            await import_memory(elsewhere, lines)
        if numbers:
            assert [number for number, _ in caught.value.lines] == numbers, str(caught.value)[:300]
    assert await elsewhere.fetchval("SELECT count(*) FROM drawn") == 0
    two = [*good[:place], *(json.dumps({**json.loads(line), "initial_score": 9}) for line in good[place : place + 2])]
    with pytest.raises(ImportFileError) as caught:
        await import_memory(elsewhere, [*two, *good[place + 2 :]])
    assert [number for number, _ in caught.value.lines] == [place + 1, place + 2]


async def test_what_the_database_refuses_at_the_end_is_an_error_of_the_file(
    pool: asyncpg.Pool, elsewhere: asyncpg.Pool
) -> None:
    """Such as a deferred constraint, which is checked at COMMIT."""
    await fill(pool, rows=3)
    await elsewhere.execute("""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'refused at the end' USING ERRCODE = '23503'; END $$;
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON memories DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION refuse();
    """)
    with pytest.raises(ImportFileError, match="refused at the end"):
        await import_memory(elsewhere, await exported(pool))
    assert await elsewhere.fetchval("SELECT count(*) FROM memories") == 0


async def test_erased_memories_are_not_imported_again(pool: asyncpg.Pool) -> None:
    """A memory that was erased by itself stays erased; nothing is imported for a user whose erasure is running."""
    await fill(pool)
    lines = await exported(pool)
    fact = await pool.fetchval("SELECT fact_id FROM fact_versions WHERE value::text LIKE '%Ghent%'")
    await ErasureService(pool).erase_memory(APP, "ana", fact)
    imported = await import_memory(pool, lines)
    assert sum(imported.stored.values()) == 0
    assert await pool.fetchval("SELECT count(*) FROM drawn WHERE id = $1", fact) == 0
    await ErasureService(pool).erase_user(APP, "ana", seconds_max=0)
    with pytest.raises(ErasureRunningError):
        await import_memory(pool, lines)
    await ErasureService(pool).resume()
    assert sum((await import_memory(pool, lines)).stored.values()) > 1000


async def test_memories_erased_at_the_source_are_erased_here_too(pool: asyncpg.Pool, elsewhere: asyncpg.Pool) -> None:
    """After a copy the original erases a memory, a fact and an archived memory: another import erases them from the
    copy, even if an earlier one was interrupted; statements repeated since stay."""
    await fill(pool, rows=3)
    await import_memory(elsewhere, await exported(pool))
    standing = await elsewhere.fetchval("SELECT count(*) FROM drawn")
    kept = await pool.fetchval("SELECT id FROM memories WHERE user_id = 'ana' AND thread_id IS NOT NULL LIMIT 1")
    archived = await pool.fetchval("SELECT id FROM memories_archive WHERE user_id = 'ana' LIMIT 1")
    home = await pool.fetchval("SELECT fact_id FROM fact_versions WHERE value::text LIKE '%Ghent%'")
    jam = await pool.fetchval("SELECT fact_id FROM fact_versions WHERE value::text LIKE '%plum jam%'")
    for gone in (kept, archived, home, jam):
        await ErasureService(pool).erase_memory(APP, "ana", gone)
    await elsewhere.execute(
        """UPDATE fact_versions SET recorded_at = 'infinity', accepted_at = 'infinity' WHERE fact_id = $1""", jam
    )
    lines = await exported(pool)
    tombs = "SELECT count(*) FROM memory_tombstones WHERE id = ANY ($1)"
    imported = await import_memory(elsewhere, lines)
    assert imported.forgotten == 3
    assert await elsewhere.fetchval(tombs, [kept, archived, home, jam]) == 4
    left = await elsewhere.fetch("SELECT id FROM drawn")
    assert {kept, archived, home}.isdisjoint(row["id"] for row in left)
    assert jam in {row["id"] for row in left}
    assert len(left) < standing
    # The time of the erasure is kept; a repeated import has nothing to do.
    times = "SELECT id, forgotten_at FROM memory_tombstones ORDER BY id"
    assert await elsewhere.fetch(times) == await pool.fetch(times)
    assert (await import_memory(elsewhere, lines)).forgotten == 0


async def test_an_imported_memory_shows_nothing_of_another_users_turns(pool: asyncpg.Pool) -> None:
    """A file names the thread that a memory was extracted from. Whoever writes the file may name any."""
    await say(pool, "ben", "b", "I live in Namur.")
    await consolidate(pool, await thread_of(pool, "ben", "b"))
    lines = await exported(pool, user="ben")
    ids = [row["id"] for row in await pool.fetch("SELECT id FROM memories UNION SELECT id FROM facts")]
    shown = [each for id_ in ids for each in await provenance(pool, APP, "ben", id_)]
    assert any("Namur" in (event.text or "") for each in shown for event in each.events)
    await pool.execute("DELETE FROM memories")
    await pool.execute("TRUNCATE facts, fact_versions CASCADE")
    assert (await import_memory(pool, lines, user_id="cid")).skipped == 0
    found = [each for id_ in ids for each in await provenance(pool, APP, "cid", id_)]
    assert len(found) == len(shown)
    assert all(each.events == () for each in found)


async def test_an_erasure_of_one_user_does_not_keep_out_anothers_import(pool: asyncpg.Pool) -> None:
    """A file may be imported for several users: its ids are theirs one after the other."""
    await say(pool, "ben", "b", "I live in Namur.")
    await consolidate(pool, await thread_of(pool, "ben", "b"))
    lines = await exported(pool, user="ben")
    [summary] = await pool.fetch("SELECT id FROM memories WHERE memory_type = 'summary'")
    await ErasureService(pool).erase_memory(APP, "ben", summary["id"])
    at = "SELECT forgotten_at FROM memory_tombstones WHERE id = $1"
    before = await pool.fetchval(at, summary["id"])
    await pool.execute("DELETE FROM memories")
    await pool.execute("TRUNCATE facts, fact_versions CASCADE")
    assert (await import_memory(pool, lines, user_id="cid")).skipped == 0
    assert await pool.fetchval("SELECT user_id FROM memories WHERE id = $1", summary["id"]) == "cid"
    await ErasureService(pool).erase_memory(APP, "cid", summary["id"])
    assert await pool.fetchval(at, summary["id"]) == before
