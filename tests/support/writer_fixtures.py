"""Fixtures of the API's tests: one writer for all of them, and a separate app for each."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import asyncpg
import httpx
import psycopg
import pytest

from pulse import database
from tests.conftest import cloned, dsn_of
from tests.support.live_writer import LiveWriter
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import BODY_BYTES_MAX, KEY, WriterProcess
from workers.embedded.server import EmbeddedServer


@pytest.fixture(scope="session")
def writer_dsn(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> Iterator[str]:
    """Each directory of tests that uses these fixtures has a database of its own."""
    name = f"test-writer-{uuid.uuid4().hex[:8]}"
    with cloned(admin, template, name):
        yield dsn_of(server, name)


@pytest.fixture(scope="session")
def writer(writer_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    """One writer for all tests; each test has its own app."""
    log = tmp_path_factory.mktemp("writer") / "log"
    with WriterProcess(writer_dsn, log, api_key=KEY, max_body_bytes=str(BODY_BYTES_MAX)) as process:
        yield process


@pytest.fixture(scope="session")
def seen() -> set[tuple[str, str, int]]:
    """Method, path and status of every exchange."""
    return set()


@pytest.fixture
async def client(
    writer: WriterProcess | LiveWriter, seen: set[tuple[str, str, int]]
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that may do everything. A module that serves agents of its own has its own `writer`."""

    async def record(response: httpx.Response) -> None:
        path = response.request.url.raw_path.decode().partition("?")[0]
        seen.add((response.request.method, path, response.status_code))

    async with httpx.AsyncClient(
        base_url=writer.url,
        headers=writer.headers,
        timeout=WAIT_SECONDS,
        limits=httpx.Limits(max_connections=None),
        event_hooks={"response": [record]},
    ) as opened:
        yield opened


@pytest.fixture
def app() -> str:
    return f"app-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def user(app: str) -> str:
    """The path of a user of this test's own app."""
    return f"/v1/apps/{app}/users/ann"


@pytest.fixture
async def session(client: httpx.AsyncClient, user: str) -> str:
    """The path of a new session."""
    response = await client.post(f"{user}/sessions", json={"session_id": "s1"})
    assert response.status_code == 201, response.text
    return f"{user}/sessions/s1"


@pytest.fixture
async def rows(writer_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await database.connect(writer_dsn)
    yield connection
    await connection.close()
