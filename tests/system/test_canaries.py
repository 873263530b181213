"""Canaries: secrets that are planted in messages, keys, providers' errors and addresses appear nowhere else."""

from __future__ import annotations

import asyncio
import re
import uuid
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest

from tests.support import cli_process
from tests.support.documented_routes import NOBODY, asked_operations, document, filled, routine
from tests.support.scraping import targets
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.webhook_receiver import receiving
from tests.support.worker_harness import enqueue, running_workers
from tests.support.worker_process import SECRET as PROVIDER_SECRET
from tests.support.worker_process import TABLES
from tests.support.writer_process import WriterProcess
from workers.embedded.server import EmbeddedServer

pytestmark = pytest.mark.system

MESSAGE = "canary-message-peanuts-7f3a"
KEY = "canary-key-0123456789abcdef"
PASSWORD = "canarydsn4711"
STATE = "canary-state-9e1b"
ANSWER = "canary-answer-5c20"
VALUE = "canary-value-8b42"
FIELD = "canary-field-a6d7"
NAME = "canary-name-3d11"
#: What was done, without what was said. Results of consolidations quote it, and are erased with it.
TABLES_OF_ACTS = (
    "audit_log", "procrastinate_jobs", "procrastinate_events", "metrics_targets", "call_breakers",
    "webhook_deliveries", "pulse_events", "vitals", "traces",
)  # fmt: skip
#: What holds words of users in the document's examples; other texts of a body are names, kinds and times.
TEXTS = frozenset(
    {"text", "content", "query", "value", "question", "reason", "note", "title", "message", "instructions"}
)


