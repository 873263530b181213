"""Moves of apps between cells: row by row as they are, while the app is live, with a short fence at the end.

    copying    every row of the app, as of one snapshot; then what changed since, again and again
    proving    counts and hashes of every table are the same on both sides, as of one snapshot
    fenced     the source refuses writes; what changed since is copied and proven, and the target serves the app
    purging    after a while in which every process has followed, the source deletes its rows

Ids, numbers and times stay. A row that changed is known by the transaction that wrote it (``xmin``), so that nothing is
recorded beforehand and nothing costs more until a move begins. A move that was cut off is continued by the same
command.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from pulse import database
from pulse.audit import AuditLog
from pulse.cells import DEFAULT_CELL, REFRESH_SECONDS, Cells, app_cell
from pulse.errors import PulseError
from pulse.postgres.backoff import Backoff
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Connection

#: How long the source keeps its rows after the switch: every process reads where apps are several times meanwhile.
GRACE_SECONDS = 10 * REFRESH_SECONDS
#: What changed since the last copy is copied until at most this many rows are left, or for this many rounds.
CALM_ROWS = 2_000
ROUNDS_MAX = 6
FENCE_ATTEMPTS_MAX = 10
_FENCE_RETRY_SECONDS = 0.2
_FENCE_RETRY_SECONDS_MAX = 1.2
PURGE_ROWS = 5_000
#: Tables that only grow: their rows are deleted with their sessions alone.
_GROWING = frozenset({"events", "messages"})
#: The column that refers to the queue's jobs, which stay: the target makes its own.
_NOT_COPIED = "procrastinate_job_id"
#: By them the former cell still knows the app's callers, and directs them to its new cell; they allow nothing there.
_KEPT = frozenset({"api_keys"})
_CHUNKS_AHEAD = 16
_STATEMENTS = Statements("workers.transfer", "moves.sql")
_log = structlog.get_logger(__name__)


class MoveError(PulseError):
    """An app cannot be moved. The message says why; the app is served where it was."""


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows of an app a table has, and the sum of their hashes."""

    rows: int
    hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A finished move.

    Attributes:
        digests: the digest of every table, equal on both sides before the fence.
        rows_fenced: how many rows were copied under the fence.
        fence_seconds: how long writers had to wait.
        purged: how many rows the source deleted.
    """

    app_name: str
    source: str
    target: str
    digests: dict[str, Digest]
    rows_fenced: int
    fence_seconds: float
    purged: int


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    rows: str  # a condition on the rows of the app $1
    columns: list[str]
    key: list[str]
    is_shared: bool
    has_more_keys: bool

    @property
    def is_child(self) -> bool:
        """Whether the condition reads the rows of another table, which must exist while it is used."""
        return "SELECT" in self.rows

    @property
    def names(self) -> str:
        return ", ".join(map(_quoted, self.columns))

    @property
    def keys(self) -> str:
        return ", ".join(map(_quoted, self.key))

    @property
    def values(self) -> str:
        return ", ".join("NULL" if each == _NOT_COPIED else _quoted(each) for each in self.columns)

    @property
    def hashed(self) -> str:
        # Another app may have saved the same content before, at another time.
        return self.keys if self.is_shared else self.values

    def matches(self, other: str) -> str:
        return " AND ".join(f"{other}.{each} = t.{each}" for each in map(_quoted, self.key))

    def since(self, mark: int | None) -> str:
        """Return the condition on the app's rows that changed since a snapshot began."""
        return f"({self.rows})" + ("" if mark is None else f" AND age(t.xmin) <= age('{mark}'::xid)")


@dataclass(slots=True)
class _Pass:
    mark: int
    rows: int = 0
    digests: dict[str, Digest] = dataclasses.field(default_factory=dict)


