"""Calls that are under way while `migrate` changes what they run: none fails."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse import database
from pulse.errors import SchemaError
from tests.support import small_schema
from tests.support.small_schema import run_sql
from tests.support.waiting import WAIT_SECONDS, until
from workers.migrate import default_folder, migrate
from workers.migrate.catalogue import SET_ASIDE

GATE = 7
# It waits in the middle, and at its end PostgreSQL reads its row of the catalogue once more.
NOTE = f"""
CREATE OR REPLACE FUNCTION note(p_id bigint, OUT id bigint, OUT noted text) LANGUAGE plpgsql AS $$
BEGIN
    SELECT n.id, n.body FROM notes AS n WHERE n.id = p_id INTO note.id, note.noted;
    PERFORM pg_advisory_xact_lock({GATE});
END $$;
"""
# It waits before it has locked any table.
EARLY = NOTE.replace(f"    PERFORM pg_advisory_xact_lock({GATE});\n", "").replace(
    "BEGIN\n", f"BEGIN\n    PERFORM pg_advisory_xact_lock({GATE});\n"
)
WITH_ANOTHER_RESULT = NOTE.replace("OUT noted text", "OUT noted text, OUT words integer")
WITH_ANOTHER_ARGUMENT = NOTE.replace("OUT id", "p_words boolean DEFAULT false, OUT id")
COUNT_SET_ASIDE = f"SELECT count(*) FROM pg_proc WHERE starts_with(proname, '{SET_ASIDE}')"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = '{}'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small schema with a function that waits."""
    small_schema.write(tmp_path)
    (tmp_path / "functions" / "note.sql").write_text(NOTE)
    return tmp_path


async def waits(dsn: str, kind: str) -> None:
    async def found() -> bool:
        return bool(await run_sql(dsn, WAITING.format(kind)))

    await until(found, f"a call that waits for a lock on {kind}")


