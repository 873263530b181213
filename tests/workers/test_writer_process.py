"""The session writer as a process: how it starts, refuses to start, reports, and ends."""

from __future__ import annotations

import asyncio
import email.utils
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest

from pulse import database
from pulse.http.edge.bodies import Admission
from pulse.http.edge.problems import OVERLOADED, ProblemError, kind_of
from tests.support.lock_gates import WAITING
from tests.support.pace import at_this_pace
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess, problem
from workers import doctor, settings
from workers import writer as writer_role
from workers.settings import Settings

PATH = "/v1/apps/shop/users/ann/sessions"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.timing
async def test_without_a_key_loopback_is_open_except_for_other_host_names(dsn: str, log: Path) -> None:
    """No key on loopback: callers on this machine are accepted, a page under another host name is
    not; SIGTERM ends it."""
    with WriterProcess(dsn, log) as writer:
        assert httpx.post(f"{writer.url}{PATH}", json={}, timeout=WAIT_SECONDS).status_code == 201
        assert httpx.get(f"http://localhost:{writer.port}{PATH}", timeout=WAIT_SECONDS).status_code == 200
        rebound = httpx.get(
            f"{writer.url}{PATH}", headers={"Host": f"evil.example:{writer.port}"}, timeout=WAIT_SECONDS
        )
        assert rebound.status_code == 403
        assert problem(rebound)["type"] == "/problems/wrong-host"
        unasked = httpx.post(
            f"{writer.url}{PATH}/s/finalize", headers={"Origin": "https://evil.example"}, timeout=WAIT_SECONDS
        )
        assert problem(unasked)["type"] == "/problems/wrong-host"
        own = httpx.get(
            f"{writer.url}{PATH}", headers={"Origin": f"http://localhost:{writer.port}"}, timeout=WAIT_SECONDS
        )
        assert own.status_code == 200
        # Each response has the date of its second, though no timer renews it.
        page = f"http://localhost:{writer.port}{PATH}"
        await until(lambda: httpx.get(page, timeout=WAIT_SECONDS).headers["date"] != own.headers["date"])
        date = email.utils.parsedate_to_datetime(httpx.get(page, timeout=WAIT_SECONDS).headers["date"])
        assert abs(date.timestamp() - time.time()) < WAIT_SECONDS
        began = time.monotonic()
        assert writer.stop() == 0
        assert time.monotonic() - began < at_this_pace(4)


async def test_a_locked_session_occupies_no_connection_for_long(dsn: str, conn: asyncpg.Connection) -> None:
    """A request for it is refused within seconds; otherwise no connection would be left for others."""
    async with writer_role._open_pool(Settings(DATABASE_URL=dsn)) as pool:
        assert await pool.fetchval("SHOW lock_timeout") == f"{writer_role.LOCK_SECONDS_MAX:g}s"
    await conn.execute("SELECT create_session('app', 'user', 's1')")
    async with await database.create_pool(dsn, lock_seconds_max=0.1) as pool, conn.transaction():
        await conn.execute("SELECT FROM threads FOR UPDATE")
        with pytest.raises(asyncpg.LockNotAvailableError) as caught:
            await pool.execute("SELECT finalize_session('app', 'user', 's1')", timeout=WAIT_SECONDS)
        assert kind_of(caught.value).status == 503