async def move(
    cells: Cells,
    app_name: str,
    target: str,
    *,
    grace_seconds: float = GRACE_SECONDS,
    on_step: Callable[[str], object] = lambda _: None,
) -> Moved:
    """Move an app to a cell, from wherever it is served; repeat it after it was cut off.

    Moving it to where it is lifts a fence that was left, and deletes what a former move has left behind.

    Args:
        grace_seconds: how long the former cell keeps the rows after the switch.
        on_step: called with a line about each step.

    Raises:
        MoveError: the cells have different schemas, this role may not store rows without triggers, or the copies
            differ. The app is served where it was.
        InvalidInputError: there is no such cell.
        DatabaseUnreachableError: a cell does not answer.
        PoolerError: a cell's address leads through a pooler in transaction mode.
    """
    cells.address(target)
    source = await cells.locate(app_name)
    digests: dict[str, Digest] = {}
    seconds = 0.0
    async with _Sides(cells, app_name, source, target) as sides:
        left = await app_cell(sides.source, app_name)
        if source == target:
            if left is not None:
                await _STATEMENTS.execute(sides.source, "serve_app", app_name)
                on_step(f"the fence of a move that was cut off is lifted: {source} serves the app")
            purged = await _purge_others(cells, app_name, target, on_step)
            return Moved(
                app_name=app_name,
                source=source,
                target=target,
                digests={},
                rows_fenced=0,
                fence_seconds=0.0,
                purged=purged,
            )
        there = await app_cell(sides.target, app_name)
        await sides.read_tables()
        # The target is marked before the source is: without its mark it was switched to.
        if there is None and left is not None and left.cell == target:
            on_step(f"{target} serves the app already: the former move is completed")
            last = _Pass(mark=0)
        else:
            await sides.prepare(is_known=there is not None)
            if left is not None:
                await _STATEMENTS.execute(sides.source, "serve_app", app_name)
            last, digests, seconds = await _copy_and_switch(sides, on_step)
        await sides.finish_switch(cells)
        on_step(
            f"{target} serves the app; writers waited {seconds:.2f} s. {source} keeps its rows {grace_seconds:g} s."
        )
        # In the cell that the app has left, which asked for it.
        await AuditLog(sides.source).note("app_moved", app_name=app_name, target={"source": source, "target": target})
        _log.info("app_moved", app=app_name, source=source, target=target, fence_seconds=round(seconds, 3))
        await asyncio.sleep(grace_seconds)
        purged = await _purge(sides.source, sides.tables, app_name)
    on_step(f"{source} has deleted {purged} rows")
    return Moved(
        app_name=app_name,
        source=source,
        target=target,
        digests=digests,
        rows_fenced=last.rows,
        fence_seconds=seconds,
        purged=purged,
    )


async def _copy_and_switch(sides: _Sides, on_step: Callable[[str], object]) -> tuple[_Pass, dict[str, Digest], float]:
    """Copy, fence, and let the target serve the app. On an error before that, the source continues."""
    done = await sides.copy(None)
    on_step(f"copied {done.rows} rows")
    for _ in range(ROUNDS_MAX):
        done = await sides.copy(done.mark)
        on_step(f"copied {done.rows} rows that changed meanwhile")
        if done.rows <= CALM_ROWS:
            break
    done = await sides.copy(done.mark, prove=True)
    digests = done.digests
    on_step(f"proved {sum(each.rows for each in digests.values())} rows of {len(digests)} tables by hash")
    began = time.monotonic()
    fenced = False
    try:
        await sides.fence()
        fenced = True
        last = await sides.copy(done.mark, prove_changes=True)
        # One commit. From here on the target accepts writes, and the source still refuses them.
        await _STATEMENTS.execute(sides.target, "serve_app", sides.app)
    except BaseException:
        if fenced:
            await asyncio.shield(_STATEMENTS.execute(sides.source, "serve_app", sides.app))
        raise
    # Where this is cut off, the upkeep of the target finds them after an hour.
    await _STATEMENTS.execute(sides.target, "enqueue_documents", sides.app)
    return last, digests, time.monotonic() - began


