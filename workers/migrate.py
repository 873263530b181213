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

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

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
#: What a function is called from its replacement until the statements that run it have ended.
SET_ASIDE = "hippocampus_replaced_"
#: How long statements have for that, before what they run is dropped.
DRAIN_SECONDS = 10.0
#: A function of 0.1.0 that fails wherever it waits for the migration that adds a column to the table whose row it
#: returns. Its next definition does not, so that one is committed first.
FIRST_FUNCTION = "app_policy(text)"
FIRST_FILE = FUNCTIONS + "policies.sql"
#: Of a migration whose text was changed before its release, the hash of the former, which made the same objects. This
#: one also dropped the views of an installation in another schema on the path.
FORMER_TEXTS = {"0030_autonomic_archive.sql": "2776be01df8476a0586fe116b3012a3a40612b906ab15381ac2044202a268275"}
_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_CONTRACT = re.compile(r"^-- contract: (\d+)$", re.MULTILINE)
_TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)
# How PostgreSQL shows IN of a varchar, and a BETWEEN that comes first, once its own text of them was read by a restore.
_RESTORED_ITEM = re.compile(r"\(('[^']*'::character varying)\)::text")
_RESTORED_IN = re.compile(r"ARRAY\[((?:\('[^']*'::character varying\)::text(?:, )?)+)\]")
_RESTORED_BETWEEN = re.compile(
    r"\((?P<what>[^()]+(?:\([^()]*\))?) >= (?P<least>\d+)\) AND \((?P=what) <= (?P<most>\d+)\)(?= AND )"
)
_DRAIN_POLL_SECONDS = 0.02
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_FIRST_DEFINITION = re.compile(r"^CREATE OR REPLACE FUNCTION app_policy\(.+?^\$\$;", re.MULTILINE | re.DOTALL)
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
RETURNING xmin::text
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
_SET_ASIDE = """
SELECT p.oid::regprocedure::text FROM pg_proc AS p
WHERE p.pronamespace = to_regnamespace(quote_ident($1)) AND starts_with(p.proname, $2)
"""
# The transactions that may be in one of our functions. A user who may not see what kind a process of the server is sees
# NULL: then all count.
_OTHER_TRANSACTIONS = """
SELECT l.virtualtransaction FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.pid <> pg_backend_pid()
  AND a.datname = current_database() AND coalesce(a.backend_type, 'client backend') = 'client backend'
"""
_IS_HERE = "SELECT to_regprocedure(quote_ident($1) || '.' || $2) IS NOT NULL"
_CATALOGUE_UPDATE = "UPDATE hippocampus_catalogue SET sha256 = $2 WHERE kind = 'function' AND name = $1"


class CatalogueEntry(NamedTuple):
    """An object of the database: its definition, and the transaction that last made it."""

    definition: str
    stamp: str | None


#: An object of the schema: its kind and its name.
Key = tuple[str, str]
Catalogue = dict[Key, CatalogueEntry]
_Found = TypeVar("_Found")


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
        return _sha256(self.sql)

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
        PoolerError: the address leads through a pooler in transaction mode.
        SchemaError: too old a server, no pgvector, an applied migration whose text changed, a database that needs a
            newer program, or a file that failed. What was applied before it stays; fix the cause and run again.
    """
    ours = _schema_below(folder)
    _, schema = database.read_address(dsn, schema)
    connection = await database.connect(dsn, schema=schema, prepare=False, needs_session=True)
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


async def check_schema(
    connection: Connection, *, schema: str = "public", folder: Path | None = None, thorough: bool = True
) -> None:
    """Raise SchemaError unless this program works with the database as `migrate`, of this release or a newer, left it.

    It reads only.

    Args:
        thorough: also find what was changed or dropped by hand. That reads every definition, 60 ms: it is for processes
            that stay, and for `doctor`.
    """
    database.require_supported_server(database.server_version_num(connection))
    ours = _schema_below(folder)
    while True:
        applied = await _applied(connection, schema)
        _require_fit(applied, ours, schema)
        missing = [each.name for each in _pending(applied, ours)]
        if missing:
            lacks = ", ".join(missing) if applied else "all of this program's tables"
            raise SchemaError(f"The database's schema {schema!r} lacks {lacks}. Run `hippocampus migrate`.")
        drift = await _drift(connection, schema) if thorough else None
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
    if not _is_ahead(applied, _schema_below(folder)):
        return None
    return max((record.program for record in applied.values()), key=_release)


def default_folder() -> Path:
    """Return the folder of this program's schema: inside the wheel, or at the root of a checkout."""
    packed = Path(next(iter(hippocampus.__path__))) / "_schema"
    return packed if packed.is_dir() else Path(__file__).parent.parent / "schema"


