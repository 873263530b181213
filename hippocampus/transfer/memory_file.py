"""A user's whole memory as a file of JSON lines, out and in; the format is described in ``docs/forgetting.md``.

An export is one snapshot, read in pages. An import is one transaction: all of a file or nothing. What was exported,
imported into an empty database and exported again is the same file to the byte. What the file says was forgotten, and
still stands here, is forgotten right after, each in a transaction of its own, as whatever is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import asyncpg

from hippocampus.errors import ImportFileError, from_postgres
from hippocampus.retention.policies import check_app_name
from pulse.errors import InvalidInputError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Connection, Pool

FORMAT = "hippocampus-memory"
FORMAT_VERSION = 1
#: Lines of one page, and of one statement.
PAGE_LINES = 500
#: Characters of one line, and bad lines that are reported.
LINE_CHARS_MAX = 64 * 1024 * 1024
BAD_LINES_MAX = 20

_FIRST_ID = UUID(int=0)
_QUERIES = load_queries("hippocampus", "memory_care.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of a file.

    Attributes:
        stored: lines that were stored, by kind.
        skipped: lines that were here to the letter already, or whose memory was forgotten here by itself.
        forgotten: memories and facts that stood here, and went because they were forgotten there.
    """

    app_name: str
    user_id: str
    stored: Mapping[str, int]
    skipped: int
    forgotten: int = 0


async def export_memory(pool: Pool, app_name: str, user_id: str, *, vectors: bool = True) -> AsyncIterator[str]:
    """Yield the lines of a user's memory, without line ends: a header, the rows, and the number of the rows.

    One snapshot, and never more than PAGE_LINES of it in memory. A connection is held until the last line is taken.

    Args:
        vectors: with them the file is large, and needs no model when it is imported.
    """
    if not user_id:
        raise InvalidInputError("name the user to export")
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "app_name": check_app_name(app_name),
        "user_id": user_id,
        "vectors": vectors,
    }
    yield json.dumps(header, ensure_ascii=False)
    count = 0
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        for (kind,) in await connection.fetch(_QUERIES["export_kinds"]):
            after = _FIRST_ID
            while page := await connection.fetch(
                _QUERIES["export_lines"], app_name, user_id, kind, vectors, after, PAGE_LINES
            ):
                for row in page:
                    yield row["line"]
                count += len(page)
                after = page[-1]["id"]
    yield json.dumps({"kind": "end", "rows": count})


async def import_memory(
    pool: Pool, lines: Iterable[str], *, app_name: str | None = None, user_id: str | None = None
) -> Imported:
    """Store the lines of an export, all or none; the reader of `lines` is asked for no more than it needs.

    If the process dies before what was forgotten there is forgotten here, the same import again goes on with it.

    Args:
        app_name, user_id: whose they become; None: whose they were.

    Raises:
        ImportFileError: it is no export, it was cut short, or lines cannot be stored; nothing was changed.
        ErasureRunningError: the user is being forgotten just now; nothing was changed.
    """
    numbered = enumerate(lines, start=1)
    header = _header(numbered)
    who = (check_app_name(app_name or header["app_name"]), user_id or header["user_id"])
    stored: dict[str, int] = {}
    rows = 0
    async with pool.acquire() as proxy, proxy.transaction():
        connection = cast("Connection", proxy)  # the pool's proxy has every method of the connection behind it
        try:
            await connection.execute(_QUERIES["begin_import"], *who)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error
        kinds = {row["export_kind"] for row in await connection.fetch(_QUERIES["export_kinds"])}
        for kind, page in _pages(numbered, kinds):
            count = await _store(connection, who, kind, page)
            stored[kind] = stored.get(kind, 0) + count
            rows += len(page)
        if rows and not header["vectors"]:
            await connection.execute(_QUERIES["backfill_after_import"])
    forgotten = await _forget_standing(pool, who)
    skipped = rows - sum(stored.values())
    return Imported(app_name=who[0], user_id=who[1], stored=stored, skipped=skipped, forgotten=forgotten)