class _Sides:
    """The two cells of a move, with a connection each."""

    def __init__(self, cells: Cells, app_name: str, source: str, target: str) -> None:
        self.app = app_name
        self.source_name, self.target_name = source, target
        self._cells = cells
        self.tables: list[_Table] = []
        self.source: Connection
        self.target: Connection

    async def __aenter__(self) -> _Sides:
        self.source = await _connect(self._cells, self.source_name)
        try:
            self.target = await _connect(self._cells, self.target_name)
        except BaseException:
            await self.source.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.target.close()
        await self.source.close()

    async def read_tables(self) -> None:
        """Read which tables there are.

        Raises:
            MoveError: the cells have different schemas.
        """
        ours, theirs = [
            {row["name"]: row["sha256"] for row in await _STATEMENTS.fetch(each, "applied")}
            for each in (self.source, self.target)
        ]
        if ours != theirs:
            differs = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
            raise MoveError(
                f"{self.source_name} and {self.target_name} have different schemas ({', '.join(differs[:3])}): run"
                " `hippocampus migrate` of one release on both"
            )
        self.tables = await _tables(self.source)

    async def prepare(self, *, is_known: bool) -> None:
        """Check that the target may hold the app, and keep every session but the move's from the app's rows there.

        Args:
            is_known: the target knows that another cell serves the app; otherwise rows of that name are its own.
        """
        for table in self.tables if not is_known else ():
            query = f"SELECT EXISTS (SELECT FROM {_quoted(table.name)} AS t WHERE {table.rows})"
            if await self.target.fetchval(query, self.app):
                raise MoveError(
                    f"{self.target_name} has rows of an app of this name in {table.name}, which it serves itself:"
                    " nothing was changed"
                )
        try:
            async with self.target.transaction():
                await _STATEMENTS.execute(self.target, "verbatim")
        except asyncpg.InsufficientPrivilegeError as error:
            raise MoveError(
                f"the role of {self.target_name} may not store rows without triggers: as a superuser there, GRANT SET"
                " ON PARAMETER session_replication_role to it"
            ) from error
        policies = [await _STATEMENTS.fetchval(each, "default_policy") for each in (self.source, self.target)]
        if policies[0] != policies[1]:
            await _STATEMENTS.execute(self.source, "own_policy", self.app)
        await _mark(self.target, self.app, self.source_name, "arriving")

    async def fence(self) -> None:
        """Have the source refuse writes; every transaction that wrote before has ended then."""
        await _mark(self.source, self.app, self.target_name, "leaving")

    async def finish_switch(self, cells: Cells) -> None:
        """Have the source point at the target for good, and the default cell, too."""
        await _mark(self.source, self.app, self.target_name, "moved")
        if DEFAULT_CELL not in (self.source_name, self.target_name):
            connection = await _connect(cells, DEFAULT_CELL)
            try:
                await _STATEMENTS.execute(connection, "point_on", self.app, self.target_name)
            finally:
                await connection.close()

    async def copy(self, since: int | None, *, prove: bool = False, prove_changes: bool = False) -> _Pass:
        """Bring the target to one snapshot of the source; `since`: by what changed after an earlier one.

        Raises:
            MoveError: the sides differ afterwards. Nothing was changed.
        """
        async with (
            self.source.transaction(isolation="repeatable_read", readonly=True),
            self.target.transaction(),
        ):
            for each in (self.source, self.target):
                await _STATEMENTS.execute(each, "copying")
            await _STATEMENTS.execute(self.target, "verbatim")
            done = _Pass(mark=await _STATEMENTS.fetchval(self.source, "snapshot_start"))
            if since is None:
                await self._copy_all(done)
            else:
                await self._copy_changes(since, done, prove=prove_changes)
            await self._require_equal(done, prove=prove)
        return done

    async def _copy_all(self, done: _Pass) -> None:
        """Copy every row; what an earlier move has left is deleted first."""
        for table in _children_first(self.tables):
            if not table.is_shared:
                await self.target.execute(f"DELETE FROM {_quoted(table.name)} AS t WHERE {table.rows}", self.app)
        for table in self.tables:
            if table.is_shared:
                done.rows += await self._stage(table, None)
                await self._apply(table)
            else:
                done.rows += await self._stream(table, table.since(None), table.values, table.name, table.columns)

    async def _copy_changes(self, since: int, done: _Pass, *, prove: bool) -> None:
        await self._delete_with_threads()
        for table in self.tables:
            if not table.key:
                await self.target.execute(f"DELETE FROM {_quoted(table.name)} AS t WHERE {table.rows}", self.app)
                await self._stream(table, table.since(None), table.values, table.name, table.columns)
                continue
            if table.name not in _GROWING:
                changed = f"SELECT EXISTS (SELECT FROM {_quoted(table.name)} AS t WHERE {table.since(since)})"
                if not await self.source.fetchval(changed, self.app):
                    continue
            count = await self._stage(table, since)
            if count:
                if table.has_more_keys and table.name not in _GROWING:
                    # A name may have been freed by one row and taken by another.
                    await self._delete_missing(table)
                await self._apply(table)
                if prove:
                    await self._require_equal_changes(table, since)
            done.rows += count

    async def _stage(self, table: _Table, since: int | None) -> int:
        """Copy the rows that changed into a temporary table of the target; return how many."""
        await self._make_temporary("moved_rows", table, table.names)
        return await self._stream(table, table.since(since), table.values, "moved_rows", table.columns)

    async def _apply(self, table: _Table) -> None:
        name = _quoted(table.name)
        insert = f"INSERT INTO {name} ({table.names}) SELECT {table.names} FROM pg_temp.moved_rows"
        if table.is_shared:
            # The update locks a row that the upkeep might delete.
            key = table.keys
            await self.target.execute(f"{insert} ON CONFLICT ({key}) DO UPDATE SET saved_at = clock_timestamp()")
            return
        await self.target.execute(f"DELETE FROM {name} AS t USING pg_temp.moved_rows AS m WHERE {table.matches('m')}")
        await self.target.execute(insert)

    async def _delete_missing(self, table: _Table) -> None:
        """Delete the rows that the source no longer has."""
        if table.is_shared or not table.key:
            return
        await self._make_temporary("moved_keys", table, table.keys)
        await self._stream(table, table.since(None), table.keys, "moved_keys", table.key)
        await self.target.execute("ANALYZE pg_temp.moved_keys")
        await self.target.execute(
            f"DELETE FROM {_quoted(table.name)} AS t WHERE ({table.rows})"
            f" AND NOT EXISTS (SELECT FROM pg_temp.moved_keys AS k WHERE {table.matches('k')})",
            self.app,
        )

    async def _make_temporary(self, name: str, table: _Table, columns: str) -> None:
        await self.target.execute(f"DROP TABLE IF EXISTS pg_temp.{name}")
        query = f"SELECT {columns} FROM {_quoted(table.name)}"
        await self.target.execute(f"CREATE TEMP TABLE {name} ON COMMIT DROP AS {query} WITH NO DATA")

    async def _delete_with_threads(self) -> None:
        """Delete what belonged to sessions that the source has deleted."""
        before, now = [
            {row["id"] for row in await _STATEMENTS.fetch(each, "threads_of", self.app)}
            for each in (self.target, self.source)
        ]
        gone = list(before - now)
        if gone:
            for table in self.tables:
                if table.name in _GROWING:
                    await self.target.execute(f"DELETE FROM {_quoted(table.name)} WHERE thread_id = ANY ($1)", gone)

    async def _stream(self, table: _Table, rows: str, values: str, to: str, columns: Sequence[str]) -> int:
        """Copy from a query on the source into a table of the target; return how many rows."""
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_CHUNKS_AHEAD)

        async def read() -> AsyncIterator[bytes]:
            while (chunk := await chunks.get()) is not None:
                yield chunk

        query = f"SELECT {values} FROM {_quoted(table.name)} AS t WHERE {rows}"
        async with asyncio.TaskGroup() as group:
            written = group.create_task(self.target.copy_to_table(to, source=read(), columns=list(columns)))
            await self.source.copy_from_query(query, self.app, output=chunks.put)
            await chunks.put(None)
        return int(written.result().rpartition(" ")[2])

    async def _require_equal(self, done: _Pass, *, prove: bool) -> None:
        """Compare every table; rows that only the target has are of what the source deleted."""
        for table in _children_first(self.tables):
            count = f"SELECT count(*) FROM {_quoted(table.name)} AS t WHERE {table.rows}"
            ours, theirs = [await each.fetchval(count, self.app) for each in (self.source, self.target)]
            if ours < theirs:
                await self._delete_missing(table)
                theirs = await self.target.fetchval(count, self.app)
            if ours != theirs:
                raise MoveError(
                    f"{table.name} has {ours} rows in {self.source_name}, and {theirs} were copied; nothing was"
                    " switched: run the move again"
                )
        if prove:
            for table in self.tables:
                query = _digest(f"SELECT {table.hashed} FROM {_quoted(table.name)} AS t WHERE {table.rows}")
                ours, theirs = [await _read_digest(each, query, self.app) for each in (self.source, self.target)]
                if ours != theirs:
                    raise MoveError(
                        f"the rows of {table.name} differ after they were copied: {ours}, {theirs}; nothing was"
                        " switched: run the move again"
                    )
                done.digests[table.name] = ours

    async def _require_equal_changes(self, table: _Table, since: int) -> None:
        if table.is_shared:
            return
        name = _quoted(table.name)
        changed = f"SELECT {table.hashed} FROM {name} AS t WHERE {table.since(since)}"
        hashed = ", ".join("NULL" if each == _NOT_COPIED else "t." + _quoted(each) for each in table.columns)
        stored = f"SELECT {hashed} FROM {name} AS t JOIN pg_temp.moved_rows AS m ON {table.matches('m')}"
        if await _read_digest(self.source, _digest(changed), self.app) != await _read_digest(
            self.target, _digest(stored)
        ):
            raise MoveError(
                f"after they were copied, the latest changes in {table.name} differ between {self.source_name} and"
                f" {self.target_name}; nothing was switched: run the move again"
            )


