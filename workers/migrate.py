"""Bringing a database to this program's schema, and checking at start-up that the two fit.

`migrate` makes one run at a time: pgvector, the schema, procrastinate's own SQL from the installed package, then our
migrations in the order of their numbers, each in its own transaction, then, in one transaction, the files of functions
that changed. Each file is recorded with the hash of its text, the version of the program that applied it, and the least
contract that a program needs once it is applied. Each object is recorded with the file that made it
(`hippocampus_catalogue`), so that the check can name what was dropped or changed by hand, and a function that is no
longer in its file is dropped.

A program works with a database that a newer release migrated as long as its `CONTRACT` is not below the greatest
contract recorded there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
import tenacity

import hippocampus
from pulse import database
from pulse.errors import SchemaError

if TYPE_CHECKING:
    from pulse.database import Connection

# The contract between programs and databases: a program works with every database whose files ask for no more than
# this. Raise it in the release that no longer uses what a later migration will take away; see schema/README.md.
CONTRACT = 1
# hnsw.iterative_scan, without which a filtered vector search comes back short, is in 0.8.
PGVECTOR_VERSION_MIN = (0, 8, 0)
# Any constant of our own: one run per database, whatever the schema.
ADVISORY_LOCK_KEY = 0x6869_7070_6F63_616D
LOCK_TIMEOUT_SECONDS = 600
# How long a migration waits for a table, and every later statement on that table behind it, before it steps back to let
# them through. Below deadlock_timeout: in a deadlock with a writer it is the migration that gives up.
TABLE_LOCK_TIMEOUT_SECONDS = 0.5
PROCRASTINATE_SCHEMA = "procrastinate/schema.sql"
FUNCTIONS = "functions/"
_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_CONTRACT = re.compile(r"^-- contract: (\d+)$", re.MULTILINE)
_TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
# PostgreSQL's hint where CREATE OR REPLACE can't change a function's result or its arguments' names.
_DROP_FIRST = re.compile(r"DROP \w+ (\w+\(.*\))")
_RECORDS = """
CREATE TABLE IF NOT EXISTS hippocampus_migrations (
    name       text PRIMARY KEY,
    sha256     text NOT NULL,
    program    text NOT NULL,
    contract   integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS hippocampus_catalogue (
    kind    text NOT NULL,
    name    text NOT NULL,
    sha256  text NOT NULL,
    made_by text NOT NULL,
    PRIMARY KEY (kind, name)
);
"""
_EXTENSION_HOME = """
SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
WHERE e.extname = 'vector' AND n.nspname <> $1
"""
_RECORD = """
INSERT INTO hippocampus_migrations (name, sha256, program, contract) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET sha256 = EXCLUDED.sha256, program = EXCLUDED.program,
    contract = greatest(hippocampus_migrations.contract, EXCLUDED.contract), applied_at = clock_timestamp()
"""
_CATALOGUE_PUT = """
INSERT INTO hippocampus_catalogue (kind, name, sha256, made_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, name) DO UPDATE SET sha256 = EXCLUDED.sha256, made_by = EXCLUDED.made_by
"""
# A file of functions without a hash is applied again if there still is one. Its row stays, since the contract that it
# asked for never goes down.
_UNAPPLY = "UPDATE hippocampus_migrations SET sha256 = '' WHERE name = ANY ($1)"
# A file whose function or view a migration dropped is applied again.
_CATALOGUE_DELETE = """
WITH gone AS (DELETE FROM hippocampus_catalogue WHERE kind = $1 AND name = $2 RETURNING made_by)
UPDATE hippocampus_migrations AS m SET sha256 = '' FROM gone WHERE m.name = gone.made_by AND m.name LIKE 'functions/%'
"""
# What a migration or a trigger meets where writers are at work: it is tried again.
_BUSY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_OUR_VIEWS = "SELECT name FROM hippocampus_catalogue WHERE kind = 'view' AND made_by = $1"
_IS_OURS = """
SELECT EXISTS (
    SELECT FROM hippocampus_catalogue AS c JOIN pg_proc AS p ON p.oid = to_regprocedure($1)
    WHERE c.name = p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')')
"""
_OUR_FUNCTIONS = """
SELECT p.oid, c.made_by || ': ' || p.proname AS name,
       CASE l.lanname WHEN 'sql' THEN 'fmgr_sql_validator' ELSE 'plpgsql_validator' END AS validator
FROM pg_proc AS p
JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
JOIN hippocampus_catalogue AS c
  ON c.kind = 'function' AND c.name = p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
WHERE p.pronamespace = to_regnamespace(quote_ident($1)) AND c.made_by LIKE 'functions/%'
ORDER BY 2
"""
# Our functions whose path still has a second schema, pgvector's, though their bodies name nothing of pgvector.
_WIDE_PATHS = """
WITH members AS (
    SELECT t.typname::text AS name, false AS is_operator, d.refobjid
    FROM pg_depend AS d JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
    WHERE d.deptype = 'e' AND t.typcategory <> 'A'
    UNION ALL
    SELECT p.proname, false, d.refobjid
    FROM pg_depend AS d JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    WHERE d.deptype = 'e'
    UNION ALL
    SELECT o.oprname, true, d.refobjid
    FROM pg_depend AS d JOIN pg_operator AS o ON d.classid = 'pg_operator'::regclass AND o.oid = d.objid
    WHERE d.deptype = 'e' AND o.oprname LIKE '<_>'
)
SELECT c.name, p.oid::regprocedure::text AS routine
FROM pg_proc AS p
JOIN hippocampus_catalogue AS c
  ON c.kind = 'function' AND c.name = p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
WHERE p.pronamespace = to_regnamespace(quote_ident($1))
  AND EXISTS (SELECT FROM unnest(p.proconfig) AS s WHERE s LIKE 'search_path=%, %')
  AND NOT EXISTS (
      SELECT FROM members AS m JOIN pg_extension AS e ON e.oid = m.refobjid AND e.extname = 'vector'
      WHERE CASE WHEN m.is_operator THEN strpos(p.prosrc, m.name) > 0
                 -- A name of a built-in function, such as avg, is not pgvector's alone.
                 ELSE p.prosrc ~ ('\\m' || m.name || '\\M')
                      AND NOT EXISTS (SELECT FROM pg_proc AS b
                                      WHERE b.proname = m.name AND b.pronamespace = 'pg_catalog'::regnamespace)
            END)
"""
_TAKEN_TABLES = """
SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relname = ANY ($2::text[])
"""
_CATALOGUE_UPDATE = "UPDATE hippocampus_catalogue SET sha256 = $2 WHERE kind = 'function' AND name = $1"


class CatalogueEntry(NamedTuple):
    """An object of the database: the hash of its definition, and the transaction that last made it."""

    sha256: str
    stamp: str | None


Catalogue = dict[tuple[str, str], CatalogueEntry]


class Record(NamedTuple):
    """What is recorded of an applied file."""

    sha256: str
    program: str
    contract: int


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """One file of SQL: its recorded name, its text, and the hash of its text."""

    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """The hash of the text, in hexadecimal."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def contract(self) -> int:
        """The least contract of a program that works once this is applied."""
        found = _CONTRACT.search(self.sql)
        return int(found[1]) if found else 1


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """The two halves of the schema: numbered migrations, and files of functions and views."""

    migrations: list[Migration]
    functions: list[Migration]


async def migrate(dsn: str, *, schema: str | None = None, folder: Path | None = None) -> list[str]:
    """Bring the database to this program's schema and return the names of what was applied now, in order.

    Nothing is applied to a database that a newer release migrated; see `version_ahead`.

    Args:
        dsn: a user that may create tables; for a database without pgvector or the schema, one that may make
            those.
        schema: where our tables are; by default the address's ``?schema=…``, or else ``public``.
        folder: the folder of both halves of our schema; by default this program's.

    Raises:
        DatabaseUnreachableError: no connection.
        SchemaError: too old a server, no pgvector, an applied migration whose text changed, a database that needs a
            newer program, or a file that failed. What was applied before it stays; fix the cause and run again.
    """
    ours = read_schema(folder or default_folder())
    _, schema = database.read_address(dsn, schema)
    connection = await database.connect(dsn, schema=schema, prepare=False)
    try:
        await _take_turn(connection)
        await _require_free_names(connection, schema, ours)
        await _make_extension(connection)
        await _make_schema(connection, schema)
        await connection.execute(f"SET search_path = {await _definition_path(connection, schema)}")
        await connection.execute(_RECORDS)
        return await _apply_all(connection, schema, ours)
    except asyncpg.InsufficientPrivilegeError as error:
        raise SchemaError(
            f"This user may not make the schema {schema!r} or tables in it (SQLSTATE {error.sqlstate}: {error})."
            " Let the owner of the database run `hippocampus migrate`, or GRANT CREATE ON DATABASE to this user."
        ) from error
    finally:
        # Closing ends the session, and with it the advisory lock.
        await connection.close()


async def check_schema(connection: Connection, *, schema: str = "public", folder: Path | None = None) -> None:
    """Raise SchemaError unless this program works with the database as `migrate`, of this release or a newer, left it.

    It reads only, and is meant for every start-up.
    """
    database.require_supported_server(database.server_version_num(connection))
    ours = read_schema(folder or default_folder())
    while True:
        applied = await _applied(connection, schema)
        _require_fit(applied, ours, schema)
        missing = [each.name for each in _pending(applied, ours)]
        if missing:
            lacks = ", ".join(missing) if applied else "all of this program's tables"
            raise SchemaError(f"The database's schema {schema!r} lacks {lacks}. Run `hippocampus migrate`.")
        drift = await _drift(connection, schema)
        if drift is None:
            return
        # What a `migrate` commits between two reads is not drift: read again.
        if await _applied(connection, schema) == applied:
            raise SchemaError(drift)


async def version_ahead(dsn: str, *, schema: str | None = None, folder: Path | None = None) -> str | None:
    """Return the version of the newer program that migrated the database; None if it is at this program's schema."""
    _, schema = database.read_address(dsn, schema)
    connection = await database.connect(dsn, schema=schema, prepare=False)
    try:
        applied = await _applied(connection, schema)
    finally:
        await connection.close()
    if not _is_ahead(applied, read_schema(folder or default_folder())):
        return None
    return max((record.program for record in applied.values()), key=_release)


def default_folder() -> Path:
    """Return the folder of this program's schema: inside the wheel, or at the root of a checkout."""
    packed = Path(next(iter(hippocampus.__path__))) / "_schema"
    return packed if packed.is_dir() else Path(__file__).parent.parent / "schema"


def read_schema(folder: Path) -> Schema:
    """Read both halves of the schema below the folder: migrations by number, files of functions by name."""
    return Schema(
        read_migrations(folder / "migrations"),
        [
            Migration(FUNCTIONS + file.name, file.read_text(encoding="utf-8"))
            for file in sorted((folder / "functions").glob("*.sql"))
        ],
    )


def read_migrations(folder: Path) -> list[Migration]:
    """Read the folder's migrations, numbered from 0001 on without a gap."""
    files = sorted(folder.glob("*.sql"))
    if not files:
        raise SchemaError(f"There is no migration in {folder}: this installation is incomplete; install it again.")
    for number, file in enumerate(files, start=1):
        found = _NAME.match(file.name)
        if found is None:
            raise SchemaError(f"The migration {file.name} must be called NNNN_what.sql, in lower case.")
        if int(found[1]) < number:
            raise SchemaError(f"Two migrations have one number: {files[number - 2].name} and {file.name}.")
        if int(found[1]) > number:
            raise SchemaError(f"There is no migration {number:04}, but there is {file.name}: number it {number:04}.")
    return [Migration(file.name, file.read_text(encoding="utf-8")) for file in files]


def read_procrastinate() -> tuple[Migration, list[Migration]]:
    """Read the installed procrastinate's whole schema, and the migrations that are contained in it."""
    # Found without importing it: a writer checks the schema, and needs nothing else of procrastinate.
    package = importlib.util.find_spec("procrastinate")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("procrastinate is not installed", name="procrastinate")
    root = Path(package.origin).parent / "sql"
    whole = Migration(PROCRASTINATE_SCHEMA, (root / "schema.sql").read_text(encoding="utf-8"))
    files = sorted((root / "migrations").iterdir(), key=lambda each: each.name)
    steps = [
        Migration(f"procrastinate/{each.name}", each.read_text(encoding="utf-8"))
        for each in files
        if each.name.endswith(".sql")
    ]
    return whole, steps


async def _take_turn(connection: Connection) -> None:
    """Wait until no other run works on this database."""
    try:
        await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        await connection.execute("SELECT pg_advisory_lock($1)", ADVISORY_LOCK_KEY)
    except asyncpg.LockNotAvailableError as error:
        raise SchemaError(
            f"Another `hippocampus migrate` has held this database for {LOCK_TIMEOUT_SECONDS} s."
            " Find it in pg_stat_activity (application_name 'hippocampus'), then run again."
        ) from error


async def _require_free_names(connection: Connection, schema: str, ours: Schema) -> None:
    """Raise if the schema has tables of another program that a pending migration would create."""
    applied = await _applied(connection, schema)
    wanted = [name for each in ours.migrations if each.name not in applied for name in _TABLE.findall(each.sql)]
    taken = await connection.fetchval(_TAKEN_TABLES, schema, wanted)
    if taken:
        raise SchemaError(
            f"The schema {schema!r} has tables of another program: {', '.join(taken)}. (Google ADK's"
            " DatabaseSessionService makes tables of these names.) Nothing was changed. Use a schema of our own: set"
            " HIPPOCAMPUS_SCHEMA_NAME=hippocampus, or add ?schema=hippocampus to the database's address, and run"
            " `hippocampus migrate` again. `hippocampus import-adk` then copies the sessions of ADK's tables."
        )


async def _make_extension(connection: Connection) -> None:
    version = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if version is None:
        major = connection.get_server_version().major
        try:
            await connection.execute("CREATE EXTENSION vector SCHEMA public")
        except (asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFileError) as error:
            raise SchemaError(
                f"pgvector is not installed on this server (SQLSTATE {error.sqlstate}). Install it"
                f" (Debian: apt install postgresql-{major}-pgvector; container: pgvector/pgvector:pg{major}),"
                " then run `hippocampus migrate` again."
            ) from error
        except asyncpg.InsufficientPrivilegeError as error:
            raise SchemaError(
                f"This user may not make the extension vector (SQLSTATE {error.sqlstate}). Let a superuser"
                " run CREATE EXTENSION vector in this database, then run `hippocampus migrate` again."
            ) from error
        version = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    require_supported_pgvector(str(version))


async def _definition_path(connection: Connection, schema: str) -> str:
    """Return the search_path that our objects are defined with: ours, then pgvector's schema."""
    ours = database.search_path(schema)
    home = await connection.fetchval(_EXTENSION_HOME, schema)
    return f"{ours}, {home}" if home else ours


def require_supported_pgvector(version: str) -> None:
    """Raise SchemaError for a pgvector that is too old, such as ``0.7.4``."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < PGVECTOR_VERSION_MIN:
        needed = ".".join(str(number) for number in PGVECTOR_VERSION_MIN)
        raise SchemaError(
            f"This database's pgvector is {version}; {needed} or newer is needed. Install it, run"
            " ALTER EXTENSION vector UPDATE, then `hippocampus migrate` again."
        )


async def _make_schema(connection: Connection, schema: str) -> None:
    if await connection.fetchval("SELECT to_regnamespace(quote_ident($1)) IS NULL", schema):
        quoted: str = await connection.fetchval("SELECT quote_ident($1)", schema)
        await connection.execute("CREATE SCHEMA " + quoted)


async def _apply_all(connection: Connection, schema: str, ours: Schema) -> list[str]:
    applied = await _applied(connection, schema)
    _require_fit(applied, ours, schema)
    pending = _pending(applied, ours)
    if _is_ahead(applied, ours):
        if pending:
            raise SchemaError(
                f"The database's schema {schema!r} has files that this program does not have, and lacks"
                f" {', '.join(each.name for each in pending)}: a release of another branch migrated it. Install a"
                " release that has all of them, then run `hippocampus migrate`."
            )
        return []
    await connection.execute(f"SET lock_timeout = '{TABLE_LOCK_TIMEOUT_SECONDS}s'")
    names = []
    for each in pending:
        if not each.name.startswith(FUNCTIONS):
            await _in_transaction(connection, each.name, functools.partial(_apply, connection, schema, each))
            names.append(each.name)
    # Read again: a migration may have dropped what a file of functions made.
    applied = await _applied(connection, schema)
    changed = [each for each in _pending(applied, ours) if each.name.startswith(FUNCTIONS)]
    recorded = {name for name, record in applied.items() if name.startswith(FUNCTIONS) and record.sha256}
    vanished = sorted(recorded - {each.name for each in ours.functions})
    if changed or vanished:
        names_touched = [*(each.name for each in changed), *vanished]
        work = functools.partial(_apply_functions, connection, schema, changed, vanished)
        await _in_transaction(connection, ", ".join(names_touched), work)
    return names + [each.name for each in changed]


async def _in_transaction(connection: Connection, name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work of these files in one transaction, again while other sessions hold the tables that it locks."""
    try:
        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_BUSY),
            stop=tenacity.stop_after_delay(LOCK_TIMEOUT_SECONDS),
            wait=tenacity.wait_random(0.1, 1),
            reraise=True,
        ):
            with attempt:
                async with connection.transaction():
                    await work()
    except _BUSY as error:
        raise SchemaError(
            f"{name} was not applied: for {LOCK_TIMEOUT_SECONDS} s other transactions have held a table that it"
            f" changes (SQLSTATE {error.sqlstate}: {error}). Find the oldest one in pg_stat_activity (ORDER BY"
            " xact_start; `hippocampus doctor` prints its age), end it, then run `hippocampus migrate` again."
        ) from error


