"""Canaries: secrets that are planted in messages, keys, providers' errors and addresses appear nowhere else."""

from __future__ import annotations

import asyncio
import re
import uuid
from pathlib import Path

import asyncpg
import httpx
import psycopg
import pytest

from tests.support import cli_process
from tests.support.scraping import targets
from tests.support.waiting import WAIT_SECONDS, until
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


async def _ended(pool: asyncpg.Pool, job: uuid.UUID) -> bool:
    return bool(
        await pool.fetchval("SELECT status IN ('failed', 'completed') FROM consolidation_jobs WHERE id = $1", job)
    )


def _is_readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False
