"""The client of the HTTP API against a real writer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from hippocampus import client as client_module
from hippocampus.client import (
    ConflictError,
    ConnectionFailedError,
    HippocampusClient,
    InvalidRequestError,
    KeyRefusedError,
    NewEvent,
    NotFoundError,
    UnavailableError,
)
from tests.key_scene import made
from tests.writer_process import KEY, WriterProcess, free_port

pytest_plugins = ["tests.writer_fixtures"]


async def test_the_life_of_a_session_through_the_client(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """Every method, with a key of the app and names that must be encoded."""
    key = await made(writer_dsn, app, "admin")
    async with HippocampusClient(writer.url, key.text, app_name=app) as client:
        user, name = "a/n n?", "s/1"
        session = await client.create_session(user, name, state={"step": 1})
        assert (session.id, session.version, session.state) == (name, 0, {"step": 1})
        events = [NewEvent(author="user", content={"text": f"I live in Lisbon {n}"}) for n in range(3)]
        done = await client.append(user, name, events, expected_version=0)
        assert (done.version, set(done.appended.values())) == (1, {True})
        again = await client.append(user, name, events, expected_version=0)
        assert set(again.appended.values()) == {False}
        assert [each.sequence_num async for each in client.list_events(user, name, page_size=1)] == [1, 2, 3]
        assert [each.id async for each in client.list_sessions(user)] == [name]
        read = await client.get_session(user, name, num_recent_events=1)
        assert [each.content for each in read.events] == [{"text": "I live in Lisbon 2"}]
        assert (await client.state(user, name))["session"] == {"step": 1}
        assert len([each async for each in client.timeline(user, name, page_size=2)]) == 3
        assert "Lisbon" in (await client.search(user, "Where is Lisbon?"))[0].content
        assert "Lisbon" in (await client.context(user, "Lisbon", session_id=name)).text
        assert [each async for each in client.memories(user)] == []
        assert [each async for each in client.facts(user)] == []
        job_id = await client.consolidate(user, name)
        assert (await client.job(user, job_id)).status == "pending"
        assert [each.id async for each in client.jobs(user)] == [job_id]
        assert set(await client.finalize_session(user, name)) == {"fast_replay", "deep_reflection"}
        assert (await client.health()).is_ok
        with pytest.raises(ConflictError) as moved:
            await client.append(user, name, [NewEvent(author="user")], expected_version=7)
        assert moved.value.type == "/problems/version-conflict"
        assert moved.value.request_id
        with pytest.raises(ConflictError):
            await client.delete_session(user, name, expected_version=7)
        with pytest.raises(InvalidRequestError):
            await client.search(user, "")
        await client.delete_session(user, name, expected_version=1)
        with pytest.raises(NotFoundError):
            await client.get_session(user, name)
    async with HippocampusClient(writer.url, KEY[:-1], app_name=app) as stranger:
        with pytest.raises(KeyRefusedError):
            await stranger.get_session("u", "s")
    async with HippocampusClient(f"http://127.0.0.1:{free_port()}", app_name=app) as lost:
        with pytest.raises(ConnectionFailedError):
            await lost.health()


async def test_safe_calls_are_tried_again_as_long_as_the_api_says_and_others_are_not() -> None:
    """503 with Retry-After: a read and an append come back within the bound; a create does not."""
    seen: list[str] = []
    problem = json.dumps({"type": "/problems/overloaded", "detail": "Later.", "request_id": "r"})

    async def answer(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        seen.append(line.split()[0])
        wait = 0 if "slow" not in line else 100
        out.write(
            f"HTTP/1.1 503 Later\r\nContent-Type: application/problem+json\r\nRetry-After: {wait}\r\n"
            f"Content-Length: {len(problem)}\r\nConnection: close\r\n\r\n{problem}".encode()
        )
        await out.drain()
        out.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, HippocampusClient(f"http://127.0.0.1:{port}", app_name="a") as client:
        for call, tries in (
            (lambda: client.get_session("u", "s"), 4),
            (lambda: client.append("u", "s", [NewEvent(author="user")]), 4),
            (lambda: client.create_session("u", "s"), 1),
            (lambda: client.delete_session("u", "s"), 1),
            (lambda: client.get_session("slow", "s"), 1),
        ):
            seen.clear()
            with pytest.raises(UnavailableError, match="Later"):
                await call()
            assert len(seen) == tries


def test_the_client_loads_neither_a_driver_nor_a_framework() -> None:
    """A program that only calls the API installs httpx alone."""
    code = "import sys, hippocampus.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncpg", "psycopg", "fastapi", "starlette", "pydantic", "procrastinate"} & set(loaded)
    assert client_module.TRIES_MAX == 4