async def _apply(connection: Connection, schema: str, migration: Migration) -> None:
    before = await _catalogue(connection, schema)
    with _naming(migration.name):
        await connection.execute(migration.sql)
    await _record(connection, migration)
    if migration.name.startswith("procrastinate/"):
        # The whole schema contains every step, and a step leads to the installed whole.
        whole, steps = read_procrastinate()
        for contained in [whole, *steps] if migration.name == PROCRASTINATE_SCHEMA else [whole]:
            await _record(connection, contained)
    await _record_catalogue(connection, before, await _catalogue(connection, schema), migration.name)


async def _apply_functions(
    connection: Connection, schema: str, changed: Sequence[Migration], vanished: Sequence[str]
) -> None:
    """Apply the files whose text changed, and drop what no file makes any more."""
    start = before = await _catalogue(connection, schema)
    await connection.execute("SET LOCAL check_function_bodies = off")
    for each in changed:
        with _naming(each.name):
            await _replace(connection, each)
        after = await _catalogue(connection, schema)
        await _record_catalogue(connection, before, after, each.name)
        before = after
    made_by = [*(each.name for each in changed), *vanished]
    rows = await connection.fetch(
        "SELECT kind, name, made_by FROM hippocampus_catalogue WHERE made_by = ANY ($1)", made_by
    )
    stale = [row for row in rows if before.get((row["kind"], row["name"])) == start.get((row["kind"], row["name"]))]
    with _naming(", ".join(sorted({row["made_by"] for row in stale}))):
        await _drop(connection, [(row["kind"], row["name"]) for row in stale])
    await _record_catalogue(connection, before, await _catalogue(connection, schema), "")
    await _narrow_paths(connection, schema)
    await connection.execute(_UNAPPLY, vanished)
    for each in changed:
        await _record(connection, each)
    await connection.execute("SET LOCAL check_function_bodies = on")
    # Until here a function could call what a later file makes: the bodies are checked when everything is there.
    for row in await connection.fetch(_OUR_FUNCTIONS, schema):
        with _naming(row["name"]):
            await connection.execute(f"SELECT {row['validator']}({row['oid']})")


