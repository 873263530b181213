"""Connections: codecs, search_path, and clear errors."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest
from pgvector import HalfVector

from pulse import database
from pulse.errors import DatabaseUnreachableError, SchemaError
from pulse.postgres import bounded_pool
from tests.conftest import dsn_of, tcp_dsn_of
from tests.support.waiting import WAIT_SECONDS
from workers.embedded.server import EmbeddedServer
from workers.failures import DATABASE_FAULTS


async def test_jsonb_is_decoded_and_json_is_text(pool: asyncpg.Pool) -> None:
    """Chinese is sent unescaped, and json comes back character by character."""
    value = {"名": "李雷", "n": [1, 2.5, None]}
    assert await pool.fetchval("SELECT $1::jsonb", value) == value
    text = '{"b":1,  "a": 1e22, "a":-0.0}'
    assert await pool.fetchval("SELECT $1::json", text) == text


async def test_every_pooled_connection_has_the_vector_codec(pool: asyncpg.Pool) -> None:
    """A vector round-trips on all connections of the pool, not only on the first."""

    async def ask() -> list[float]:
        async with pool.acquire() as connection:
            await connection.execute("SELECT pg_sleep(0.05)")
            return list((await connection.fetchval("SELECT $1::vector", [1.0, 2.0])).to_list())

    assert await asyncio.gather(*(ask() for _ in range(10))) == [[1.0, 2.0]] * 10
    assert pool.get_size() > 1


async def test_a_new_connection_learns_the_types_of_pgvector_with_its_first_statement(conn: Any) -> None:
    """By the numbers that this database gave them, whatever schema the extension is in, and asks for none again."""
    rows = await conn.fetch("SELECT typname, oid FROM pg_type WHERE typname IN ('vector', 'halfvec', 'sparsevec')")
    assert conn.vector_types == dict(rows)
    assert len(rows) == 3
    assert await conn.fetchval("SELECT '[1,2]'::halfvec") == HalfVector([1.0, 2.0])
    await conn.execute('CREATE SCHEMA "a Place"; ALTER EXTENSION vector SET SCHEMA "a Place"')
    asked: list[str] = []
    conn.add_query_logger(lambda record: asked.append(record.query))
    await database.prepare_connection(conn, "public")
    await asyncio.sleep(0)  # The driver calls it in the next turn of the loop.
    assert len(asked) == 1, asked
    assert conn.vector_types == dict(rows)
    assert await conn.fetchval("""SELECT '[1,2]'::"a Place".halfvec""") == HalfVector([1.0, 2.0])


async def test_a_pool_of_a_hundred_connections_works(dsn: str) -> None:
    """All 100 connections are in use at once, each with its own backend."""
    async with await database.create_pool(dsn, min_size=0, max_size=100) as pool:
        ready = asyncio.Barrier(100)

        async def work() -> int:
            async with pool.acquire() as connection:
                await ready.wait()
                return int(await connection.fetchval("SELECT pg_backend_pid()"))

        assert len(set(await asyncio.gather(*(work() for _ in range(100))))) == 100


async def test_a_connection_released_in_a_transaction_is_rolled_back(dsn: str) -> None:
    """The next user of the connection sees nothing of the abandoned transaction."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            await connection.execute("BEGIN; CREATE TABLE abandoned (); SELECT set_config('my.mark', 'x', true)")
        assert await pool.fetchval("SELECT to_regclass('abandoned')") is None
        assert not await pool.fetchval("SELECT current_setting('my.mark', true)")


async def test_a_loop_that_ends_during_a_release_closes_the_pool(dsn: str) -> None:
    """`asyncio.run` cancels every task at its end, also the driver's own, before it has released the connection."""
    pool = await database.create_pool(dsn)
    releasing = asyncio.create_task(pool.release(await pool.acquire()))
    before = asyncio.all_tasks()
    await asyncio.sleep(0)
    [drivers_own] = asyncio.all_tasks() - before
    drivers_own.cancel()
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    assert await pool.fetchval("SELECT 1") == 1
    await asyncio.wait_for(pool.close(), WAIT_SECONDS)


async def test_a_silent_peer_is_detected_on_both_sides(server: EmbeddedServer, dsn: str) -> None:
    """Over TCP, client and server probe each other and give up within half a minute."""
    over_tcp = tcp_dsn_of(server, dsn)
    async with await database.create_pool(over_tcp, max_size=1) as pool, pool.acquire() as pooled:
        single = await database.connect(over_tcp)
        for connection in (pooled, single):
            endpoint = connection._transport.get_extra_info("socket")
            assert endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
            assert endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
            assert await connection.fetchval("SHOW tcp_keepalives_idle") == "10"
            assert await connection.fetchval("SHOW tcp_user_timeout") == "20000"
        await single.close()