async def test_no_canary_leaves_its_place(
    server: EmbeddedServer, dsn: str, pool: asyncpg.Pool, admin: psycopg.Connection, tmp_path: Path
) -> None:
    """After appends, faults of a provider, refusals and erasure: not in logs, PostgreSQL's own included, metrics, error
    bodies, arguments of jobs, titles of processes, the audit log, or any column of the queue."""
    login = f"canary_{uuid.uuid4().hex[:8]}"
    admin.execute(f"CREATE ROLE {login} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    address = re.sub(r"//[^@]*@", f"//{login}:{PASSWORD}@", dsn)
    await pool.execute(TABLES)
    outside: list[str] = []
    try:
        with (
            WriterProcess(address, tmp_path / "writer.log", api_key=KEY) as writer,
            running_workers(address, tmp_path) as workers,
        ):
            for name in ("fast_replay", "retention"):
                await workers.start(name)
            headers = {"Authorization": f"Bearer {KEY}"}
            async with httpx.AsyncClient(base_url=writer.url, headers=headers, timeout=WAIT_SECONDS) as client:
                users = "/v1/apps/shop/users/mei/sessions"
                made = await client.post(users, json={"session_id": "s", "state": {"k": STATE}})
                assert made.status_code == 201, made.text
                event = {"id": "e1", "author": "user", "content": {"text": MESSAGE}}
                assert (await client.post(f"{users}/s/events", json={"events": [event]})).is_success
                # Each is refused, with a body that names what is wrong.
                other = {**event, "content": {"text": f"{MESSAGE} other"}}
                for path, body, authorization in (
                    (f"{users}/s/events", {"events": [other]}, KEY),
                    (f"{users}/s/events", {"events": [{**event, "id": MESSAGE * 40}]}, KEY),
                    (f"{users}/s/events", {"events": [{"text": MESSAGE}]}, KEY),
                    (f"{users}/s/events", {"events": [event]}, f"{KEY}-wrong"),
                    (f"{users}/none/events", {"events": [event]}, KEY),
                ):
                    refused = await client.post(path, json=body, headers={"Authorization": f"Bearer {authorization}"})
                    assert 400 <= refused.status_code < 500, refused.text
                    outside.append(refused.text.replace(MESSAGE * 40, "")[:2000])
                await client.post("/v1/apps/shop/users/mei/forget", json={"session_id": "s", "event_ids": ["e1"]})
            for fault in ("400", "malformed", "bug"):
                await pool.execute("INSERT INTO scripted (fault) VALUES ($1)", fault)
            thread = await pool.fetchval("SELECT id FROM threads")
            job = await enqueue(pool, thread)
            await until(lambda: _ended(pool, job))
            for found in (await targets(pool)).values():
                for each in found:
                    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as scraper:
                        outside.append((await scraper.get(f"http://{each}/metrics")).text)
            outside += [path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")
                        if _is_readable(path)]  # fmt: skip
            wrong = await asyncio.to_thread(
                cli_process.run, tmp_path, "status", DATABASE_URL=address.replace(PASSWORD, f"{PASSWORD}x")
            )
            outside.append(wrong.stdout + wrong.stderr)
            assert wrong.returncode != 0
        # A statement that PostgreSQL refuses is logged, without the words that it was to store.
        with pytest.raises(asyncpg.PostgresError):
            await pool.fetch("SELECT append_event('shop', 'mei', 's', 0, $1, 'user', '', $2)", MESSAGE, f'"{MESSAGE}')
        server_log = server.log_path.read_text(errors="replace")
        assert "append_event" in server_log
        outside.append(server_log)
        outside += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
        for table in ("audit_log", "procrastinate_jobs", "procrastinate_events", "metrics_targets", "call_breakers"):
            outside += [row[0] for row in await pool.fetch(f"SELECT t::text FROM {table} AS t")]
    finally:
        admin.execute(f"DROP ROLE {login}")
    assert len(outside) > 30
    for canary in (MESSAGE, KEY, PASSWORD, STATE, PROVIDER_SECRET):
        shown = [text for text in outside if canary in text]
        assert shown == [], (canary, shown[0][:1500])


#: What looks at the installation, as an operator runs it: it says how things are, not what was said.
COMMANDS = (
    ("status",), ("status", "--json"), ("doctor",), ("doctor", "--json"), ("users",), ("jobs",), ("webhooks", "list"),
    ("audit",), ("traces",), ("policies",), ("pulse", "status"), ("keys", "list"), ("jobs", "show", "no-such-job"),
    ("search", "--app", "none", "--user", "none", "tell me"), ("export", "--app", "none"),
)  # fmt: skip


async def test_no_route_command_or_job_lets_a_canary_out(
    server: EmbeddedServer, dsn: str, pool: asyncpg.Pool, admin: psycopg.Connection, tmp_path: Path
) -> None:
    """Each operation of the document with a canary in its words and its search, in place of its numbers, and as a field
    that it does not have: not in any log, PostgreSQL's included, nor in metrics, titles, spans, the audit log, the
    queue, the outcome of a delivery whose receiver answers with one, or what commands print; the key and the address's
    password in no answer either, and words in no refusal. Names are logged as such, but are in no metric, title or log
    of PostgreSQL."""
    login = f"canary_{uuid.uuid4().hex[:8]}"
    admin.execute(f"CREATE ROLE {login} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    address = re.sub(r"//[^@]*@", f"//{login}:{PASSWORD}@", dsn)
    settings = {"provider": "local", "tracing": "postgres", "webhook_networks": "127.0.0.0/8"}
    outside: list[str] = []
    answers: list[str] = []
    refused: list[str] = []
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        async with receiving() as receiver:
            receiver.always = f"HTTP/1.1 500 {ANSWER}\r\nX-Reason: {ANSWER}\r\n\r\n{ANSWER}".encode()
            with (
                WriterProcess(address, tmp_path / "writer.log", api_key=KEY, **settings) as writer,
                running_workers(address, tmp_path) as workers,
            ):
                for name in ("fast_replay", "deep_reflection", "retention", "pulse"):
                    await workers.start(name, module="workers", **settings)
                async with httpx.AsyncClient(base_url=writer.url, headers=headers, timeout=WAIT_SECONDS) as client:
                    hook = await client.post("/v1/apps/shop/webhooks", json={"url": receiver.url})
                    assert hook.status_code == 201, hook.text
                    sessions = f"/v1/apps/shop/users/{NOBODY}/sessions"
                    assert (await client.post(sessions, json={"session_id": NOBODY})).is_success
                    page = await document(client)
                    asked = 0
                    for method, path, operation in asked_operations(page):
                        request = routine(page, path, operation, "shop")
                        request["headers"] |= headers
                        found = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
                        request["params"] |= dict.fromkeys(found & {"query", "contains"}, MESSAGE)
                        bodies = [request.get("json")]
                        if "json" in request:
                            said = _planted(request["json"], MESSAGE, TEXTS)
                            bodies = [
                                said,
                                _planted(request["json"], NAME),
                                _misplaced(said, VALUE),
                                _with_field(said, FIELD),
                            ]
                        for body in bodies:
                            sent = request if body is None else {**request, "json": body}
                            async with client.stream(method, filled(path, operation, "shop", {}), **sent) as reply:
                                answers.append(str(reply.headers))
                                if "text/event-stream" not in reply.headers.get("content-type", ""):
                                    answers.append((await reply.aread()).decode(errors="replace"))
                                    if reply.is_client_error:
                                        refused.append(answers[-1])
                            asked += 1
                    assert asked > 150
                    session = f"{sessions}/{uuid.uuid4().hex}"
                    assert (await client.post(sessions, json={"session_id": session[-32:]})).is_success
                    event = {"author": "user", "content": {"text": MESSAGE}}
                    assert (await client.post(f"{session}/events", json={"events": [event]})).is_success
                    assert (await client.post(f"{session}/finalize", json={})).is_success
                tried = "SELECT EXISTS (SELECT FROM webhook_deliveries WHERE attempts > 0)"
                await until(lambda: pool.fetchval(tried), "a delivery was refused")
                done = "SELECT EXISTS (SELECT FROM consolidation_jobs WHERE status = 'completed')"
                await until(lambda: pool.fetchval(done), "a session is consolidated")
                for places in (await targets(pool)).values():
                    for each in places:
                        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as scraper:
                            outside.append((await scraper.get(f"http://{each}/metrics")).text)
                outside += [path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")
                            if _is_readable(path)]  # fmt: skip
        outside.append(server.log_path.read_text(errors="replace"))
        nameless = list(outside)
        for words in COMMANDS:
            ran = await asyncio.to_thread(cli_process.run, tmp_path / "none", *words, DATABASE_URL=address)
            assert "Traceback" not in ran.stderr, (words, ran.stderr)
            outside.append(ran.stdout + ran.stderr)
        outside += [path.read_text(errors="replace") for path in tmp_path.rglob("*.log")]
        for table in TABLES_OF_ACTS:
            outside += [row[0] for row in await pool.fetch(f"SELECT t::text FROM {table} AS t")]
    finally:
        admin.execute(f"DROP ROLE {login}")
    assert len(outside) > 100
    for canary in (MESSAGE, VALUE, FIELD, KEY, PASSWORD, ANSWER):
        shown = [text for text in outside if canary in text]
        assert shown == [], (canary, [text[max(0, text.find(canary) - 400) :][:900] for text in shown[:3]])
    assert [text for text in nameless if NAME in text] == []
    for canary in (KEY, PASSWORD):
        assert [text for text in answers if canary in text] == []
    # A refusal quotes no words. It tells its caller the field that does not exist, and the value that is no choice.
    assert [text for text in refused if MESSAGE in text] == []
    for canary in (NAME, FIELD, VALUE):
        assert any(canary in text for text in refused), canary


def _planted(body: Any, canary: str, names: frozenset[str] | None = None, name: str = "") -> Any:
    """A body with a canary in each text below these names; below every name for None."""
    if isinstance(body, dict):
        return {key: _planted(value, canary, names, key) for key, value in body.items()}
    if isinstance(body, list):
        return [_planted(each, canary, names, name) for each in body]
    return canary if isinstance(body, str) and (names is None or name in names) else body


def _misplaced(body: Any, canary: str) -> Any:
    """A body with a canary in place of every value that is no text."""
    if isinstance(body, dict):
        return {key: _misplaced(value, canary) for key, value in body.items()}
    if isinstance(body, list) and body:
        return [_misplaced(each, canary) for each in body]
    return body if isinstance(body, str) else canary


def _with_field(body: Any, canary: str) -> Any:
    """A body whose every object has a further field, named as a canary and holding one."""
    if isinstance(body, dict):
        return {**{key: _with_field(value, canary) for key, value in body.items()}, canary: VALUE}
    return [_with_field(each, canary) for each in body] if isinstance(body, list) else body


async def _ended(pool: asyncpg.Pool, job: uuid.UUID) -> bool:
    return bool(
        await pool.fetchval("SELECT status IN ('failed', 'completed') FROM consolidation_jobs WHERE id = $1", job)
    )


def _is_readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False