async def _narrow_paths(connection: Connection, schema: str) -> None:
    """Take pgvector's schema from the path of each function that names nothing of pgvector.

    That schema is mostly `public`. If it holds another installation, its functions would be candidates for each call
    in a body, and a literal argument would make the call ambiguous.
    """
    narrowed = await connection.fetch(_WIDE_PATHS, schema)
    path = database.search_path(schema)
    for row in narrowed:
        await connection.execute(f"ALTER FUNCTION {row['routine']} SET search_path = {path}")
    if narrowed:
        found = await _catalogue(connection, schema)
        hashes = [(row["name"], found["function", row["name"]].sha256) for row in narrowed]
        await connection.executemany(_CATALOGUE_UPDATE, hashes)


async def _replace(connection: Connection, file: Migration) -> None:
    """Run a file of CREATE OR REPLACE; what can't be replaced, since its result changed, is dropped first."""
    views = [row["name"] for row in await connection.fetch(_OUR_VIEWS, file.name)]
    while True:
        try:
            # One level deeper, so that each file has a transaction id of its own: see Catalogue.
            async with connection.transaction():
                await connection.execute(file.sql)
            return
        except asyncpg.InvalidFunctionDefinitionError as error:
            found = _DROP_FIRST.search(error.hint or "")
            if found is None or not await connection.fetchval(_IS_OURS, found[1]):
                raise
            await connection.execute("DROP ROUTINE " + found[1])
        except asyncpg.InvalidTableDefinitionError:
            if not views:
                raise
            await connection.execute("DROP VIEW " + ", ".join(views))
            views = []