async def test_a_process_suspended_in_a_transaction_does_not_block_others(dsn: str, conn: asyncpg.Connection) -> None:
    """The server closes its connection. When the process wakes up, it gets a retryable error."""
    await conn.execute("SELECT create_session('app', 'user', 's1')")
    pool = await database.create_pool(dsn, max_size=1, idle_transaction_seconds_max=0.2)
    async with pool, pool.acquire() as stopped:
        await stopped.execute("BEGIN; SELECT FROM threads FOR NO KEY UPDATE")
        await conn.execute("SELECT finalize_session('app', 'user', 's1')", timeout=WAIT_SECONDS)
        with pytest.raises(DATABASE_FAULTS):
            await stopped.execute("SELECT 1")


async def test_the_search_path_is_the_schema_alone(dsn: str) -> None:
    """The functions of another installation in `public` are not found. It is a setting of the session."""
    for connection in (await database.connect(dsn, schema="hippo"), await database.connect(f"{dsn}&schema=hippo")):
        assert await connection.fetchval("SHOW search_path") == '"hippo"'
        await connection.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda dsn: "postgresql://u:secret@127.0.0.1:1/x", "Connect call failed"),
        (lambda dsn: "postgresql://u:secret@no-such-host.invalid/x", "can't be used"),
        (lambda dsn: dsn.replace("/test-", "/absent-"), "does not exist"),
        (lambda dsn: "mysql://u:secret@host/x", "scheme"),
        (lambda dsn: "postgresql+asyncpg://u:secret@host/x", "without the name of a driver"),
    ],
)
async def test_an_unreachable_database_is_reported_without_the_password(dsn, change, reason) -> None:
    """No server, no host, no database, no PostgreSQL address: one error, whoever gave the address."""
    for attempt in (database.connect, database.create_pool):
        with pytest.raises(DatabaseUnreachableError, match="by default DATABASE_URL") as caught:
            await attempt(change(dsn))
        assert reason in str(caught.value)
        assert "secret" not in str(caught.value)


async def test_the_stopped_server_of_a_socket_is_reported_with_the_command_that_starts_it(tmp_path: Path) -> None:
    """After `hippocampus down`: the address is still set, the socket is gone."""
    address = f"postgresql://u:secret@/hippocampus?host={tmp_path}"
    for attempt in (database.connect, database.create_pool):
        with pytest.raises(DatabaseUnreachableError) as caught:
            await attempt(address)
        assert f"no server listens at the socket in {tmp_path}. Start it: `hippocampus up`" in str(caught.value)
        assert "secret" not in str(caught.value)


async def test_a_wrong_password_is_reported(server: EmbeddedServer) -> None:
    password = (server.home / "password-18").read_text()
    with pytest.raises(DatabaseUnreachableError, match="password authentication failed") as caught:
        await database.connect(server.dsn.replace(password, "wrong-one"))
    assert "wrong-one" not in str(caught.value)


async def test_a_database_without_pgvector_names_the_command(empty_dsn: str) -> None:
    for attempt in (database.connect, database.create_pool):
        with pytest.raises(SchemaError, match="hippocampus migrate"):
            await attempt(empty_dsn)


@pytest.mark.parametrize("version", [150013, 90600])
def test_an_old_server_is_refused_with_its_version(version: int) -> None:
    with pytest.raises(SchemaError, match=f"PostgreSQL {version // 10000}.* 16 or newer"):
        database.require_supported_server(version)


async def test_the_version_is_that_of_the_server(server: EmbeddedServer) -> None:
    """server_version_num is compared, and 16 is supported."""
    connection = await database.connect(dsn_of(server, "postgres"), prepare=False)
    assert database.server_version_num(connection) == int(await connection.fetchval("SHOW server_version_num"))
    await connection.close()
    database.require_supported_server(160000)


async def test_the_rollback_on_a_hung_server_is_bounded(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that ended the transaction is raised, its connection is closed, and the pool opens another: with and
    without a savepoint, after a timeout or another error, on a pooled or a single connection. Closing is bounded
    too."""
    monkeypatch.setattr(bounded_pool, "RELEASE_SECONDS_MAX", 0.2)
    stopped = []

    async def give_up(connection: database.Connection, *, by_himself: bool) -> None:
        stopped.append(connection.get_server_pid())
        async with connection.transaction():
            if by_himself:
                os.kill(stopped[-1], signal.SIGSTOP)
                raise LookupError("not a database error")
            async with connection.transaction():
                os.kill(stopped[-1], signal.SIGSTOP)
                async with asyncio.timeout(0.1):
                    await connection.execute("SELECT 2")

    own = await database.connect(dsn)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            async with await database.create_pool(dsn, max_size=1) as pool:
                for by_himself, error in ((True, LookupError), (False, TimeoutError)):
                    with pytest.raises(error):
                        async with pool.acquire() as proxy:
                            await give_up(cast("database.Connection", proxy), by_himself=by_himself)
                    assert await pool.fetchval("SELECT pg_backend_pid()") not in stopped
            with pytest.raises(TimeoutError):
                await give_up(own, by_himself=False)
            assert own.is_closed()
            idle = await database.create_pool(dsn, max_size=1)
            stopped.append(await idle.fetchval("SELECT pg_backend_pid()"))
            os.kill(stopped[-1], signal.SIGSTOP)
            await idle.close()
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