async def _purge_others(cells: Cells, app_name: str, target: str, on_step: Callable[[str], object]) -> int:
    """Delete what former moves have left of an app in every cell but the one that serves it."""
    purged = 0
    for name in cells.names:
        if name == target:
            continue
        connection = await _connect(cells, name)
        try:
            where = await app_cell(connection, app_name)
            if where is not None and where.is_elsewhere:
                count = await _purge(connection, await _tables(connection), app_name)
                purged += count
                on_step(f"{name} has deleted {count} rows")
        finally:
            await connection.close()
    return purged


async def _purge(connection: Connection, tables: Sequence[_Table], app_name: str) -> int:
    """Delete the rows of an app that is served elsewhere, some at a time."""
    async with connection.transaction():
        await _STATEMENTS.execute(connection, "drop_queued", app_name)
        await _STATEMENTS.execute(connection, "verbatim")
        await _STATEMENTS.execute(connection, "is_expiring", app_name)
    total = 0
    for table in _children_first(tables):
        if table.is_shared or table.name in _KEPT:
            continue  # The upkeep deletes shared rows that nothing refers to.
        name = _quoted(table.name)
        some = f"SELECT t.ctid FROM {name} AS t WHERE {table.rows} LIMIT {PURGE_ROWS}"
        while True:
            async with connection.transaction():
                await _STATEMENTS.execute(connection, "verbatim")
                done = await connection.execute(f"DELETE FROM {name} WHERE ctid = ANY (ARRAY({some}))", app_name)
            count = int(done.rpartition(" ")[2])
            total += count
            if count < PURGE_ROWS:
                break
    return total


