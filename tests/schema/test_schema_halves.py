"""The schema's two halves: migrations that never change once released, and functions that follow their files."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
from pathlib import Path

import asyncpg
import pytest

from pulse import database
from pulse.errors import SchemaError
from tests.support import small_schema
from tests.support.small_schema import COUNT, SHOUT, check, run_sql
from workers.migrate import (
    CONTRACT,
    Migration,
    check_schema,
    default_folder,
    functions,
    migrate,
    read_schema,
    records,
    version_ahead,
)

ROOT = Path(__file__).resolve().parents[2]
RELEASED = ROOT / "schema" / "released.txt"
DUMP = (ROOT / "tests" / "support" / "schema_dump.sql").read_text()
STATEMENT = re.compile(r"^(CREATE OR REPLACE (?:FUNCTION|VIEW|AGGREGATE|TRIGGER)|REVOKE|GRANT|COMMENT ON|DO) ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small schema."""
    return small_schema.write(tmp_path)


async def dump(dsn: str) -> list[asyncpg.Record]:
    connection = await database.connect(dsn, prepare=False)
    try:
        return await connection.fetch(DUMP)
    finally:
        await connection.close()


class TestReleasedFiles:
    def test_a_released_migration_never_changes(self) -> None:
        """schema/released.txt has the hash of each; a released migration is never edited, but followed by a new one."""
        released = [line.split() for line in RELEASED.read_text().splitlines()]
        assert released, "the baseline is released"
        for sha256, name in released:
            text = (RELEASED.parent / name).read_bytes()
            assert hashlib.sha256(text).hexdigest() == sha256, f"{name} was released: undo the change, add a migration"

    def test_the_released_migrations_come_first(self) -> None:
        names = [line.split()[1] for line in RELEASED.read_text().splitlines()]
        assert names == [f"migrations/{each.name}" for each in read_schema(default_folder()).migrations[: len(names)]]

    def test_no_file_requires_more_than_this_program_supports(self) -> None:
        ours = read_schema(default_folder())
        assert max(each.contract for each in (*ours.migrations, *ours.functions)) <= CONTRACT

    @pytest.mark.parametrize("each", read_schema(default_folder()).functions, ids=lambda each: each.name)
    def test_a_file_of_functions_can_be_applied_again(self, each: Migration) -> None:
        """Every statement replaces its object; triggers, which lock their tables, are in a separate file."""
        starts = [line for line in each.sql.splitlines() if re.match(r"[A-Z]", line)]
        first_lines = [
            line for line in starts if line.split()[0] in {"CREATE", "REVOKE", "GRANT", "ALTER", "DROP", "DO"}
        ]
        assert first_lines
        for line in first_lines:
            assert STATEMENT.match(line), line
            assert ("TRIGGER" in line.split(" ON ")[0]) == (each.name == "functions/triggers.sql"), line


class TestOneSchema:
    async def test_a_fresh_database_equals_one_whose_functions_were_applied_again(self, dsn: str) -> None:
        fresh = await dump(dsn)
        await run_sql(dsn, "UPDATE hippocampus_migrations SET sha256 = 'x' WHERE name LIKE 'functions/%'")
        assert await migrate(dsn) == [each.name for each in read_schema(default_folder()).functions]
        assert await dump(dsn) == fresh

    async def test_a_fresh_database_equals_one_that_was_upgraded_from_the_baseline(
        self, dsn: str, empty_dsn: str, tmp_path: Path
    ) -> None:
        (tmp_path / "migrations").mkdir()
        for line in RELEASED.read_text().splitlines():
            shutil.copy(RELEASED.parent / line.split()[1], tmp_path / "migrations")
        await migrate(empty_dsn, folder=tmp_path)
        await migrate(empty_dsn)
        assert await dump(empty_dsn) == await dump(dsn)