def _schema_below(folder: Path | None) -> Schema:
    """Read the schema; this program's own once in a process."""
    return _own_schema() if folder is None else read_schema(folder)


@functools.cache
def _own_schema() -> Schema:
    return read_schema(default_folder())


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


@functools.cache
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
    made: dict[bool, set[str]] = {True: set(), False: set()}
    for each in ours.migrations:
        made[each.name in applied].update(_TABLE.findall(each.sql))
    # A table that an applied migration made, and a pending one makes again in its place, is ours.
    taken = await connection.fetchval(_TAKEN_TABLES, schema, sorted(made[False] - made[True]))
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
    # A run that was killed may have left some.
    await _drop_set_aside(connection, schema)
    names = []
    numbered = [each for each in pending if not each.name.startswith(FUNCTIONS)]
    first = next((each for each in pending if each.name == FIRST_FILE), None)
    if first is not None and numbered and await connection.fetchval(_IS_HERE, schema, FIRST_FUNCTION):
        await _in_transaction(connection, first.name, functools.partial(_apply_first, connection, schema, first))
    # What one migration leaves is what the next one meets.
    known: list[Catalogue] = []
    for each in numbered:
        work = functools.partial(_apply, connection, schema, each, known)
        known.append(await _in_transaction(connection, each.name, work))
        names.append(each.name)
    # Read again: a migration may have dropped what a file of functions made.
    applied = await _applied(connection, schema)
    changed = [each for each in _pending(applied, ours) if each.name.startswith(FUNCTIONS)]
    recorded = {name for name, record in applied.items() if name.startswith(FUNCTIONS) and record.sha256}
    vanished = sorted(recorded - {each.name for each in ours.functions})
    if changed or vanished:
        names_touched = [*(each.name for each in changed), *vanished]
        replace = functools.partial(_apply_functions, connection, schema, changed, vanished)
        await _in_transaction(connection, ", ".join(names_touched), replace)
        await _drop_set_aside(connection, schema)
    return names + [each.name for each in changed]


async def _in_transaction(connection: Connection, name: str, work: Callable[[], Awaitable[_Found]]) -> _Found:
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
                    found = await work()
    except _BUSY as error:
        raise SchemaError(
            f"{name} was not applied: for {LOCK_TIMEOUT_SECONDS} s other transactions have held a table that it"
            f" changes (SQLSTATE {error.sqlstate}: {error}). Find the oldest one in pg_stat_activity (ORDER BY"
            " xact_start; `hippocampus doctor` prints its age), end it, then run `hippocampus migrate` again."
        ) from error
    return found


async def _apply(connection: Connection, schema: str, migration: Migration, known: list[Catalogue]) -> Catalogue:
    """Apply a migration and return the catalogue as it left it; it takes from `known` the one that it meets."""
    before = known.pop() if known else await _catalogue(connection, schema)
    with _naming(migration.name):
        await connection.execute(migration.sql)
    await _record(connection, migration)
    if migration.name.startswith("procrastinate/"):
        # The whole schema contains every step, and a step leads to the installed whole.
        whole, steps = read_procrastinate()
        for contained in [whole, *steps] if migration.name == PROCRASTINATE_SCHEMA else [whole]:
            await _record(connection, contained)
    after = await _catalogue(connection, schema)
    await _record_catalogue(connection, before, after, lambda _: migration.name)
    return after


