"""Connections to an address with several hosts, or behind a pooler.

Of several hosts, the one that accepts writes is used; the one that did last is asked first. A host that does not answer
delays the next one by `HOST_SECONDS_MAX` only: the driver would give its whole time to the first.

A pooler is recognised by what it does, not by its name: it refuses the startup parameter ``search_path``, or its
backend is not the process that the handshake announced. In transaction mode the backend changes with each transaction,
so no statement is prepared under a name, and no setting of the session is made.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote

import asyncpg

from pulse.postgres.statements import FAULTS, Statements

if TYPE_CHECKING:
    from pulse.postgres.bounded_pool import Connection

#: The time limit for one of several hosts: a host that is down but routed answers nothing.
HOST_SECONDS_MAX = 3.0
_NAME = "hippocampus"
_TARGET = "target_session_attrs"
_STATEMENTS = Statements("pulse", "database.sql")
_IN_BRACKETS = re.compile(r"\[(?P<host>[^]]+)\](:(?P<port>[0-9]+))?")


class NoPrimaryError(ConnectionError):
    """None of the hosts accepts writes at the moment: each is unreachable, or a standby."""


class Host(NamedTuple):
    """One host of an address; the port as the address has it, None for the default."""

    name: str
    port: int | None

    @property
    def place(self) -> dict[str, Any]:
        """The arguments of asyncpg.connect for this host."""
        return {"host": self.name} if self.port is None else {"host": self.name, "port": self.port}

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


def hosts_of(address: str) -> tuple[Host, ...]:
    """Return the hosts of an address, in its order; empty for the driver's default or an address that is malformed."""
    rest, _, query = address.partition("?")
    authority = rest.partition("://")[2].partition("/")[0].rpartition("@")[2]
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    specs = [unquote(each) for each in authority.split(",")] if authority else given.get("host", "").split(",")
    ports = given.get("port", "").split(",")
    hosts = []
    for number, spec in enumerate(specs):
        found = _IN_BRACKETS.fullmatch(spec)
        name, port = (found["host"], found["port"]) if found else _split(spec)
        port = port or (ports[number] if number < len(ports) else ports[0])
        if not name or (port and not port.isdecimal()):
            return ()
        hosts.append(Host(name, int(port) if port else None))
    return tuple(hosts)


def _split(spec: str) -> tuple[str, str]:
    if spec.startswith("/") or spec.count(":") > 1:  # a socket's folder, or an IPv6 address
        return spec, ""
    name, _, port = spec.partition(":")
    return name, port


def target_of(address: str) -> str | None:
    """Return which of several hosts is looked for: what the address says, or the one that accepts writes."""
    if len(hosts_of(address)) < 2:
        return None
    return parse_qs(address.partition("?")[2]).get(_TARGET, ["read-write"])[-1]


async def survey(address: str) -> list[tuple[Host, str]]:
    """Return what each of several hosts is: ``primary``, ``standby``, or ``unreachable``; for people."""
    found = []
    for host in hosts_of(address):
        # The address may look for one kind of host.
        options: dict[str, Any] = {**host.place, _TARGET: "any"}
        try:
            async with asyncio.timeout(HOST_SECONDS_MAX):
                connection = await asyncpg.connect(address, statement_cache_size=0, **options)
                is_standby = await _STATEMENTS.fetchval(connection, "is_standby")
                connection.terminate()
        except FAULTS:
            found.append((host, "unreachable"))
        else:
            found.append((host, "standby" if is_standby else "primary"))
    return found


class Opener:
    """Opens connections to one address.

    Args:
        address: without ``schema=…``.
        search_path: which the server is asked for; a pooler that refuses it is not asked again.
        schema: the name of its first schema.
    """

    def __init__(self, address: str, search_path: str, schema: str) -> None:
        self.schema = schema
        self._address = address
        self._hosts = list(hosts_of(address))
        self._target = target_of(address)
        self._settings = {"application_name": _NAME, "search_path": search_path}

    async def __call__(self, **options: Any) -> Connection:
        """Return a connection that prepares no named statement yet.

        Raises:
            NoPrimaryError: several hosts, and none accepts writes.
            what asyncpg.connect raises; of several hosts, what the last one raised that was reached.
        """
        if self._target is None:
            return await self._open(**options)
        refused: Exception | None = None
        for host in tuple(self._hosts):
            try:
                async with asyncio.timeout(HOST_SECONDS_MAX):
                    connection = await self._open(**host.place, target_session_attrs=self._target, **options)
            except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched):
                continue
            except asyncpg.PostgresError as error:  # The other hosts may know the user, or have a connection left.
                refused = error
                continue
            # In one step: another connection may be opened meanwhile.
            self._hosts.sort(key=lambda each: each != host)
            return connection
        if refused is not None:
            raise refused
        raise NoPrimaryError(f"none of {', '.join(map(str, self._hosts))} accepts writes")

    async def _open(self, **options: Any) -> Connection:
        try:
            return await self._connect(**options)
        except asyncpg.ProtocolViolationError as error:
            # "unsupported startup parameter: search_path", or its translation by a pooler of another make.
            if "search_path" not in str(error) or "search_path" not in self._settings:
                raise
            del self._settings["search_path"]
        return await self._connect(**options)

    async def _connect(self, **options: Any) -> Connection:
        return await asyncpg.connect(self._address, server_settings=self._settings, statement_cache_size=0, **options)
