"""What can be wrong with an installation: one check after the other, each with the fix."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import asyncpg

from hippocampus.providers.protocols import Checkable
from hippocampus.providers.registry import Kind
from pulse import database
from pulse.errors import DatabaseUnreachableError, PoolerError, SchemaError
from pulse.postgres import hosts
from pulse.postgres.statements import Statements
from pulse.process.extras import install_command
from workers import migrate
from workers.models import reach
from workers.models.factory import make_model
from workers.pools import POOLS
from workers.process import ports
from workers.process.roles import OPTIONAL_ROLES, ROLES
from workers.sandboxes import make_sandbox
from workers.settings import Settings, is_loopback, show_secret
from workers.telemetry import queue_state
from workers.telemetry.discovery import SEEN_SECONDS_MAX

if TYPE_CHECKING:
    from pulse.database import Connection

_STATEMENTS = Statements("workers", "doctor.sql")

Verdict: TypeAlias = Literal["ok", "warning", "problem"]

SKEW_SECONDS_MAX = 1.0
#: The larger limit for a process's clock: the statement that registered it may have waited.
PROCESS_SKEW_SECONDS_MAX = 5.0
FREE_BYTES_MIN = 1 << 30
TRANSACTION_SECONDS_MAX = 300.0
WAIT_SECONDS_MAX = 600.0
#: Besides its pools a worker holds a connection for its lock, one to listen, and at times one to read the queue.
CONNECTIONS_BESIDE = 3


class _Setting(NamedTuple):
    expected: str
    verdict: Verdict  # where it has another value
    fix: str


_GRANT_IDENTITY = "let a superuser run in this database: GRANT EXECUTE ON FUNCTION pg_control_system() TO this user"
_SETTINGS: Mapping[str, _Setting] = MappingProxyType(
    {
        "fsync": _Setting("on", "problem", "a crash of the machine may corrupt the database: set fsync = on"),
        "full_page_writes": _Setting(
            "on", "problem", "a crash of the machine may corrupt pages: set full_page_writes = on"
        ),
        "synchronous_commit": _Setting(
            "on", "warning", "a crash of the server loses commits that were reported as stored: set it to on"
        ),
        "autovacuum": _Setting("on", "problem", "dead rows are never removed: set autovacuum = on"),
        "default_transaction_isolation": _Setting(
            "read committed",
            "problem",
            "statements would fail with serialization errors: set it to read committed for this user or database",
        ),
        "log_error_verbosity": _Setting(
            "terse",
            "warning",
            "the server's log may quote rows, and so what users said: ALTER DATABASE … SET log_error_verbosity = terse",
        ),
        "log_parameter_max_length_on_error": _Setting(
            "0", "warning", "the server's log quotes what users said when a statement fails: set it to 0"
        ),
        "default_transaction_read_only": _Setting(
            "off", "problem", "nothing can be written: point DATABASE_URL at the primary"
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: what was examined.
        found: the state of it, in words.
        fix: what to do; '' if nothing is wrong.
    """

    check: str
    verdict: Verdict
    found: str
    fix: str = ""


async def examine(config: Settings) -> AsyncIterator[Finding]:
    """Yield one finding after the other; without a database, only those that need none.

    Args:
        config: its DATABASE_URL is set.
    """
    for finding in _of_the_process(config):
        yield finding
    for kind in config.kinds:
        yield await _of_the_model(config, kind)
    yield await _of_the_sandbox(config)
    try:
        connection = await database.connect(config.dsn or "", schema=config.schema_name, prepare=False)
    except (DatabaseUnreachableError, SchemaError) as error:
        yield Finding(check="connection", verdict="problem", found="failed", fix=str(error))
        return
    try:
        version = ".".join(str(part) for part in connection.get_server_version()[:2])
        yield Finding(check="connection", verdict="ok", found=f"{database.describe(config.dsn or '')}")
        yield Finding(check="PostgreSQL", verdict="ok", found=version)
        async for finding in _of_the_way(connection, config):
            yield finding
        async for finding in _of_the_server(connection, config):
            yield finding
        schema = await _schema(connection, config)
        yield schema
        if schema.verdict == "ok":
            async for finding in _of_the_work(connection, config):
                yield finding
    except database.FAULTS as error:
        yield Finding(
            check="connection",
            verdict="problem",
            found=f"was lost during the checks ({type(error).__name__}: {error})",
            fix="see the server's log: it may be restarting again and again",
        )
    finally:
        connection.terminate()


