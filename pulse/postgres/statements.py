"""The statement gateway: every statement is loaded by name, run, timed, and has its errors translated here.

A statement starts at a line ``-- name: list_sessions`` of a query file and ends at the next one. The comment lines
below the name say what it takes and returns. A query file can be read, counted and explained as a whole.

No other module catches `asyncpg.PostgresError` to turn it into an error class: a statement that runs outside of
`Statements`, such as a COPY or a whole transaction, runs inside `Statements.translating`.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from pulse.errors import BY_SQLSTATE, InvalidInputError, from_postgres

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from pulse.database import Connection, Pool

    #: What runs a statement.
    Session: TypeAlias = Pool | Connection | PoolConnectionProxy[asyncpg.Record]

#: Called with a statement's name, its duration in seconds, and whether it succeeded.
Observer = Callable[[str, float, bool], None]

_HEADER = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)$", re.MULTILINE)
_observers: list[Observer] = []


class Statements:
    """The statements of one query file, run by name on a pool or a connection.

    Each method raises the error class that `errors` has for the SQLSTATE, `InvalidInputError` for a value that
    PostgreSQL cannot hold, and any other `asyncpg.PostgresError` unchanged. `timeout` is asyncpg's, in seconds.
    """

    __slots__ = ("_errors", "_texts")

    def __init__(
        self,
        package: str,
        filename: str = "queries.sql",
        *,
        errors: Mapping[str, type[Exception]] = BY_SQLSTATE,
    ) -> None:
        """Load the query file of a package.

        Args:
            errors: the error class of each SQLSTATE.

        Raises:
            ValueError: a name occurs twice, or a statement is empty.
        """
        self._texts = load_queries(package, filename)
        self._errors = errors

    def __getitem__(self, name: str) -> str:
        """Return the text of a statement."""
        return self._texts[name]

    async def fetch(
        self,
        db: Session,
        name: str,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109 - asyncpg's own
    ) -> list[asyncpg.Record]:
        """Return the rows of a statement."""
        with self._running(name):
            return await db.fetch(self._texts[name], *arguments, timeout=timeout)

    async def fetchrow(
        self,
        db: Session,
        name: str,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109 - asyncpg's own
    ) -> asyncpg.Record | None:
        """Return the first row of a statement, or None."""
        with self._running(name):
            return await db.fetchrow(self._texts[name], *arguments, timeout=timeout)

    async def fetchval(
        self,
        db: Session,
        name: str,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109 - asyncpg's own
    ) -> Any:
        """Return the first column of the first row of a statement, or None."""
        with self._running(name):
            return await db.fetchval(self._texts[name], *arguments, timeout=timeout)

    async def execute(
        self,
        db: Session,
        name: str,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109 - asyncpg's own
    ) -> str:
        """Run a statement without rows and return its command tag."""
        with self._running(name):
            return await db.execute(self._texts[name], *arguments, timeout=timeout)

    @contextlib.contextmanager
    def translating(self) -> Iterator[None]:
        """Translate the database errors of a block, such as a transaction whose constraints fail at its end."""
        try:
            yield
        except asyncpg.PostgresError as error:
            translated = translate(error, self._errors)
            if translated is error:
                raise
            raise translated from error

    def _running(self, name: str) -> _Running:
        return _Running(name, self._errors)


class _Running:
    """One execution: its duration is reported, its error is translated. A class: half the cost of a generator."""

    __slots__ = ("_errors", "_name", "_started")

    def __init__(self, name: str, errors: Mapping[str, type[Exception]]) -> None:
        self._name = name
        self._errors = errors

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if _observers:
            seconds = time.perf_counter() - self._started
            for observer in _observers:
                observer(self._name, seconds, error is None)
        if isinstance(error, asyncpg.PostgresError):
            translated = translate(error, self._errors)
            if translated is not error:
                raise translated from error


def translate(error: asyncpg.PostgresError, errors: Mapping[str, type[Exception]] = BY_SQLSTATE) -> Exception:
    """Return the error class of a database error's SQLSTATE, or the error itself where it has none."""
    if isinstance(error, asyncpg.CheckViolationError | asyncpg.StringDataRightTruncationError):
        # Not str(error): its DETAIL quotes the row.
        return InvalidInputError(f"{error.args[0]}; nothing was changed")
    if isinstance(error, asyncpg.DataError):
        # Its text may quote the argument.
        return InvalidInputError(
            "PostgreSQL cannot hold one of the arguments: a text with U+0000 or a lone surrogate, or a number out of"
            " range; nothing was changed"
        )
    return from_postgres(error, errors) or error


def observe_statements(observer: Observer) -> Callable[[], None]:
    """Report each statement of this process to `observer` from now on; return the function that ends it."""
    _observers.append(observer)
    return functools.partial(_observers.remove, observer)


@functools.cache
def load_queries(package: str, filename: str = "queries.sql") -> Mapping[str, str]:
    """Return the statements of a package's query file, by name.

    Raises:
        ValueError: a name occurs twice, or a statement is empty.
    """
    text = resources.files(package).joinpath(filename).read_text(encoding="utf-8")
    _, *parts = _HEADER.split(text)
    queries: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        statement = body.strip()
        if name in queries or not statement:
            raise ValueError(f"{package}/{filename}: the statement {name!r} is empty or occurs twice")
        queries[name] = statement
    return MappingProxyType(queries)
