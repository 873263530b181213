"""A database that answers nothing and closes nothing, as behind a network that is stuck, and is back later."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from tests.conftest import tcp_dsn_of
from tests.support.stalling_proxy import StallingProxy, stalling_proxy
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import WriterProcess, is_served, say
from workers.embedded.server import EmbeddedServer

pytestmark = pytest.mark.system

WRITERS = 30


async def test_appends_go_on_once_it_answers_and_none_is_stored_twice(
    server: EmbeddedServer, dsn: str, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    """Clients that give up after a second repeat their events by id. Health says meanwhile that it is gone."""
    path = "/v1/apps/shop/users/ann/sessions"
    acknowledged: list[str] = []
    stopping = asyncio.Event()

    async def write(client: httpx.AsyncClient, name: str) -> None:
        number = 0
        while not stopping.is_set():
            event = {**say(f"{name} {number}"), "id": f"{name}-{number}"}
            try:
                done = await client.post(f"{path}/{name}/events", json={"events": [event]}, timeout=1)
            except httpx.TransportError:
                continue
            if done.status_code in (429, 503):
                await asyncio.sleep(0.1)
                continue
            assert done.status_code in (200, 201), done.text  # 200: it was stored by an earlier call
            acknowledged.append(event["id"])
            number += 1

    async with _behind_a_proxy(server, dsn, tmp_path / "log") as (network, writer):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=writer.url, limits=limits) as client, asyncio.TaskGroup() as group:
            names = [f"s{number}" for number in range(WRITERS)]
            for name in names:
                (await client.post(path, json={"session_id": name}, timeout=WAIT_SECONDS)).raise_for_status()
                group.create_task(write(client, name))
            await until(lambda: len(acknowledged) > 2 * WRITERS)
            network.stall()

            async def is_known() -> bool:
                # At first the outcome may still be that of a check from before.
                return (await client.get("/health", timeout=WAIT_SECONDS)).status_code == 503

            await until(is_known)
            health = await client.get("/health", timeout=WAIT_SECONDS)
            assert (health.status_code, health.json()["database"]) == (503, "unreachable")
            before = len(acknowledged)
            await asyncio.sleep(3)  # how long it is stuck, beyond what clients wait
            assert len(acknowledged) - before <= WRITERS, "only what was on its way arrives"
            network.flow()
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 2 * WRITERS)
            stopping.set()

        async def is_well() -> bool:
            async with httpx.AsyncClient(base_url=writer.url) as other:
                return (await other.get("/health", timeout=WAIT_SECONDS)).status_code == 200

        await until(is_well)
    stored = [row["id"] for row in await pool.fetch("SELECT id FROM events")]
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    assert len(acknowledged) == len(set(acknowledged))
    gaps = "SELECT session_id FROM threads AS t WHERE last_seq <> (SELECT count(*) FROM events WHERE thread_id = t.id)"
    assert await pool.fetch(gaps) == []


async def test_a_writer_ends_though_it_does_not_answer(server: EmbeddedServer, dsn: str, tmp_path: Path) -> None:
    """With appends, an announcement and a stream on their way."""
    path = "/v1/apps/shop/users/ann/sessions"
    acknowledged: list[str] = []
    refused: list[str] = []

    async def write(client: httpx.AsyncClient, name: str) -> None:
        with contextlib.suppress(httpx.TransportError):
            while True:
                done = await client.post(f"{path}/{name}/events", json={"events": [say("Hi")]}, timeout=WAIT_SECONDS)
                if done.status_code == 503:
                    refused.append(done.json()["type"])
                    return
                acknowledged.append(done.raise_for_status().text)

    async def follow(client: httpx.AsyncClient, name: str) -> None:
        url = f"/api/threads/{name}/events"
        with contextlib.suppress(httpx.TransportError):
            async with client.stream("GET", url, timeout=WAIT_SECONDS) as stream:
                stream.raise_for_status()
                async for _ in stream.aiter_lines():
                    pass

    async with _behind_a_proxy(server, dsn, tmp_path / "log") as (network, writer):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=writer.url, limits=limits) as client, asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                name = f"s{number}"
                (await client.post(path, json={"session_id": name}, timeout=WAIT_SECONDS)).raise_for_status()
                group.create_task(write(client, name))
            group.create_task(follow(client, "s0"))
            await until(lambda: len(acknowledged) > 2 * WRITERS)
            network.stall()
            assert await asyncio.to_thread(writer.stop) == 0
    assert "/problems/timed-out" in refused
    assert [line["event"] for line in writer.log()][-1] == "writer_stopped"


async def test_a_writer_takes_connections_once_it_can_answer(server: EmbeddedServer, dsn: str, tmp_path: Path) -> None:
    """While its start waits for the database its port refuses them, so that clients try another writer; the first one
    that it takes is answered."""
    async with stalling_proxy(tcp_dsn_of(server, dsn)) as network:
        network.stall()
        writer = WriterProcess(network.dsn, tmp_path / "log")
        writer.start()
        try:
            await until(lambda: network.waiting, "the start waits for the database")
            assert not is_served(writer.port)
            network.flow()
            answer, _ = await asyncio.to_thread(writer.first_answer, "/v1/apps/shop/users/ann/sessions")
            assert answer.status_code == 200, answer.text
        finally:
            network.flow()
            await asyncio.to_thread(writer.stop)


async def test_a_port_that_is_taken_during_the_start_is_one_sentence(
    server: EmbeddedServer, dsn: str, tmp_path: Path
) -> None:
    """Two writers of one port that start at once: one serves, the other ends as if the port had been in use before."""
    async with stalling_proxy(tcp_dsn_of(server, dsn)) as network:
        network.stall()
        writer = WriterProcess(network.dsn, tmp_path / "log")
        process = writer.start()
        await until(lambda: network.waiting, "the start waits for the database")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", writer.port))
            other.listen()
            network.flow()
            assert await asyncio.to_thread(process.wait, WAIT_SECONDS) == 2
        (line,) = [each for each in writer.log_path.read_text().splitlines() if not each.startswith("{")]
        assert f"Port {writer.port} of 127.0.0.1 can't be opened" in line


@asynccontextmanager
async def _behind_a_proxy(
    server: EmbeddedServer, dsn: str, log: Path
) -> AsyncIterator[tuple[StallingProxy, WriterProcess]]:
    """A writer that reaches its database by a network that can be stalled; at the end it flows again."""
    async with stalling_proxy(tcp_dsn_of(server, dsn)) as network:
        writer = WriterProcess(network.dsn, log)
        # In a thread: the proxy needs this loop.
        await asyncio.to_thread(writer.__enter__)
        try:
            yield network, writer
        finally:
            network.flow()
            await asyncio.to_thread(writer.stop)