def test_core_needs_no_web_framework() -> None:
    """Sessions and the memory are imported without the extra [http]."""
    code = (
        "import sys; sys.modules.update(fastapi=None, starlette=None, uvicorn=None);"
        "import pulse.session_service, hippocampus.memory_service, hippocampus.context_assembler, workers.worker"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


async def test_the_request_queue_is_ordered_and_bounded() -> None:
    """One running, one waiting: a third is refused at once; one that waits too long, too; then the next is served."""
    admission = Admission(at_once=1, waiting_max=1, wait_seconds=0.2, work_seconds=WAIT_SECONDS)

    async def enter() -> None:
        async with admission.slot():
            pass

    async with admission.slot():
        waiting = asyncio.create_task(enter())
        await asyncio.sleep(0)
        for refused in (enter(), waiting):
            with pytest.raises(ProblemError) as raised:
                await refused
            assert raised.value.kind is OVERLOADED
    await enter()


async def test_concurrently_held_bodies_have_a_limit(dsn: str, log: Path) -> None:
    """With many unfinished bodies the next request gets a 503; once they are gone, it is served."""
    with WriterProcess(dsn, log, max_body_bytes="2097152") as writer:
        async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
            await client.post(PATH, json={"session_id": "s"})
            head = (
                f"POST {PATH}/s/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Content-Length: 2097152\r\n\r\n"
            ).encode()
            held = []
            for _ in range(8):
                _, out = await asyncio.open_connection("127.0.0.1", writer.port)
                out.write(head + b" " * 2_097_000)
                await out.drain()
                held.append(out)
            body = b'{"events": [{"author": "user"}]}' + b" " * 1_000_000
            json_type = {"Content-Type": "application/json"}

            async def answer(*, success: bool) -> httpx.Response | None:
                response = await client.post(f"{PATH}/s/events", content=body, headers=json_type)
                return response if response.is_success == success else None

            refused = await until(lambda: answer(success=False), "a body is refused")
            assert problem(refused)["type"] == "/problems/overloaded"
            assert refused.headers["retry-after"]
            for out in held:
                out.close()
            await until(lambda: answer(success=True), "a body is taken again")


def test_without_a_key_another_address_is_refused(dsn: str, log: Path) -> None:
    """An API that others can reach needs a key."""
    code, said = WriterProcess(dsn, log, api_host="0.0.0.0").refusal()
    assert code == 2
    assert "HIPPOCAMPUS_API_KEY" in said
    assert "Traceback" not in said


def test_port_in_use_is_one_sentence(dsn: str, log: Path) -> None:
    """Exit code 2, and what to do."""
    writer = WriterProcess(dsn, log)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", writer.port))
        taken.listen()
        code, said = writer.refusal()
    assert code == 2
    (line,) = said.strip().splitlines()
    assert f"Port {writer.port}" in line
    assert "HIPPOCAMPUS_API_PORT" in line


def test_without_a_database_it_refuses(log: Path) -> None:
    """A single role starts no database of its own, and says how to get one."""
    code, said = WriterProcess(None, log).refusal()
    assert code == 2
    assert "DATABASE_URL" in said
    assert "Traceback" not in said


def test_unreachable_database_is_refused_without_the_password(log: Path) -> None:
    """The message names the server and not the password."""
    code, said = WriterProcess("postgresql://me:hunter2@127.0.0.1:1/x", log).refusal()
    assert code == 2
    assert "127.0.0.1:1" in said
    assert "hunter2" not in said
    assert "Traceback" not in said


def test_database_without_our_schema_is_refused(empty_dsn: str, log: Path) -> None:
    """The message names the command to run."""
    code, said = WriterProcess(empty_dsn, log).refusal()
    assert code == 2
    assert "hippocampus migrate" in said
    assert "Traceback" not in said


async def test_sigterm_lets_a_running_request_finish(dsn: str, log: Path, conn: asyncpg.Connection) -> None:
    """An append that waits for a row lock when SIGTERM comes is answered, and is stored."""
    with WriterProcess(dsn, log, shutdown_grace_seconds="60") as writer:
        async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
            await client.post(PATH, json={"session_id": "s"})
            async with conn.transaction():
                await conn.execute("SELECT FROM threads FOR UPDATE")
                body = {"events": [{"author": "user", "content": {"text": "hi"}}]}
                waiting = asyncio.create_task(client.post(f"{PATH}/s/events", json=body))
                await _until_someone_waits_for_a_lock(dsn)
                assert writer.process is not None
                os.kill(writer.process.pid, signal.SIGTERM)
                await _until_refused(writer)
            assert (await waiting).status_code == 201
        assert writer.stop() == 0
    assert await conn.fetchval("SELECT count(*) FROM events") == 1


@pytest.mark.timing
async def test_a_hanging_request_does_not_delay_the_exit(dsn: str, log: Path, conn: asyncpg.Connection) -> None:
    """A request that waits for a lock is dropped after the grace time; exit code 0; nothing is stored."""
    with WriterProcess(dsn, log, shutdown_grace_seconds="2") as writer:
        async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
            await client.post(PATH, json={"session_id": "s"})
            async with conn.transaction():
                await conn.execute("SELECT FROM threads FOR UPDATE")
                body = {"events": [{"author": "user", "content": {"text": "hi"}}]}
                waiting = asyncio.create_task(client.post(f"{PATH}/s/events", json=body))
                await _until_someone_waits_for_a_lock(dsn)
                began = time.monotonic()
                assert await asyncio.to_thread(writer.stop) == 0
                assert time.monotonic() - began < at_this_pace(4)  # the lock is held until the end of the block
            await asyncio.gather(waiting, return_exceptions=True)
    assert await conn.fetchval("SELECT count(*) FROM events") == 0


async def test_health_and_writes_report_a_broken_database(dsn: str, log: Path, conn: asyncpg.Connection) -> None:
    """A missing function is 503 schema mismatch; after it is back, health is ok again."""
    with WriterProcess(dsn, log) as writer:
        source = await conn.fetchval("SELECT pg_get_functiondef('delete_session(text,text,text)'::regprocedure)")
        await conn.execute("DROP FUNCTION delete_session(text,text,text)")
        broken = await _health(writer, 503, "mismatch")
        expected = {"status": "failing", "database": "reachable", "schema": "mismatch", "listener_running": True}
        assert broken == expected
        refused = httpx.delete(f"{writer.url}{PATH}/s", timeout=WAIT_SECONDS)
        assert (refused.status_code, problem(refused)["type"]) == (503, "/problems/schema-mismatch")
        assert refused.headers["retry-after"]
        await conn.execute(source)
        await _health(writer, 200, "current")


async def test_log_contains_no_content_keys_or_names(dsn: str, log: Path, conn: asyncpg.Connection) -> None:
    """The log has a request's id, the route's template and the status, and the location of a crash."""
    with WriterProcess(dsn, log, api_key=KEY) as writer:
        headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "my-request"}
        httpx.post(f"{writer.url}{PATH}", json={"session_id": "secret-session"}, headers=headers, timeout=WAIT_SECONDS)
        body = {"events": [{"author": "user", "content": {"text": "secret-text"}}]}
        httpx.post(f"{writer.url}{PATH}/secret-session/events", json=body, headers=headers, timeout=WAIT_SECONDS)
        httpx.post(
            f"{writer.url}{PATH}/s/events",
            json={"events": [{"secret-field": 1}]},
            headers=headers,
            timeout=WAIT_SECONDS,
        )
        httpx.get(f"{writer.url}{PATH}", headers={"Authorization": "Bearer secret-guess"}, timeout=WAIT_SECONDS)
        # An unforeseen fault: the database rejects a valid value, and quotes the row.
        await conn.execute(
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'cannot take %', NEW.content USING ERRCODE = 'XX000'; END $$"
        )
        await conn.execute("CREATE TRIGGER t BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION f()")
        crashed = httpx.post(
            f"{writer.url}{PATH}/secret-session/events", json=body, headers=headers, timeout=WAIT_SECONDS
        )
        assert crashed.status_code == 500
        assert problem(crashed)["type"] == "/problems/internal-error"
        assert "secret" not in crashed.text
    text = log.read_text()
    assert "secret" not in text
    assert KEY not in text
    assert "/users/ann" not in text
    lines = writer.log()
    requests = [line for line in lines if line["event"] == "request" and line["request_id"] == "my-request"]
    assert [line["status"] for line in requests] == [201, 201, 422, 500]
    assert requests[0]["route"] == "/v1/apps/{app_name}/users/{user_id}/sessions"
    (crash,) = [line for line in lines if line["event"] == "request_crashed"]
    assert crash["sqlstate"] == "XX000"
    assert crash["request_id"] == "my-request"


