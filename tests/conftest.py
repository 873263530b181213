"""A real PostgreSQL for every test: one server, one migrated template database, one clone of it per test."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import structlog
from psycopg import sql

from pulse import database
from tests.support import least_privilege
from tests.support.paths import ROOT
from tests.support.properties import register_profiles
from tests.support.timed_out import pytest_runtest_makereport  # noqa: F401 - a hook
from tests.support.worker_harness import tables, workers  # noqa: F401 - fixtures
from workers.embedded import folders
from workers.embedded.data import DATABASE
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate

if TYPE_CHECKING:
    from pulse.tools.registry import ToolRegistry

# Test databases are thrown away, so a crash of the machine may corrupt them.
FAST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "max_wal_size": "1GB",
    # Each database that is made or dropped, some four thousand in a run, is a checkpoint, which looks at every buffer.
    "shared_buffers": "64MB",
}
# Cloning a database copies about a thousand files. In memory it takes a third of the time.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 8 * 2**30
TEMPLATE = "hippocampus_template"
TESTS = Path(__file__).parent
#: The files that take longest, by measured time in the suite: 42 seconds to 8.
LONG_FIRST = (
    "http/test_bad_requests.py",
    "http/test_streams_http.py",
    "schema/test_migrate.py",
    "cli/test_detached.py",
    "workers/test_liveness.py",
    "hippocampus/test_consolidation.py",
    "cli/test_demo.py",
    "workers/test_moves.py",
    "adk/test_adk_import.py",
    "cli/test_cli_bad_input.py",
    "hippocampus/test_knowledge.py",
    "cli/test_cli.py",
    "schema/test_schema_halves.py",
    "mcp/test_mcp_stdio.py",
    "frameworks/test_framework_examples.py",
    "hippocampus/test_executor.py",
    "workers/test_call_limits.py",
    "hippocampus/test_context_assembler.py",
    "workers/test_embedded.py",
    "adk/test_session_contract.py",
    "hippocampus/test_search_times_and_terms.py",
    "adk/test_adk_example.py",
    "http/test_thread_streams.py",
    "workers/test_provider_outage.py",
    "pulse/test_sandbox.py",
    "workers/test_worker_process.py",
    "repo/test_examples.py",
    "hippocampus/test_erasure.py",
    "hippocampus/test_search_scope.py",
    "repo/test_manifests.py",
    "hippocampus/test_search.py",
    "workers/test_webhooks.py",
    "http/test_stream_ends.py",
    "cli/test_up.py",
    "hippocampus/test_facts.py",
)
# Reading the system's authorities takes 30 ms of processor time in each HTTP client that a test or a program opens. No
# test trusts a server outside of this machine.
AUTHORITY = ROOT / "tests/support/data/authority.pem"
# What jsonschema checks internationalized addresses with, if it is installed, builds a grammar for 1.5 s.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
register_profiles()
# A traceback that rich draws, with the values of each frame, takes a third of a second.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback
# Not while half a million objects are imported that live until the end: see `pytest_collection_finish`.
gc.disable()
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgres-major", type=int, default=18, help="the embedded PostgreSQL to test on: 18 or 16")
    parser.addoption("--as-roles", action="store_true", help="have processes of all tests connect as their roles")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give processes of a system test, or with --as-roles of each, the least privileges."""
    least_privilege.switch(on=has_roles(item))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Begin at another file in each process of the suite: each compiles a part of them in a new clone, not all."""
    report = yield
    own = getattr(collector.config, "workerinput", None)
    if own and isinstance(collector, pytest.Directory):
        number = int(own["workerid"].removeprefix("gw")) % own["workercount"]
        first = len(report.result) * number // own["workercount"]
        report.result = [*report.result[first:], *report.result[:first]]
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long files first, so that no process of the suite is left with one at the end."""
    order = {TESTS / name: number for number, name in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: (order.get(item.path, len(order)), item.path))
    if config.pluginmanager.has_plugin("rerunfailures"):
        # Whatever else the machine does only makes a test slower: its time is the best of three.
        for item in items:
            if item.get_closest_marker("timing"):
                item.add_marker(pytest.mark.flaky(reruns=2))
    if hasattr(config, "workerinput"):
        # Imported here: the frameworks' tests also run in environments without xdist.
        from tests.support.alone_at_the_end import name_those_alone

        name_those_alone(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests of `make test`."""
    from tests.support.alone_at_the_end import AloneAtTheEnd

    return AloneAtTheEnd(config, log) if config.getvalue("dist") == "loadfile" else None


def has_roles(item: pytest.Item) -> bool:
    """Whether processes of a test connect as their roles."""
    return item.get_closest_marker("system") is not None or bool(item.config.getoption("as_roles"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect only the garbage of the tests; without the tests that install packages, trust no authority."""
    gc.freeze()
    # As often as Python does by itself is a twelfth of the suite's own processor time, for little garbage.
    gc.set_threshold(5_000, 20, 20)
    gc.enable()
    if not any(item.get_closest_marker("system") for item in session.items):
        os.environ["SSL_CERT_FILE"] = str(AUTHORITY)


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
def made(home_root: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a stopped server with a migrated database and the template, to be copied with `copied`.

    The first process of the suite makes it. The others copy it as long as that one runs.
    """
    major = pytestconfig.getoption("postgres_major")
    ours = home_root / "made"
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(pytestconfig, "workerinput") else base
    record = shared / f"made-{major}"
    with folders.locked(shared / f"made-{major}.lock"):
        if is_first := not record.exists():
            make_template(ours, major)
            record.write_text(str(ours))
        else:
            copied(Path(record.read_text()), ours)
    yield ours
    if is_first:
        with folders.locked(shared / f"made-{major}.lock"):
            record.unlink()


@pytest.fixture(scope="session")
def server(made: Path, pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """The PostgreSQL server of the test session."""
    home = copied(made, made.with_name("suite"))
    with EmbeddedServer(home, settings=FAST_SETTINGS, major=pytestconfig.getoption("postgres_major")) as running:
        yield running


@pytest.fixture
def made_home(made: Path, home: Path) -> Path:
    """A home directory for this test with a migrated database, for what does not test how that is made."""
    return copied(made, home)


@pytest.fixture(scope="session")
def admin(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    """A superuser connection in autocommit mode, to create and drop databases."""
    with psycopg.connect(server.dsn, dbname="postgres", autocommit=True) as connection:
        # Proves that --postgres-major has taken effect.
        version = str(connection.info.server_version)
        assert version.startswith(str(server.major)), version
        yield connection


@pytest.fixture(scope="session")
def template(server: EmbeddedServer, request: pytest.FixtureRequest) -> str:
    """A database with the complete schema, migrated once; if a test needs it, with the rights of the roles."""
    dsn = dsn_of(server, TEMPLATE)
    if any(map(has_roles, request.session.items)):
        least_privilege.grant(dsn)
    # It leaves the file from which each clone's first connections read the descriptions of the system's tables.
    psycopg.connect(dsn).close()
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


@pytest.fixture
async def registry(pool: asyncpg.Pool) -> AsyncIterator[ToolRegistry]:
    """A registry without tools, of the app `shop`."""
    # Suites of frameworks run where the libraries of tools are not installed.
    from pulse.tools.registry import ToolRegistry

    async with ToolRegistry(pool, "shop") as opened:
        yield opened


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with both archives of this checkout, the wheel from the source archive, and what their build said."""
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


def make_template(home: Path, major: int) -> None:
    """Make a home with a migrated database, and the template of the tests' databases."""
    with EmbeddedServer(home, settings=FAST_SETTINGS, major=major) as server:
        weaken_password(server)
        # In a thread, because the first test of the session may be a coroutine.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, migrate(server.dsn)).result()
        # Each clone's first connections read the whole catalogue: with its statistics, and nothing left to mark as
        # seen.
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(sql.SQL(", ").join(catalogue(connection))))
        with psycopg.connect(server.dsn, dbname="postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{TEMPLATE}" TEMPLATE "{DATABASE}" STRATEGY FILE_COPY')
            number = connection.execute("SELECT oid FROM pg_database WHERE datname = %s", [TEMPLATE]).fetchone()
    assert number is not None
    # A seventh of what a clone costs is to copy the maps of free space and of visibility. PostgreSQL does without them.
    for each in (home / f"postgres-{major}" / "base" / str(number[0])).glob("*_*"):
        if each.name.endswith(("_fsm", "_vm")):
            each.unlink()
    # The servers of its copies run beside each other.
    (home / f"port-{major}").unlink()


def copied(made: Path, home: Path) -> Path:
    """Copy a stopped server's home, with the owners of its files."""
    subprocess.run(["cp", "-a", str(made), str(home)], check=True)
    return home


def weaken_password(server: EmbeddedServer) -> None:
    """Hash the password once, not 4096 times: each of ten thousand connections would compute that again."""
    password = str(urlsplit(server.dsn).password)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("SET scram_iterations = 1")
        connection.execute(sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(password))


def dsn_of(server: EmbeddedServer, name: str) -> str:
    """The address of another database on the same server."""
    return server.dsn.replace("/hippocampus?", f"/{name}?")


def tcp_dsn_of(server: EmbeddedServer, dsn: str) -> str:
    """The address of a test's database at the server's port, for what stands between them."""
    return server.tcp_dsn.rpartition("/")[0] + "/" + dsn.partition("?")[0].rpartition("/")[2]


def catalogue(connection: psycopg.Connection) -> list[sql.Identifier]:
    """The system's own tables of a database."""
    rows = connection.execute(
        "SELECT relname FROM pg_class"
        " WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND NOT relisshared"
    )
    return [sql.Identifier(name) for (name,) in rows]


@contextlib.contextmanager
def cloned(admin: psycopg.Connection, template: str, name: str = "") -> Iterator[str]:
    """Clone `template` into a new database, and drop it at the end."""
    # The hyphen is intentional: it breaks code that does not quote the name.
    # Not a counter: this module is imported twice when another conftest imports from it.
    name = name or f"test-{uuid.uuid4().hex[:12]}"
    admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    if template == TEMPLATE:
        least_privilege.note_granted(name)
    try:
        yield name
    finally:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
