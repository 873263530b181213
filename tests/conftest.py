"""A real PostgreSQL for every test: one server, one migrated template database, one clone of it per test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import psycopg
import pytest

from pulse import database
from tests.support.properties import register_profiles
from tests.support.worker_harness import tables, workers  # noqa: F401 - fixtures
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate

# Test databases are thrown away, so a crash of the machine may corrupt them.
FAST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "max_wal_size": "1GB",
}
# Cloning a database copies about a thousand files. In memory it takes a third of the time.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 8 * 2**30
TEMPLATE = "hippocampus_template"
TESTS = Path(__file__).parent
LONG_FIRST = ("workers", "cli", "http", "adk", "schema", "repo")
register_profiles()
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgres-major", type=int, default=18, help="the embedded PostgreSQL to test on: 18 or 16")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the directories with the long files first, so that no process of the suite is left with one at the end."""
    order = {name: number for number, name in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: order.get(item.path.relative_to(TESTS).parts[0], len(order)))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the developer's environment variables from the test."""
    for name in list(os.environ):
        if name.startswith(("HIPPOCAMPUS_", "OPENAI_", "ANTHROPIC_")) or name in (
            "DATABASE_URL",
            "GOOGLE_API_KEY",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
        ):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def home_root() -> Iterator[Path]:
    """A directory with a short path for the homes of embedded servers; the server's own user can enter it."""
    fits = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    folder = Path(tempfile.mkdtemp(prefix="hippo-test-", dir=MEMORY if fits else "/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(home_root: Path) -> Path:
    """A home directory for this test, which does not exist yet."""
    return home_root / f"h{next(_numbers)}"


@pytest.fixture(scope="session")
def server(home_root: Path, pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """The PostgreSQL server of the test session."""
    major = pytestconfig.getoption("postgres_major")
    with EmbeddedServer(home_root / "suite", settings=FAST_SETTINGS, major=major) as running:
        yield running


@pytest.fixture(scope="session")
def admin(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    """A superuser connection in autocommit mode, to create and drop databases."""
    with psycopg.connect(server.dsn, dbname="postgres", autocommit=True) as connection:
        # Proves that --postgres-major has taken effect.
        version = str(connection.info.server_version)
        assert version.startswith(str(server.major)), version
        yield connection


@pytest.fixture(scope="session")
def template(server: EmbeddedServer, admin: psycopg.Connection) -> str:
    """A database with the complete schema, migrated once."""
    admin.execute(f'CREATE DATABASE "{TEMPLATE}"')
    # In a thread, because the first test of the session may be a coroutine.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate(dsn_of(server, TEMPLATE))).result()
    return TEMPLATE


@pytest.fixture
def dsn(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> Iterator[str]:
    """A migrated database for this test."""
    with cloned(admin, template) as name:
        yield dsn_of(server, name)


@pytest.fixture
def empty_dsn(server: EmbeddedServer, admin: psycopg.Connection) -> Iterator[str]:
    """An empty database for this test, without pgvector."""
    with cloned(admin, "template1") as name:
        yield dsn_of(server, name)


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[asyncpg.Pool]:
    """A connection pool on this test's database."""
    async with await database.create_pool(dsn, min_size=1, max_size=10) as opened:
        yield opened


@pytest.fixture
async def conn(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to this test's database."""
    connection = await database.connect(dsn)
    yield connection
    await connection.close()


def dsn_of(server: EmbeddedServer, name: str) -> str:
    """The address of another database on the same server."""
    return server.dsn.replace("/hippocampus?", f"/{name}?")


@contextlib.contextmanager
def cloned(admin: psycopg.Connection, template: str) -> Iterator[str]:
    """Clone `template` into a new database, and drop it at the end."""
    # The hyphen is intentional: it breaks code that does not quote the name.
    # Not a counter: this module is imported twice when another conftest imports from it.
    name = f"test-{uuid.uuid4().hex[:12]}"
    admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    try:
        yield name
    finally:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
