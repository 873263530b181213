"""Migrations: in order, once, whichever process runs them; and a start-up check that names differences."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import asyncpg
import psycopg
import pytest
from google.adk.sessions import DatabaseSessionService
from psycopg import sql

from hippocampus import Hippocampus
from pulse import database
from pulse.errors import DatabaseUnreachableError, SchemaError
from tests.conftest import dsn_of
from tests.support import small_schema
from tests.support.small_schema import EVERYTHING, SECOND, check, run_sql
from tests.support.waiting import until
from workers.embedded.server import EmbeddedServer
from workers.migrate import (
    PROCRASTINATE_SCHEMA,
    Migration,
    files,
    migrate,
    read_migrations,
    read_procrastinate,
    require_supported_pgvector,
    transactions,
)

RECORDED = "SELECT kind, name, sha256 FROM hippocampus_catalogue ORDER BY kind, name"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small schema."""
    return small_schema.write(tmp_path)


async def test_an_empty_database_gets_everything_in_order(empty_dsn: str, folder: Path) -> None:
    """procrastinate first, ours by number, the functions; a second run applies nothing; the check passes."""
    assert await migrate(empty_dsn, folder=folder) == EVERYTHING
    assert await migrate(empty_dsn, folder=folder) == []
    await check(empty_dsn, folder)
    assert await run_sql(empty_dsn, "SELECT count_notes()") == 0
    assert await run_sql(empty_dsn, "SELECT to_regclass('procrastinate_jobs') IS NOT NULL")


async def test_the_programs_own_migrations_pass_the_check(dsn: str) -> None:
    """The real schema, as every test has it, is complete, and applying it again changes nothing."""
    assert await migrate(dsn) == []
    await check(dsn)


async def test_a_new_migration_is_applied_on_top(empty_dsn: str, folder: Path) -> None:
    """A database of the previous version lacks the new file by name, gets it alone, and keeps its rows."""
    await migrate(empty_dsn, folder=folder)
    await run_sql(empty_dsn, "INSERT INTO notes (id, body) VALUES (1, 'kept')")
    (folder / "migrations" / "0003_more.sql").write_text(
        "ALTER TABLE notes ADD COLUMN more text; DROP INDEX notes_body;"
    )
    with pytest.raises(SchemaError, match=r"lacks 0003_more\.sql.*hippocampus migrate"):
        await check(empty_dsn, folder)
    assert await migrate(empty_dsn, folder=folder) == ["0003_more.sql"]
    await check(empty_dsn, folder)
    assert await run_sql(empty_dsn, "SELECT count_notes()") == 1


async def test_a_migration_may_make_a_table_of_ours_again(empty_dsn: str, folder: Path) -> None:
    """It is no table of another program, though it exists before."""
    await migrate(empty_dsn, folder=folder)
    (folder / "migrations" / "0003_again.sql").write_text(
        "DROP TABLE notes CASCADE;\nCREATE TABLE notes (id bigint PRIMARY KEY, body text NOT NULL);"
    )
    assert (await migrate(empty_dsn, folder=folder))[0] == "0003_again.sql"


async def test_ten_concurrent_runs_apply_everything_once(empty_dsn: str, folder: Path) -> None:
    """Ten runs at the same moment: no error, and each migration is applied by exactly one of them."""
    done = await asyncio.gather(*(migrate(empty_dsn, folder=folder) for _ in range(10)))
    assert sorted(name for names in done for name in names) == sorted(EVERYTHING)
    await check(empty_dsn, folder)


def test_concurrent_processes_and_schemas(empty_dsn: str, folder: Path) -> None:
    """Real processes, for two schemas of one database, take turns as well."""
    script = (
        "import asyncio, sys; from pathlib import Path; from workers.migrate import migrate\n"
        "asyncio.run(migrate(sys.argv[1], schema=sys.argv[2], folder=Path(sys.argv[3])))"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script, empty_dsn, schema, str(folder)], cwd=Path(__file__).resolve().parents[2]
        )
        for schema in ("public", "hippo", "public", "hippo")
    ]
    assert [run.wait(60) for run in runs] == [0, 0, 0, 0]


async def test_another_schema_holds_everything_of_ours(empty_dsn: str, folder: Path) -> None:
    """Only pgvector is in public then, and functions find their tables from any search_path."""
    await migrate(empty_dsn, schema="hippo", folder=folder)
    await check(empty_dsn, folder, schema="hippo")
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert await run_sql(empty_dsn, tables) == 0
    assert await run_sql(empty_dsn, "SELECT hippo.count_notes()") == 0
    extension = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'"
    assert await run_sql(empty_dsn, extension) == "public"


