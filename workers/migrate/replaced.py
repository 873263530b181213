"""Former functions and views: freeing their names at once, and dropping them when no call is in them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import asyncpg

from pulse.postgres.statements import load_queries
from workers.migrate.catalogue import SET_ASIDE
from workers.migrate.transactions import in_transaction, naming

if TYPE_CHECKING:
    from pulse.database import Connection

QUERIES = load_queries("workers.migrate", "replaced.sql")

#: How long statements have for that, before what they run is dropped.
DRAIN_SECONDS = 10.0
_DRAIN_POLL_SECONDS = 0.02


async def names_set_aside(connection: Connection, schema: str) -> list[str]:
    """Return the functions whose names were freed and that are not dropped yet."""
    return [name for (name,) in await connection.fetch(QUERIES["list_set_aside"], schema, SET_ASIDE)]


async def set_aside(connection: Connection, schema: str, routines: Sequence[str]) -> None:
    """Free the names of these functions, for `drop_set_aside` to drop them.

    A statement that is in a function when that is dropped fails at the function's end ('cache lookup failed').
    """
    trial = connection.transaction()
    await trial.start()
    try:
        # Refused where other objects depend on them. What was set aside goes with them.
        aside = await names_set_aside(connection, schema)
        await connection.execute("DROP ROUTINE " + ", ".join([*aside, *routines]))
    finally:
        await trial.rollback()
    for each in routines:
        await connection.execute(f"ALTER ROUTINE {each} RENAME TO {SET_ASIDE}{each.partition('(')[0]}")


async def drop_set_aside(connection: Connection, schema: str) -> None:
    """Drop what was set aside, once each transaction that may be in it has ended."""
    routines = await names_set_aside(connection, schema)
    if not routines:
        return
    inside = {name for (name,) in await connection.fetch(QUERIES["other_transactions"])}
    deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
    while inside and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_DRAIN_POLL_SECONDS)
        inside &= {name for (name,) in await connection.fetch(QUERIES["other_transactions"])}

    async def drop() -> None:
        with naming("what was replaced"):
            await connection.execute("DROP ROUTINE " + ", ".join(routines))

    await in_transaction(connection, "what was replaced", drop)


async def drop_views(connection: Connection, schema: str, views: Sequence[str]) -> None:
    """Drop views, and what was set aside if that reads one of them."""
    statement = "DROP VIEW " + ", ".join(views)
    try:
        async with connection.transaction():
            await connection.execute(statement)
    except asyncpg.DependentObjectsStillExistError:
        aside = await names_set_aside(connection, schema)
        if not aside:
            raise
        await connection.execute("DROP ROUTINE " + ", ".join(aside))
        await connection.execute(statement)