async def _until_someone_waits_for_a_lock(dsn: str) -> None:
    # A separate connection: inside a transaction pg_stat_activity is a snapshot.
    watcher = await asyncpg.connect(dsn)
    try:
        await until(lambda: watcher.fetchval(WAITING), "a session waits for a lock")
    finally:
        await watcher.close()


async def _until_refused(writer: WriterProcess) -> None:
    async def refused() -> bool:
        try:
            _, out = await asyncio.open_connection("127.0.0.1", writer.port)
        except ConnectionError:
            # Refused, or reset where the socket was closed while this waited to be accepted.
            return True
        out.close()
        return False

    await until(refused, "the writer takes no connection")


async def _health(writer: WriterProcess, status: int, schema: str) -> dict[str, str]:
    async def answer() -> httpx.Response | None:
        response = httpx.get(f"{writer.url}/health", timeout=WAIT_SECONDS)
        # A check that was too slow is a 503, too.
        return response if (response.status_code, response.json()["schema"]) == (status, schema) else None

    return dict((await until(answer, f"health is {status}")).json())


async def test_a_full_disk_and_exhausted_connections_are_named(
    dsn: str, log: Path, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the error, in /health and by the doctor: neither is reported as a database that is down."""
    await conn.execute("CREATE ROLE crowded LOGIN SUPERUSER PASSWORD 'crowded'")
    parts = urlsplit(dsn)
    crowded = parts._replace(netloc=f"crowded:crowded@{parts.netloc.rpartition('@')[2]}").geturl()
    try:
        with WriterProcess(crowded, log) as process:
            async with httpx.AsyncClient(base_url=process.url, timeout=WAIT_SECONDS) as client:
                assert (await client.post(PATH, json={"session_id": "s1"})).status_code == 201
                # What the server reports when it cannot extend a file.
                await conn.execute(
                    "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS"
                    " $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$"
                )
                await conn.execute("CREATE TRIGGER fill BEFORE INSERT ON threads FOR EACH ROW EXECUTE FUNCTION fill()")
                refused = await client.post(PATH, json={"session_id": "s2"})
                assert (refused.status_code, problem(refused)["type"]) == (503, "/problems/disk-full")

                async def is_full() -> bool:
                    health = await client.get("/health")
                    return (health.status_code, health.json()["database"]) == (503, "disk full")

                await until(is_full, "health names the full disk")

                await conn.execute("ALTER ROLE crowded NOSUPERUSER CONNECTION LIMIT 0")
                await conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crowded'")

                async def is_refused_as_exhausted() -> bool:
                    # A connection whose end it has not noticed may be used once more: that call's database was lost.
                    refused = await client.get(PATH)
                    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
                    return problem(refused)["type"] == "/problems/connections-exhausted"

                await until(is_refused_as_exhausted, "its pool is empty, and no connection can be opened")

                async def is_exhausted() -> bool:
                    return (await client.get("/health")).json()["database"] == "exhausted"

                await until(is_exhausted)
        monkeypatch.setenv("DATABASE_URL", crowded)
        (found,) = [each async for each in doctor.examine(settings.load()) if each.verdict == "problem"]
        assert found.check == "connection"
        assert "max_connections" in found.fix
    finally:
        await conn.execute("DROP OWNED BY crowded")
        await conn.execute("DROP ROLE crowded")
