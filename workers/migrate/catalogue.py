"""The objects of the schema: how they are recorded with the file that made them, and what differs from that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pulse import database
from pulse.postgres.statements import load_queries
from workers.migrate.files import sha256

if TYPE_CHECKING:
    from pulse.database import Connection

QUERIES = load_queries("workers.migrate", "catalogue.sql")

#: What a function is called from its replacement until the statements that run it have ended.
SET_ASIDE = "hippocampus_replaced_"
# How PostgreSQL shows IN of a varchar, and a BETWEEN that comes first, once its own text of them was read by a restore.
_RESTORED_ITEM = re.compile(r"\(('[^']*'::character varying)\)::text")
_RESTORED_IN = re.compile(r"ARRAY\[((?:\('[^']*'::character varying\)::text(?:, )?)+)\]")
_RESTORED_BETWEEN = re.compile(
    r"\((?P<what>[^()]+(?:\([^()]*\))?) >= (?P<least>\d+)\) AND \((?P=what) <= (?P<most>\d+)\)(?= AND )"
)


class CatalogueEntry(NamedTuple):
    """An object of the database: its definition, and the transaction that last made it."""

    definition: str
    stamp: str | None


#: An object of the schema: its kind and its name.
Key = tuple[str, str]
Catalogue = dict[Key, CatalogueEntry]


async def definition_path(connection: Connection, schema: str) -> str:
    """Return the search_path that our objects are defined with: ours, then pgvector's schema."""
    ours = database.search_path(schema)
    home = await connection.fetchval(QUERIES["extension_home"], schema)
    return f"{ours}, {home}" if home else ours


async def read_catalogue(connection: Connection, schema: str) -> Catalogue:
    """Return every object of the schema, by kind and name."""
    async with connection.transaction():
        # Definitions leave out what is on the path.
        await connection.execute(f"SET LOCAL search_path = {await definition_path(connection, schema)}")
        rows = await connection.fetch(QUERIES["list_objects"], schema)
    return {
        (kind, name): CatalogueEntry(definition, stamp)
        for kind, name, definition, stamp in rows
        if not name.startswith(SET_ASIDE)
    }


async def record_catalogue(
    connection: Connection, before: Catalogue, after: Catalogue, made_by: Callable[[Key], str]
) -> None:
    """Record what files made, changed or dropped; other people's objects are not ours to watch."""
    made = [(*key, sha256(entry.definition), made_by(key)) for key, entry in after.items() if before.get(key) != entry]
    await connection.executemany(QUERIES["catalogue_put"], made)
    await connection.executemany(QUERIES["catalogue_delete"], list(before.keys() - after.keys()))


async def find_drift(connection: Connection, schema: str) -> str | None:
    """Return how the schema differs from what is recorded; None if it does not."""
    found = await read_catalogue(connection, schema)
    quoted: str = await connection.fetchval("SELECT quote_ident($1) || '.hippocampus_catalogue'", schema)
    rows = await connection.fetch("SELECT kind, name, sha256 FROM " + quoted + " ORDER BY kind, name")
    missing = []
    changed = []
    for row in rows:
        entry = found.get((row["kind"], row["name"]))
        if entry is None:
            missing.append(f"{row['kind']} {row['name']}")
        # A database that was restored from a dump shows some definitions in another form.
        elif row["sha256"] not in (sha256(entry.definition), sha256(_as_made(entry.definition))):
            changed.append(f"{row['kind']} {row['name']}")
    if not missing and not changed:
        return None
    parts = [f"{word}: {', '.join(names)}" for word, names in (("missing", missing), ("changed", changed)) if names]
    return (
        f"The schema {schema!r} is not as `hippocampus migrate` left it ({'; '.join(parts)}). Restore"
        " these objects from a backup or from the file that makes them."
    )


def _as_made(definition: str) -> str:
    """Return the form that a definition had before a dump and a restore."""
    text = _RESTORED_IN.sub(
        lambda found: f"(ARRAY[{_RESTORED_ITEM.sub(lambda item: item[1], found[1])}])::text[]", definition
    )
    return _RESTORED_BETWEEN.sub(r"((\g<what> >= \g<least>) AND (\g<what> <= \g<most>))", text)