async def _apply_first(connection: Connection, schema: str, file: Migration) -> None:
    """Replace `FIRST_FUNCTION` before the tables change; its file follows with the others."""
    found = _FIRST_DEFINITION.search(file.sql)
    if found is None:
        raise SchemaError(f"{file.name} does not define {FIRST_FUNCTION}: this installation is incomplete.")
    before = await _catalogue(connection, schema)
    await connection.execute("SET LOCAL check_function_bodies = off")
    with _naming(file.name):
        await connection.execute(found[0])
    await _record_catalogue(connection, before, await _catalogue(connection, schema), lambda _: file.name)


async def _apply_functions(
    connection: Connection, schema: str, changed: Sequence[Migration], vanished: Sequence[str]
) -> None:
    """Apply the files whose text changed, and drop what no file makes any more."""
    start = await _catalogue(connection, schema)
    await connection.execute("SET LOCAL check_function_bodies = off")
    begun = {}
    for each in changed:
        with _naming(each.name):
            begun[each.name] = await _replace(connection, schema, each)
    before = await _catalogue(connection, schema)
    makers = {
        key: _maker(int(entry.stamp), begun)
        for key, entry in before.items()
        if begun and entry.stamp is not None and (key not in start or start[key].stamp != entry.stamp)
    }
    await _record_catalogue(connection, start, before, lambda key: makers.get(key, ""))
    made_by = [*(each.name for each in changed), *vanished]
    rows = await connection.fetch(
        "SELECT kind, name, made_by FROM hippocampus_catalogue WHERE made_by = ANY ($1)", made_by
    )
    stale = [row for row in rows if before.get((row["kind"], row["name"])) == start.get((row["kind"], row["name"]))]
    if stale:
        with _naming(", ".join(sorted({row["made_by"] for row in stale}))):
            await _drop(connection, schema, [(row["kind"], row["name"]) for row in stale])
        await _record_catalogue(connection, before, await _catalogue(connection, schema), lambda _: "")
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
        hashes = [(row["name"], _sha256(found["function", row["name"]].definition)) for row in narrowed]
        await connection.executemany(_CATALOGUE_UPDATE, hashes)


def _maker(stamp: int, begun: Mapping[str, int]) -> str:
    """Return the file that was being applied when a transaction began. Their ids rise, and start again at 2^32."""
    return min(begun, key=lambda name: (stamp - begun[name]) % 2**32)


async def _replace(connection: Connection, schema: str, file: Migration) -> int:
    """Run a file of CREATE OR REPLACE; what can't be replaced, since its result changed, is dropped first.

    Returns:
        The transaction id of the file: what it makes has this stamp, or that of a block with EXCEPTION, a higher one.
    """
    views = [row["name"] for row in await connection.fetch(_OUR_VIEWS, file.name)]
    while True:
        try:
            # One level deeper, so that each file has a transaction id of its own: see Catalogue.
            async with connection.transaction():
                begun = await _record(connection, file)
                await connection.execute(file.sql)
            return begun
        except asyncpg.InvalidFunctionDefinitionError as error:
            found = _DROP_FIRST.search(error.hint or "")
            if found is None or not await connection.fetchval(_IS_OURS, found[1]):
                raise
            await _set_aside(connection, schema, [found[1]])
        except asyncpg.InvalidTableDefinitionError:
            if not views:
                raise
            await _drop_views(connection, schema, views)
            views = []


async def _drop(connection: Connection, schema: str, stale: Sequence[tuple[str, str]]) -> None:
    """Drop triggers, views and functions; what other objects depend on is refused."""
    for table, trigger in (name.split(".") for kind, name in stale if kind == "trigger"):
        await connection.execute(f"DROP TRIGGER {trigger} ON {table}")
    views = [name for kind, name in stale if kind == "view"]
    if views:
        await _drop_views(connection, schema, views)
    routines = [name for kind, name in stale if kind in {"function", "aggregate"}]
    if routines:
        await _set_aside(connection, schema, routines)