@pytest.mark.parametrize(
    ("text", "after"),
    [(NOTE, WITH_ANOTHER_RESULT), (NOTE, "SELECT 1;"), (EARLY, WITH_ANOTHER_ARGUMENT)],
)
async def test_a_call_ends_in_the_function_that_it_began_with(
    empty_dsn: str, folder: Path, text: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function whose result or arguments change, or that is removed, is dropped when no call is in it any more."""
    monkeypatch.setattr("workers.migrate.replaced.DRAIN_SECONDS", WAIT_SECONDS)
    (folder / "functions" / "note.sql").write_text(text)
    await migrate(empty_dsn, folder=folder)
    await run_sql(empty_dsn, "INSERT INTO notes (id, body) VALUES (1, 'plum')")
    gate = await database.connect(empty_dsn)
    await gate.execute(f"SELECT pg_advisory_lock({GATE})")
    (folder / "functions" / "note.sql").write_text(after)
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(run_sql(empty_dsn, "SELECT noted FROM note(1)"))
        await waits(empty_dsn, "advisory")
        upgrade = tasks.create_task(migrate(empty_dsn, folder=folder))

        async def replaced() -> bool:
            return bool(await run_sql(empty_dsn, COUNT_SET_ASIDE))

        await until(replaced)
        await gate.close()
    assert call.result() == "PLUM"
    assert upgrade.result() == ["functions/note.sql"]
    assert await run_sql(empty_dsn, COUNT_SET_ASIDE) == 0
    await small_schema.check(empty_dsn, folder)


async def test_what_is_replaced_does_not_keep_what_it_used(empty_dsn: str, folder: Path) -> None:
    """A function changes its result, and what it called and the view that it read are gone, all in one upgrade."""
    used = """
CREATE OR REPLACE FUNCTION first_word(p_text text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN split_part(p_text, ' ', 1);
CREATE OR REPLACE VIEW words AS SELECT id, first_word(body) AS word FROM notes;
CREATE OR REPLACE FUNCTION words_of(p_id bigint) RETURNS TABLE (word text) LANGUAGE sql STABLE
BEGIN ATOMIC SELECT first_word(w.word) FROM words AS w WHERE w.id = p_id; END;
"""
    (folder / "functions" / "words.sql").write_text(used)
    await migrate(empty_dsn, folder=folder)
    (folder / "functions" / "words.sql").write_text(
        "CREATE OR REPLACE FUNCTION words_of(p_id bigint) RETURNS TABLE (word text, at integer) LANGUAGE sql STABLE"
        " BEGIN ATOMIC SELECT n.body, 1 FROM notes AS n WHERE n.id = p_id; END;"
    )
    assert await migrate(empty_dsn, folder=folder) == ["functions/words.sql"]
    left = "SELECT array_agg(proname::text ORDER BY 1) FROM pg_proc WHERE proname ~ 'word'"
    names = await run_sql(empty_dsn, f"{left} AND pronamespace = 'public'::regnamespace")
    assert names == ["words_of"]
    await small_schema.check(empty_dsn, folder)


async def test_a_call_that_never_ends_does_not_keep_migrate(
    empty_dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its bounded wait `migrate` drops what was replaced; what a killed run left is dropped by the next one."""
    monkeypatch.setattr("workers.migrate.replaced.DRAIN_SECONDS", 0.2)
    await migrate(empty_dsn, folder=folder)
    await run_sql(empty_dsn, f"CREATE FUNCTION {SET_ASIDE}old() RETURNS integer LANGUAGE sql RETURN 1")
    gate = await database.connect(empty_dsn)
    await gate.execute(f"SELECT pg_advisory_lock({GATE})")
    call = asyncio.create_task(run_sql(empty_dsn, "SELECT noted FROM note(1)"))
    try:
        await waits(empty_dsn, "advisory")
        (folder / "functions" / "note.sql").write_text(WITH_ANOTHER_RESULT)
        await migrate(empty_dsn, folder=folder)
        assert await run_sql(empty_dsn, COUNT_SET_ASIDE) == 0
    finally:
        await gate.close()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_row_may_grow_while_its_function_waits(dsn: str) -> None:
    """`app_policy`, which nearly every call asks, can wait for the migration that adds a column to its table."""
    waiting, migration = [await database.connect(dsn) for _ in range(2)]
    read = "SELECT (app_policy('shop')).decay_rate"
    before = await waiting.fetchval(read)
    async with migration.transaction():
        await migration.execute("ALTER TABLE app_policies ADD COLUMN later text")
        call = asyncio.create_task(waiting.fetchval(read))
        await waits(dsn, "relation")
    assert await call == before
    for each in (waiting, migration):
        await each.close()


async def test_functions_in_sql_return_a_row_as_one_value(conn: asyncpg.Connection) -> None:
    """`SELECT *` as the result of such a function fails where it waits for a migration that adds a column."""
    rows: list[Any] = await conn.fetch(
        "SELECT p.proname, p.prosrc, c.relname FROM pg_proc AS p"
        " JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'sql' JOIN pg_type AS t ON t.oid = p.prorettype"
        " JOIN pg_class AS c ON c.oid = t.typrelid AND c.relkind IN ('r', 'p')"
        " WHERE p.pronamespace = 'public'::regnamespace AND NOT p.proretset"
    )
    assert "app_policy" in {row["proname"] for row in rows}
    spread = [row["proname"] for row in rows if re.search(r"^ {4}SELECT (\w+\.)?\*", row["prosrc"], re.MULTILINE)]
    assert not spread, f"select the row itself: SELECT t FROM {rows[0]['relname']} AS t"


async def test_the_first_function_is_replaced_before_the_tables_change(empty_dsn: str, tmp_path: Path) -> None:
    """A database whose `app_policy` spreads its row gets the other one before any pending migration."""
    former, later = tmp_path / "former", tmp_path / "later"
    for each in (former, later):
        shutil.copytree(default_folder(), each)
    text = (former / "functions" / "policies.sql").read_text()
    assert "SELECT p FROM app_policies AS p" in text
    (former / "functions" / "policies.sql").write_text(text.replace("SELECT p FROM", "SELECT p.* FROM"))
    await migrate(empty_dsn, folder=former)
    number = len(list((later / "migrations").iterdir())) + 1
    (later / "migrations" / f"{number:04}_fails.sql").write_text("SELECT 1 / 0;")
    with pytest.raises(SchemaError, match="division by zero"):
        await migrate(empty_dsn, folder=later)
    body = await run_sql(empty_dsn, "SELECT prosrc FROM pg_proc WHERE proname = 'app_policy'")
    assert "SELECT p FROM" in body
    await small_schema.check(empty_dsn, former)