class TestFunctionsFollowTheirFiles:
    async def test_only_a_changed_file_is_applied_again(self, empty_dsn: str, folder: Path) -> None:
        await migrate(empty_dsn, folder=folder)
        (folder / "functions" / "count.sql").write_text(COUNT.replace("count(*)", "count(*) + 100"))
        with pytest.raises(SchemaError, match=r"lacks functions/count\.sql\. Run `hippocampus migrate`"):
            await check(empty_dsn, folder)
        assert await migrate(empty_dsn, folder=folder) == ["functions/count.sql"]
        await check(empty_dsn, folder)
        assert await run_sql(empty_dsn, "SELECT count_notes()") == 100

    async def test_all_files_change_or_none(self, empty_dsn: str, folder: Path) -> None:
        """The second file fails: the first keeps its previous text, function and record."""
        await migrate(empty_dsn, folder=folder)
        (folder / "functions" / "count.sql").write_text(COUNT.replace("count(*)", "count(*) + 100"))
        (folder / "functions" / "shout.sql").write_text(SHOUT.replace("FROM notes", "FROM nowhere"))
        with pytest.raises(SchemaError, match=r"functions/shout\.sql failed .*42P01.*nowhere"):
            await migrate(empty_dsn, folder=folder)
        assert await run_sql(empty_dsn, "SELECT count_notes()") == 0
        shutil.copy(folder / "functions" / "count.sql", folder / "functions" / "shout.sql")
        (folder / "functions" / "count.sql").write_text(COUNT)
        (folder / "functions" / "shout.sql").write_text(SHOUT)
        assert await migrate(empty_dsn, folder=folder) == []

    async def test_a_body_that_does_not_compile_names_its_function(
        self,
        empty_dsn: str,
        folder: Path,
    ) -> None:
        """Bodies may call functions of a later file, and are checked once everything exists."""
        calls = "CREATE FUNCTION {} RETURNS integer LANGUAGE sql AS 'SELECT {}';".replace("CREATE", "CREATE OR REPLACE")
        (folder / "functions" / "a.sql").write_text(calls.format("early()", "late()"))
        (folder / "functions" / "z.sql").write_text(calls.format("late()", "7"))
        await migrate(empty_dsn, folder=folder)
        assert await run_sql(empty_dsn, "SELECT early()") == 7
        (folder / "functions" / "a.sql").write_text(calls.format("early()", "never()"))
        with pytest.raises(SchemaError, match=r"functions/a\.sql: early failed .*42883.*never\(\) does not exist"):
            await migrate(empty_dsn, folder=folder)
        assert await run_sql(empty_dsn, "SELECT early()") == 7

    @pytest.mark.parametrize(
        "changed",
        [
            COUNT.replace("RETURNS bigint", "RETURNS text").replace("count(*)", "count(*)::text"),
            COUNT.replace("count_notes()", "count_notes(p_from bigint DEFAULT 0)"),
            COUNT.replace("count_notes", "number_of_notes"),
        ],
        ids=["result", "arguments", "name"],
    )
    async def test_a_function_that_cannot_be_replaced_is_dropped(
        self,
        empty_dsn: str,
        folder: Path,
        changed: str,
    ) -> None:
        """Another result, other arguments, another name: no function of the previous text is left."""
        await migrate(empty_dsn, folder=folder)
        (folder / "functions" / "count.sql").write_text(changed)
        assert await migrate(empty_dsn, folder=folder) == ["functions/count.sql"]
        await check(empty_dsn, folder)
        names = "SELECT array_agg(proname || pg_get_function_arguments(oid)) FROM pg_proc WHERE proname ~ '_notes$'"
        assert len(await run_sql(empty_dsn, names)) == 1

    async def test_a_view_with_other_columns_is_recreated(self, empty_dsn: str, folder: Path) -> None:
        await migrate(empty_dsn, folder=folder)
        (folder / "functions" / "shout.sql").write_text(SHOUT.replace("SELECT id, body", "SELECT body"))
        await migrate(empty_dsn, folder=folder)
        await check(empty_dsn, folder)
        assert await run_sql(empty_dsn, "SELECT count(*) FROM loud") == 0

    async def test_objects_removed_from_their_file_are_dropped(self, empty_dsn: str, folder: Path) -> None:
        """Triggers, views and functions, in that order, and a whole file with all its objects."""
        await migrate(empty_dsn, folder=folder)
        (folder / "functions" / "shout.sql").unlink()
        assert await migrate(empty_dsn, folder=folder) == []
        await check(empty_dsn, folder)
        left = "SELECT count(*) FROM hippocampus_catalogue WHERE name ~ 'shout|loud'"
        assert await run_sql(empty_dsn, left) == 0
        assert await run_sql(empty_dsn, "SELECT to_regclass('loud') IS NULL AND to_regproc('shout') IS NULL")
        await run_sql(empty_dsn, "INSERT INTO notes (id, body) VALUES (1, 'quiet')")

    async def test_a_function_may_move_to_another_file(self, empty_dsn: str, folder: Path) -> None:
        await migrate(empty_dsn, folder=folder)
        (folder / "functions" / "count.sql").rename(folder / "functions" / "tally.sql")
        assert await migrate(empty_dsn, folder=folder) == ["functions/tally.sql"]
        await check(empty_dsn, folder)
        assert await run_sql(empty_dsn, "SELECT count_notes()") == 0

    async def test_what_a_file_made_is_recorded_with_it(self, empty_dsn: str, folder: Path) -> None:
        """Also what it made in a block with EXCEPTION, which is a transaction of its own."""
        caught = "DO $do$ BEGIN CREATE OR REPLACE FUNCTION caught() RETURNS integer LANGUAGE sql RETURN 1;"
        caught += " EXCEPTION WHEN division_by_zero THEN NULL; END $do$;"
        (folder / "functions" / "count.sql").write_text(caught + COUNT)
        await migrate(empty_dsn, folder=folder)
        made_by = "SELECT array_agg(name || ' ' || made_by ORDER BY name) FROM hippocampus_catalogue"
        assert await run_sql(empty_dsn, f"{made_by} WHERE made_by LIKE 'functions/%' AND kind = 'function'") == [
            "caught() functions/count.sql",
            "count_notes() functions/count.sql",
            "shout() functions/shout.sql",
        ]
        assert await run_sql(empty_dsn, f"{made_by} WHERE kind IN ('view', 'trigger') AND name LIKE '%lo%'") == [
            "loud functions/shout.sql"
        ]
        # Ids of transactions start again at 3 after 2^32.
        assert functions.maker(2**32 - 2, {"a": 2**32 - 5, "b": 7}) == "a"
        assert functions.maker(5, {"a": 2**32 - 5, "b": 7}) == "a"
        assert functions.maker(7, {"a": 2**32 - 5, "b": 7}) == "b"

    async def test_objects_that_others_depend_on_are_not_dropped(self, empty_dsn: str, folder: Path) -> None:
        """The error names the dependent object; nothing changed, and once it is gone `migrate` continues."""
        await migrate(empty_dsn, folder=folder)
        await run_sql(empty_dsn, "CREATE VIEW theirs AS SELECT count_notes() AS n")
        (folder / "functions" / "count.sql").unlink()
        with pytest.raises(SchemaError, match=r"(?s)functions/count\.sql drops what .*2BP01.*view theirs depends on"):
            await migrate(empty_dsn, folder=folder)
        assert await run_sql(empty_dsn, "SELECT n FROM theirs") == 0
        await run_sql(empty_dsn, "DROP VIEW theirs")
        await migrate(empty_dsn, folder=folder)
        await check(empty_dsn, folder)

    async def test_functions_of_others_stay(self, empty_dsn: str, folder: Path) -> None:
        """One of our functions with the name of theirs, but another result, is an error."""
        await run_sql(empty_dsn, "CREATE FUNCTION count_notes() RETURNS text LANGUAGE sql RETURN 'mine'")
        with pytest.raises(SchemaError, match=r"functions/count\.sql failed .*42P13"):
            await migrate(empty_dsn, folder=folder)
        assert await run_sql(empty_dsn, "SELECT count_notes()") == "mine"

    async def test_a_function_dropped_by_a_migration_is_recreated(
        self,
        empty_dsn: str,
        folder: Path,
    ) -> None:
        """A table that a function is bound to changes its type: the migration drops the function,
        its file creates it."""
        await migrate(empty_dsn, folder=folder)
        (folder / "migrations" / "0003_wider.sql").write_text(
            "DROP VIEW loud; ALTER TABLE notes ALTER body TYPE varchar(90);"
        )
        assert await migrate(empty_dsn, folder=folder) == ["0003_wider.sql", "functions/shout.sql"]
        await check(empty_dsn, folder)
        assert await run_sql(empty_dsn, "SELECT count(*) FROM loud") == 0

    async def test_it_works_in_another_schema(self, empty_dsn: str, folder: Path) -> None:
        for schema in ("hippo", "Other one"):
            await migrate(empty_dsn, schema=schema, folder=folder)
        (folder / "functions" / "count.sql").write_text(COUNT.replace("RETURNS bigint", "RETURNS numeric"))
        for schema in ("hippo", "Other one"):
            assert await migrate(empty_dsn, schema=schema, folder=folder) == ["functions/count.sql"]
            await check(empty_dsn, folder, schema=schema)


