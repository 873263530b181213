"""Processes outlive their database: an immediate restart in the middle of a job loses and duplicates nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from pulse import database
from tests.conftest import FAST_SETTINGS
from tests.support import worker_harness as harness
from tests.support.documented_routes import document, filled, operations, routine
from tests.support.waiting import WAIT_SECONDS
from tests.support.worker_process import TABLES
from tests.support.writer_process import WriterProcess, append, free_port, problem, say
from workers.embedded.server import DEFAULT_MAJOR, EmbeddedServer
from workers.migrate import migrate

DURABLE = {**FAST_SETTINGS, "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


def keep_port(home: Path) -> None:
    """Choose a port that the kernel gives to no other process while the server is down."""
    (home / f"port-{DEFAULT_MAJOR}").write_text(str(free_port()))


async def test_a_worker_resumes_its_queues_after_an_immediate_restart(made_home: Path, tmp_path: Path) -> None:
    """SIGQUIT to PostgreSQL while a job runs; once it is back, the same process does the job, once."""
    keep_port(made_home)
    server = EmbeddedServer(made_home, settings=DURABLE)
    dsn = server.start()
    try:
        await migrate(dsn)
        with harness.running_workers(dsn, tmp_path) as workers:
            async with await database.create_pool(dsn, max_size=3) as pool:
                await pool.execute(TABLES)
                worker = await workers.start("fast_replay")
                async with pool.acquire() as gate:
                    await gate.execute("SELECT pg_advisory_lock(77, 1)")
                    job = await harness.enqueue(pool, await harness.make_thread(pool))
                    await harness.wait_for_status(pool, job, "running")
                    os.kill(server.pid, signal.SIGQUIT)
                server.stop()
            assert server.start() == dsn
            async with await database.create_pool(dsn, max_size=3) as pool:
                await harness.wait_for_status(pool, job, "completed")
                assert await harness.count(pool, "effects") == 1
                again = await harness.enqueue(pool, await harness.make_thread(pool, "again"))
                await harness.wait_for_status(pool, again, "completed")
            assert worker.popen.poll() is None
            worker.send(signal.SIGTERM)
            assert await worker.ended() == 0
    finally:
        server.stop()


async def test_every_route_returns_503_while_the_database_is_down_and_recovers(made_home: Path, tmp_path: Path) -> None:
    """An immediate problem response, never a hang and never a crash; a stopped server also removes its socket file."""
    keep_port(made_home)
    server = EmbeddedServer(made_home, settings=FAST_SETTINGS)
    dsn = server.start()
    session = "/v1/apps/app/users/nobody/sessions"
    try:
        await migrate(dsn)
        with WriterProcess(
            dsn, tmp_path / "writer.log", module="tests.support.stream_agents", test_routes="true"
        ) as writer:
            async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
                page = await document(client)
                assert (await client.post(session, json={"session_id": "s"})).status_code == 201
                server.stop()
                # The first may use a connection that is being cut, the others find no server.
                away = await append(client, f"{session}/s", say("hello", id="e1"))
                assert problem(away)["type"] == "/problems/database-unreachable"
                answers = await asyncio.gather(*(_ask(client, page, *each) for each in operations(page)))
                assert [each for each in answers if each is not None] == []
                keyed = await client.get(session, headers={"Authorization": f"Bearer hip_{'0' * 12}_{'0' * 43}"})
                assert problem(keyed)["type"] == "/problems/database-unreachable"
                assert server.start() == dsn
                assert (await append(client, f"{session}/s", say("hello", id="e1"))).status_code == 201
    finally:
        server.stop()


async def _ask(client: httpx.AsyncClient, page: Any, method: str, path: str, operation: Any) -> str | None:
    """Describe what is wrong with an operation's response."""
    # What a key allows was read with it. The example of a source of tools is fetched from another host first.
    if path in ("/health", "/api/me", "/api/agents", "/v1/apps/{app_name}/tool-sources/{source}"):
        return None
    response = await client.request(method, filled(path, operation, "app", {}), **routine(page, path, operation, "app"))
    is_right = response.status_code == 503 and problem(response)["type"] == "/problems/database-unreachable"
    is_agentless = response.status_code == 404 and path == "/agui/{agent_name}"
    if is_right or is_agentless:
        return None
    return f"{method} {path} {response.status_code} {response.text[:300]}"