def _of_the_process(config: Settings) -> Iterator[Finding]:
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    yield _judged(
        "packages",
        f"{', '.join(missing)} missing" if missing else "complete",
        f"the writer needs the extra [http]: {install_command('http')}" if missing else "",
    )
    access = "loopback only" if is_loopback(config.api_host) else "protected by a key"
    yield Finding(check="API", verdict="ok", found=f"{config.api_host}:{config.api_port}, {access}")
    if config.home.is_dir():
        free = shutil.disk_usage(config.home).free
        yield _judged(
            "disk",
            f"{free / 2**30:.1f} GB free in {config.home}",
            "" if free > FREE_BYTES_MIN else "PostgreSQL stops when its disk is full: free some space",
        )


async def _of_the_model(config: Settings, kind: Kind) -> Finding:
    """Say which model is used, and ask its server whether it would answer."""
    chosen = config.chosen(kind)
    if reach.calls_no_model(chosen):
        return Finding(check=kind, verdict="ok", found=f"{chosen.name}: no model is called")
    key = "" if chosen.api_key is None else f", key {show_secret(chosen.api_key)}"
    used = f"{chosen.described}{key}"
    try:
        model = make_model(config, kind)
    except ValueError as error:
        return Finding(check=kind, verdict="problem", found=used, fix=str(error))
    try:
        fault = await reach.fault_of(model)
    finally:
        await model.close()
    if fault is not None:
        found = f"{used}: {fault}"
        return Finding(check=kind, verdict="problem", found=found, fix=reach.advice(chosen, fault))
    return Finding(check=kind, verdict="ok", found=f"{used}{', it answers' if isinstance(model, Checkable) else ''}")


async def _of_the_sandbox(config: Settings) -> Finding:
    """Say which sandbox is used, and let it test itself: nothing replaces one that does not work."""
    used = config.sandbox
    if used.startswith("container:"):
        used = f"{used} by {config.sandbox_engine}"
    if used.startswith("remote:") and config.sandbox_token is not None:
        used = f"{used}, token {show_secret(config.sandbox_token)}"
    if used == "monty" and importlib.util.find_spec("pydantic_monty") is None:
        found = f"monty, which is not installed ({install_command('sandbox')}): tools of code do not run"
        return Finding(check="sandbox", verdict="ok", found=found)
    backend = make_sandbox(config)
    try:
        fault = await backend.check()
    finally:
        await backend.close()
    if fault is None:
        return Finding(check="sandbox", verdict="ok", found=f"{used}, it works")
    return Finding(
        check="sandbox",
        verdict="problem",
        found=f"{used}: {fault}",
        fix="tools of code do not run until it works: correct HIPPOCAMPUS_SANDBOX or what it names (docs/sandbox.md)",
    )


async def _of_the_way(connection: Connection, config: Settings) -> AsyncIterator[Finding]:
    """Examine what is between the processes and their server: a pooler, several hosts."""
    yield await _pooler(connection, config)
    if database.is_pooled(connection):
        rows = await _STATEMENTS.fetch(connection, "unlimited")
        names = [row["name"] for row in rows]
        yield _judged(
            "limits",
            f"{', '.join(names)} without a limit" if names else "set for this user",
            "a process cannot set these through a pooler: ALTER ROLE … IN DATABASE … SET"
            " idle_in_transaction_session_timeout = '30s', SET lock_timeout = '5s'"
            if names
            else "",
            "warning",
        )
    address, _ = database.read_address(config.direct_dsn or "", config.schema_name)
    if hosts.target_of(address) is not None:
        found = await hosts.survey(address)
        yield _judged(
            "hosts",
            ", ".join(f"{host} {kind}" for host, kind in found),
            "a failover to a host that is unreachable is not possible: start it, or remove it from the address"
            if any(kind == "unreachable" for _, kind in found)
            else "",
            "warning",
        )
        names = await _STATEMENTS.fetchval(connection, "synchronous_standbys")
        yield _judged(
            "replication",
            f"synchronous to {names}" if names else "asynchronous",
            "" if names else "a failover may lose events that were reported as stored: set synchronous_standby_names",
            "warning",
        )
    if config.replica_url is not None:
        yield await _replica(connection, config.replica_url.get_secret_value(), config.schema_name)


