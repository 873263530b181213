"""The record by month: old months move to the archive whole, the archive to files, and nothing is lost or changed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse import InvalidInputError, database
from pulse.autonomic import Effect, IllegalTransitionError, ReleaseService, TaskService
from pulse.autonomic.errors import BY_SQLSTATE, ArchiveDiffersError
from workers.autonomic.archive import list_archive, move_months, move_to_files

JANUARY, FEBRUARY, MARCH_NEXT = "2031-01-20", "2031-02-03", "2032-03-01"


@pytest.fixture
async def clocked(dsn: str) -> Any:
    """A pool whose database has the time that a test sets."""
    pool = await database.create_pool(dsn, min_size=1, max_size=1)
    await pool.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
    yield pool
    await pool.close()


async def at(pool: asyncpg.Pool, day: str) -> None:
    await pool.execute("SELECT set_config('hippocampus.fake_time', $1, false)", f"{day} 12:00+00")


async def partitions(pool: asyncpg.Pool, of: str) -> list[str]:
    rows = await pool.fetch(
        "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = $1::regclass ORDER BY 1", of
    )
    return [row[0] for row in rows]


async def decide(pool: asyncpg.Pool, key: str) -> int:
    effect = Effect("notify", key, survival=True).to_json()
    (event,) = await pool.fetchval("SELECT end_pulse_tick('main', $1, '{}', '{}', NULL)", [effect])
    return int(event)


async def test_months_move_to_the_archive_and_the_archive_to_files(clocked: asyncpg.Pool, tmp_path: Path) -> None:
    """An effect and its end, and a task and its events, stay together over the turn of a month."""
    pool = clocked
    await at(pool, "2030-11-02")
    await ReleaseService(pool, "main").make_scope()
    early = await decide(pool, "before the upkeep")
    await at(pool, JANUARY)
    assert await move_months(pool, 12) == 0
    months = ["pulse_events_203101", "pulse_events_203102", "pulse_events_203103"]
    assert await partitions(pool, "pulse_events") == [*months, "pulse_events_default"]
    effect = await decide(pool, "n")
    tasks = TaskService(pool, "main")
    await tasks.create("over", project="p", title="t", prompt="p")
    await at(pool, FEBRUARY)
    await pool.execute("SELECT begin_effect($1, true, '{}')", effect)
    assert not await pool.fetchval("SELECT begin_effect($1, true, '{}')", effect)
    assert await pool.fetchval("SELECT end_effect($1, false, '{}')", effect)
    assert not await pool.fetchval("SELECT end_effect($1, true, '{}')", effect)
    await tasks.give_up("over", "late")
    await tasks.create("open", project="p", title="t", prompt="p")
    before = await pool.fetch("SELECT * FROM pulse_events ORDER BY id")
    assert {str(row["month"]) for row in before if effect in (row["id"], row["ref"])} == {"2031-01-01"}
    assert {str(row["month"]) for row in before if row["key"] == "over"} == {"2031-01-01"}

    await at(pool, MARCH_NEXT)
    assert await move_months(pool, 12) == 2, "January, and what no month took; February has a task that is not over"
    archived = ["pulse_events_203101", "pulse_events_until_203011"]
    assert await partitions(pool, "pulse_events_archive") == archived
    assert [(each.name, each.events) for each in await list_archive(pool)] == [(archived[1], 1), (archived[0], 5)]
    both = "SELECT {0} FROM pulse_events UNION ALL SELECT {0} FROM pulse_events_archive ORDER BY id"
    columns = "id, scope, kind, key, ref, hash, meta, occurred_at, month"
    assert await pool.fetch(both.format(columns)) == before
    with pytest.raises(IllegalTransitionError, match="given-up"):
        await tasks.create("over", project="p", title="t", prompt="p")
    assert await pool.fetchval("SELECT (open_effect($1)).id", early) is None
    later = await decide(pool, "n")
    assert later > effect
    for table in ("pulse_events_archive", *archived, "pulse_events_default", "pulse_events_203203", "pulse_events"):
        for statement in (f"TRUNCATE {table}", f"UPDATE {table} SET key = ''", f"DELETE FROM {table}"):
            if statement.startswith("TRUNCATE") or await pool.fetchval(f"SELECT count(*) FROM {table}"):
                with pytest.raises(asyncpg.PostgresError, match="written once"):
                    await pool.execute(statement)

    with pytest.raises(InvalidInputError, match="there is no folder"):
        await move_to_files(pool, tmp_path / "none")
    (tmp_path / f"{archived[0]}.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    with pytest.raises(InvalidInputError, match="has other events"):
        await move_to_files(pool, tmp_path)
    # The first table had become a file by then; the other one stays as long as another file has its name.
    assert await partitions(pool, "pulse_events_archive") == archived[:1]
    (tmp_path / f"{archived[0]}.jsonl.gz").unlink()
    with pytest.raises(asyncpg.PostgresError) as caught:
        await pool.execute("SELECT drop_pulse_archive($1, 4, 'f', 'x')", archived[0])
    assert BY_SQLSTATE[caught.value.sqlstate] is ArchiveDiffersError
    # Who may not drop the table writes no file.
    before_it = sorted(tmp_path.iterdir())
    role = f"no_owner_{os.getpid()}"
    await pool.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA public TO {role}; SET ROLE {role}")
    try:
        with pytest.raises(InvalidInputError, match="connect as the owner"):
            await move_to_files(pool, tmp_path)
    finally:
        await pool.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
    assert sorted(tmp_path.iterdir()) == before_it
    (moved,) = await move_to_files(pool, tmp_path)
    assert await partitions(pool, "pulse_events_archive") == []
    kept = [json.loads(line) for line in gzip.decompress(moved.file.read_bytes()).splitlines()]
    expected = [row for row in before if str(row["month"]) == "2031-01-01"]
    assert [(each["id"], each["kind"], each["meta"]) for each in kept] == [
        (row["id"], row["kind"], row["meta"]) for row in expected
    ]
    assert moved.sha256 == hashlib.sha256(moved.file.read_bytes()).hexdigest()
    notes = await pool.fetch("SELECT key, meta FROM pulse_events WHERE kind = 'archive' ORDER BY id")
    assert [row["key"] for row in notes] == archived[::-1]
    assert notes[1]["meta"] == {"file": moved.file.name, "sha256": moved.sha256, "events": len(expected)}
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"{name}.jsonl.gz" for name in archived]
