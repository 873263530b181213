"""The client of the HTTP API against a real writer."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import asyncpg
import httpx
import pytest

from hippocampus import client as client_module
from hippocampus.client import (
    ConflictError,
    ConnectionFailedError,
    Forgotten,
    HippocampusClient,
    InvalidRequestError,
    KeyRefusedError,
    NewEvent,
    NotFoundError,
    UnavailableError,
)
from tests.support.key_scene import made
from tests.support.memory_rows import add_fact, add_memory
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess, free_port


async def test_the_life_cycle_of_a_session_through_the_client(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """Every session method, with an app's key and names that must be percent-encoded."""
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
        assert "Lisbon" in await client.recall(user, "Lisbon", max_tokens=200)
        assert (await client.ask(user, "Lisbon?")).answered_by == "passages"
        assert (await client.profile(user, language="zh")).lines == ()
        assert [each async for each in client.memories(user)] == []
        assert [each async for each in client.facts(user)] == []
        job_id = await client.consolidate(user, name)
        assert (await client.job(user, job_id)).status == "pending"
        assert [each.id async for each in client.jobs(user)] == [job_id]
        assert set(await client.finalize_session(user, name)) == {"fast_replay", "deep_reflection"}

        async def is_ok() -> bool:
            return (await client.health()).is_ok

        await until(is_ok)  # its check has two seconds for a new connection
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


async def test_memories_facts_and_instructions_through_the_client(
    writer: WriterProcess, writer_dsn: str, app: str, rows: asyncpg.Connection
) -> None:
    """Memories are stored, searched, traced, pinned, changed and erased. Every response fits its record."""
    key = await made(writer_dsn, app, "admin")
    async with HippocampusClient(writer.url, key.text, app_name=app) as client:
        await client.create_session("ann", "s")
        await client.append("ann", "s", [NewEvent(author="user", content="tea", state_delta={"step": 1})])
        memory_id = str(await add_memory(rows, "ann", "likes tea", app=app))
        await add_fact(rows, "ann", "drink", "tea", app=app)

        assert [each.thread_id async for each in client.threads("ann")] == ["s"]
        assert (await client.state_changes("ann", "s")).state == {"step": 1}
        assert [each.delta async for each in client.state_history("ann", "s", page_size=1)] == [{"step": 1}]
        assert (await client.ticket("ann", "s")).ticket
        assert [each.id async for each in client.memories("ann", memory_type="semantic")] == [memory_id]
        assert [each async for each in client.memories("ann", since=datetime(2100, 1, 1, tzinfo=UTC))] == []
        assert [each.value async for each in client.facts("ann", fact_type="preference", key="drink")] == ["tea"]
        found = await client.search("ann", "tea", sources=["fact"], as_of=datetime.now(UTC))
        assert [each.source for each in found] == ["fact"]
        assert len(await client.origin("ann", memory_id)) == 1
        assert (await client.drawn_from("ann", "s", 1))["citing"] == []
        assert [await client.pin("ann", memory_id), await client.pin("ann", memory_id)] == [True, False]
        assert (await client.explain_retention("ann", memory_id))["pinned"]
        assert await client.unpin("ann", memory_id)
        assert [each async for each in client.archive("ann")] == []
        assert await client.restore("ann", [memory_id]) == ()
        assert [each async for each in client.preview_cleanup()] == []
        assert (await client.compare_retention(preset="sensitive"))["total"] == 1
        job_id = await client.consolidate("ann", "s", "fast")
        assert (await client.cancel_job("ann", job_id)).status == "cancelled"
        assert [each.id async for each in client.jobs("ann", status="cancelled")] == [job_id]

        first = await client.put_instruction("tone", "Be brief.", expected_version=0)
        assert (await client.put_instruction("tone", "Be kind.", metadata={"by": "ops"})).version == 2
        assert (await client.rollback_instruction("tone", 1, expected_version=2)).content == first.content
        assert (await client.instruction("tone", 2)).metadata == {"by": "ops"}
        assert [each.version async for each in client.instruction_history("tone", page_size=2)] == [3, 2, 1]
        assert [each.key async for each in client.instructions()] == ["tone"]
        style = await client.set_fact_style("preference", "Favourite Teas", "collection")
        assert [each async for each in client.fact_styles()] == [style]
        await client.reset_fact_style("preference", "favourite_tea")
        assert [each async for each in client.fact_styles()] == []

        what = Forgotten(memory_id=memory_id)
        assert (await client.preview_forgetting("ann", what))["memories"] == 1
        erasure = await client.forget("ann", what)
        assert (erasure.scope, erasure.counts["memories"]) == ("memory", 1)
        assert await client.erasure("ann", erasure.id) == erasure
        with pytest.raises(NotFoundError):
            await client.pin("ann", memory_id)


