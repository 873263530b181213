"""What can be wrong with an installation, checked one by one, each with the mend."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

import asyncpg

from pulse import database
from pulse.errors import DatabaseUnreachableError, SchemaError
from pulse.postgres.statements import load_queries
from workers import migrate
from workers.pools import POOLS
from workers.process.roles import ROLES
from workers.queue.claims import QUERIES as QUEUE_QUERIES
from workers.settings import Settings, is_loopback, show_secret
from workers.telemetry.discovery import SEEN_SECONDS_MAX

if TYPE_CHECKING:
    from pulse.database import Connection

QUERIES = load_queries("workers", "doctor.sql")
Verdict: TypeAlias = Literal["ok", "warning", "problem"]

SKEW_SECONDS_MAX = 1.0
FREE_BYTES_MIN = 1 << 30
TRANSACTION_SECONDS_MAX = 300.0
WAIT_SECONDS_MAX = 600.0
#: Besides its pools a worker holds a connection for its lock, one for its listening, and one now and then to look.
CONNECTIONS_BESIDE = 3

_SETTINGS: Mapping[str, tuple[str, Verdict, str]] = MappingProxyType(
    {
        "fsync": ("on", "problem", "a crash of the machine would ruin the database: set fsync = on"),
        "full_page_writes": ("on", "problem", "a crash of the machine would ruin pages: set full_page_writes = on"),
        "synchronous_commit": (
            "on",
            "warning",
            "the newest commits are lost with a crash of the server, though told as stored: set it to on",
        ),
        "autovacuum": ("on", "problem", "dead rows are never cleaned up: set autovacuum = on"),
        "default_transaction_isolation": (
            "read committed",
            "problem",
            "statements would fail with serialization errors: set it to read committed for this user or database",
        ),
        "default_transaction_read_only": (
            "off",
            "problem",
            "nothing can be written: point DATABASE_URL at the primary",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: what was looked at.
        found: what is there, for people.
        mend: what to do; '' where all is well.
    """

    check: str
    verdict: Verdict
    found: str
    mend: str = ""


async def examine(config: Settings) -> AsyncIterator[Finding]:
    """Yield one finding after the other; without a database only those that need none.

    Args:
        config: with the address of a database.
    """
    for finding in _of_the_process(config):
        yield finding
    try:
        connection = await database.connect(config.dsn or "", schema=config.schema_name, prepare=False)
    except (DatabaseUnreachableError, SchemaError) as error:
        yield Finding(check="connection", verdict="problem", found="can't be used", mend=str(error))
        return
    try:
        version = ".".join(str(part) for part in connection.get_server_version()[:2])
        yield Finding(check="connection", verdict="ok", found=f"{database.describe(config.dsn or '')}")
        yield Finding(check="PostgreSQL", verdict="ok", found=version)
        async for finding in _of_the_server(connection, config):
            yield finding
        schema = await _schema(connection, config)
        yield schema
        if schema.verdict == "ok":
            async for finding in _of_the_work(connection, config):
                yield finding
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        yield Finding(
            check="connection",
            verdict="problem",
            found=f"was lost in the middle ({type(error).__name__}: {error})",
            mend="see whether the server restarts again and again: its log says why",
        )
    finally:
        connection.terminate()


def _of_the_process(config: Settings) -> Iterator[Finding]:
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    yield _judged(
        "packages",
        "the writer's are missing" if missing else "all there",
        "" if not missing else "install the extra [http]: pip install 'hippocampus[http]'",
    )
    if config.provider == "local":
        yield Finding(check="provider", verdict="ok", found="local: no model is called")
    else:
        key = config.provider_api_key
        shown = "no key" if key is None else f"key {show_secret(key)}"
        yield Finding(
            check="provider",
            verdict="ok",
            found=f"{config.provider}: {config.generation_model}, {config.embedding_model}, {shown}",
        )
    place = f"{config.api_host}:{config.api_port}"
    guard = "loopback only" if is_loopback(config.api_host) else "guarded by a key"
    yield Finding(check="API", verdict="ok", found=f"{place}, {guard}")
    if config.home.is_dir():
        free = shutil.disk_usage(config.home).free
        yield _judged(
            "disk",
            f"{free / 2**30:.1f} GB free below {config.home}",
            "" if free > FREE_BYTES_MIN else "PostgreSQL stops when its disk is full: make room",
        )