async def _drop_views(connection: Connection, schema: str, views: Sequence[str]) -> None:
    """Drop views, and what was set aside if that reads one of them."""
    statement = "DROP VIEW " + ", ".join(views)
    try:
        async with connection.transaction():
            await connection.execute(statement)
    except asyncpg.DependentObjectsStillExistError:
        aside = await _names_set_aside(connection, schema)
        if not aside:
            raise
        await connection.execute("DROP ROUTINE " + ", ".join(aside))
        await connection.execute(statement)


async def _names_set_aside(connection: Connection, schema: str) -> list[str]:
    return [name for (name,) in await connection.fetch(_SET_ASIDE, schema, SET_ASIDE)]


async def _set_aside(connection: Connection, schema: str, routines: Sequence[str]) -> None:
    """Free the names of these functions, for `_drop_set_aside` to drop them.

    A statement that is in a function when that is dropped fails at the function's end ('cache lookup failed').
    """
    trial = connection.transaction()
    await trial.start()
    try:
        # Refused where other objects depend on them. What was set aside goes with them.
        aside = await _names_set_aside(connection, schema)
        await connection.execute("DROP ROUTINE " + ", ".join([*aside, *routines]))
    finally:
        await trial.rollback()
    for each in routines:
        await connection.execute(f"ALTER ROUTINE {each} RENAME TO {SET_ASIDE}{each.partition('(')[0]}")


async def _drop_set_aside(connection: Connection, schema: str) -> None:
    """Drop what was set aside, once each transaction that may be in it has ended."""
    routines = await _names_set_aside(connection, schema)
    if not routines:
        return
    inside = {name for (name,) in await connection.fetch(_OTHER_TRANSACTIONS)}
    deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
    while inside and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_DRAIN_POLL_SECONDS)
        inside &= {name for (name,) in await connection.fetch(_OTHER_TRANSACTIONS)}

    async def drop() -> None:
        with _naming("what was replaced"):
            await connection.execute("DROP ROUTINE " + ", ".join(routines))

    await _in_transaction(connection, "what was replaced", drop)


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


async def _record(connection: Connection, file: Migration) -> int:
    """Record a file as applied, and return the id of the transaction that did."""
    return int(await connection.fetchval(_RECORD, file.name, file.sha256, program_version(), file.contract))


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
    changed = [
        name
        for name in sorted(applied.keys() & known.keys())
        if applied[name].sha256 not in (known[name], FORMER_TEXTS.get(name))
    ]
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
    async with connection.transaction():
        # Definitions leave out what is on the path.
        await connection.execute(f"SET LOCAL search_path = {await _definition_path(connection, schema)}")
        rows = await connection.fetch(_objects(), schema)
    return {
        (kind, name): CatalogueEntry(definition, stamp)
        for kind, name, definition, stamp in rows
        if not name.startswith(SET_ASIDE)
    }


@functools.cache
def _objects() -> str:
    return (resources.files("workers") / "catalogue.sql").read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _as_made(definition: str) -> str:
    """Return the form that a definition had before a dump and a restore."""
    text = _RESTORED_IN.sub(
        lambda found: f"(ARRAY[{_RESTORED_ITEM.sub(lambda item: item[1], found[1])}])::text[]", definition
    )
    return _RESTORED_BETWEEN.sub(r"((\g<what> >= \g<least>) AND (\g<what> <= \g<most>))", text)


async def _record_catalogue(
    connection: Connection, before: Catalogue, after: Catalogue, made_by: Callable[[Key], str]
) -> None:
    """Record what files made, changed or dropped; other people's objects are not ours to watch."""
    made = [(*key, _sha256(entry.definition), made_by(key)) for key, entry in after.items() if before.get(key) != entry]
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
        # A database that was restored from a dump shows some definitions in another form.
        elif row["sha256"] not in (_sha256(entry.definition), _sha256(_as_made(entry.definition))):
            changed.append(f"{row['kind']} {row['name']}")
    if not missing and not changed:
        return None
    parts = [f"{word}: {', '.join(names)}" for word, names in (("missing", missing), ("changed", changed)) if names]
    return (
        f"The schema {schema!r} is not as `hippocampus migrate` left it ({'; '.join(parts)}). Restore"
        " these objects from a backup or from the file that makes them."
    )