async def _mark(connection: Connection, app_name: str, cell: str, state: str) -> None:
    """Note where an app is; the fence waits briefly for each table's writers, lets them pass, and retries."""
    backoff = Backoff(_FENCE_RETRY_SECONDS, _FENCE_RETRY_SECONDS_MAX, jitter=0)
    for attempt in range(1, FENCE_ATTEMPTS_MAX + 1):
        try:
            async with connection.transaction():
                await _STATEMENTS.execute(connection, "waiting_briefly")
                await _STATEMENTS.execute(connection, "mark_app_cell", app_name, cell, state)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if attempt == FENCE_ATTEMPTS_MAX:
                raise MoveError(
                    f"a long transaction holds a table of the app ({error}): find it in pg_stat_activity, end it, and"
                    " run the move again"
                ) from error
            await backoff.wait()
        else:
            return


async def _tables(connection: Connection) -> list[_Table]:
    return [_Table(*row) for row in await _STATEMENTS.fetch(connection, "moved_tables")]


async def _connect(cells: Cells, name: str) -> Connection:
    return await database.connect(cells.address(name), schema=cells.schema(name), needs_session=True)


def _children_first(tables: Sequence[_Table]) -> list[_Table]:
    return sorted(tables, key=lambda table: not table.is_child)


async def _read_digest(connection: Connection, query: str, *arguments: str) -> Digest:
    row = await connection.fetchrow(query, *arguments)
    assert row is not None  # noqa: S101 - an aggregate has one row
    return Digest(*row)


def _digest(query: str) -> str:
    return f"SELECT count(*), coalesce(bit_xor(hashtextextended(x::text, 0)), 0) FROM ({query}) AS x"


def _quoted(name: Any) -> str:
    return '"' + str(name).replace('"', '""') + '"'