class TestANewerDatabase:
    """What a program of the previous release does once the next one has migrated."""

    @pytest.fixture
    async def newer_dsn(self, empty_dsn: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
        """A database whose latest migration and function are unknown to the program of `folder`."""
        newer = tmp_path_factory.mktemp("newer") / "schema"
        shutil.copytree(folder, newer)
        (newer / "migrations" / "0003_more.sql").write_text("ALTER TABLE notes ADD COLUMN more text;")
        (newer / "functions" / "count.sql").write_text(COUNT.replace("count(*)", "count(*) + 100"))
        await migrate(empty_dsn, folder=newer)
        return empty_dsn

    async def test_it_is_used_while_the_contract_is_kept(self, newer_dsn: str, folder: Path) -> None:
        await check(newer_dsn, folder)

    async def test_migrate_leaves_it_alone(self, newer_dsn: str, folder: Path) -> None:
        """Its functions are not replaced by older ones, and the newer program finds everything in order."""
        assert await migrate(newer_dsn, folder=folder) == []
        assert await run_sql(newer_dsn, "SELECT count_notes()") == 100

    async def test_newer_functions_alone_make_it_newer(self, empty_dsn: str, folder: Path) -> None:
        """A release without a migration is recognised by its version."""
        await migrate(empty_dsn, folder=folder)
        assert await version_ahead(empty_dsn, folder=folder) is None
        newer = "UPDATE hippocampus_migrations SET sha256 = 'x', program = '999.10' WHERE name = 'functions/count.sql'"
        await run_sql(empty_dsn, newer)
        await check(empty_dsn, folder)
        assert await migrate(empty_dsn, folder=folder) == []
        assert await version_ahead(empty_dsn, folder=folder) == "999.10"

    async def test_older_functions_are_replaced(self, empty_dsn: str, folder: Path) -> None:
        await migrate(empty_dsn, folder=folder)
        await run_sql(empty_dsn, "UPDATE hippocampus_migrations SET program = '0.0.9', sha256 = 'x' WHERE name ~ '^f'")
        assert await migrate(empty_dsn, folder=folder) == ["functions/count.sql", "functions/shout.sql"]

    async def test_an_unsupported_contract_is_refused(
        self,
        newer_dsn: str,
        folder: Path,
        tmp_path_factory: pytest.TempPathFactory,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A migration with `-- contract: 2` in its header ends the support of programs of contract 1."""
        newest = tmp_path_factory.mktemp("newest") / "schema"
        shutil.copytree(folder, newest)
        (newest / "migrations" / "0003_more.sql").write_text("ALTER TABLE notes ADD COLUMN more text;")
        (newest / "migrations" / "0004_less.sql").write_text(
            "-- Nothing reads this index.\n-- contract: 2\nDROP INDEX notes_body;"
        )
        with monkeypatch.context() as patch:
            patch.setattr(records, "CONTRACT", 2)
            await migrate(newer_dsn, folder=newest)
            await check(newer_dsn, newest)
        for attempt in (migrate(newer_dsn, folder=folder), check(newer_dsn, folder)):
            with pytest.raises(
                SchemaError, match=r"contract 2 or higher, since 0004_less\.sql .*has contract 1\. Install"
            ):
                await attempt

    @pytest.mark.parametrize("later", ["rewritten", "removed", "dropped by a migration"])
    async def test_a_contract_never_goes_down(
        self, empty_dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch, later: str
    ) -> None:
        """A file of functions that asked for it is rewritten without the line, or removed."""
        file = folder / "functions" / "more.sql"
        function = "CREATE OR REPLACE FUNCTION more() RETURNS integer LANGUAGE sql STABLE\nRETURN 1;\n"
        file.write_text("-- contract: 2\n" + function)
        with monkeypatch.context() as patch:
            patch.setattr(records, "CONTRACT", 2)
            await migrate(empty_dsn, folder=folder)
            if later == "rewritten":
                file.write_text(function)
            else:
                file.unlink()
            if later == "dropped by a migration":
                (folder / "migrations" / "0003_less.sql").write_text("DROP FUNCTION more();")
            await migrate(empty_dsn, folder=folder)
            assert await migrate(empty_dsn, folder=folder) == []
            await check(empty_dsn, folder)
        for attempt in (migrate(empty_dsn, folder=folder), check(empty_dsn, folder)):
            with pytest.raises(SchemaError, match=r"contract 2 or higher, since functions/more\.sql "):
                await attempt

    async def test_a_removed_file_that_returns_is_applied_again(self, empty_dsn: str, folder: Path) -> None:
        file = folder / "functions" / "count.sql"
        await migrate(empty_dsn, folder=folder)
        file.unlink()
        assert await migrate(empty_dsn, folder=folder) == []
        file.write_text(COUNT)
        assert await migrate(empty_dsn, folder=folder) == ["functions/count.sql"]
        assert await run_sql(empty_dsn, "SELECT count_notes()") == 0

    async def test_another_branchs_database_is_refused(self, newer_dsn: str, folder: Path) -> None:
        """It has objects that we lack, and lacks objects that we have: nothing is applied."""
        (folder / "migrations" / "0003_else.sql").write_text("CREATE TABLE elsewhere ();")
        with pytest.raises(SchemaError, match=r"lacks 0003_else\.sql: a release of another branch"):
            await migrate(newer_dsn, folder=folder)
        assert await run_sql(newer_dsn, "SELECT to_regclass('elsewhere')") is None

    async def test_a_database_from_before_the_baseline_says_what_to_do(
        self,
        empty_dsn: str,
        folder: Path,
    ) -> None:
        await run_sql(empty_dsn, "CREATE TABLE hippocampus_migrations (name text, sha256 text, applied_at timestamptz)")
        for attempt in (migrate(empty_dsn, folder=folder), check(empty_dsn, folder)):
            with pytest.raises(SchemaError, match=r"before 0\.1\.0.*hippocampus export"):
                await attempt


class TestWhileWritersWork:
    async def test_a_migration_yields_to_writers(self, empty_dsn: str, folder: Path) -> None:
        """A long transaction holds a table: the migration waits for it, but no statement waits behind the migration."""
        await migrate(empty_dsn, folder=folder)
        (folder / "migrations" / "0003_more.sql").write_text("ALTER TABLE notes ADD COLUMN more text;")
        long, short = [await database.connect(empty_dsn) for _ in range(2)]
        try:
            async with long.transaction():
                await long.execute("INSERT INTO notes (id, body) VALUES (1, 'long')")
                waiting = asyncio.create_task(migrate(empty_dsn, folder=folder))
                blocked = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'notes'::regclass)"
                async with asyncio.timeout(60):
                    while not await short.fetchval(blocked):
                        await asyncio.sleep(0.01)
                for number in range(2, 12):
                    await asyncio.wait_for(
                        short.execute("INSERT INTO notes (id, body) VALUES ($1, 'short')", number), timeout=60
                    )
                assert not waiting.done()
            assert await asyncio.wait_for(waiting, timeout=60) == ["0003_more.sql"]
        finally:
            await long.close()
            await short.close()

    async def test_a_check_during_migrate_finds_no_drift(self, empty_dsn: str, folder: Path) -> None:
        """Functions are replaced thirty times while the check runs constantly: it never reads half of a change."""
        await migrate(empty_dsn, folder=folder)
        # The checking program is the older one: it ignores which functions exist.
        await run_sql(empty_dsn, "UPDATE hippocampus_migrations SET program = '999' WHERE name = '0001_notes.sql'")
        checks = 0

        async def check_on() -> None:
            nonlocal checks
            while True:
                await check_schema(reader, folder=folder)
                checks += 1

        writer, reader = [await database.connect(empty_dsn, prepare=False) for _ in range(2)]
        checking = asyncio.create_task(check_on())
        try:
            for number in range(30):
                text = COUNT.replace("count(*)", f"count(*) + {number}")
                async with writer.transaction():
                    file = Migration("functions/count.sql", text)
                    await functions.apply_functions(writer, "public", [file], [])
            assert not checking.done(), checking.exception()
            assert checks
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
            await writer.close()
            await reader.close()