async def test_a_changed_migration_is_refused(empty_dsn: str, folder: Path) -> None:
    """An applied file with a different text stops both the run and the check, and is named."""
    await migrate(empty_dsn, folder=folder)
    (folder / "migrations" / "0002_topics.sql").write_text(SECOND + "-- a second thought")
    for attempt in (migrate(empty_dsn, folder=folder), check(empty_dsn, folder)):
        with pytest.raises(SchemaError, match=r"text of 0002_topics\.sql differs"):
            await attempt


async def test_a_migration_that_was_applied_with_its_former_text_is_accepted(dsn: str) -> None:
    """The text of one was changed before its release; any other text of it is refused."""
    update = "UPDATE hippocampus_migrations SET sha256 = '{}' WHERE name = '0030_autonomic_archive.sql'"
    former = "2776be01df8476a0586fe116b3012a3a40612b906ab15381ac2044202a268275"
    await run_sql(dsn, update.format(former))
    assert await migrate(dsn) == []
    await check(dsn)
    await run_sql(dsn, update.format(former[::-1]))
    for attempt in (migrate(dsn), check(dsn)):
        with pytest.raises(SchemaError, match=r"text of 0030_autonomic_archive\.sql differs"):
            await attempt


async def test_a_failing_migration_leaves_nothing_of_itself(empty_dsn: str, folder: Path) -> None:
    """A failed migration is rolled back completely and named with its SQLSTATE; once fixed, it applies."""
    (folder / "migrations" / "0002_topics.sql").write_text("CREATE TABLE half (); SELECT 1 / 0;")
    with pytest.raises(SchemaError, match=r"0002_topics\.sql failed .*22012.*division by zero"):
        await migrate(empty_dsn, folder=folder)
    assert await run_sql(empty_dsn, "SELECT to_regclass('half')") is None
    (folder / "migrations" / "0002_topics.sql").write_text(SECOND)
    assert await migrate(empty_dsn, folder=folder) == EVERYTHING[2:]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("DROP FUNCTION count_notes()", r"missing: function count_notes\(\)"),
        ("DROP INDEX notes_body", "missing: index notes_body"),
        (
            "ALTER TABLE notes DROP CONSTRAINT notes_body_check",
            r"missing: constraint notes\.notes_body_check",
        ),
        ("ALTER TABLE notes ALTER COLUMN body DROP NOT NULL", r"changed: column notes\.body"),
        ("DROP TABLE notes CASCADE", r"missing: .*table notes"),
        ("DROP VIEW loud", "missing: view loud"),
        (
            "CREATE OR REPLACE FUNCTION count_notes() RETURNS bigint LANGUAGE sql STABLE RETURN 7",
            r"changed: function count_notes\(\)",
        ),
        (
            "DROP TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1 ON procrastinate_jobs",
            "missing: trigger",
        ),
    ],
)
async def test_manual_changes_are_named(empty_dsn: str, folder: Path, damage: str, complaint: str) -> None:
    """The start-up check compares every object with the result of the migrations, and names those that differ."""
    await migrate(empty_dsn, folder=folder)
    await run_sql(empty_dsn, damage)
    with pytest.raises(SchemaError, match=complaint):
        await check(empty_dsn, folder)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("migrations/0003_more.sql", "ALTER TABLE notes ADD COLUMN more text;"),
        ("functions/shout.sql", small_schema.SHOUT + "DROP TRIGGER shout ON notes;"),
    ],
)
async def test_a_table_that_stays_locked_is_an_error_that_names_the_file(
    empty_dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    """It says how to find the transaction that holds the table, and nothing of the file is applied."""
    await migrate(empty_dsn, folder=folder)
    (folder / file).write_text(text)
    monkeypatch.setattr(transactions, "LOCK_TIMEOUT_SECONDS", 1)
    holder = await database.connect(empty_dsn, schema="public", prepare=False)
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE notes IN ROW EXCLUSIVE MODE")
            name = file.removeprefix("migrations/")
            with pytest.raises(SchemaError, match=rf"^{name} was not applied: for 1 s .*pg_stat_activity.*doctor"):
                await migrate(empty_dsn, folder=folder)
    finally:
        await holder.close()
    assert await migrate(empty_dsn, folder=folder) == [name]


async def test_objects_of_others_are_not_checked(empty_dsn: str, folder: Path) -> None:
    """A table that was in the schema before, or was added later, may come and go."""
    await run_sql(empty_dsn, "CREATE TABLE earlier ()")
    await migrate(empty_dsn, folder=folder)
    await run_sql(empty_dsn, "DROP TABLE earlier")
    await run_sql(empty_dsn, "CREATE INDEX their_own ON notes (id, body)")
    await check(empty_dsn, folder)


async def test_what_others_make_while_a_migration_waits_is_theirs(empty_dsn: str, folder: Path) -> None:
    """A run knows the catalogue from the migration before; where it steps back for a lock, it reads it again."""
    await migrate(empty_dsn, folder=folder)
    (folder / "migrations/0003_more.sql").write_text("CREATE TABLE more ();")
    (folder / "migrations/0004_more.sql").write_text("ALTER TABLE notes ADD COLUMN more text;")
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND xact_start > $1"
    holder, other = [await database.connect(empty_dsn, prepare=False) for _ in range(2)]
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE notes IN ROW EXCLUSIVE MODE")
            run = asyncio.create_task(migrate(empty_dsn, folder=folder))
            await until(lambda: other.fetchval(waiting.replace("$1", "'-infinity'")))
            await other.execute("CREATE TABLE theirs ()")
            made_at = await other.fetchval("SELECT clock_timestamp()")
            await until(lambda: other.fetchval(waiting, made_at))
        assert await run == ["0003_more.sql", "0004_more.sql"]
        await other.execute("DROP TABLE theirs")
    finally:
        await holder.close()
        await other.close()
    await check(empty_dsn, folder)


async def test_an_empty_database_names_the_command(empty_dsn: str, folder: Path) -> None:
    with pytest.raises(SchemaError, match="Run `hippocampus migrate`"):
        await check(empty_dsn, folder)


async def test_no_server_is_a_clear_error(folder: Path) -> None:
    with pytest.raises(DatabaseUnreachableError, match=r"127\.0\.0\.1:1/x can't be used"):
        await migrate("postgresql://u:p@127.0.0.1:1/x", folder=folder)


async def test_missing_pgvector_says_what_to_install(empty_dsn: str, folder: Path) -> None:
    """A server whose extension folder lacks pgvector: SQLSTATE, Debian's package and the image are named."""
    without = f"{empty_dsn}&options=-cextension_control_path=/nowhere"
    with pytest.raises(SchemaError, match=r"SQLSTATE 0A000.*postgresql-18-pgvector.*pgvector/pgvector:pg18"):
        await migrate(without, folder=folder)
    assert await run_sql(empty_dsn, "SELECT to_regclass('hippocampus_migrations')") is None


async def test_a_user_without_the_right_to_create_the_extension_gets_a_hint(
    server: EmbeddedServer, empty_dsn: str, admin: psycopg.Connection, folder: Path
) -> None:
    """Without the right to create extensions the error says who must do it."""
    admin.execute("DROP ROLE IF EXISTS weak")
    admin.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'")
    try:
        weak = empty_dsn.replace(server.dsn.partition("@")[0].removeprefix("postgresql://"), "weak:weak")
        with pytest.raises(SchemaError, match=r"42501.*superuser"):
            await migrate(weak, folder=folder)
    finally:
        admin.execute("DROP ROLE weak")


async def test_pgvector_may_be_in_a_schema_of_its_own(empty_dsn: str) -> None:
    """Hosted databases often keep extensions apart. Our functions find it there; sessions need not."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA extensions")
        connection.execute("CREATE EXTENSION vector SCHEMA extensions")
    assert await migrate(empty_dsn)
    await check(empty_dsn)
    async with Hippocampus(empty_dsn, app="shop") as memory:
        await memory.remember("ann", "She is allergic to peanuts.")
        assert [each.content for each in await memory.search("ann", "peanuts")] == ["She is allergic to peanuts."]
        assert await memory.pool.fetchval("SHOW search_path") == '"public"'


@pytest.mark.parametrize("schema", ["public", "other"])
async def test_a_plain_role_migrates_what_it_owns_and_nothing_else(empty_dsn: str, schema: str) -> None:
    """With pgvector installed, the database's owner need not be a superuser; another role learns whom to ask."""
    role = f"plain_{schema}"
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'long enough'").format(sql.Identifier(role)))
        try:
            theirs = re.sub("//[^@]*@", f"//{role}:long%20enough@", empty_dsn)
            with pytest.raises(SchemaError, match=r"42501.*Let the owner of"):
                await migrate(theirs, schema=schema)
            name = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(name, sql.Identifier(role)))
            assert await migrate(theirs, schema=schema)
            async with await database.create_pool(theirs, schema=schema) as pool:
                await pool.execute("SELECT create_session('app', 'user', 's')")
                await pool.execute("SELECT append_event('app', 'user', 's', 0, 'e', 'user', 'message', '{}')")
                assert len(await pool.fetch("SELECT finalize_session('app', 'user', 's')")) == 2
        finally:
            connection.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(sql.Identifier(connection.info.dbname))
            )
            connection.execute(sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(sql.Identifier(role)))
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_an_old_pgvector_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"pgvector is 0\.7\.4; 0\.8\.0 or newer"):
        require_supported_pgvector("0.7.4")
    require_supported_pgvector("0.8.0")
    require_supported_pgvector("0.10.1")


