"""Cells: several installations that share the apps between them, each with its own PostgreSQL and its own workers.

Every cell has a name and an address. The first is the default cell, where an app is served unless that cell's table
``app_cells`` says otherwise; each cell that an app has left says where it went. The addresses are settings, since they
hold passwords; the places of apps are rows, since a move must change them for every process in one commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
import structlog

from pulse import database
from pulse.database import FAULTS
from pulse.errors import DatabaseUnreachableError, InvalidInputError, WrongCellError
from pulse.postgres.statements import Statements
from pulse.process.background import in_background

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.postgres.bounded_pool import BoundedPool
    from pulse.postgres.statements import Session

#: The name of the default cell, whose address is DATABASE_URL.
DEFAULT_CELL = "main"
#: How often a process reads where apps are served. A move keeps its source for several times as long.
REFRESH_SECONDS = 1.0

#: How many parts an app may have.
PARTS_MAX = 65_536

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_STATEMENTS = Statements("pulse", "cells.sql")
_log = structlog.get_logger(__name__)


class AppCell(NamedTuple):
    """Where an app is served that a cell does not serve."""

    cell: str
    state: str  # arriving, leaving or moved; see schema/migrations

    @property
    def is_elsewhere(self) -> bool:
        """Whether another cell serves the app; while it leaves, this one still does."""
        return self.state != "leaving"


class Cells:
    """The names and the addresses of all cells.

    Args:
        default: the address of the default cell, which is called ``main``.
        others: the addresses of the others, by name: lower-case letters, digits, hyphens and underscores.
        schema: for an address that names none (``?schema=…``); by default ``public``.
    """

    def __init__(self, default: str, others: Mapping[str, str] | None = None, *, schema: str | None = None) -> None:
        for name in others or ():
            if not _NAME.fullmatch(name) or name == DEFAULT_CELL:
                raise InvalidInputError(
                    f"{name!r:.80} is not a name of a cell: use 1 to 63 lower-case letters, digits, '-' and '_', other"
                    f" than {DEFAULT_CELL!r}, the default cell's"
                )
        self._addresses = {DEFAULT_CELL: default, **(others or {})}
        self._schema = schema

    @classmethod
    def parse(cls, default: str, text: str, *, schema: str | None = None) -> Cells:
        """Read the others from a text: ``east=postgresql://… west=postgresql://…``, separated by blanks.

        Raises:
            InvalidInputError: an entry is not of this form, or a name occurs twice. Addresses are not repeated.
        """
        others: dict[str, str] = {}
        for place, entry in enumerate(text.split(), 1):
            name, sign, address = entry.partition("=")
            if not sign or not address.startswith(("postgresql://", "postgres://")):
                raise InvalidInputError(f"entry {place} is not of the form name=postgresql://…")
            if name in others:
                raise InvalidInputError(f"the cell {name!r:.80} occurs twice")
            others[name] = address
        return cls(default, others, schema=schema)

    @property
    def names(self) -> list[str]:
        """The names, the default cell first."""
        return list(self._addresses)

    @property
    def others(self) -> dict[str, str]:
        """The addresses of the cells but the default one, by name."""
        return {name: address for name, address in self._addresses.items() if name != DEFAULT_CELL}

    def address(self, name: str) -> str:
        """Return a cell's address.

        Raises:
            InvalidInputError: there is no such cell.
        """
        if name not in self._addresses:
            raise InvalidInputError(
                f"there is no cell {name!r:.80} among {', '.join(self._addresses)}: add it to HIPPOCAMPUS_CELLS"
            )
        return self._addresses[name]

    def schema(self, name: str) -> str:
        """Return the schema of a cell: the one that its address names, or that of those that name none."""
        plain, named = database.read_address(self.address(name))
        return named if plain != self.address(name) else self._schema or named

    async def locate(self, app_name: str) -> str:
        """Return the cell that serves an app: the default one, unless it points on.

        Raises:
            DatabaseUnreachableError: a cell that had to be asked does not answer.
            InvalidInputError: an app is in a cell that is not among these.
        """
        name = DEFAULT_CELL
        for _ in self._addresses:
            connection = await database.connect(self.address(name), schema=self.schema(name))
            try:
                found = await app_cell(connection, app_name)
            finally:
                await connection.close()
            if found is None or not found.is_elsewhere:
                return name
            name = found.cell
        raise InvalidInputError(f"the cells point at each other for the app {app_name!r:.80}: see `hippocampus move`")

    @contextlib.asynccontextmanager
    async def pool(self, app_name: str) -> AsyncIterator[Pool]:
        """Open a pool on the cell that serves an app, which follows the app when it moves.

        Statements that the former cell refuses raise `AppMovingError` or `WrongCellError`, and reach the new one within
        `REFRESH_SECONDS`.
        """
        name = await self.locate(app_name)
        pool = await database.create_pool(self.address(name), schema=self.schema(name))
        try:
            async with in_background(self._follow(pool, app_name, name)):
                yield pool
        finally:
            await pool.close()

    async def _follow(self, pool: BoundedPool, app_name: str, name: str) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                found = await app_cell(pool, app_name)
                if found is None or not found.is_elsewhere:
                    continue
                target = await self.locate(app_name)
            except (*FAULTS, DatabaseUnreachableError) as error:
                _log.warning("app_cell_unread", app=app_name, error=type(error).__name__)
                continue
            except InvalidInputError as error:
                _log.error("cell_unknown", app=app_name, error=str(error))
                continue
            database.repoint(pool, self.address(target), schema=self.schema(target))
            _log.info("app_followed", app=app_name, former=name, cell=target)
            name = target


def part_of(app_name: str, user_id: str, parts: int) -> str:
    """Return the app that holds a user of an app that is divided into parts, such as ``shop.5``.

    Each part is an app of its own and has a range of the users' hashes: part n of p has those from n/p up to (n + 1)/p
    of all values of the first four bytes of SHA-256 over the user's id in UTF-8. This never changes, and neither may
    the number of parts: with another number, users would be looked for elsewhere.

    Raises:
        InvalidInputError: the name or the id is empty, the id has a lone surrogate, or there are not 1 to `PARTS_MAX`
            parts.
    """
    _check_parts(app_name, parts)
    if not user_id:
        raise InvalidInputError("a user's id is empty: a part cannot be chosen")
    try:
        hashed = hashlib.sha256(user_id.encode()).digest()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the user's id {user_id!r:.300} has a lone surrogate") from error
    return f"{app_name}.{int.from_bytes(hashed[:4], 'big') * parts >> 32}"


def parts_of(app_name: str, parts: int) -> list[str]:
    """Return the apps of an app that is divided into parts, in the order of their ranges: see `part_of`.

    Raises:
        InvalidInputError: the name is empty, or there are not 1 to `PARTS_MAX` parts.
    """
    _check_parts(app_name, parts)
    return [f"{app_name}.{number}" for number in range(parts)]


def _check_parts(app_name: str, parts: int) -> None:
    if not app_name:
        raise InvalidInputError("an app's name is empty: it cannot be divided into parts")
    if not 1 <= parts <= PARTS_MAX:
        raise InvalidInputError(f"an app cannot have {parts} parts: use 1 to {PARTS_MAX}")


async def app_cell(session: Session, app_name: str) -> AppCell | None:
    """Return what a cell says of an app that it does not serve, or is about to hand over; None: it serves it."""
    row = await _STATEMENTS.fetchrow(session, "app_cell", app_name)
    return None if row is None else AppCell(*row)


async def apps_elsewhere(session: Session) -> dict[str, AppCell]:
    """Return every app that a cell does not serve, or is about to hand over."""
    rows = await _STATEMENTS.fetch(session, "app_cells")
    return {app: AppCell(cell, state) for app, cell, state in rows}


async def require_served(session: Session, app_name: str) -> None:
    """Check that a cell serves an app.

    Raises:
        WrongCellError: another one does.
    """
    found = None
    # A database of an earlier release has no cells.
    with contextlib.suppress(asyncpg.UndefinedTableError):
        found = await app_cell(session, app_name)
    if found is not None and found.is_elsewhere:
        raise wrong_cell(app_name, found.cell)


def wrong_cell(app_name: str, cell: str) -> WrongCellError:
    """Return the error for an app that another cell serves."""
    return WrongCellError(f"the app {app_name!r:.300} is served by the cell {cell}, not here")