async def _drop(connection: Connection, stale: Sequence[tuple[str, str]]) -> None:
    """Drop triggers, views and functions; what other objects depend on is refused."""
    for table, trigger in (name.split(".") for kind, name in stale if kind == "trigger"):
        await connection.execute(f"DROP TRIGGER {trigger} ON {table}")
    for statement, kinds in (("DROP VIEW ", {"view"}), ("DROP ROUTINE ", {"function", "aggregate"})):
        names = [name for kind, name in stale if kind in kinds]
        if names:
            await connection.execute(statement + ", ".join(names))


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Raise SchemaError with the name of the file that failed."""
    try:
        yield
    except _BUSY:
        raise
    except asyncpg.PostgresError as error:
        raise SchemaError(_why_failed(name, error)) from error


def _why_failed(name: str, error: asyncpg.PostgresError) -> str:
    if name == PROCRASTINATE_SCHEMA and isinstance(error, asyncpg.DuplicateObjectError | asyncpg.DuplicateTableError):
        return (
            "This schema has procrastinate's tables already, from another program. Use a schema or a"
            " database of its own (HIPPOCAMPUS_SCHEMA_NAME, DATABASE_URL) and run `hippocampus migrate`."
        )
    if isinstance(error, asyncpg.DependentObjectsStillExistError):
        return (
            f"{name} drops what other objects depend on, and was rolled back (SQLSTATE {error.sqlstate}): {error}\n"
            f"Drop the objects that are not ours, then run `hippocampus migrate` again."
        )
    return f"{name} failed and was rolled back (SQLSTATE {error.sqlstate}): {error}"


async def _record(connection: Connection, file: Migration) -> None:
    await connection.execute(_RECORD, file.name, file.sha256, program_version(), file.contract)


@functools.cache
def program_version() -> str:
    """Return the release of this program."""
    return importlib.metadata.version("pg-hippocampus")


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without what marks a pre-release of it."""
    found = _RELEASE.match(version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


async def _applied(connection: Connection, schema: str) -> dict[str, Record]:
    """Return what is recorded in this schema, by name; empty if nothing is."""
    quoted: str = await connection.fetchval("SELECT quote_ident($1) || '.hippocampus_migrations'", schema)
    if await connection.fetchval("SELECT to_regclass($1) IS NULL", quoted):
        return {}
    try:
        rows = await connection.fetch("SELECT name, sha256, program, contract FROM " + quoted)
    except asyncpg.UndefinedColumnError as error:
        raise SchemaError(
            f"The database's schema {schema!r} was made by a program before 0.1.0, and can't be upgraded. Use an empty"
            " database or schema (DATABASE_URL, HIPPOCAMPUS_SCHEMA_NAME), and carry over what you need with"
            " `hippocampus export` of the program that made it and `hippocampus import` of this one."
        ) from error
    return {row["name"]: Record(row["sha256"], row["program"], row["contract"]) for row in rows}


def _require_fit(applied: dict[str, Record], ours: Schema, schema: str) -> None:
    """Raise if the database needs a newer program, or has one of our migrations with another text."""
    contract, name = max(((record.contract, name) for name, record in applied.items()), default=(1, ""))
    if contract > CONTRACT:
        raise SchemaError(
            f"The database's schema {schema!r} needs a program of contract {contract} or higher, since {name} was"
            f" applied by release {applied[name].program}; this program, release {program_version()}, has contract"
            f" {CONTRACT}. Install release {applied[name].program} or newer; `hippocampus migrate` never goes back."
        )
    whole, steps = read_procrastinate()
    known = {each.name: each.sha256 for each in (*steps, *ours.migrations)}
    # The whole of procrastinate's schema changes with each step.
    if all(name in known for name in applied if name.startswith("procrastinate/") and name != whole.name) and all(
        each.name in applied for each in steps
    ):
        known[whole.name] = whole.sha256
    changed = [name for name in sorted(applied.keys() & known.keys()) if applied[name].sha256 != known[name]]
    if changed:
        raise SchemaError(
            f"The text of {', '.join(changed)} differs from what was applied to this database. An applied"
            " migration must never change: install the release that made this database, then a newer one,"
            " and run `hippocampus migrate`."
        )


def _is_ahead(applied: dict[str, Record], ours: Schema) -> bool:
    """Whether a newer release migrated the database: its version says so, or it has a migration that we lack."""
    whole, steps = read_procrastinate()
    known = {each.name for each in (whole, *steps, *ours.migrations)}
    version = _release(program_version())
    return any(
        _release(record.program) > version or not (name in known or name.startswith(FUNCTIONS))
        for name, record in applied.items()
    )


def _pending(applied: dict[str, Record], ours: Schema) -> list[Migration]:
    """Return what is to be applied, in order. Functions that a newer release replaced are left alone."""
    whole, steps = read_procrastinate()
    first = steps if PROCRASTINATE_SCHEMA in applied else [whole]
    pending = [each for each in (*first, *ours.migrations) if each.name not in applied]
    if not _is_ahead(applied, ours):
        recorded = {name: record.sha256 for name, record in applied.items()}
        pending += [each for each in ours.functions if recorded.get(each.name) != each.sha256]
    return pending


async def _catalogue(connection: Connection, schema: str) -> Catalogue:
    """Return every object of the schema, by kind and name."""
    statement = (resources.files("workers") / "catalogue.sql").read_text(encoding="utf-8")
    async with connection.transaction():
        # Definitions leave out what is on the path.
        await connection.execute(f"SET LOCAL search_path = {await _definition_path(connection, schema)}")
        rows = await connection.fetch(statement, schema)
    return {
        (row["kind"], row["name"]): CatalogueEntry(hashlib.sha256(row["definition"].encode()).hexdigest(), row["stamp"])
        for row in rows
    }


async def _record_catalogue(connection: Connection, before: Catalogue, after: Catalogue, made_by: str) -> None:
    """Record what a file made, changed or dropped; other people's objects are not ours to watch."""
    made = [(*key, entry.sha256, made_by) for key, entry in after.items() if before.get(key) != entry]
    await connection.executemany(_CATALOGUE_PUT, made)
    await connection.executemany(_CATALOGUE_DELETE, list(before.keys() - after.keys()))


async def _drift(connection: Connection, schema: str) -> str | None:
    """Return how the schema differs from what is recorded; None if it does not."""
    found = await _catalogue(connection, schema)
    quoted: str = await connection.fetchval("SELECT quote_ident($1) || '.hippocampus_catalogue'", schema)
    rows = await connection.fetch("SELECT kind, name, sha256 FROM " + quoted + " ORDER BY kind, name")
    missing = []
    changed = []
    for row in rows:
        entry = found.get((row["kind"], row["name"]))
        if entry is None:
            missing.append(f"{row['kind']} {row['name']}")
        elif entry.sha256 != row["sha256"]:
            changed.append(f"{row['kind']} {row['name']}")
    if not missing and not changed:
        return None
    parts = [f"{word}: {', '.join(names)}" for word, names in (("missing", missing), ("changed", changed)) if names]
    return (
        f"The schema {schema!r} is not as `hippocampus migrate` left it ({'; '.join(parts)}). Restore"
        " these objects from a backup or from the file that makes them."
    )