async def _pooler(connection: Connection, config: Settings) -> Finding:
    """Say what LISTEN and the locks of workers use."""
    which = "DATABASE_URL" if config.direct_database_url is None else "HIPPOCAMPUS_DIRECT_DATABASE_URL"
    try:
        direct = await database.connect(
            config.direct_dsn or "", schema=config.schema_name, prepare=False, needs_session=True
        )
    except (DatabaseUnreachableError, PoolerError, SchemaError) as error:
        found = "in transaction mode" if isinstance(error, PoolerError) else "failed"
        return Finding(check="pooler", verdict="problem", found=f"{which}: {found}", fix=str(error))
    try:
        is_same = config.direct_database_url is None or await _STATEMENTS.fetchrow(
            direct, "identity"
        ) == await _STATEMENTS.fetchrow(connection, "identity")
    except asyncpg.InsufficientPrivilegeError as error:
        return Finding(
            check="pooler",
            verdict="warning",
            found=f"{error}: whether {which} leads to the same database is not known",
            fix=_GRANT_IDENTITY,
        )
    finally:
        direct.terminate()
    if not is_same:
        return Finding(
            check="pooler",
            verdict="problem",
            found="DATABASE_URL and HIPPOCAMPUS_DIRECT_DATABASE_URL lead to two databases",
            fix="jobs and notifications of one would be looked for in the other: point both at the same database",
        )
    through = "through a pooler" if database.is_pooled(connection) else "none"
    return Finding(check="pooler", verdict="ok", found=f"{through}; LISTEN and locks by {which}")


async def _replica(connection: Connection, address: str, schema: str) -> Finding:
    """Say whether searches can run on the replica."""
    try:
        replica = await database.connect(address, schema=schema, prepare=False)
    except (DatabaseUnreachableError, SchemaError) as error:
        return Finding(check="replica", verdict="warning", found="failed: the primary searches", fix=str(error))
    try:
        ours = await _STATEMENTS.fetchrow(connection, "identity")
        theirs = await _STATEMENTS.fetchrow(replica, "identity")
        lag = await _STATEMENTS.fetchval(replica, "replay_lag_seconds")
    except asyncpg.InsufficientPrivilegeError as error:
        return Finding(
            check="replica",
            verdict="warning",
            found=f"{error}: the primary searches",
            fix=_GRANT_IDENTITY,
        )
    finally:
        replica.terminate()
    where = database.describe(address)
    if ours != theirs:
        return Finding(
            check="replica",
            verdict="problem",
            found=f"{where} ({_identity(theirs)}) replays the log of another server than DATABASE_URL"
            f" ({_identity(ours)})",
            fix="searches run on the primary alone: set HIPPOCAMPUS_REPLICA_URL to a replica of DATABASE_URL",
        )
    if lag is None:
        return Finding(
            check="replica",
            verdict="warning",
            found=f"{where} is not a replica: the primary searches",
            fix="set HIPPOCAMPUS_REPLICA_URL to a server in recovery",
        )
    return Finding(check="replica", verdict="ok", found=f"{where}, {lag:.1f} s behind at most")


def _identity(row: asyncpg.Record | None) -> str:
    return "unknown" if row is None else f"system {row['system_identifier']}, database {row['current_database']}"


