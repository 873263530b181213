"""A user's whole memory as a file of JSON lines, out and in; the format is described in ``docs/forgetting.md``.

An export is one snapshot, read in pages. An import is one transaction: all of a file or nothing. An export that is
imported into an empty database and exported again is the same file to the byte. What the file lists as erased and still
exists here is erased after the import, each in a transaction of its own.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE, ImportFileError
from hippocampus.names import check_app_name
from pulse.audit import AuditLog
from pulse.errors import InvalidInputError
from pulse.names import check_app, check_filled
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from pulse.database import Connection, Pool

FORMAT = "hippocampus-memory"
FORMAT_VERSION = 1
#: Lines of one page, and of one statement.
PAGE_LINES = 500
#: Characters of one line, and bad lines that are reported.
LINE_CHARS_MAX = 64 * 1024 * 1024
BAD_LINES_MAX = 20

_FIRST_ID = UUID(int=0)
_STATEMENTS = Statements("hippocampus.transfer", "memory_file.sql", errors=BY_SQLSTATE)
# A line may also have a value of a wrong type or out of range, or violate a constraint.
_LINES = Statements(
    "hippocampus.transfer",
    "memory_file.sql",
    errors={**BY_SQLSTATE, "22": ImportFileError, "23": ImportFileError, "HP049": ImportFileError},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome of an import.

    Attributes:
        stored: lines that were stored, by kind.
        skipped: lines that were stored here already, letter by letter, or whose memory was erased here.
        forgotten: memories and facts that existed here, and were erased because the file lists them as erased.
    """

    app_name: str
    user_id: str
    stored: Mapping[str, int]
    skipped: int
    forgotten: int = 0


async def export_memory(pool: Pool, app_name: str, user_id: str, *, vectors: bool = True) -> AsyncIterator[str]:
    """Yield the lines of a user's memory, without line ends: a header, the rows, and the number of the rows.

    One snapshot, and never more than PAGE_LINES of it in memory. A connection is held until the last line is read.

    Args:
        vectors: with them the file is larger, and its import needs no model.
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
    await AuditLog(pool).note("memory_exported", app_name=app_name, user_id=user_id, outcome="begun")
    yield json.dumps(header, ensure_ascii=False)
    count = 0
    async with pool.acquire() as proxy, proxy.transaction(isolation="repeatable_read", readonly=True):
        connection = cast("Connection", proxy)  # the pool's proxy has every method of the connection behind it
        for kind in await _kinds(connection):
            after = _FIRST_ID
            while page := await _STATEMENTS.fetch(
                connection, "export_lines", app_name, user_id, kind, vectors, after, PAGE_LINES
            ):
                for row in page:
                    yield row["line"]
                count += len(page)
                after = page[-1]["id"]
    yield json.dumps({"kind": "end", "rows": count})


async def import_memory(
    pool: Pool, lines: Iterable[str], *, app_name: str | None = None, user_id: str | None = None
) -> Imported:
    """Store the lines of an export, all or none; `lines` is read as a stream.

    If the process dies before everything that the file lists as erased is erased here, the same import continues it.

    Args:
        app_name, user_id: the owner of what is imported; None: as in the file.

    Raises:
        ImportFileError: the file is not an export, was cut short, or has lines that cannot be stored; nothing was
            changed.
        ErasureRunningError: the user is being erased; nothing was changed.
        InvalidInputError: nothing may be stored for `app_name` or `user_id`.
    """
    numbered = enumerate(lines, start=1)
    header = _header(numbered)
    who = (app_name or header["app_name"], user_id or header["user_id"])
    _check_owner(who, app_name, user_id)
    stored: dict[str, int] = {}
    rows = 0
    async with pool.acquire() as proxy, _importing(proxy):
        connection = cast("Connection", proxy)
        await _STATEMENTS.execute(connection, "begin_import", *who)
        kinds = set(await _kinds(connection))
        for kind, page in _pages(numbered, kinds):
            count = await _store(connection, who, kind, page)
            stored[kind] = stored.get(kind, 0) + count
            rows += len(page)
        if rows and not header["vectors"]:
            await _STATEMENTS.execute(connection, "backfill_after_import")
    forgotten = await _erase_as_listed(pool, who)
    skipped = rows - sum(stored.values())
    return Imported(app_name=who[0], user_id=who[1], stored=stored, skipped=skipped, forgotten=forgotten)


def _check_owner(who: tuple[str, str], app_name: str | None, user_id: str | None) -> None:
    for name, given, check, option in (
        (who[0], app_name, check_app, "--app"),
        (who[1], user_id, functools.partial(check_filled, "user_id"), "--user"),
    ):
        try:
            check(name)
        except InvalidInputError as error:
            if given:
                raise
            what = f"{error}; name another with {option}"
            raise ImportFileError("nothing may be stored for the owner of this export", [(1, what)]) from error


@contextlib.asynccontextmanager
async def _importing(connection: PoolConnectionProxy[asyncpg.Record]) -> AsyncIterator[None]:
    """Run the body in one transaction; a deferred constraint may still refuse it at the end."""
    with _LINES.translating():
        async with connection.transaction():
            yield


async def _kinds(connection: Connection) -> list[str]:
    return [row["export_kind"] for row in await _STATEMENTS.fetch(connection, "export_kinds")]


async def _erase_as_listed(pool: Pool, who: tuple[str, str]) -> int:
    """Erase what still exists although the import brought its tombstone; return how many.

    Not within the import, which then holds locks on memories: an erasure locks sessions first.

    Raises:
        asyncpg.InsufficientPrivilegeError: the import is stored, but this role may not erase.
    """
    count, after = 0, _FIRST_ID
    while page := await _STATEMENTS.fetch(pool, "standing_though_forgotten", *who, after, PAGE_LINES):
        for row in page:
            count += await _STATEMENTS.fetchval(pool, "forget_as_of_tombstone", *who, row["id"])
        after = page[-1]["id"]
    return count


#: Lines with their numbers, as they are written: a number in them may be finer than a float.
_Page = list[tuple[int, str]]


def _header(numbered: Iterator[tuple[int, str]]) -> dict[str, Any]:
    number, line = next(numbered, (1, ""))
    header = _parse(number, line)
    if header.get("format") != FORMAT:
        raise ImportFileError("this is not an export of a memory", [(1, f'"format" is not {FORMAT!r}')])
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
        ImportFileError: a line is not a JSON object of a known kind, the last line is missing, or more follow it.
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
        raise ImportFileError("a line is not a JSON object", [(number, "write one object per line")])
    return value


async def _store(connection: Connection, who: tuple[str, str], kind: str, page: _Page) -> int:
    """Store one page; if the database refuses it, find the lines that are wrong."""
    try:
        async with connection.transaction():
            count: int = await _LINES.fetchval(connection, "import_lines", *who, kind, [line for _, line in page])
            return count
    except ImportFileError as error:
        bad = await _find_bad(connection, who, kind, page)
        raise ImportFileError("nothing was imported", bad or [(page[0][0], str(error)[:300])]) from error.__cause__


async def _find_bad(connection: Connection, who: tuple[str, str], kind: str, page: _Page) -> list[tuple[int, str]]:
    bad: list[tuple[int, str]] = []
    for number, line in page:
        try:
            async with connection.transaction():
                await _LINES.execute(connection, "import_lines", *who, kind, [line])
        except ImportFileError as error:
            bad.append((number, str(error).splitlines()[0][:300]))
        if len(bad) == BAD_LINES_MAX:
            break
    return bad
