"""A rolling upgrade: the next release migrates and starts while the previous one serves, and nothing is lost.

The previous release is the code at `PREVIOUS_RELEASE`, taken from the history. The next release is this checkout with
further expanding migrations, every file of functions changed, and a much higher version.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg
import httpx
import pytest

from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import free_port

ROOT = Path(__file__).resolve().parents[2]
#: What users upgrade from, a commit or a tag: set it to each release once that is out.
PREVIOUS_RELEASE = "3d4e9361eab7ecb4b41482d741a446961bbaadbb"
TREE = ("pulse", "hippocampus", "workers", "schema", "examples", "pyproject.toml")
USERS = "/v1/apps/shop/users"
SESSIONS = 8
PATIENCE_SECONDS = 30.0
# What an expanding migration may do to tables that the previous release reads and writes.
EXPANDING = """
ALTER TABLE threads ADD COLUMN label text, ADD COLUMN priority integer NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN trace_id text;
ALTER TABLE messages ADD COLUMN language text;
ALTER TABLE memories ADD COLUMN language text;
ALTER TABLE consolidation_jobs ADD COLUMN trace_id text;
CREATE INDEX threads_label_idx ON threads (label) WHERE label IS NOT NULL;
CREATE TABLE labels (app_name text, label text, PRIMARY KEY (app_name, label));
INSERT INTO data_catalogue (place, table_name, note) VALUES (5000, 'labels', 'an app''s own');
"""
NEXT_FUNCTION = """
CREATE OR REPLACE FUNCTION labels_of(p_app_name text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT label FROM labels WHERE app_name = p_app_name $$;
"""

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def previous_release(tree: Path) -> Path:
    """The release that users upgrade from."""
    tree.mkdir()
    known = ["git", "rev-parse", "--quiet", "--verify", f"{PREVIOUS_RELEASE}^{{commit}}"]
    if subprocess.run(known, cwd=ROOT, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"there is no history back to {PREVIOUS_RELEASE}: clone the repository, or git fetch --unshallow")
    archive = subprocess.run(["git", "archive", PREVIOUS_RELEASE, *TREE], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tree, filter="data")
    found = re.search(r'^version = "(.+)"$', (tree / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    return named(tree, found[1])


def next_release(tree: Path) -> Path:
    """This checkout, with possible changes of a later release."""
    tree.mkdir()
    copy_checkout(tree)
    migrations = tree / "schema" / "migrations"
    number = len(list(migrations.iterdir()))
    for statement in EXPANDING.strip().splitlines():
        number += 1
        (migrations / f"{number:04}_more.sql").write_text(statement)
    for file in (tree / "schema" / "functions").iterdir():
        changed = (
            file.read_text().replace("\nBEGIN\n", "\nBEGIN\n    -- The next release.\n") + "\n-- The next release.\n"
        )
        file.write_text(changed)
    (tree / "schema" / "functions" / "labels.sql").write_text(NEXT_FUNCTION)
    return named(tree, "999.0.0")


def copy_checkout(tree: Path) -> None:
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)


def named(tree: Path, version: str) -> Path:
    """Make the programs of this tree report this version."""
    info = tree / f"hippocampus-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hippocampus\nVersion: {version}\n")
    return tree


class Role:
    """A process of one release; it has ended when the block is left."""

    def __init__(self, tree: Path, dsn: str, log: Path, *words: str) -> None:
        self.port = free_port()
        self._log = log
        self._command = [sys.executable, "-P", "-m", "workers", *words]
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "DATABASE_URL": dsn,
            "HIPPOCAMPUS_API_PORT": str(self.port),
            "HIPPOCAMPUS_PROVIDER": "local",
            "HIPPOCAMPUS_RETENTION_CRON": "* * * * * */5",
        }
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=self._environment, cwd="/", stdout=log, stderr=log
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def run(self) -> str:
        """Run a command to completion and return its output."""
        async with self:
            assert self._process is not None
            assert await asyncio.wait_for(self._process.wait(), WAIT_SECONDS) == 0, self._log.read_text()
        return self._log.read_text()

    async def stop(self) -> None:
        """Stop it as a process manager does."""
        assert self._process is not None
        assert self._process.returncode is None, self._log.read_text()
        self._process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self._process.wait(), WAIT_SECONDS) == 0, self._log.read_text()

    async def serving(self, client: httpx.AsyncClient) -> None:
        async def answers() -> bool:
            assert self._process is not None
            assert self._process.returncode is None, self._log.read_text()
            try:
                return (await client.get(f"{self.url}/health")).status_code == 200
            except httpx.TransportError:
                return False

        await until(answers)


@dataclasses.dataclass
class Traffic:
    """Clients behind a load balancer: each keeps one session, and appends and reads until stopped."""

    client: httpx.AsyncClient
    url: str
    numbers: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)
    health_checks: int = 0
    watched: set[str] = dataclasses.field(default_factory=set)
    checking: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    is_over: bool = False

    async def request(self, method: str, path: str, **body: object) -> httpx.Response:
        try:
            response = await self.client.request(method, self.url + path, **body)  # type: ignore[arg-type]
        except httpx.TransportError:
            # Its writer stopped before it accepted the request: the load balancer sends it to another one.
            response = await self.client.request(method, self.url + path, **body)  # type: ignore[arg-type]
        if response.is_error:
            self.failures.append(f"{method} {path}: {response.status_code} {response.text}")
        return response

    async def converse(self, session: str) -> None:
        path = f"{USERS}/{session}/sessions"
        await self.request("POST", path, json={"session_id": session})
        for number in itertools.count(1):
            if self.is_over:
                return
            event = {"id": f"e{number}", "author": "user", "content": {"text": f"I like plum number {number}."}}
            answer = await self.request("POST", f"{path}/{session}/events", json={"events": [event]})
            if answer.is_success:
                self.numbers[session, f"e{number}"] = answer.json()["events"][0]["sequence_num"]
            if number % 10 == 0:
                await self.request("GET", f"{path}/{session}")
                await self.request("POST", f"{USERS}/{session}/search", json={"query": "Which plum do I like?"})
                await self.request("POST", f"{USERS}/{session}/context", json={"query": "plum", "session_id": session})

    async def probe(self, url: str) -> httpx.Response:
        """Ask as a patient load balancer does: for half a minute before a process counts as failing.

        On a busy machine a check may not reach the database within its two seconds. A writer that refuses the schema
        refuses it each time.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            response = await self.client.get(f"{url}/health")
            if response.status_code == 200 or time.monotonic() > deadline:
                return response
            await asyncio.sleep(1.1)  # an outcome is kept for a second

    async def watch(self) -> None:
        while not self.is_over:
            async with self.checking:
                for url in self.watched:
                    response = await self.probe(url)
                    self.health_checks += 1
                    if response.status_code != 200:
                        self.failures.append(f"health: {response.status_code} {response.text}")
            await asyncio.sleep(0.02)

    async def leave(self, writer: str, to: str) -> None:
        """Send what follows to another writer; no check of the first is in progress when this returns."""
        self.url = to
        async with self.checking:
            self.watched.remove(writer)


async def done_by_type(conn: asyncpg.Connection) -> dict[str, int]:
    rows = await conn.fetch(
        "SELECT job_type, count(*) FROM consolidation_jobs WHERE status = 'completed' GROUP BY job_type"
    )
    return dict(rows)


async def old_roles_work(client: httpx.AsyncClient, conn: asyncpg.Connection, url: str, before: dict[str, int]) -> None:
    """The previous release's worker extracts, and its writer finds what was extracted, on the newer schema."""

    async def consolidated() -> bool:
        return (await done_by_type(conn)).get("fast_replay", 0) > before.get("fast_replay", 0)

    await until(consolidated)

    async def found() -> bool:
        answer = await client.post(f"{url}{USERS}/s0/search", json={"query": "Which plum do I like?"})
        assert answer.is_success, answer.text
        return bool(answer.json()["results"])

    await until(found)
    for path in ("facts", "memories", "jobs", "fact-candidates", "sessions", "sessions/s0/events", "sessions/s0/state"):
        answer = await client.get(f"{url}{USERS}/s0/{path}")
        assert answer.is_success, f"{path}: {answer.text}"


async def test_nothing_is_lost_and_nothing_fails(empty_dsn: str, tmp_path: Path) -> None:
    """Under constant load: migrate, start the new roles, stop the old ones one after the other."""
    old = previous_release(tmp_path / "old")
    new = next_release(tmp_path / "new")
    await Role(old, empty_dsn, tmp_path / "migrate-old.log", "migrate").run()
    pools = ("fast_replay", "deep_reflection", "retention")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        conn = await asyncpg.connect(empty_dsn)
        stack.push_async_callback(conn.close)

        async def start(tree: Path, *words: str) -> Role:
            log = tmp_path / f"{tree.name}-{words[-1]}.log"
            return await stack.enter_async_context(Role(tree, empty_dsn, log, *words))

        async def workers_are(number: int) -> None:
            async def there() -> bool:
                return await conn.fetchval("SELECT count(*) FROM procrastinate_workers") == number  # type: ignore[no-any-return]

            await until(there)

        old_writer = await start(old, "writer")
        old_workers = [await start(old, "worker", pool) for pool in pools]
        await old_writer.serving(client)
        await workers_are(len(pools))
        traffic = Traffic(client, old_writer.url, watched={old_writer.url})
        async with asyncio.TaskGroup() as tasks:
            for number in range(SESSIONS):
                tasks.create_task(traffic.converse(f"s{number}"))
            tasks.create_task(traffic.watch())

            async def more(events: int) -> None:
                enough = len(traffic.numbers) + events

                async def there() -> bool:
                    assert not traffic.failures, traffic.failures
                    return len(traffic.numbers) >= enough

                await until(there)

            try:
                await more(200)
                printed = await Role(new, empty_dsn, tmp_path / "migrate-new.log", "migrate").run()
                assert "applied functions/labels.sql" in printed
                before = await done_by_type(conn)
                await more(200)
                await old_roles_work(client, conn, old_writer.url, before)
                # The old program finds nothing to do, and a restarted old role works.
                printed = await Role(old, empty_dsn, tmp_path / "migrate-again.log", "migrate").run()
                assert "ahead of this program" in printed
                assert "applied" not in printed
                await old_workers[0].stop()
                old_workers[0] = await start(old, "worker", pools[0])
                new_writer = await start(new, "writer")
                new_workers = [await start(new, "worker", pool) for pool in pools]
                await new_writer.serving(client)
                await workers_are(2 * len(pools))
                async with traffic.checking:
                    traffic.watched.add(new_writer.url)
                await more(200)
                # New requests go to the new writer; those in progress end at the old one.
                await traffic.leave(old_writer.url, to=new_writer.url)
                await old_writer.stop()
                for worker in old_workers:
                    await worker.stop()
                    await more(50)
            finally:
                traffic.is_over = True

        async def idle() -> bool:
            open_jobs = "SELECT count(*) FROM consolidation_jobs WHERE status IN ('pending', 'running')"
            return await conn.fetchval(open_jobs) == 0  # type: ignore[no-any-return]

        await until(idle)
        assert not traffic.failures, traffic.failures
        assert traffic.health_checks > 50
        rows = await conn.fetch(
            "SELECT t.session_id, e.id, e.sequence_num FROM events AS e JOIN threads AS t ON t.id = e.thread_id"
        )
        assert {(row[0], row[1]): row[2] for row in rows} == traffic.numbers
        gaps = (
            "SELECT count(*) FROM threads AS t WHERE last_seq <> (SELECT count(*) FROM events WHERE thread_id = t.id)"
        )
        assert await conn.fetchval(gaps) == 0
        statuses = dict(await conn.fetch("SELECT status, count(*) FROM consolidation_jobs GROUP BY status"))
        assert statuses.keys() == {"completed"}, statuses
        for worker in new_workers:
            await worker.stop()
        await new_writer.stop()
