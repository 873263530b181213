"""Connections to PostgreSQL as every package expects them: codecs, search_path, errors with advice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
import structlog
from asyncpg.transaction import Transaction
from pgvector.asyncpg import register_vector

from pulse.errors import DatabaseUnreachableError, InvalidInputError, PoolerError, PulseError, SchemaError
from pulse.postgres import bounded_pool, statements
from pulse.postgres.bounded_pool import BoundedPool
from pulse.postgres.hosts import Opener
from pulse.postgres.statements import Statements
from pulse.process.counts import COUNTS
from pulse.process.installation import other_project

#: A connection of `connect`.
Connection = bounded_pool.Connection
#: A pool of `create_pool`.
Pool = bounded_pool.Pool

SERVER_VERSION_NUM_MIN = 160000
#: The length of a schema's name, as of any name in PostgreSQL.
SCHEMA_BYTES_MAX = 63
_ADDRESS = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://(?:(?P<user>[^:@/?]*)(?::[^@/?]*)?@)?"
    r"(?P<hosts>(?:[^:@/?,\[\]]*|\[[^\]@/?]*\])(?::[0-9]+)?(?:,(?:[^:@/?,\[\]]*|\[[^\]@/?]*\])(?::[0-9]+)?)*)"
    r"(?P<name>/[^@?]*)?(?:\?[^@]*)?"
)
# The defaults of asyncpg.create_pool: a connection is replaced after this many statements, and closed after being idle
# for this long.
_QUERIES_MAX = 50_000
_IDLE_SECONDS_MAX = 300.0
_STATEMENTS_KEPT = 100
#: How often two connections are compared to prove that they share a backend.
_POOLER_ROUNDS = 5
#: What a statement may raise because of the database or the network.
FAULTS = statements.FAULTS
_STATEMENTS = Statements("pulse", "database.sql")
_STATE_NEAR_LIMIT = "HP095"
_VECTOR_TYPES = ("vector", "halfvec", "sparsevec")
_log = structlog.get_logger(__name__)
#: How a lost server is noticed within half a minute: idle time and interval in seconds, probes; milliseconds until sent
#: data must be acknowledged.
_KEEPALIVES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}


class BoundedTransaction(Transaction):
    """A transaction whose rollback is not waited for longer than `RELEASE_SECONDS_MAX`.

    After an error or a cancelled statement, a rollback would wait for ever for a server that hangs. Past the limit the
    connection is closed, and the error that ended the transaction is raised.
    """

    __slots__ = ("_own",)

    def __init__(self, connection: Any, *options: Any) -> None:
        super().__init__(connection, *options)
        self._own = connection

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """End the transaction, unless the connection is closed: then the server has ended it."""
        if kind is None:
            await super().__aexit__(kind, error, traceback)
        elif not self._own.is_closed():
            try:
                async with asyncio.timeout(bounded_pool.RELEASE_SECONDS_MAX):
                    await super().__aexit__(kind, error, traceback)
            except TimeoutError:
                self._own.terminate()


class WatchedConnection(asyncpg.Connection):
    """A connection whose loss is noticed within half a minute, even if the network drops packets silently.

    asyncpg sets no keepalives: a statement whose answer is lost would wait for ever.
    """

    __slots__ = ("is_pooled", "vector_types")

    def _process_log_message(self, fields: dict[str, str], last_query: str) -> None:
        """Count a state near its limit, which an append reports beside its result."""
        if fields.get("C") == _STATE_NEAR_LIMIT:
            COUNTS.states_near_limit += 1
            _log.warning("state_near_limit", **_read_detail(fields.get("D", "{}")))
        super()._process_log_message(fields, last_query)  # type: ignore[misc]  # asyncpg's own, without a stub

    def __init__(self, protocol: Any, transport: asyncio.Transport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        #: Whether it leads through a pooler; see `pulse.postgres.hosts`.
        self.is_pooled = False
        #: The types of pgvector, by name, as the database numbers them.
        self.vector_types: dict[str, int] = {}
        endpoint = transport.get_extra_info("socket")
        if endpoint.family in (socket.AF_INET, socket.AF_INET6):
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVES.items():
                # Not every system has all of them.
                if hasattr(socket, name):
                    endpoint.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's own
        """Close the connection; drop it if the server has not answered within `RELEASE_SECONDS_MAX`."""
        with contextlib.suppress(TimeoutError) if timeout is None else contextlib.nullcontext():
            await super().close(timeout=bounded_pool.RELEASE_SECONDS_MAX if timeout is None else timeout)

    def keep_statements(self) -> None:
        """Prepare each statement once, under a name: the session is this connection's own."""
        # asyncpg decides this before it connects, when a pooler is not known yet.
        driver: Any = self
        driver._stmt_cache.set_max_size(_STATEMENTS_KEPT)
        driver._stmt_cache_enabled = True

    async def _introspect_type(self, typename: str, schema: str) -> Any:
        """Return what asyncpg needs to know of a type; of pgvector's without asking for each."""
        found = self.vector_types.get(typename)
        if found is not None:
            return {"oid": found, "elemtype": None, "kind": b"b"}
        return await super()._introspect_type(typename, schema)  # type: ignore[misc]  # asyncpg's own, without a stub

    def transaction(
        self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False
    ) -> BoundedTransaction:
        """Return a transaction whose rollback is bounded; otherwise as asyncpg's own."""
        if self.is_closed():
            raise asyncpg.InterfaceError("connection is closed")
        return BoundedTransaction(self, isolation, readonly, deferrable)