async def _of_the_server(connection: Connection, config: Settings) -> AsyncIterator[Finding]:
    yield _pgvector(await _STATEMENTS.fetchval(connection, "extension"))
    sent_at = time.time()
    server_time = await _STATEMENTS.fetchval(connection, "clock")
    skew_seconds = server_time - (sent_at + time.time()) / 2
    yield _judged(
        "clock",
        f"the server's is {abs(skew_seconds):.2f} s {'ahead' if skew_seconds > 0 else 'behind'}",
        ""
        if abs(skew_seconds) < SKEW_SECONDS_MAX
        else "synchronize both machines' clocks by NTP: decay and timers use the server's",
        "warning",
    )
    rows = await _STATEMENTS.fetch(connection, "settings", list(_SETTINGS))
    values = {row["name"]: row["setting"] for row in rows}
    wrong = {name: setting for name, setting in _SETTINGS.items() if values.get(name) != setting.expected}
    for name, setting in wrong.items():
        yield Finding(check=name, verdict=setting.verdict, found=str(values.get(name)), fix=setting.fix)
    if not wrong:
        yield Finding(check="settings", verdict="ok", found=", ".join(_SETTINGS))
    if await _STATEMENTS.fetchval(connection, "collation"):
        yield Finding(
            check="collation",
            verdict="warning",
            found="the operating system's sort order has changed since the database was created",
            fix="REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION",
        )
    oldest = await _STATEMENTS.fetchval(connection, "oldest_transaction")
    yield _judged(
        "transactions",
        "none is open" if oldest is None else f"the oldest has been open for {oldest:.0f} s",
        ""
        if oldest is None or oldest < TRANSACTION_SECONDS_MAX
        else "end the idle transaction (see pg_stat_activity): dead rows newer than it are not removed",
        "warning",
    )
    yield await _disk(connection)
    size = await _STATEMENTS.fetchval(connection, "size")
    yield Finding(check="size", verdict="ok", found=f"{size / 2**20:.0f} MB in this database")


async def _disk(connection: Connection) -> Finding:
    """Write a little, as only the server knows its disk."""
    try:
        async with connection.transaction():
            await _STATEMENTS.execute(connection, "probe_disk")
    except asyncpg.DiskFullError:
        return Finding(
            check="database disk",
            verdict="problem",
            found="full: nothing can be stored",
            fix="free space on the disk of PostgreSQL's data directory, or enlarge it",
        )
    except (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError) as error:
        return Finding(check="database disk", verdict="ok", found=f"not examined ({type(error).__name__})")
    return Finding(check="database disk", verdict="ok", found="can be written")


def _pgvector(version: str | None) -> Finding:
    if version is None:
        return Finding(
            check="pgvector",
            verdict="problem",
            found="not installed in this database",
            fix="run `hippocampus migrate`, which installs it where the server has its files",
        )
    try:
        migrate.require_supported_pgvector(version)
    except SchemaError as error:
        return Finding(check="pgvector", verdict="problem", found=version, fix=str(error))
    return Finding(check="pgvector", verdict="ok", found=version)


async def _schema(connection: Connection, config: Settings) -> Finding:
    try:
        await migrate.check_schema(connection, schema=config.schema_name)
    except SchemaError as error:
        return Finding(
            check="schema",
            verdict="problem",
            found=f"{config.schema_name!r} does not match the program",
            fix=str(error),
        )
    return Finding(check="schema", verdict="ok", found=f"{config.schema_name!r} matches the program")


def _port(config: Settings) -> Finding:
    """Say whether a writer could listen, where none runs that does."""
    place = f"{config.api_port} of {config.api_host}"
    try:
        with ports.held(config.api_host, config.api_port):
            pass
    except OSError as error:
        return Finding(
            check="port", verdict="problem", found=f"{place} cannot be used ({error.strerror})", fix=ports.ADVICE
        )
    return Finding(check="port", verdict="ok", found=f"{place} is free for the writer")


