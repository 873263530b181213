"""One run of `migrate`, and the check at start-up that program and database fit."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from pulse import database
from pulse.errors import SchemaError
from pulse.postgres.statements import load_queries
from workers.migrate import files
from workers.migrate.catalogue import Catalogue, definition_path, find_drift, read_catalogue, record_catalogue
from workers.migrate.files import FUNCTIONS, PROCRASTINATE_SCHEMA, Migration, Schema, schema_below
from workers.migrate.functions import apply_functions
from workers.migrate.records import (
    applied_files,
    is_ahead,
    make_tables,
    pending_files,
    record_file,
    release_numbers,
    require_fit,
)
from workers.migrate.replaced import drop_set_aside
from workers.migrate.transactions import LOCK_TIMEOUT_SECONDS, in_transaction, naming

if TYPE_CHECKING:
    from pulse.database import Connection

QUERIES = load_queries("workers.migrate", "run.sql")

# hnsw.iterative_scan, without which a filtered vector search comes back short, is in 0.8.
PGVECTOR_VERSION_MIN = (0, 8, 0)
# Any constant of our own: one run per database, whatever the schema.
ADVISORY_LOCK_KEY = 0x6869_7070_6F63_616D
# How long a migration waits for a table, and every later statement on that table behind it, before it steps back to let
# them through. Below deadlock_timeout: in a deadlock with a writer it is the migration that gives up.
TABLE_LOCK_TIMEOUT_SECONDS = 0.5
#: A function of 0.1.0 that fails wherever it waits for the migration that adds a column to the table whose row it
#: returns. Its next definition does not, so that one is committed first.
FIRST_FUNCTION = "app_policy(text)"
FIRST_FILE = FUNCTIONS + "policies.sql"
_TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)
_FIRST_DEFINITION = re.compile(r"^CREATE OR REPLACE FUNCTION app_policy\(.+?^\$\$;", re.MULTILINE | re.DOTALL)


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
    ours = schema_below(folder)
    _, schema = database.read_address(dsn, schema)
    connection = await database.connect(dsn, schema=schema, prepare=False, needs_session=True)
    try:
        await _take_turn(connection)
        await _require_free_names(connection, schema, ours)
        await _make_extension(connection)
        await _make_schema(connection, schema)
        await connection.execute(f"SET search_path = {await definition_path(connection, schema)}")
        await make_tables(connection)
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
    ours = schema_below(folder)
    while True:
        applied = await applied_files(connection, schema)
        require_fit(applied, ours, schema)
        missing = [each.name for each in pending_files(applied, ours)]
        if missing:
            lacks = ", ".join(missing) if applied else "all of this program's tables"
            raise SchemaError(f"The database's schema {schema!r} lacks {lacks}. Run `hippocampus migrate`.")
        drift = await find_drift(connection, schema) if thorough else None
        if drift is None:
            return
        # What a `migrate` commits between two reads is not drift: read again.
        if await applied_files(connection, schema) == applied:
            raise SchemaError(drift)


async def version_ahead(dsn: str, *, schema: str | None = None, folder: Path | None = None) -> str | None:
    """Return the version of the newer program that migrated the database; None if it is at this program's schema."""
    _, schema = database.read_address(dsn, schema)
    connection = await database.connect(dsn, schema=schema, prepare=False)
    try:
        applied = await applied_files(connection, schema)
    finally:
        await connection.close()
    if not is_ahead(applied, schema_below(folder)):
        return None
    return max((record.program for record in applied.values()), key=release_numbers)


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
    applied = await applied_files(connection, schema)
    made: dict[bool, set[str]] = {True: set(), False: set()}
    for each in ours.migrations:
        made[each.name in applied].update(_TABLE.findall(each.sql))
    # A table that an applied migration made, and a pending one makes again in its place, is ours.
    taken = await connection.fetchval(QUERIES["taken_tables"], schema, sorted(made[False] - made[True]))
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
    applied = await applied_files(connection, schema)
    require_fit(applied, ours, schema)
    pending = pending_files(applied, ours)
    if is_ahead(applied, ours):
        if pending:
            raise SchemaError(
                f"The database's schema {schema!r} has files that this program does not have, and lacks"
                f" {', '.join(each.name for each in pending)}: a release of another branch migrated it. Install a"
                " release that has all of them, then run `hippocampus migrate`."
            )
        return []
    await connection.execute(f"SET lock_timeout = '{TABLE_LOCK_TIMEOUT_SECONDS}s'")
    # A run that was killed may have left some.
    await drop_set_aside(connection, schema)
    names = []
    numbered = [each for each in pending if not each.name.startswith(FUNCTIONS)]
    first = next((each for each in pending if each.name == FIRST_FILE), None)
    if first is not None and numbered and await connection.fetchval(QUERIES["has_function"], schema, FIRST_FUNCTION):
        await in_transaction(connection, first.name, functools.partial(_apply_first, connection, schema, first))
    # What one migration leaves is what the next one meets.
    known: list[Catalogue] = []
    for each in numbered:
        work = functools.partial(_apply, connection, schema, each, known)
        known.append(await in_transaction(connection, each.name, work))
        names.append(each.name)
    # Read again: a migration may have dropped what a file of functions made.
    applied = await applied_files(connection, schema)
    changed = [each for each in pending_files(applied, ours) if each.name.startswith(FUNCTIONS)]
    recorded = {name for name, record in applied.items() if name.startswith(FUNCTIONS) and record.sha256}
    vanished = sorted(recorded - {each.name for each in ours.functions})
    if changed or vanished:
        names_touched = [*(each.name for each in changed), *vanished]
        replace = functools.partial(apply_functions, connection, schema, changed, vanished)
        await in_transaction(connection, ", ".join(names_touched), replace)
        await drop_set_aside(connection, schema)
    return names + [each.name for each in changed]


async def _apply(connection: Connection, schema: str, migration: Migration, known: list[Catalogue]) -> Catalogue:
    """Apply a migration and return the catalogue as it left it; it takes from `known` the one that it meets."""
    before = known.pop() if known else await read_catalogue(connection, schema)
    with naming(migration.name):
        await connection.execute(migration.sql)
    await record_file(connection, migration)
    if migration.name.startswith("procrastinate/"):
        # The whole schema contains every step, and a step leads to the installed whole.
        whole, steps = files.read_procrastinate()
        for contained in [whole, *steps] if migration.name == PROCRASTINATE_SCHEMA else [whole]:
            await record_file(connection, contained)
    after = await read_catalogue(connection, schema)
    await record_catalogue(connection, before, after, lambda _: migration.name)
    return after


async def _apply_first(connection: Connection, schema: str, file: Migration) -> None:
    """Replace `FIRST_FUNCTION` before the tables change; its file follows with the others."""
    found = _FIRST_DEFINITION.search(file.sql)
    if found is None:
        raise SchemaError(f"{file.name} does not define {FIRST_FUNCTION}: this installation is incomplete.")
    before = await read_catalogue(connection, schema)
    await connection.execute("SET LOCAL check_function_bodies = off")
    with naming(file.name):
        await connection.execute(found[0])
    await record_catalogue(connection, before, await read_catalogue(connection, schema), lambda _: file.name)
