"""Two installations in two schemas of one database: each finds its own functions, tables and jobs alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import httpx
import psycopg
import pytest

from hippocampus import Hippocampus
from pulse import database
from pulse.errors import InvalidInputError
from pulse.postgres.statements import load_queries
from tests.conftest import cloned, dsn_of
from tests.support import worker_harness as harness
from tests.support.paths import ROOT
from tests.support.real_worker import PRODUCT
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_process import TABLES
from tests.support.writer_process import WriterProcess
from workers.embedded.server import EmbeddedServer
from workers.migrate import check_schema, migrate

SECOND = "second"
# An app per schema: `app` in both, so that nothing but the schema keeps them apart.
APP, USER = "app", "user"


@pytest.fixture(scope="module")
def both(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> Iterator[str]:
    """A database with both schemas, to be cloned."""
    with cloned(admin, template) as name:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, migrate(f"{dsn_of(server, name)}&schema={SECOND}")).result()
        yield name


@pytest.fixture
def dsn(server: EmbeddedServer, admin: psycopg.Connection, both: str) -> Iterator[str]:
    with cloned(admin, both) as name:
        yield dsn_of(server, name)


@pytest.fixture
def second(dsn: str) -> str:
    """The address of a second schema of a database whose `public` is migrated too."""
    return f"{dsn}&schema={SECOND}"


@pytest.mark.system
async def test_every_statement_is_unambiguous_in_the_second_schema(second: str) -> None:
    """Both schemas have every function and type; a parameter's type must not depend on the other one's."""
    connection = await database.connect(second)
    await check_schema(connection, schema=SECOND)
    failed = {}
    for file in sorted(path for part in ("pulse", "hippocampus", "workers") for path in (ROOT / part).rglob("*.sql")):
        package = ".".join(file.parent.relative_to(ROOT).parts)
        for name, statement in load_queries(package, file.name).items():
            try:
                await connection.prepare(statement)
            except asyncpg.PostgresError as error:
                failed[f"{package}/{file.name}: {name}"] = str(error)
    await connection.close()
    assert failed == {}


async def test_two_installations_work_side_by_side(dsn: str, second: str, tmp_path: Path) -> None:
    """Workers and readers of one schema see nothing of the other's, not even a notification that matters."""
    with harness.running_workers(second, tmp_path) as workers:
        await workers.start("fast_replay", module=PRODUCT)
        async with Hippocampus(dsn, app=APP) as first, Hippocampus(dsn, app=APP, schema=SECOND) as other:
            for memory, text in ((first, "My cat is called Otto."), (other, "My dog is called Bruno.")):
                await memory.add(USER, text, session="s1")
                await memory.sessions.finalize_session(APP, USER, "s1")

            async def consolidated() -> bool:
                return bool(await other.pool.fetchval("SELECT count(*) FROM memories"))

            await until(consolidated)
            assert await first.pool.fetchval("SELECT count(*) FROM memories") == 0
            found = {each.content for each in await other.search(USER, "what is the name of my pet?")}
            assert any("Bruno" in text for text in found)
            assert not any("Otto" in text for text in found)
            window = await other.context(USER, "pets?", max_tokens=500)
            assert "Bruno" in window.text
            assert "Otto" not in window.text


def test_writers_serve_the_schema_of_their_settings(dsn: str, second: str, tmp_path: Path) -> None:
    """By HIPPOCAMPUS_SCHEMA_NAME or by the address; those around the pooler and of the replica name it or not."""
    where = {"shared": dsn, "named": dsn, "addressed": second}
    settings: dict[str, dict[str, str]] = {
        "shared": {},
        "named": {"schema_name": SECOND, "direct_database_url": dsn, "replica_url": dsn},
        "addressed": {"direct_database_url": second, "replica_url": second},
    }
    held: dict[str, set[str]] = {}
    for name, address in where.items():
        with (
            WriterProcess(address, tmp_path / name, **settings[name]) as writer,
            httpx.Client(base_url=f"{writer.url}/v1/apps/{APP}/users/{USER}", timeout=WAIT_SECONDS) as client,
        ):
            events = [{"author": "user", "content": {"text": f"My lighthouse is {name}."}}]
            for path, body in (("sessions", {"session_id": name}), (f"sessions/{name}/events", {"events": events})):
                assert client.post(path, json=body).status_code in (200, 201)
            found = client.post("search", json={"query": "lighthouse"}).json()["results"]
            held[name] = {each["content"] for each in found}
            # A check of the health may be too slow on a busy machine.
            errors = {line["event"] for line in writer.log() if line.get("level") == "error"}
            assert errors <= {"database_unreachable"}
    assert held == {
        "shared": {"My lighthouse is shared."},
        "named": {"My lighthouse is named."},
        "addressed": {"My lighthouse is named.", "My lighthouse is addressed."},
    }


async def test_a_cancelled_job_of_the_other_schema_cancels_nothing_here(dsn: str, second: str, tmp_path: Path) -> None:
    """Channels are the database's, and both schemas number their jobs from 1."""
    async with (
        await database.create_pool(dsn, max_size=1) as theirs,
        await database.create_pool(second, max_size=4) as ours,
    ):
        await ours.execute(TABLES)
        with harness.running_workers(second, tmp_path) as workers:
            async with harness.gate(ours) as open_gate:
                await workers.start("fast_replay")
                job = await harness.enqueue(ours, await harness.make_thread(ours))
                await harness.wait_for_status(ours, job, "running")
                await theirs.execute("SELECT create_session('app', 'user', 's1')")
                await theirs.execute("SELECT enqueue_consolidation(id, 'fast_replay') FROM threads")
                number = await ours.fetchval("SELECT id FROM procrastinate_jobs WHERE status = 'doing'")
                await theirs.execute("UPDATE procrastinate_jobs SET id = $1, status = 'doing'", number)
                await theirs.execute("UPDATE procrastinate_jobs SET abort_requested = true")
                # Notifications arrive in the order of their commits: the worker acts on this one after the other.
                after = await harness.enqueue(ours, await harness.make_thread(ours, "s2"))
                await harness.wait_for_status(ours, after, "running")
                await open_gate()
                await harness.wait_for_status(ours, job, "completed")
                await harness.wait_for_status(ours, after, "completed")


def test_an_address_names_one_schema() -> None:
    assert database.read_address("postgresql://h/d") == ("postgresql://h/d", "public")
    assert database.read_address("postgresql://h/d?a=1&schema=x%20y&b=2") == ("postgresql://h/d?a=1&b=2", "x y")
    assert database.read_address("postgresql://h/d?schema=x", "x") == ("postgresql://h/d", "x")
    for address, schema in (
        ("postgresql://h/d?schema=x", "y"),
        ("postgresql://h/d?schema=x&schema=y", None),
        ("postgresql://h/d?schema=", None),
        ("postgresql://h/d", "x" * 64),
    ):
        with pytest.raises(InvalidInputError, match="schema"):
            database.read_address(address, schema)
