"""The statement gateway: every statement is loaded by name, run, timed, and has its errors translated here.

A statement starts at a line ``-- name: list_sessions`` of a query file and ends at the next one. The comment lines
below the name say what it takes and returns. A query file can be read, counted and explained as a whole.

The line ``-- redacts: $4, $5 of app $1`` declares which arguments hold words of users: any secrets in them are
masked or refused as the policy of that app says (`pulse.redaction`), wherever they come from. With ``as $6`` the
statement also gets, as its last argument, what was applied, and fails with `RedactionChangedError` if the policy says
otherwise. Then the policy is read, and the statement run again; so an app's policy costs no round trip of its own. Any
other statement has it read before. ``JSON $2`` is a JSON text, or a list of them.

The line ``-- audited`` makes a statement a transaction in which `hippocampus.actor` is who acts (`pulse.actor`), as the
triggers of the audit log note it.

A statement that runs outside of `Statements`, such as a COPY or a whole transaction, runs inside
`Statements.translating`. No other module translates an SQLSTATE that means the same wherever it occurs. Some turn an
error of asyncpg's into an error class where its meaning follows from what was attempted:

- `pulse.database`, while it connects: there is no statement yet.
- `workers.migrate` and `workers.transfer.moves`: the message names what PostgreSQL refused, such as a file or a lock,
  and what to do about it.
- `pulse.adk.sessions`: its callers know ADK's errors and those of `pulse.errors` alone. For all others a missing table,
  column or function stays as it is, since `pulse.cells` expects one in a database of an earlier release, and a failed
  job is stored with its SQLSTATE.
- `pulse.streams.deltas`: writers of live text get one error for every fault.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import asyncpg

from pulse.actor import current_actor
from pulse.errors import (
    BY_SQLSTATE,
    ConcurrencyConflictError,
    InvalidInputError,
    RedactionChangedError,
    SecretRefusedError,
)
from pulse.process.counts import COUNTS
from pulse.redaction import RedactionMode, redact

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from pulse.postgres.bounded_pool import Connection, Pool

    #: What runs a statement.
    Session: TypeAlias = Pool | Connection | PoolConnectionProxy[asyncpg.Record]

#: Called with a statement's file and name, such as ``sessions.list_sessions``, its duration in seconds, and whether it
#: succeeded.
Observer = Callable[[str, float, bool], None]

Result = TypeVar("Result")

#: What a statement may raise because of the database or the network. The last, raised when the connection drops between
#: two messages of the protocol, is not a subclass of the driver's other errors.
FAULTS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

_HEADER = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)$", re.MULTILINE)
_PROGRAM_LIMIT_EXCEEDED = "54000"
#: Numeric value out of range, character not in repertoire, untranslatable character.
_UNSTORABLE = frozenset({"22003", "22021", "22P05"})
_DRIVER_ARGUMENT = re.compile(r"invalid input for query argument (\$\d+)")
_SERVER_ARGUMENT = re.compile(r"portal parameter (\$\d+)")
_AUDITED = re.compile(r"^-- audited$", re.MULTILINE)
_REDACTS = re.compile(
    r"^-- redacts: (?P<json>JSON )?(?P<texts>\$\d+(?:, \$\d+)*) of app \$(?P<app>\d+)(?:; as \$(?P<mode>\d+))?$",
    re.MULTILINE,
)
#: How often a policy may change during one statement.
_REDACTIONS_MAX = 5
#: How long a policy that was read holds for queries, in seconds.
MODE_SECONDS = 5.0
_READS_MAX = 10_000
_observers: list[Observer] = []


class Redacts(NamedTuple):
    """Which arguments of a statement hold words of users, each by its position.

    Attributes:
        mode: the position of what was applied; None if the statement does not compare it with the policy.
        is_json: they are JSON texts.
    """

    texts: frozenset[int]
    app: int
    mode: int | None
    is_json: bool

    def applied(self, arguments: Sequence[Any], mode: RedactionMode) -> Sequence[Any]:
        """Return the arguments as the statement takes them."""
        if mode != "off":
            arguments = [
                redact(each, mode, as_json=self.is_json) if place in self.texts else each
                for place, each in enumerate(arguments)
            ]
        return arguments if self.mode is None else (*arguments, mode)


class Statements:
    """The statements of one query file, run by name on a pool or a connection.

    Each method raises the error class that `errors` has for the SQLSTATE, `InvalidInputError` for a value that
    PostgreSQL cannot hold, and any other `asyncpg.PostgresError` unchanged. `timeout` is asyncpg's, in seconds.
    """

    __slots__ = ("_audited", "_errors", "_labels", "_redacted", "_texts")

    def __init__(
        self,
        package: str,
        filename: str = "queries.sql",
        *,
        errors: Mapping[str, type[Exception]] = BY_SQLSTATE,
    ) -> None:
        """Load the query file of a package.

        Args:
            errors: the error class of each SQLSTATE, or of each class of SQLSTATEs by its first two characters.

        Raises:
            ValueError: a name occurs twice, or a statement is empty.
        """
        self._texts = load_queries(package, filename)
        stem = filename.removesuffix(".sql")
        self._labels = {name: f"{stem}.{name}" for name in self._texts}
        self._errors = errors
        self._audited = frozenset(name for name, text in self._texts.items() if _AUDITED.search(text))
        self._redacted = {name: rule for name, text in self._texts.items() if (rule := redacts(text)) is not None}

    def __getitem__(self, name: str) -> str:
        """Return the text of a statement."""
        return self._texts[name]

    # Functions that return the coroutine of `_run`, not coroutines of their own: each append passes here.

    def fetch(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, list[asyncpg.Record]]:
        """Return the rows of a statement."""
        if name in self._audited:
            return self._acting(db, name, "fetch", arguments, timeout)
        if name in self._redacted:
            return self._redacting(db, name, db.fetch, arguments, timeout)
        return self._run(name, db.fetch(self._texts[name], *arguments, timeout=timeout))

    def fetchrow(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, asyncpg.Record | None]:
        """Return the first row of a statement, or None."""
        if name in self._audited:
            return self._acting(db, name, "fetchrow", arguments, timeout)
        if name in self._redacted:
            return self._redacting(db, name, db.fetchrow, arguments, timeout)
        return self._run(name, db.fetchrow(self._texts[name], *arguments, timeout=timeout))

    def fetch_one(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, asyncpg.Record]:
        """Return the row of a statement that always has one, such as an aggregate, or a function that may raise."""
        return _present(name, self.fetchrow(db, name, *arguments, timeout=timeout))

    async def fetch_as(self, kind: Callable[..., Result], db: Session, name: str, *arguments: Any) -> list[Result]:
        """Return the rows of a statement as objects whose fields are its columns."""
        return [kind(**row) for row in await self.fetch(db, name, *arguments)]

    def fetchval(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return the first column of the first row of a statement, or None."""
        if name in self._audited:
            return self._acting(db, name, "fetchval", arguments, timeout)
        if name in self._redacted:
            return self._redacting(db, name, db.fetchval, arguments, timeout)
        return self._run(name, db.fetchval(self._texts[name], *arguments, timeout=timeout))

    def execute(
        self, db: Session, name: str, *arguments: Any, timeout: float | None = None
    ) -> Coroutine[Any, Any, str]:
        """Run a statement without rows and return its command tag."""
        if name in self._audited:
            return self._acting(db, name, "execute", arguments, timeout)
        if name in self._redacted:
            return self._redacting(db, name, db.execute, arguments, timeout)
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

    async def _acting(
        self, db: Session, name: str, method: str, arguments: Sequence[Any], seconds: float | None
    ) -> Any:
        """Run a statement in a transaction that knows who acts."""
        async with contextlib.AsyncExitStack() as stack:
            connection: Any = db
            if hasattr(db, "acquire"):
                connection = await stack.enter_async_context(db.acquire())
            await stack.enter_async_context(connection.transaction())
            await connection.execute(load_queries("pulse.postgres", "gateway.sql")["act_as"], current_actor())
            return await self._run(name, getattr(connection, method)(self._texts[name], *arguments, timeout=seconds))

    async def _redacting(
        self, db: Session, name: str, execute: Callable[..., Any], arguments: Sequence[Any], seconds: float | None
    ) -> Any:
        """Run a statement whose arguments hold words of users."""
        rule, text = self._redacted[name], self._texts[name]
        app = arguments[rule.app]
        known: dict[str, RedactionMode] | None = getattr(db, "redaction_modes", None)
        if rule.mode is None or known is None:
            # A statement that failed would end the caller's transaction.
            mode = await redaction_mode(db, app)
            return await self._run(name, execute(text, *rule.applied(arguments, mode), timeout=seconds))
        for _ in range(_REDACTIONS_MAX):
            applied = known.get(app, "off")
            try:
                return await self._run(name, execute(text, *rule.applied(arguments, applied), timeout=seconds))
            except RedactionChangedError:
                mode = await redaction_mode(db, app)
            except SecretRefusedError:
                mode = await redaction_mode(db, app)
                if mode == applied:
                    raise
            known.pop(app, None)
            if mode != "off":
                known[app] = mode
        raise RedactionChangedError(
            f"the policy of app {app!r} on secrets changed {_REDACTIONS_MAX} times during one call: call again"
        )

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
            if isinstance(translated, ConcurrencyConflictError):
                COUNTS.version_conflicts += 1
            raise translated from error
        finally:
            if _observers:
                seconds = time.perf_counter() - started
                label = self._labels[name]
                for observer in _observers:
                    observer(label, seconds, succeeded)