class PooledConnection(WatchedConnection):
    """A connection that goes back to its pool without a round trip.

    No code here leaves state in a pooled session: settings are transaction-local, and session locks and LISTEN have
    connections of their own. An open transaction is still rolled back.
    """

    __slots__ = ()

    def get_reset_query(self) -> str:
        """Return no query: see the class."""
        return ""


async def create_pool(
    dsn: str,
    *,
    schema: str | None = None,
    min_size: int = 1,
    max_size: int = 10,
    idle_transaction_seconds_max: float | None = None,
    lock_seconds_max: float | None = None,
) -> BoundedPool:
    """Open a pool of ready connections: jsonb as Python values, json as raw text, vectors as `Vector`.

    Args:
        schema: where our tables are; by default the address's ``?schema=…``, or else ``public``.
        idle_transaction_seconds_max: after which the server ends a connection that is idle in a transaction, whose
            process was stopped while holding locks. None for the server's setting.
        lock_seconds_max: after which a statement gives up waiting for a lock, instead of keeping its connection from
            others. None for the server's setting.

    Raises:
        DatabaseUnreachableError: no server, no such database, wrong password, or a malformed DSN.
        InvalidInputError: the schema; see `read_address`.
        SchemaError: the server is too old, or the database has no pgvector.
        PulseError: the package index's other project named `hippocampus` is installed too.
    """
    address, home = _target(dsn, schema)
    limits = {
        name: str(round(seconds * 1000))
        for name, seconds in (
            ("idle_in_transaction_session_timeout", idle_transaction_seconds_max),
            ("lock_timeout", lock_seconds_max),
        )
        if seconds is not None
    }

    async def prepare(connection: Connection) -> None:
        await prepare_connection(connection, pool.opener.schema)
        if limits and not is_pooled(connection):
            for name, value in limits.items():
                await _STATEMENTS.execute(connection, "set_session_limit", name, value)

    pool = BoundedPool(
        Opener(address, search_path(home), home),
        min_size=min_size,
        max_size=max_size,
        max_queries=_QUERIES_MAX,
        max_inactive_connection_lifetime=_IDLE_SECONDS_MAX,
        loop=None,
        init=prepare,
        connection_class=PooledConnection,
        record_class=asyncpg.Record,
    )
    try:
        return await pool
    except CONNECT_ERRORS as error:
        raise unreachable(dsn, error) from error


def repoint(pool: BoundedPool, dsn: str, *, schema: str | None = None) -> None:
    """Let a pool of `create_pool` connect elsewhere from now on; connections in use are closed when they come back.

    Raises:
        InvalidInputError: the schema; see `read_address`.
    """
    address, home = read_address(dsn, schema)
    pool.redirect(Opener(address, search_path(home), home))


