"""Bringing a database to this program's schema, and checking at start-up that it is there.

One run at a time, whoever starts it: pgvector, the schema, procrastinate's own SQL from the installed
package, then ours in the order of their numbers, each in its own transaction and recorded with the hash of
its text. What a run made is recorded too, object by object (`hippocampus_catalogue`), so that the check can
name what somebody dropped or changed by hand.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

import hippocampus
from pulse import database
from pulse.errors import SchemaError

if TYPE_CHECKING:
    from pulse.database import Connection

# hnsw.iterative_scan, without which a filtered vector search comes back short, is in 0.8.
PGVECTOR_VERSION_MIN = (0, 8, 0)
# Any constant of our own: one run per database, whatever the schema.
ADVISORY_LOCK_KEY = 0x6869_7070_6F63_616D
LOCK_TIMEOUT_SECONDS = 600
PROCRASTINATE_SCHEMA = "procrastinate/schema.sql"
_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_RECORDS = """
CREATE TABLE IF NOT EXISTS hippocampus_migrations (
    name       text PRIMARY KEY,
    sha256     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS hippocampus_catalogue (
    kind   text NOT NULL,
    name   text NOT NULL,
    sha256 text NOT NULL,
    PRIMARY KEY (kind, name)
);
"""
_EXTENSION_HOME = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'"
_RECORD = """
INSERT INTO hippocampus_migrations (name, sha256) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET sha256 = EXCLUDED.sha256, applied_at = clock_timestamp()
"""
_CATALOGUE_PUT = """
INSERT INTO hippocampus_catalogue (kind, name, sha256) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET sha256 = EXCLUDED.sha256
"""

Catalogue = dict[tuple[str, str], str]


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """One file of SQL: its recorded name, its text, and the hash of its text."""

    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """The hash of the text, in hexadecimal."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


async def migrate(dsn: str, *, schema: str = "public", folder: Path | None = None) -> list[str]:
    """Bring the database to this program's schema and return the names of what was applied now, in order.

    Args:
        dsn: a user that may create tables; for a database without pgvector or the schema, one that may make
            those.
        schema: where our tables are.
        folder: the folder of our migrations; by default those of this program.

    Raises:
        DatabaseUnreachableError: no connection.
        SchemaError: too old a server, no pgvector, an applied migration whose text changed, a newer
            database, or a migration that failed. What was applied before it stays; mend it and run again.
    """
    migrations = read_migrations(folder or default_folder())
    connection = await database.connect(dsn, schema=schema, prepare=False)
    try:
        await _take_turn(connection)
        await _make_extension(connection)
        await _make_schema(connection, schema)
        await connection.execute(_RECORDS)
        return await _apply_all(connection, schema, migrations)
    except asyncpg.InsufficientPrivilegeError as error:
        raise SchemaError(
            f"This user may not make the schema {schema!r} or tables in it (SQLSTATE {error.sqlstate}: {error})."
            " Let the owner of the database run `hippocampus migrate`, or GRANT CREATE ON DATABASE to this user."
        ) from error
    finally:
        # Closing ends the session, and with it the advisory lock.
        await connection.close()


async def check_schema(connection: Connection, *, schema: str = "public", folder: Path | None = None) -> None:
    """Raise SchemaError unless the database has exactly this program's migrations and all that they made.

    It reads only, and is meant for every start-up.
    """
    database.require_supported_server(database.server_version_num(connection))
    applied = await _applied(connection, schema)
    _refuse_foreign(applied, read_migrations(folder or default_folder()))
    missing = [each.name for each in _pending(applied, read_migrations(folder or default_folder()))]
    if missing:
        lacks = ", ".join(missing) if applied else "all of this program's tables"
        raise SchemaError(f"The database's schema {schema!r} lacks {lacks}. Run `hippocampus migrate`.")
    await _check_catalogue(connection, schema)


def default_folder() -> Path:
    """Return the folder of this program's migrations: inside the wheel, or at the root of a checkout."""
    packed = Path(next(iter(hippocampus.__path__))) / "_schema" / "migrations"
    return packed if packed.is_dir() else Path(__file__).parent.parent / "schema" / "migrations"


def read_migrations(folder: Path) -> list[Migration]:
    """Read the folder's migrations in the order of their numbers."""
    files = sorted(folder.glob("*.sql"))
    if not files:
        raise SchemaError(f"There is no migration in {folder}: this installation is incomplete; install it again.")
    numbers: dict[str, str] = {}
    for file in files:
        found = _NAME.match(file.name)
        if found is None:
            raise SchemaError(f"The migration {file.name} must be called NNNN_what.sql, in small letters.")
        if found[1] in numbers:
            raise SchemaError(f"Two migrations have one number: {numbers[found[1]]} and {file.name}.")
        numbers[found[1]] = file.name
    return [Migration(file.name, file.read_text(encoding="utf-8")) for file in files]


def read_procrastinate() -> tuple[Migration, list[Migration]]:
    """Read the installed procrastinate's whole schema, and the migrations that are contained in it."""
    root = resources.files("procrastinate.sql")
    whole = Migration(PROCRASTINATE_SCHEMA, (root / "schema.sql").read_text(encoding="utf-8"))
    files = sorted((root / "migrations").iterdir(), key=lambda each: each.name)
    steps = [
        Migration(f"procrastinate/{each.name}", each.read_text(encoding="utf-8"))
        for each in files
        if each.name.endswith(".sql")
    ]
    return whole, steps


async def _take_turn(connection: Connection) -> None:
    """Wait until no other run is at this database."""
    try:
        await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        await connection.execute("SELECT pg_advisory_lock($1)", ADVISORY_LOCK_KEY)
    except asyncpg.LockNotAvailableError as error:
        raise SchemaError(
            f"Another `hippocampus migrate` has held this database for {LOCK_TIMEOUT_SECONDS} s."
            " Look for it in pg_stat_activity (application_name 'hippocampus'), then run again."
        ) from error


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
    if not await connection.fetchval("SELECT to_regtype('vector') IS NOT NULL"):
        home = await connection.fetchval(_EXTENSION_HOME)
        raise SchemaError(
            f"pgvector is in the schema {home!r} of this database, where our functions don't look. Let its owner run"
            " ALTER EXTENSION vector SET SCHEMA public, then run `hippocampus migrate` again."
        )


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


async def _apply_all(connection: Connection, schema: str, migrations: list[Migration]) -> list[str]:
    applied = await _applied(connection, schema)
    _refuse_foreign(applied, migrations)
    names = []
    before = await _catalogue(connection, schema)
    for each in _pending(applied, migrations):
        try:
            async with connection.transaction():
                await _apply(connection, each)
                after = await _catalogue(connection, schema)
                await _record_catalogue(connection, before, after)
        except asyncpg.PostgresError as error:
            raise SchemaError(_why_failed(each, error)) from error
        before = after
        names.append(each.name)
    return names


async def _apply(connection: Connection, migration: Migration) -> None:
    await connection.execute(migration.sql)
    await connection.execute(_RECORD, migration.name, migration.sha256)
    if migration.name.startswith("procrastinate/"):
        # The whole schema contains every step, and a step leads to the installed whole.
        whole, steps = read_procrastinate()
        contained = [whole, *steps] if migration.name == PROCRASTINATE_SCHEMA else [whole]
        await connection.executemany(_RECORD, [(each.name, each.sha256) for each in contained])


def _why_failed(migration: Migration, error: asyncpg.PostgresError) -> str:
    if migration.name == PROCRASTINATE_SCHEMA and isinstance(
        error, asyncpg.DuplicateObjectError | asyncpg.DuplicateTableError
    ):
        return (
            "This schema has procrastinate's tables already, from another program. Use a schema or a"
            " database of its own (HIPPOCAMPUS_SCHEMA_NAME, DATABASE_URL) and run `hippocampus migrate`."
        )
    return f"The migration {migration.name} failed and was rolled back (SQLSTATE {error.sqlstate}): {error}"


async def _applied(connection: Connection, schema: str) -> dict[str, str]:
    """Return the hash by name of what is recorded in this schema; empty where nothing is."""
    quoted: str = await connection.fetchval("SELECT quote_ident($1) || '.hippocampus_migrations'", schema)
    if await connection.fetchval("SELECT to_regclass($1) IS NULL", quoted):
        return {}
    return {row["name"]: row["sha256"] for row in await connection.fetch("SELECT name, sha256 FROM " + quoted)}


def _refuse_foreign(applied: dict[str, str], migrations: list[Migration]) -> None:
    """Raise where the database has a migration that this program does not have, or has with another text."""
    whole, steps = read_procrastinate()
    known = {each.name: each.sha256 for each in (whole, *steps, *migrations)}
    unknown = sorted(applied.keys() - known.keys())
    if unknown:
        raise SchemaError(
            f"The database is newer than this program: it has {', '.join(unknown)}. Install the newer program;"
            " `hippocampus migrate` never goes back."
        )
    grown = any(each.name not in applied for each in steps)
    changed = [
        name
        for name, sha256 in sorted(applied.items())
        if known[name] != sha256 and not (name == PROCRASTINATE_SCHEMA and grown)
    ]
    if changed:
        raise SchemaError(
            f"The text of {', '.join(changed)} differs from what was applied to this database. An applied"
            " migration must never change: install the release that made this database, then a newer one,"
            " and run `hippocampus migrate`."
        )


def _pending(applied: dict[str, str], migrations: list[Migration]) -> list[Migration]:
    whole, steps = read_procrastinate()
    first = [each for each in steps if each.name not in applied] if PROCRASTINATE_SCHEMA in applied else [whole]
    return first + [each for each in migrations if each.name not in applied]


async def _catalogue(connection: Connection, schema: str) -> Catalogue:
    """Return the hash of every object's definition by (kind, name)."""
    statement = (resources.files("workers") / "catalogue.sql").read_text(encoding="utf-8")
    rows = await connection.fetch(statement, schema)
    return {(row["kind"], row["name"]): hashlib.sha256(row["definition"].encode()).hexdigest() for row in rows}


async def _record_catalogue(connection: Connection, before: Catalogue, after: Catalogue) -> None:
    """Record what a migration made, changed or dropped; other people's objects are not ours to watch."""
    made = [(*key, sha256) for key, sha256 in after.items() if before.get(key) != sha256]
    await connection.executemany(_CATALOGUE_PUT, made)
    dropped = list(before.keys() - after.keys())
    await connection.executemany("DELETE FROM hippocampus_catalogue WHERE kind = $1 AND name = $2", dropped)


async def _check_catalogue(connection: Connection, schema: str) -> None:
    found = await _catalogue(connection, schema)
    quoted: str = await connection.fetchval("SELECT quote_ident($1) || '.hippocampus_catalogue'", schema)
    rows = await connection.fetch("SELECT kind, name, sha256 FROM " + quoted + " ORDER BY kind, name")
    missing = [f"{row['kind']} {row['name']}" for row in rows if (row["kind"], row["name"]) not in found]
    changed = [
        f"{row['kind']} {row['name']}"
        for row in rows
        if found.get((row["kind"], row["name"]), row["sha256"]) != row["sha256"]
    ]
    if missing or changed:
        parts = [f"{word}: {', '.join(names)}" for word, names in (("missing", missing), ("changed", changed)) if names]
        raise SchemaError(
            f"The schema {schema!r} is not as `hippocampus migrate` left it ({'; '.join(parts)}). Restore"
            " these objects from a backup or from the migration that makes them."
        )