async def _present(name: str, fetching: Awaitable[asyncpg.Record | None]) -> asyncpg.Record:
    row = await fetching
    assert row is not None, f"the statement {name} returned no row"  # noqa: S101
    return row


def translate(error: asyncpg.PostgresError, errors: Mapping[str, type[Exception]] = BY_SQLSTATE) -> Exception:
    """Return the error class of a database error's SQLSTATE, or the error itself if it has none.

    `errors` may also have the first two characters of an SQLSTATE, for each of that class.
    """
    sqlstate = error.sqlstate or ""
    kind = errors.get(sqlstate) or errors.get(sqlstate[:2])
    if kind is not None:
        return kind(str(error))
    if isinstance(error, asyncpg.CheckViolationError | asyncpg.StringDataRightTruncationError):
        # Not str(error): its DETAIL quotes the row.
        return InvalidInputError(f"{error.args[0]}; nothing was changed")
    argument = _refused_argument(error)
    if argument is not None:
        return InvalidInputError(
            f"PostgreSQL cannot hold {argument}: a text with U+0000 or a lone surrogate, or a number out of range;"
            " nothing was changed"
        )
    # Among the errors with this SQLSTATE, only that of a B-tree names an index.
    if sqlstate == _PROGRAM_LIMIT_EXCEEDED and error.constraint_name is not None:
        # Each name is within its own bound; with four bytes a character they may still be too long together.
        return InvalidInputError(
            "names and ids are too long for an index of PostgreSQL: keep app, user and id under 2,600 bytes of UTF-8"
            " together; nothing was changed"
        )
    return error