async def test_procrastinate_of_another_program_is_not_touched(empty_dsn: str, folder: Path) -> None:
    """Foreign tables of procrastinate are refused, with the solution."""
    whole, _ = read_procrastinate()
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute(whole.sql)
    await connection.close()
    with pytest.raises(SchemaError, match=r"from another program.*HIPPOCAMPUS_SCHEMA_NAME"):
        await migrate(empty_dsn, folder=folder)


async def test_a_newer_procrastinate_applies_its_own_steps(
    empty_dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade of the package its new step is applied; a changed text without a step is refused."""
    await migrate(empty_dsn, folder=folder)
    whole, steps = read_procrastinate()
    grown = Migration(PROCRASTINATE_SCHEMA, whole.sql + "\n-- grown")
    monkeypatch.setattr(files, "read_procrastinate", lambda: (grown, steps))
    with pytest.raises(SchemaError, match=r"text of procrastinate/schema\.sql differs"):
        await migrate(empty_dsn, folder=folder)
    step = Migration("procrastinate/99.00.00_01_pre_new.sql", "ALTER TABLE procrastinate_jobs ADD COLUMN new int")
    monkeypatch.setattr(files, "read_procrastinate", lambda: (grown, [*steps, step]))
    with pytest.raises(SchemaError, match=r"lacks procrastinate/99"):
        await check(empty_dsn, folder)
    assert await migrate(empty_dsn, folder=folder) == [step.name]
    await check(empty_dsn, folder)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["1_short.sql"], "must be called NNNN_what.sql"),
        (["0001_a.sql", "0001_b.sql"], r"one number: 0001_a\.sql and 0001_b\.sql"),
        ([], "install it again"),
    ],
)
def test_a_folder_that_is_not_in_order_is_refused(tmp_path: Path, names: list[str], complaint: str) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(SchemaError, match=complaint):
        read_migrations(tmp_path)


async def test_any_database_name_works(dsn: str, admin: psycopg.Connection, server: EmbeddedServer) -> None:
    """The database's name is never used as an identifier: hyphens, capitals and spaces are fine."""
    name = "Cognizes-engine 2"
    admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        await migrate(dsn_of(server, name.replace(" ", "%20")))
    finally:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def test_postgresql_16_gets_the_same_schema_as_18(conn: asyncpg.Connection, home: Path) -> None:
    """Every definition is identical: a server that was upgraded still passes the check at each start."""
    older = EmbeddedServer(home, major=16)
    await asyncio.to_thread(older.__enter__)
    try:
        await migrate(older.dsn)
        async with await database.create_pool(older.dsn, min_size=1) as pool:
            assert await pool.fetchval("SHOW server_version_num") < "170000"
            theirs = await pool.fetch(RECORDED)
            await pool.execute("SELECT create_session('app', 'user', 's')")
            await pool.execute("SELECT append_event('app', 'user', 's', 0, 'e', 'user', 'message', '{}', 'user', 'hi')")
            assert len(await pool.fetch("SELECT finalize_session('app', 'user', 's')")) == 2
    finally:
        await asyncio.to_thread(older.__exit__, None, None, None)
    assert theirs == await conn.fetch(RECORDED)


async def test_tables_of_another_program_are_named_with_the_remedy_before_anything_changes(empty_dsn: str) -> None:
    """ADK's DatabaseSessionService has tables of the names of ours. The real schema works under another name beside."""
    url = empty_dsn.replace("postgresql://", "postgresql+asyncpg://", 1)
    async with DatabaseSessionService(url) as service:
        await service.create_session(app_name="shop", user_id="ann", session_id="s")
    objects = "SELECT array_agg(relname ORDER BY relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    before = await run_sql(empty_dsn, objects)
    with pytest.raises(SchemaError, match=r"app_states, events, user_states.*HIPPOCAMPUS_SCHEMA_NAME=.*\?schema="):
        await migrate(empty_dsn)
    assert await run_sql(empty_dsn, objects) == before
    assert await run_sql(empty_dsn, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == 0
    assert await migrate(f"{empty_dsn}&schema=hippocampus")
    await check(empty_dsn, schema="hippocampus")
    tables = "SELECT array_agg(tablename::text ORDER BY 1) FROM pg_tables WHERE schemaname = 'public'"
    assert set(await run_sql(empty_dsn, tables)) <= set(before)