async def _of_the_work(connection: Connection, config: Settings) -> AsyncIterator[Finding]:
    rows = await _STATEMENTS.fetch(connection, "lacking_privileges", config.schema_name)
    lacking = [row["relname"] for row in rows]
    yield _judged(
        "permissions",
        f"can't read or write {', '.join(lacking[:5])}{'…' if lacking[5:] else ''}" if lacking else "every table",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {config.schema_name} to this user"
        if lacking
        else "",
    )
    rows = await _STATEMENTS.fetch(connection, "roles", SEEN_SECONDS_MAX)
    processes = {row["role"]: row["processes"] for row in rows}
    yield await _connections(connection, config, processes)
    missing = [role.name for role in ROLES if role.name not in {*processes, *OPTIONAL_ROLES}]
    yield _judged(
        "roles",
        f"{', '.join(missing)} not running" if missing else "all running",
        "start them with `hippocampus up`, or one by one as in the Procfile" if missing else "",
        "warning",
    )
    if "writer" not in processes:
        yield _port(config)
    wrong = await _STATEMENTS.fetch(connection, "clocks", PROCESS_SKEW_SECONDS_MAX, SEEN_SECONDS_MAX)
    yield _judged(
        "clocks",
        ", ".join(f"{row['role']} on {row['host']} is {row['clock_ahead_seconds']:+.0f} s off" for row in wrong)
        or "every process agrees with the database",
        "synchronise the clocks of these machines (NTP): retries follow the database's clock, but periodic tasks and"
        " log lines follow theirs"
        if wrong
        else "",
    )
    backlog = await _STATEMENTS.fetch_one(connection, "backlog")
    yield _judged(
        "failed jobs",
        str(backlog["failed"] or "none"),
        "`hippocampus jobs --failed` shows why, `hippocampus jobs retry` runs them again" if backlog["failed"] else "",
        "warning",
    )
    oldest = backlog["oldest_seconds"]
    yield _judged(
        "queues",
        "nothing waits" if oldest is None else f"the oldest job has waited for {oldest:.0f} s",
        "" if oldest is None or oldest < WAIT_SECONDS_MAX else "start more workers of that pool: `hippocampus status`",
        "warning",
    )
    breakers = await queue_state.read_breakers(connection)
    is_open = [f"{breaker.name} ({breaker.reason})" for breaker in breakers if breaker.state != "closed"]
    yield _judged(
        "model",
        f"not called now: {', '.join(is_open)}" if is_open else "no breaker is open",
        "jobs wait and lose no attempt: check whether the provider is down, or rejects the key" if is_open else "",
        "warning",
    )


async def _connections(connection: Connection, config: Settings, processes: Mapping[str, int]) -> Finding:
    """Compare what the processes may open at most with what the server allows."""
    row = await _STATEMENTS.fetch_one(connection, "connections")
    running = processes or {role.name: 1 for role in ROLES if role.name not in OPTIONAL_ROLES}
    needed = sum(count * connections_of(role, config) for role, count in running.items())
    others = row["taken"] - row["ours"]
    available = row["usable"] - others
    which = "the running roles" if processes else "one of each role"
    found = f"{which} may open {needed}; the server allows {row['usable']}, of which others use {others}"
    if needed <= available:
        return Finding(check="pools", verdict="ok", found=found)
    return Finding(
        check="pools",
        verdict="problem",
        found=found,
        fix=f"set HIPPOCAMPUS_DATABASE_POOL_SIZE (now {config.database_pool_size}) lower, or max_connections to"
        f" {needed + others + 10} or more and restart the server",
    )


def connections_of(role: str, config: Settings) -> int:
    """Return how many connections a process of a role opens at most."""
    beside = config.queue_pool_size + CONNECTIONS_BESIDE if role in POOLS else 1
    return config.database_pool_size + beside


def _judged(check: str, found: str, fix: str, otherwise: Verdict = "problem") -> Finding:
    """Return a finding, which is fine if it has no fix."""
    return Finding(check=check, verdict=otherwise if fix else "ok", found=found, fix=fix)