async def _forget_standing(pool: Pool, who: tuple[str, str]) -> int:
    """Forget what stands though its tombstone is here; return how many.

    Not within the import, which holds rows of memories by then: whoever forgets locks sessions first.

    Raises:
        asyncpg.InsufficientPrivilegeError: the import is stored, but this role may forget nothing.
    """
    count, after = 0, _FIRST_ID
    while page := await pool.fetch(_QUERIES["standing_though_forgotten"], *who, after, PAGE_LINES):
        for row in page:
            count += await pool.fetchval(_QUERIES["forget_as_of_tombstone"], *who, row["id"])
        after = page[-1]["id"]
    return count


#: Lines with their numbers, as they are written: a number in them may be finer than a float.
_Page = list[tuple[int, str]]


def _header(numbered: Iterator[tuple[int, str]]) -> dict[str, Any]:
    number, line = next(numbered, (1, ""))
    header = _parse(number, line)
    if header.get("format") != FORMAT:
        raise ImportFileError("this is no export of a memory", [(1, f'"format" is not {FORMAT!r}')])
    if header.get("version") != FORMAT_VERSION:
        raise ImportFileError(
            f"this program reads version {FORMAT_VERSION} of the format",
            [(1, f'"version" is {header.get("version")!r:.20}')],
        )
    for name, kind in (("app_name", str), ("user_id", str), ("vectors", bool)):
        if not isinstance(header.get(name), kind):
            raise ImportFileError("the header is incomplete", [(1, f'"{name}" is missing or of the wrong type')])
    return header


def _pages(numbered: Iterator[tuple[int, str]], kinds: set[str]) -> Iterator[tuple[str, _Page]]:
    """Yield lines of one kind together, at most PAGE_LINES.

    Raises:
        ImportFileError: a line is no JSON object of a known kind, the last line is missing, or more follow it.
    """
    page: _Page = []
    page_kind, rows, ended = "", 0, False
    for number, line in numbered:
        row = _parse(number, line)
        kind = row.get("kind")
        if ended:
            raise ImportFileError("there is more after the end", [(number, 'it follows the line of the kind "end"')])
        if kind == "end":
            ended = True
            if row.get("rows") != rows:
                what = f"it says {row.get('rows')!r:.20} rows, but there are {rows}"
                raise ImportFileError("lines are missing or too many", [(number, what)])
            continue
        if not isinstance(kind, str) or kind not in kinds:
            raise ImportFileError(
                "a line has no known kind", [(number, f'"kind" is one of {", ".join(sorted(kinds))}')]
            )
        rows += 1
        if page and (kind != page_kind or len(page) == PAGE_LINES):
            yield page_kind, page
            page = []
        page_kind = kind
        page.append((number, line))
    if not ended:
        raise ImportFileError('the file was cut short: its last line is not of the kind "end"')
    if page:
        yield page_kind, page


def _parse(number: int, line: str) -> dict[str, Any]:
    if len(line) > LINE_CHARS_MAX:
        raise ImportFileError("a line is too long", [(number, f"it has over {LINE_CHARS_MAX} characters")])
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ImportFileError("a line is not JSON", [(number, str(error)[:200])]) from error
    if not isinstance(value, dict):
        raise ImportFileError("a line is no JSON object", [(number, "write one object per line")])
    return value


async def _store(connection: Connection, who: tuple[str, str], kind: str, page: _Page) -> int:
    """Store one page; where the database refuses it, find out which lines are to blame."""
    try:
        async with connection.transaction():
            count: int = await connection.fetchval(_QUERIES["import_lines"], *who, kind, [line for _, line in page])
            return count
    except asyncpg.PostgresError as error:
        if not _is_refusal(error):
            raise
        bad = await _find_bad(connection, who, kind, page)
        raise ImportFileError("nothing was imported", bad or [(page[0][0], str(error)[:300])]) from error


async def _find_bad(connection: Connection, who: tuple[str, str], kind: str, page: _Page) -> list[tuple[int, str]]:
    bad: list[tuple[int, str]] = []
    for number, line in page:
        try:
            async with connection.transaction():
                await connection.execute(_QUERIES["import_lines"], *who, kind, [line])
        except asyncpg.PostgresError as error:
            if not _is_refusal(error):
                raise
            bad.append((number, str(error).splitlines()[0][:300]))
        if len(bad) == BAD_LINES_MAX:
            break
    return bad


def _is_refusal(error: asyncpg.PostgresError) -> bool:
    """Whether the line is to blame: a value's type or range, a constraint, a field that the table has not."""
    return (error.sqlstate or "").startswith(("22", "23", "HP048"))
