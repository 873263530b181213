"""What is recorded of applied files, and whether this program fits a database by it."""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from pulse.errors import SchemaError
from pulse.postgres.statements import load_queries
from workers.migrate import files
from workers.migrate.files import FUNCTIONS, PROCRASTINATE_SCHEMA, Migration, Schema

if TYPE_CHECKING:
    from pulse.database import Connection

QUERIES = load_queries("workers.migrate", "records.sql")

# The contract between programs and databases: a program works with every database whose files ask for no more than
# this. Raise it in the release that no longer uses what a later migration will take away; see schema/README.md.
CONTRACT = 1
#: Hashes of former texts, which made the same objects, of migrations that were changed before their release. This one
#: also dropped the views of an installation in another schema on the path.
FORMER_TEXTS = {"0030_autonomic_archive.sql": "2776be01df8476a0586fe116b3012a3a40612b906ab15381ac2044202a268275"}
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


class Record(NamedTuple):
    """What is recorded of an applied file."""

    sha256: str
    program: str
    contract: int


async def record_file(connection: Connection, file: Migration) -> int:
    """Record a file as applied, and return the id of the transaction that did."""
    return int(
        await connection.fetchval(QUERIES["record_file"], file.name, file.sha256, program_version(), file.contract)
    )


@functools.cache
def program_version() -> str:
    """Return the release of this program."""
    return importlib.metadata.version("pg-hippocampus")


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without what marks a pre-release of it."""
    found = _RELEASE.match(version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


async def applied_files(connection: Connection, schema: str) -> dict[str, Record]:
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


def require_fit(applied: dict[str, Record], ours: Schema, schema: str) -> None:
    """Raise if the database needs a newer program, or has one of our migrations with another text."""
    contract, name = max(((record.contract, name) for name, record in applied.items()), default=(1, ""))
    if contract > CONTRACT:
        raise SchemaError(
            f"The database's schema {schema!r} needs a program of contract {contract} or higher, since {name} was"
            f" applied by release {applied[name].program}; this program, release {program_version()}, has contract"
            f" {CONTRACT}. Install release {applied[name].program} or newer; `hippocampus migrate` never goes back."
        )
    whole, steps = files.read_procrastinate()
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


def is_ahead(applied: dict[str, Record], ours: Schema) -> bool:
    """Whether a newer release migrated the database: its version says so, or it has a migration that we lack."""
    whole, steps = files.read_procrastinate()
    known = {each.name for each in (whole, *steps, *ours.migrations)}
    version = release_numbers(program_version())
    return any(
        release_numbers(record.program) > version or not (name in known or name.startswith(FUNCTIONS))
        for name, record in applied.items()
    )


def pending_files(applied: dict[str, Record], ours: Schema) -> list[Migration]:
    """Return what is to be applied, in order. Functions that a newer release replaced are left alone."""
    whole, steps = files.read_procrastinate()
    first = steps if PROCRASTINATE_SCHEMA in applied else [whole]
    pending = [each for each in (*first, *ours.migrations) if each.name not in applied]
    if not is_ahead(applied, ours):
        recorded = {name: record.sha256 for name, record in applied.items()}
        pending += [each for each in ours.functions if recorded.get(each.name) != each.sha256]
    return pending


async def make_tables(connection: Connection) -> None:
    """Create the tables of what is recorded, unless they exist."""
    await connection.execute(QUERIES["make_records"])
    await connection.execute(QUERIES["make_catalogue"])


async def unapply(connection: Connection, names: Sequence[str]) -> None:
    """Forget that these files of functions were applied."""
    await connection.execute(QUERIES["unapply_files"], names)
