"""The statement gateway: every statement is loaded by name, run, timed, and has its errors translated here.

A statement starts at a line ``-- name: list_sessions`` of a query file and ends at the next one. The comment lines
below the name say what it takes and returns. A query file can be read, counted and explained as a whole.

No other module catches `asyncpg.PostgresError` to turn it into an error class: a statement that runs outside of
`Statements`, such as a COPY or a whole transaction, runs inside `Statements.translating`. The exceptions name the text
that PostgreSQL refused: a migration (`workers.migrate`), or a line of a file (`hippocampus.transfer.memory_file`).
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg

from pulse.errors import BY_SQLSTATE, InvalidInputError

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from pulse.postgres.bounded_pool import Connection, Pool

    #: What runs a statement.
    Session: TypeAlias = Pool | Connection | PoolConnectionProxy[asyncpg.Record]

#: Called with a statement's name, its duration in seconds, and whether it succeeded.
Observer = Callable[[str, float, bool], None]

Result = TypeVar("Result")

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

    # Functions that return the coroutine of `_run`, not coroutines of their own: each append passes here.

    def fetch(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, list[asyncpg.Record]]:
        """Return the rows of a statement."""
        return self._run(name, db.fetch(self._texts[name], *arguments, timeout=timeout))

    def fetchrow(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, asyncpg.Record | None]:
        """Return the first row of a statement, or None."""
        return self._run(name, db.fetchrow(self._texts[name], *arguments, timeout=timeout))

    def fetchval(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return the first column of the first row of a statement, or None."""
        return self._run(name, db.fetchval(self._texts[name], *arguments, timeout=timeout))

    def execute(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, str]:
        """Run a statement without rows and return its command tag."""
        return self._run(name, db.execute(self._texts[name], *arguments, timeout=timeout))

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

    async def _run(self, name: str, execution: Awaitable[Result]) -> Result:
        """Await an execution; report its duration and translate its error."""
        started = time.perf_counter()
        succeeded = False
        try:
            result = await execution
            succeeded = True
            return result
        except asyncpg.PostgresError as error:
            translated = translate(error, self._errors)
            if translated is error:
                raise
            raise translated from error
        finally:
            if _observers:
                seconds = time.perf_counter() - started
                for observer in _observers:
                    observer(name, seconds, succeeded)


def translate(error: asyncpg.PostgresError, errors: Mapping[str, type[Exception]] = BY_SQLSTATE) -> Exception:
    """Return the error class of a database error's SQLSTATE, or the error itself if it has none."""
    if isinstance(error, asyncpg.CheckViolationError | asyncpg.StringDataRightTruncationError):
        # Not str(error): its DETAIL quotes the row.
        return InvalidInputError(f"{error.args[0]}; nothing was changed")
    if isinstance(error, asyncpg.DataError):
        # Its text may quote the argument.
        return InvalidInputError(
            "PostgreSQL cannot hold one of the arguments: a text with U+0000 or a lone surrogate, or a number out of"
            " range; nothing was changed"
        )
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        # Each name is within its own bound; with four bytes a character they may still be too long together.
        return InvalidInputError(
            "names and ids are too long for an index of PostgreSQL: keep app, user and id under 2,600 bytes of UTF-8"
            " together; nothing was changed"
        )
    kind = errors.get(error.sqlstate or "")
    return error if kind is None else kind(str(error))


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
    _, *names_and_bodies = _HEADER.split(text)
    queries: dict[str, str] = {}
    for name, body in zip(names_and_bodies[::2], names_and_bodies[1::2], strict=True):
        statement = body.strip()
        if name in queries or not statement:
            raise ValueError(f"{package}/{filename}: the statement {name!r} is empty or occurs twice")
        queries[name] = statement
    return MappingProxyType(queries)
