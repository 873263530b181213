"""Addresses with several hosts: how they are read, shown, and which host is used."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from pulse import DatabaseUnreachableError, create_pool
from pulse.database import connect, describe
from pulse.postgres.hosts import hosts_of, target_of
from tests.support.pace import at_this_pace
from tests.support.writer_process import free_port

ADDRESSES = (
    ("postgresql://u:p@h1:1,h2:2/db?x=1", ["h1:1", "h2:2"], "postgresql://u@h1:1,h2:2/db"),
    ("postgresql://u:p@/db?host=%2Ftmp%2Fa,/tmp/b&port=5,6", ["/tmp/a:5", "/tmp/b:6"], "postgresql://u@/db"),
    ("postgresql://u:p@/db?host=a,b&port=5", ["a:5", "b:5"], "postgresql://u@/db"),
    ("postgresql://u:p@[::1]:5,h/db", ["::1:5", "h"], "postgresql://u@[::1]:5,h/db"),
    ("postgresql://%2Ftmp%2Fa:5/db", ["/tmp/a:5"], "postgresql://%2Ftmp%2Fa:5/db"),
    ("postgresql:///db", [], "postgresql:///db"),
    ("postgresql://h:port/db", [], "the given address"),
    # A password whose characters are not quoted is not shown in part.
    ("postgresql://u:se/cret@h/db", [], "the given address"),
    ("postgresql://u:se@cret@h/db", ["h"], "the given address"),
    ("postgresql://u:12?34@h/db", ["u:12"], "the given address"),
    ("host=h password=secret", [], "the given address"),
)


@pytest.mark.parametrize(("address", "hosts", "shown"), ADDRESSES)
def test_addresses(address: str, hosts: list[str], shown: str) -> None:
    assert [str(host) for host in hosts_of(address)] == hosts
    assert describe(address) == shown
    assert target_of(address) == ("read-write" if len(hosts) > 1 else None)


def test_the_address_says_what_is_looked_for() -> None:
    assert target_of("postgresql://a,b/db?target_session_attrs=any") == "any"


async def test_a_host_that_does_not_answer_is_passed_over(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that accepts and says nothing costs a bounded time once; then the one that answered is asked first."""
    # It holds for the server that answers, too, and is less than asyncpg's own limit of a minute.
    limit = min(at_this_pace(1.0), 20)
    monkeypatch.setattr("pulse.postgres.hosts.HOST_SECONDS_MAX", limit)
    asked = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    (_, port) = silent.sockets[0].getsockname()
    address = several(dsn, f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}")
    async with silent:
        began = time.monotonic()
        async with await create_pool(address, min_size=1, max_size=4) as pool:
            assert time.monotonic() - began >= limit
            found = await asyncio.gather(*(pool.fetchval("SELECT 1 FROM pg_sleep(0.1)") for _ in range(4)))
            assert found == [1, 1, 1, 1]
            assert pool.get_size() == 4
    # Three more connections were opened: none of them asked the silent host.
    assert len(asked) == 1


async def test_no_host_that_accepts_writes_is_one_error(dsn: str) -> None:
    address = f"postgresql://me:secret@127.0.0.1:{free_port()},127.0.0.1:{free_port()}/db"
    with pytest.raises(DatabaseUnreachableError, match="accepts writes") as found:
        await connect(address)
    assert "secret" not in str(found.value)


async def test_a_server_that_becomes_read_only_loses_its_connections(dsn: str) -> None:
    """A write that is refused as read-only has every connection of the pool replaced, also those that only read."""
    async with await create_pool(dsn, min_size=3, max_size=3) as pool:
        await pool.execute("CREATE TABLE written (n integer)")
        before = await _backends(pool)
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            async with pool.acquire() as connection, connection.transaction(readonly=True):
                await connection.execute("INSERT INTO written VALUES (1)")
        assert not before & await _backends(pool)


async def _backends(pool: asyncpg.Pool) -> set[int]:
    async with pool.acquire() as one, pool.acquire() as two, pool.acquire() as three:
        return {await each.fetchval("SELECT pg_backend_pid()") for each in (one, two, three)}


def several(dsn: str, *others: str) -> str:
    """An address of some other hosts, then the server itself, by the form that both drivers read."""
    parts = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    hosts = ",".join([*(each.partition(":")[0] for each in others), query["host"]])
    ports = ",".join([*(each.partition(":")[2] for each in others), query["port"]])
    return f"postgresql://{parts.username}:{parts.password}@{parts.path}?host={hosts}&port={ports}"