async def test_a_run_is_executed_through_the_client(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """Started, streamed, written, renewed and ended, each call twice, with the key of one user."""
    key = await made(writer_dsn, app, "append", "read", user_id="ann")
    async with HippocampusClient(writer.url, key.text, app_name=app) as client:
        mine = {"holder": "worker-1"}
        run = await client.start_run("ann", "s/1", run_id="r 1", message="Where is it?", **mine)
        assert await client.start_run("ann", "s/1", run_id="r 1", message="Where is it?", **mine) == run
        events = [NewEvent(author="model", event_type="thought", content={"content": "Hm."})]
        text = ""
        for piece in ("It is ", "", "here 🦊."):
            for _ in range(2):
                lease = await client.stream_text("ann", "r 1", "m2", text, piece, **mine)
            text += piece
            await client.write_run("ann", "r 1", events, **mine)
        assert (await client.heartbeat_run("ann", "r 1", lease_seconds=60, **mine)) == lease
        progress = {"name": "shop:progress", "value": 0.5}
        assert (await client.send_event("ann", "r 1", "custom", progress, **mine)) == lease
        with pytest.raises(InvalidRequestError, match="lacks a field"):
            await client.send_event("ann", "r 1", "custom", {}, **mine)
        for _ in range(2):
            done = await client.finish_run("ann", "r 1", text, message_id="m2", state_delta={"found": 1}, **mine)
        assert (done.status, await client.run("ann", "r 1")) == ("completed", done)
        assert [each["content"] for each in await client.run_messages("ann", "r 1")] == ["Where is it?", "Hm.", text]
        await client.start_run("ann", "s/1", run_id="r2", **mine)
        assert (await client.cancel_run("ann", "r2")).cancel_requested
        assert (await client.heartbeat_run("ann", "r2", **mine)).cancel_requested
        assert (await client.end_cancelled_run("ann", "r2", reason="asked to", **mine)).status == "cancelled"
        await client.start_run("ann", "s/1", run_id="r3", **mine)
        failed = await client.fail_run("ann", "r3", "no luck", error_code="luck", **mine)
        assert (failed.error, failed.error_code) == ("no luck", "luck")
        assert [each.run_id async for each in client.runs("ann", "s/1", page_size=2)] == ["r3", "r2", "r 1"]
        assert await client.agents("ann") == ()
        with pytest.raises(KeyRefusedError):
            await client.start_run("eve", "s/1", **mine)


async def test_every_operation_of_the_document_has_a_method(writer: WriterProcess) -> None:
    """Also for calls that find nothing. Streams are left to AG-UI's own clients."""
    document = httpx.get(f"{writer.url}/openapi.json", timeout=WAIT_SECONDS).json()
    unknown, begun = str(uuid.uuid4()), len(writer.log())
    async with HippocampusClient(writer.url, KEY, app_name=unknown) as client:
        for name, method in inspect.getmembers(client, callable):
            if name.startswith("_") or name == "close":
                continue
            given = {each.name: _argument(each, unknown) for each in _required(method)}
            asked = method(**given)
            with contextlib.suppress(NotFoundError, InvalidRequestError):
                if isinstance(asked, AsyncIterator):
                    _ = [each async for each in asked]
                else:
                    await asked
    offered = {(method, path) for path, item in document["paths"].items() for method in item}
    streams = {("post", "/agui"), ("post", "/agui/{agent_name}"), ("get", "/api/runs/{run_id}/events")}
    # The same operations as others, with the owner in the query.
    short = {(method, path) for method, path in offered if path.startswith(("/api/threads/", "/conversations/"))}
    short.remove(("get", "/api/threads/{thread_id}/runs"))

    def called() -> set[tuple[str, str]]:
        lines = writer.log()[begun:]
        return {(line["method"].lower(), line["route"]) for line in lines if line.get("event") == "request"}

    # A request is logged after its response is sent.
    async with asyncio.timeout(WAIT_SECONDS):
        while not offered - streams - short <= called():
            await asyncio.sleep(0.02)
    assert offered - called() == streams | short


def _required(method: Callable[..., object]) -> list[inspect.Parameter]:
    parameters = inspect.signature(method).parameters.values()
    return [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]


def _argument(parameter: inspect.Parameter, unknown: str) -> object:
    """A value of the right type that finds nothing."""
    special = {
        "events": [NewEvent(author="user")],
        "sequence_num": 1,
        "version": 1,
        "fact_type": "profile",
        "what": Forgotten(memory_id=unknown),
    }
    return special.get(parameter.name, unknown)


async def test_only_safe_calls_are_retried_after_the_announced_delay() -> None:
    """On 503 with Retry-After, a read and an append are retried within a limit, a create is not."""
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
        for call, attempts in (
            (lambda: client.get_session("u", "s"), 4),
            (lambda: client.append("u", "s", [NewEvent(author="user")]), 4),
            (lambda: client.create_session("u", "s"), 1),
            (lambda: client.delete_session("u", "s"), 1),
            (lambda: client.get_session("slow", "s"), 1),
        ):
            seen.clear()
            with pytest.raises(UnavailableError, match="Later"):
                await call()
            assert len(seen) == attempts


def test_the_client_imports_neither_a_driver_nor_a_framework() -> None:
    """A program that only calls the API needs only httpx."""
    code = "import sys, hippocampus.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncpg", "psycopg", "fastapi", "starlette", "pydantic", "procrastinate"} & set(loaded)
    assert client_module.ATTEMPTS_MAX == 4
