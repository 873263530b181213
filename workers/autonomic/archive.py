"""The archive of the record: months that moved out of `pulse_events`, and their files.

A file is named for its table and has a JSON object per line, compressed. A table is dropped only when its file is on
the disk and was read back; the record keeps the file's name, its SHA-256 and its number of events.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulse.autonomic.errors import BY_SQLSTATE, ObjectCorruptError
from pulse.errors import InvalidInputError
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("workers.autonomic", "archive.sql", errors=BY_SQLSTATE)

BATCH_EVENTS = 5_000


class Archived(NamedTuple):
    """A table of the archive: its name, its number of events, and its size in the database."""

    name: str
    events: int
    bytes: int


class Moved(NamedTuple):
    """A table that became a file: its number of events, and the size that the database had of it."""

    file: Path
    events: int
    bytes: int
    sha256: str


async def list_archive(pool: Pool) -> list[Archived]:
    """Return the tables of the archive, the oldest first."""
    return [Archived(*row) for row in await _STATEMENTS.fetch(pool, "list_archive")]


async def move_months(pool: Pool, months: int) -> int:
    """Move whole months of the record that are older to the archive; return how many."""
    return int(await _STATEMENTS.fetchval(pool, "keep_partitions", months))


async def may_drop(pool: Pool) -> bool:
    """Return whether this process may drop tables of the archive: whether it has the rights of their owner."""
    return bool(await _STATEMENTS.fetchval(pool, "may_drop"))


async def move_to_files(pool: Pool, folder: Path) -> list[Moved]:
    """Move the archive's tables into files of a folder, the oldest first. Needs the rights of the tables' owner.

    Raises:
        InvalidInputError: the folder is missing, or has a file of that name with other content; or the rights are
            missing. Then nothing is written.
        ObjectCorruptError: what was read back is not what was written. The table stays.
    """
    if not await asyncio.to_thread(folder.is_dir):
        raise InvalidInputError(f"there is no folder {folder}: create it, on a disk that has room")
    if not await may_drop(pool):
        raise InvalidInputError("only the owner of the tables may drop those of the archive: connect as the owner")
    return [await _move(pool, each, folder) for each in await list_archive(pool)]


async def _move(pool: Pool, table: Archived, folder: Path) -> Moved:
    path = folder / f"{table.name}.jsonl.gz"
    fresh = folder / f".{path.name}.part"
    # Without a name and a time in it, the same events are the same bytes.
    with fresh.open("wb") as file, gzip.GzipFile("", "wb", 6, file, 0) as packed:
        last = 0
        while rows := await _STATEMENTS.fetch(pool, "archived_events", table.name, last, BATCH_EVENTS):
            body = "".join(f"{row['event']}\n" for row in rows).encode()
            await asyncio.to_thread(packed.write, body)
            last = rows[-1]["id"]
    written, events = await asyncio.to_thread(_read_back, fresh)
    if path.exists() and (await asyncio.to_thread(_read_back, path))[0] != written:
        fresh.unlink()
        raise InvalidInputError(f"{path} exists and has other events: move it away, or name another folder")
    await asyncio.to_thread(_keep, fresh, path)
    if await asyncio.to_thread(_read_back, path) != (written, events):
        raise ObjectCorruptError(f"{path} is not what was written to it: the table stays")
    await _STATEMENTS.execute(pool, "drop_archive", table.name, events, path.name, written)
    return Moved(path, events, table.bytes, written)


def _read_back(path: Path) -> tuple[str, int]:
    """Return the SHA-256 of a file, and how many events it has."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with gzip.open(path) as packed:
        return digest, sum(1 for _ in packed)


def _keep(fresh: Path, path: Path) -> None:
    """Give a file its name once it is on the disk."""
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
