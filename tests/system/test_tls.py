"""TLS to PostgreSQL: the right authority and name are accepted, any other is refused, by both drivers."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import trustme

from pulse import database
from pulse.errors import DatabaseUnreachableError
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support import cli_process
from tests.support.waiting import until
from tests.support.worker_harness import running_workers
from workers.embedded.server import EmbeddedServer

pytestmark = pytest.mark.system


_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@dataclass
class Secured:
    """A PostgreSQL behind TLS, with a certificate for ``localhost`` alone; one of two authorities signed it.

    The embedded server is built without TLS: what ends TLS here answers PostgreSQL's own request for it, as a server or
    a pooler does.
    """

    address: str
    right: Path
    wrong: Path
    sessions: int = 0  # in which a client accepted the certificate

    def dsn(self, host: str, authority: Path) -> str:
        return f"{self.address}?sslmode=verify-full&sslrootcert={authority}".replace("@127.0.0.1:", f"@{host}:")


@pytest.fixture
async def secured(server: EmbeddedServer, dsn: str, tmp_path: Path) -> AsyncIterator[Secured]:
    authority, other = trustme.CA(), trustme.CA()
    right, wrong = tmp_path / "right.pem", tmp_path / "wrong.pem"
    authority.cert_pem.write_to_path(right)
    other.cert_pem.write_to_path(wrong)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    plain = urlsplit(server.tcp_dsn)
    database_name = urlsplit(dsn).path
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            assert await reader.readexactly(8) == _SSL_REQUEST
            writer.write(b"S")
            await writer.start_tls(context)
            # A client that refuses the certificate sends nothing.
            startup = await reader.readexactly(1)
            found.sessions += 1
            inner_reader, inner_writer = await asyncio.open_connection(plain.hostname, plain.port)
            inner_writer.write(startup)
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        except (OSError, AssertionError, asyncio.IncompleteReadError):
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    front = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = front.sockets[0].getsockname()[1]
    address = server.tcp_dsn.replace(f":{plain.port}/", f":{port}/").removesuffix(plain.path) + database_name
    found = Secured(address, right, wrong)
    yield found
    front.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while block := await reader.read(65_536):
            writer.write(block)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def _asyncpg(dsn: str) -> None:
    connection = await database.connect(dsn)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def _psycopg(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


async def test_the_right_authority_and_name_are_accepted_and_any_other_is_refused(
    secured: Secured, tmp_path: Path
) -> None:
    """verify-full with the right authority is encrypted; another authority, or another name, is named in the error."""
    for count, connect in enumerate((_asyncpg, _psycopg), start=1):
        await connect(secured.dsn("localhost", secured.right))
        assert secured.sessions == count
        for host, authority in (("localhost", secured.wrong), ("127.0.0.1", secured.right)):
            with pytest.raises((DatabaseUnreachableError, psycopg.OperationalError)) as refused:
                await connect(secured.dsn(host, authority))
            message = str(refused.value).lower()
            assert "certificate" in message, message
            password = secured.address.partition("//")[2].partition("@")[0].partition(":")[2]
            assert password not in message
        with pytest.raises((DatabaseUnreachableError, psycopg.OperationalError)):
            await connect(secured.dsn("localhost", tmp_path / "none.pem"))
    assert secured.sessions == 2
    refused_run = await asyncio.to_thread(
        cli_process.run, tmp_path, "status", DATABASE_URL=secured.dsn("localhost", secured.wrong)
    )
    assert refused_run.returncode != 0
    assert "certificate" in refused_run.stderr.lower()
    assert "Traceback" not in refused_run.stderr


async def test_a_worker_and_its_queue_work_over_tls(secured: Secured, pool: asyncpg.Pool, tmp_path: Path) -> None:
    """A worker connects by both drivers, with full verification, and consolidates a session."""
    sessions = OpenSessionService(pool)
    session = await sessions.create_session("shop", "mei", session_id="s")
    await sessions.append_event(session, Event(author="user", content={"text": "I live in Ghent."}))
    await sessions.finalize_session("shop", "mei", "s")
    await sessions.close()
    with running_workers(secured.dsn("localhost", secured.right), tmp_path) as workers:
        await workers.start("fast_replay", module="workers.worker", provider="local")
        await until(lambda: _is_read(pool))
    assert secured.sessions > 2


async def _is_read(pool: asyncpg.Pool) -> bool:
    return bool(await pool.fetchval("SELECT fast_upto_seq = last_seq FROM threads"))