def _refused_argument(error: asyncpg.PostgresError) -> str | None:
    """Return which argument the driver or the server could not read or hold; None if the error is another.

    The texts of both may quote the argument's value; only its number is returned.
    """
    if type(error) is asyncpg.DataError and error.severity is None:
        # The driver's own: only a server sends a severity.
        found = _DRIVER_ARGUMENT.match(error.args[0])
    else:
        found = _SERVER_ARGUMENT.search(error.context or "") if isinstance(error, asyncpg.DataError) else None
        if found is None and error.sqlstate not in _UNSTORABLE:
            return None
    return f"argument {found[1]}" if found else "one of the arguments"


def redacts(text: str) -> Redacts | None:
    """Return what a statement declares of its arguments; None if none holds words of users."""
    found = _REDACTS.search(text)
    if found is None:
        return None
    texts = frozenset(int(each) - 1 for each in re.findall(r"\d+", found["texts"]))
    mode = None if found["mode"] is None else int(found["mode"]) - 1
    return Redacts(texts, int(found["app"]) - 1, mode, found["json"] is not None)


async def redaction_mode(db: Session, app_name: str) -> RedactionMode:
    """Read what an app's policy does about secrets."""
    mode: RedactionMode = await db.fetchval(load_queries("pulse.postgres", "gateway.sql")["redaction_mode"], app_name)
    return mode


async def without_secrets(pool: Pool, app_name: str, texts: Sequence[str]) -> list[str]:
    """Return what may be sent to a model of texts that are not stored, such as queries: secrets are masked.

    What the app's policy says was read within the last `MODE_SECONDS`.
    """
    read: dict[str, tuple[float, RedactionMode]] | None = getattr(pool, "redaction_reads", None)
    now = time.monotonic()
    at, mode = (read or {}).get(app_name, (-MODE_SECONDS, "off"))
    if now - at >= MODE_SECONDS:
        mode = await redaction_mode(pool, app_name)
        if read is not None:
            if len(read) >= _READS_MAX:
                read.clear()
            read[app_name] = now, mode
    return list(texts) if mode == "off" else redact(list(texts), "mask")


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