async def _of_the_server(connection: Connection, config: Settings) -> AsyncIterator[Finding]:
    extension = await connection.fetchval(QUERIES["extension"])
    yield _pgvector(extension)
    sent_at = time.time()
    server_time = await connection.fetchval(QUERIES["clock"])
    skew_seconds = server_time - (sent_at + time.time()) / 2
    yield _judged(
        "clock",
        f"the server's is {abs(skew_seconds):.2f} s {'ahead' if skew_seconds > 0 else 'behind'}",
        ""
        if abs(skew_seconds) < SKEW_SECONDS_MAX
        else "set both machines' clocks by NTP: decay and timers use the server's",
        "warning",
    )
    rows = {row["name"]: row["setting"] for row in await connection.fetch(QUERIES["settings"], list(_SETTINGS))}
    wrong = [name for name, (wanted, _, _) in _SETTINGS.items() if rows.get(name) != wanted]
    for name in wrong:
        _, verdict, mend = _SETTINGS[name]
        yield Finding(check=name, verdict=verdict, found=str(rows.get(name)), mend=mend)
    if not wrong:
        yield Finding(check="settings", verdict="ok", found=", ".join(_SETTINGS))
    if await connection.fetchval(QUERIES["collation"]):
        yield Finding(
            check="collation",
            verdict="warning",
            found="the operating system sorts otherwise than when the database was made",
            mend="REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION",
        )
    oldest = await connection.fetchval(QUERIES["oldest_transaction"])
    yield _judged(
        "transactions",
        "none is open" if oldest is None else f"the oldest is open for {oldest:.0f} s",
        ""
        if oldest is None or oldest < TRANSACTION_SECONDS_MAX
        else "end what forgot its transaction (pg_stat_activity): nothing is cleaned up behind it",
        "warning",
    )
    size = await connection.fetchval(QUERIES["size"])
    yield Finding(check="size", verdict="ok", found=f"{size / 2**20:.0f} MB in this database")


def _pgvector(version: str | None) -> Finding:
    if version is None:
        return Finding(
            check="pgvector",
            verdict="problem",
            found="not in this database",
            mend="`hippocampus migrate` makes it, where the server has its files",
        )
    try:
        migrate.require_supported_pgvector(version)
    except SchemaError as error:
        return Finding(check="pgvector", verdict="problem", found=version, mend=str(error))
    return Finding(check="pgvector", verdict="ok", found=version)


async def _schema(connection: Connection, config: Settings) -> Finding:
    try:
        await migrate.check_schema(connection, schema=config.schema_name)
    except SchemaError as error:
        return Finding(
            check="schema", verdict="problem", found=f"{config.schema_name!r} is not this program's", mend=str(error)
        )
    return Finding(check="schema", verdict="ok", found=f"{config.schema_name!r} is at this program's version")


async def _of_the_work(connection: Connection, config: Settings) -> AsyncIterator[Finding]:
    lacking = [row["relname"] for row in await connection.fetch(QUERIES["lacking_privileges"], config.schema_name)]
    yield _judged(
        "permissions",
        f"no reading or writing of {', '.join(lacking[:5])}{'…' if lacking[5:] else ''}" if lacking else "every table",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {config.schema_name} to this user"
        if lacking
        else "",
    )
    processes = {row["role"]: row["processes"] for row in await connection.fetch(QUERIES["roles"], SEEN_SECONDS_MAX)}
    yield await _connections(connection, config, processes)
    missing = [role.name for role in ROLES if role.name not in processes]
    yield _judged(
        "roles",
        f"{', '.join(missing)} not running" if missing else "all run",
        "start them with `hippocampus up`, or one by one as in the Procfile" if missing else "",
        "warning",
    )
    backlog = await connection.fetchrow(QUERIES["backlog"])
    assert backlog is not None  # noqa: S101 - aggregates always give a row
    yield _judged(
        "failed jobs",
        str(backlog["failed"] or "none"),
        "`hippocampus jobs --failed` says why, `hippocampus jobs retry` runs them again" if backlog["failed"] else "",
        "warning",
    )
    oldest = backlog["oldest_seconds"]
    yield _judged(
        "queues",
        "nothing waits" if oldest is None else f"the oldest job waits for {oldest:.0f} s",
        "" if oldest is None or oldest < WAIT_SECONDS_MAX else "start more workers of that pool: `hippocampus status`",
        "warning",
    )
    states = await connection.fetch(QUEUE_QUERIES["breaker_states"])
    is_open = [f"{row['name']} ({row['reason']})" for row in states if row["state"] != "closed"]
    yield _judged(
        "model",
        f"not called now: {', '.join(is_open)}" if is_open else "no breaker is open",
        "jobs wait and lose no try; see whether the provider is down, or refuses the key" if is_open else "",
        "warning",
    )


async def _connections(connection: Connection, config: Settings, processes: Mapping[str, int]) -> Finding:
    """Compare what the processes may open at most with what the server has."""
    row = await connection.fetchrow(QUERIES["connections"])
    assert row is not None  # noqa: S101 - as above
    running = processes or {role.name: 1 for role in ROLES}
    needed = sum(count * connections_of(role, config) for role, count in running.items())
    others = row["taken"] - row["ours"]
    room = row["usable"] - others
    which = "the roles that run" if processes else "one of each role"
    found = f"{which} may open {needed}; the server has {row['usable']}, of which others hold {others}"
    if needed <= room:
        return Finding(check="pools", verdict="ok", found=found)
    return Finding(
        check="pools",
        verdict="problem",
        found=found,
        mend=f"set HIPPOCAMPUS_DATABASE_POOL_SIZE (now {config.database_pool_size}) lower, or max_connections to"
        f" {needed + others + 10} or more and restart the server",
    )


def connections_of(role: str, config: Settings) -> int:
    """Return how many connections a process of a role opens at most."""
    beside = config.queue_pool_size + CONNECTIONS_BESIDE if role in POOLS else 1
    return config.database_pool_size + beside


def _judged(check: str, found: str, mend: str, otherwise: Verdict = "problem") -> Finding:
    """All is well where there is nothing to mend."""
    return Finding(check=check, verdict=otherwise if mend else "ok", found=found, mend=mend)