async def connect(
    dsn: str, *, schema: str | None = None, prepare: bool = True, needs_session: bool = False
) -> Connection:
    """Open one connection like the pool's; without `prepare` the database needs no pgvector yet.

    Args:
        needs_session: for LISTEN or a session's lock, which a pooler in transaction mode breaks.

    Raises:
        DatabaseUnreachableError, InvalidInputError, SchemaError, PulseError: as `create_pool`.
        PoolerError: a session is needed, and the address leads through a pooler in transaction mode.
    """
    address, home = _target(dsn, schema)
    opener = Opener(address, search_path(home), home)
    try:
        connection = await opener(connection_class=WatchedConnection)
    except CONNECT_ERRORS as error:
        raise unreachable(dsn, error) from error
    try:
        require_supported_server(server_version_num(connection))
        if prepare:
            await prepare_connection(connection, home)
        else:
            await _recognise(connection, home)
        if needs_session and is_pooled(connection):
            await _require_session(connection, opener, dsn)
    except BaseException:
        connection.terminate()
        raise
    return connection


def is_pooled(connection: Any) -> bool:
    """Whether a connection of this module leads through a pooler."""
    return bool(connection.is_pooled)


async def prepare_connection(connection: Connection, schema: str) -> None:
    """Register the codecs on a new connection. `json` stays raw text: event bodies are opaque.

    Raises:
        SchemaError: the server is too old, the database has no pgvector, or a pooler leads to another schema.
    """
    require_supported_server(server_version_num(connection))
    vector_schema = await _recognise(connection, schema)
    if vector_schema is None:
        raise SchemaError("This database has no pgvector yet. Run `hippocampus migrate`.")
    await register_vector(connection, schema=vector_schema)
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_encode_jsonb, decoder=_decode_jsonb, format="binary"
    )


async def _recognise(connection: Any, schema: str) -> str | None:
    """Find out whether a new connection leads through a pooler; return the schema of pgvector, None without it.

    Raises:
        SchemaError: through a pooler, names are not looked up in `schema`.
    """
    row = await _STATEMENTS.fetch_one(connection, "begin_session", connection.get_server_pid())
    connection.vector_types = {name: row[name] for name in _VECTOR_TYPES if row[name] is not None}
    if row["is_direct"]:
        connection.keep_statements()
    else:
        connection.is_pooled = True
        if row["current_schema"] != schema:
            name = search_path(schema)
            raise SchemaError(
                f"Through its connection pooler, this database looks names up in {row['current_schema']!r}, not in"
                f" {schema!r}: the pooler does not pass search_path on. Run ALTER ROLE {search_path(row['user'])} IN"
                f" DATABASE {search_path(row['database'])} SET search_path = {name}, and RECONNECT in the pooler's"
                " console. If the schema does not exist yet, run `hippocampus migrate` first."
            )
    return row["vector_schema"]  # type: ignore[no-any-return]


async def _require_session(connection: Connection, opener: Opener, dsn: str) -> None:
    """Raise PoolerError if the pooler gives one backend to two connections that are both open.

    In session mode each keeps its own. In transaction mode the second usually gets the one that the first has just
    used; where other clients are faster, the first gets another one itself in a later round.
    """
    second = await opener(connection_class=WatchedConnection)
    try:
        first_seen: set[int] = set()
        second_seen: set[int] = set()
        for _ in range(_POOLER_ROUNDS):
            first_seen.add(await _STATEMENTS.fetchval(connection, "backend"))
            second_seen.add(await _STATEMENTS.fetchval(second, "backend"))
    finally:
        second.terminate()
    if len(first_seen) > 1 or len(second_seen) > 1 or first_seen & second_seen:
        raise PoolerError(
            f"{describe(dsn)} leads through a connection pooler in transaction mode, which breaks LISTEN and session"
            " locks. Set HIPPOCAMPUS_DIRECT_DATABASE_URL to the server's own address, or for a cell its entry of"
            " HIPPOCAMPUS_DIRECT_CELLS; DATABASE_URL and HIPPOCAMPUS_CELLS may keep the pooler's."
        )


def _target(dsn: str, schema: str | None) -> tuple[str, str]:
    """Return an address and its schema for a connection that this installation may open."""
    if (found := other_project()) is not None:
        raise PulseError(found)
    return read_address(dsn, schema)


