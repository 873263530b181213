"""Applying the files of functions and views that changed, all in one transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import asyncpg

from pulse import database
from pulse.postgres.statements import load_queries
from workers.migrate.catalogue import read_catalogue, record_catalogue
from workers.migrate.files import Migration, sha256
from workers.migrate.records import record_file, unapply
from workers.migrate.replaced import drop_views, set_aside
from workers.migrate.transactions import naming

if TYPE_CHECKING:
    from pulse.database import Connection

QUERIES = load_queries("workers.migrate", "functions.sql")

# PostgreSQL's hint where CREATE OR REPLACE can't change a function's result or its arguments' names.
_DROP_FIRST = re.compile(r"DROP \w+ (\w+\(.*\))")


async def apply_functions(
    connection: Connection, schema: str, changed: Sequence[Migration], vanished: Sequence[str]
) -> None:
    """Apply the files whose text changed, and drop what no file makes any more."""
    start = await read_catalogue(connection, schema)
    await connection.execute("SET LOCAL check_function_bodies = off")
    begun = {}
    for each in changed:
        with naming(each.name):
            begun[each.name] = await _replace(connection, schema, each)
    before = await read_catalogue(connection, schema)
    makers = {
        key: maker(int(entry.stamp), begun)
        for key, entry in before.items()
        if begun and entry.stamp is not None and (key not in start or start[key].stamp != entry.stamp)
    }
    await record_catalogue(connection, start, before, lambda key: makers.get(key, ""))
    made_by = [*(each.name for each in changed), *vanished]
    rows = await connection.fetch(QUERIES["objects_of_files"], made_by)
    stale = [row for row in rows if before.get((row["kind"], row["name"])) == start.get((row["kind"], row["name"]))]
    if stale:
        with naming(", ".join(sorted({row["made_by"] for row in stale}))):
            await _drop(connection, schema, [(row["kind"], row["name"]) for row in stale])
        await record_catalogue(connection, before, await read_catalogue(connection, schema), lambda _: "")
    await _narrow_paths(connection, schema)
    await unapply(connection, vanished)
    for each in changed:
        await record_file(connection, each)
    await connection.execute("SET LOCAL check_function_bodies = on")
    # Until here a function could call what a later file makes: the bodies are checked when everything is there.
    for row in await connection.fetch(QUERIES["own_functions"], schema):
        with naming(row["name"]):
            await connection.execute(f"SELECT {row['validator']}({row['oid']})")


async def _narrow_paths(connection: Connection, schema: str) -> None:
    """Take pgvector's schema from the path of each function that names nothing of pgvector.

    That schema is mostly `public`. If it holds another installation, its functions would be candidates for each call
    in a body, and a literal argument would make the call ambiguous.
    """
    narrowed = await connection.fetch(QUERIES["wide_paths"], schema)
    path = database.search_path(schema)
    for row in narrowed:
        await connection.execute(f"ALTER FUNCTION {row['routine']} SET search_path = {path}")
    if narrowed:
        found = await read_catalogue(connection, schema)
        hashes = [(row["name"], sha256(found["function", row["name"]].definition)) for row in narrowed]
        await connection.executemany(QUERIES["put_hash"], hashes)


def maker(stamp: int, begun: Mapping[str, int]) -> str:
    """Return the file that was being applied when a transaction began. Their ids rise, and start again at 2^32."""
    return min(begun, key=lambda name: (stamp - begun[name]) % 2**32)


async def _replace(connection: Connection, schema: str, file: Migration) -> int:
    """Run a file of CREATE OR REPLACE; what can't be replaced, since its result changed, is dropped first.

    Returns:
        The transaction id of the file: what it makes has this stamp, or that of a block with EXCEPTION, a higher one.
    """
    views = [row["name"] for row in await connection.fetch(QUERIES["views_of_file"], file.name)]
    while True:
        try:
            # One level deeper, so that each file has a transaction id of its own: see Catalogue.
            async with connection.transaction():
                begun = await record_file(connection, file)
                await connection.execute(file.sql)
            return begun
        except asyncpg.InvalidFunctionDefinitionError as error:
            found = _DROP_FIRST.search(error.hint or "")
            if found is None or not await connection.fetchval(QUERIES["is_ours"], found[1]):
                raise
            await set_aside(connection, schema, [found[1]])
        except asyncpg.InvalidTableDefinitionError:
            if not views:
                raise
            await drop_views(connection, schema, views)
            views = []


async def _drop(connection: Connection, schema: str, stale: Sequence[tuple[str, str]]) -> None:
    """Drop triggers, views and functions; what other objects depend on is refused."""
    for table, trigger in (name.split(".") for kind, name in stale if kind == "trigger"):
        await connection.execute(f"DROP TRIGGER {trigger} ON {table}")
    views = [name for kind, name in stale if kind == "view"]
    if views:
        await drop_views(connection, schema, views)
    routines = [name for kind, name in stale if kind in {"function", "aggregate"}]
    if routines:
        await set_aside(connection, schema, routines)