def read_address(dsn: str, schema: str | None = None) -> tuple[str, str]:
    """Return an address without ``schema=…``, which PostgreSQL does not know, and the schema: ``public`` by default.

    Args:
        schema: None, or the schema to use for an address that names none.

    Raises:
        InvalidInputError: the address names another schema than the argument, or a name of no or over 63 bytes.
    """
    address, _, query = dsn.partition("?")
    parameters = query.split("&") if query else []
    named = [unquote(each.removeprefix("schema=")) for each in parameters if each.startswith("schema=")]
    others = "&".join(each for each in parameters if not each.startswith("schema="))
    found = {*named, *([] if schema is None else [schema])}
    if len(found) > 1:
        raise InvalidInputError(
            f"the database's address has ?schema={named[0]}, but another schema is given too: {schema or named[-1]}."
            " Name one of them"
        )
    home = found.pop() if found else "public"
    if not 0 < len(home.encode()) <= SCHEMA_BYTES_MAX or "\0" in home:
        raise InvalidInputError(f"a schema's name has 1 to {SCHEMA_BYTES_MAX} bytes: {home!r:.80} is not one")
    if not named:
        return dsn, home
    return (f"{address}?{others}" if others else address), home


def search_path(schema: str) -> str:
    """Return the search_path of a schema: it alone, since `public` may hold another installation's functions.

    What pgvector makes is named in our functions only, which have a path of their own.
    """
    return '"' + schema.replace('"', '""') + '"'


def server_version_num(connection: Connection) -> int:
    """Return the server's version as PostgreSQL's own `server_version_num`, such as 180004."""
    version = connection.get_server_version()
    return version.major * 10000 + version.minor * 100 + version.micro


def require_supported_server(version_num: int) -> None:
    """Raise SchemaError for a server older than PostgreSQL 16."""
    if version_num < SERVER_VERSION_NUM_MIN:
        raise SchemaError(
            f"This server is PostgreSQL {version_num // 10000}; version 16 or newer is needed. Upgrade it,"
            " point DATABASE_URL at a newer one, or unset DATABASE_URL to use the embedded server."
        )


def unreachable(dsn: str, error: BaseException) -> DatabaseUnreachableError:
    """Return the error for a database that could not be reached, without the password."""
    reason = str(error).strip() or type(error).__name__
    advice = "Check that it runs, and host, port, user, password and database in its address (by default DATABASE_URL)."
    if isinstance(error, asyncpg.TooManyConnectionsError):
        advice = (
            "Every connection that it allows is in use: lower HIPPOCAMPUS_DATABASE_POOL_SIZE or raise max_connections."
        )
    folder = _socket_folder(dsn)
    if folder and isinstance(error, FileNotFoundError | ConnectionRefusedError):
        reason = f"no server listens at the socket in {folder}"
        advice = "Start it: `hippocampus up` starts the embedded one, and prints its address."
    if "://" in dsn and not dsn.startswith(("postgresql://", "postgres://")):
        advice = (
            "Write its address (by default DATABASE_URL) as postgresql://user:password@host:port/name, without the name"
            " of a driver."
        )
    return DatabaseUnreachableError(f"PostgreSQL at {describe(dsn)} can't be used: {reason}. {advice}")


def _socket_folder(dsn: str) -> str | None:
    """Return the folder of the Unix socket that an address names in place of a host; None: it names none."""
    host = parse_qs(urlsplit(dsn).query).get("host", [""])[0] if _ADDRESS.fullmatch(dsn) else ""
    return host if host.startswith("/") else None


def describe(dsn: str) -> str:
    """Return a DSN for messages: its hosts, its user and its database, without its password and its parameters."""
    found = _ADDRESS.fullmatch(dsn)
    if found is None:
        # Such as an address whose password has a character that must be quoted: no part of it is certainly not secret.
        return "the given address"
    user, hosts, name = found["user"], found["hosts"], found["name"]
    return f"{found['scheme']}://{f'{user}@' if user else ''}{hosts}{name or ''}"


def _read_detail(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# The binary form, one byte of version before the text: asyncpg takes no text codec inside a composite type.
_JSONB_VERSION = b"\x01"
_JSONB = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _encode_jsonb(value: Any) -> bytes:
    return _JSONB_VERSION + _JSONB.encode(value).encode()


def _decode_jsonb(stored: bytes) -> Any:
    return json.loads(stored[1:])


#: Why a connection cannot be opened: refused, unknown host, time-out, no primary; a malformed DSN; wrong password or
#: role; no such database; server starting up or shutting down; no connection left.
CONNECT_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.TargetServerAttributeNotMatched,
)
