"""The console's view of the autonomic layer, of a role `pulse` that really ticks; and no word of a user in its record.

One installation for both: a writer, a worker whose model fails, and the role, each a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from pathlib import Path

import asyncpg
import httpx
import pytest
from playwright.async_api import expect

from pulse.api_keys import ApiKeyService
from pulse.autonomic.survival import DISK_EFFECTS
from tests.support.browser import NARROW, audit, fits, opened
from tests.support.fake_gemini import FakeGemini
from tests.support.forked import ForkedProcess
from tests.support.least_privilege import address_of
from tests.support.live_writer import serving
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers
from tests.support.writer_process import KEY, free_port

pytestmark = pytest.mark.system

#: What the autonomic layer stores, and what it hands to the queue. Partitions are read through their tables.
TABLES = (
    "vitals", "pulse_events", "pulse_events_archive", "objects", "rule_releases", "pulse_scopes", "task_transitions",
    "metrics_targets", "call_breakers",
)  # fmt: skip
JOBS = "SELECT to_jsonb(j)::text FROM procrastinate_jobs AS j WHERE queue_name LIKE 'effects%'"


def marker(where: str) -> str:
    """A word that stands nowhere else."""
    return f"{where}{uuid.uuid4().hex}"


async def test_the_view_follows_a_role_that_ticks_and_no_word_reaches_the_record(
    dsn: str,
    pool: asyncpg.Pool,
    workers: Workers,
    node_folder: Path,
    tmp_path: Path,
) -> None:
    """A full quota and a model that is down are sensed, decided, executed and shown with their ends, while people look.

    Markers in what users and models said, in names, keys and credentials are in no table, log or answer of the layer.
    """
    words = {name: marker(name) for name in ("text", "user", "session", "state", "keyname", "error", "secret")}
    await pool.execute("SELECT create_session('shop', $1, $2)", words["user"], words["session"])
    await pool.execute(
        "SELECT append_event('shop', $1, $2, NULL, 'e1', 'user', 'message', $4, 'user', $3)",
        words["user"],
        words["session"],
        f"my PIN is {words['text']}",
        json.dumps({"role": "user", "parts": [{"text": words["text"]}], "note": words["state"]}),
    )
    thread = await pool.fetchval("SELECT id FROM threads WHERE session_id = $1", words["session"])
    given = await ApiKeyService(pool).create("shop", ["admin"], name=words["keyname"])
    async with FakeGemini() as model, serving(dsn, {}, api_key=KEY) as live:
        for _ in range(40):
            model.script("status", code=503, message=f"{words['error']} quoting {words['text']}")
        provider = {
            "provider": "gemini",
            "provider_api_key": f"AIza{words['secret']}",
            "provider_base_url": model.base_url,
            "provider_attempts_max": "1",
            "breaker_failures": "1",
        }
        worker = workers.spawn("fast_replay", module="workers.worker", **provider)
        log, metrics_port = tmp_path / "pulse.log", free_port()
        pulse = ForkedProcess(
            "workers",
            "worker",
            "pulse",
            environment={
                **os.environ,
                "DATABASE_URL": address_of(dsn, "worker"),
                "HIPPOCAMPUS_MACHINE": "m1",
                "HIPPOCAMPUS_PULSE_METRICS_PORT": str(metrics_port),
                # The database is over its quota from the first sample on.
                "HIPPOCAMPUS_PULSE_DATABASE_MEGABYTES": "1",
                "HIPPOCAMPUS_PULSE_NOTIFY_COMMAND": f"cat >> {tmp_path}/notices",
                **{f"HIPPOCAMPUS_{name.upper()}": value for name, value in provider.items()},
            },
            log=log,
        )
        try:
            async with opened() as watched:
                page = watched.page
                await until(lambda: '"lead_taken"' in log.read_text() or pulse.poll() is not None)
                await page.goto(f"{live.url}/?view=operations&tab=autonomic")
                await page.get_by_label("Key", exact=True).fill(KEY)
                await page.keyboard.press("Enter")
                stat = page.locator('main .stat:has(dt:text-is("Ticks")) .figure')
                await expect(page.locator("main .stat", has_text="The layer")).to_contain_text("ticks")
                await expect(page.locator("main")).to_contain_text(f"m1:{pulse.pid}")
                first = int(re.sub(r"\D", "", await stat.inner_text()))
                await pool.execute("SELECT enqueue_consolidation($1, 'fast_replay')", thread)
                await until(lambda: _is_open(pool))
                # Two minutes are shortened: the outage is as real, and began earlier.
                await pool.execute("UPDATE call_breakers SET first_failure_at = first_failure_at - interval '10 min'")
                decisions = page.locator("#decisions")
                await expect(decisions).to_contain_text("llm_watchdog", timeout=90_000)
                for kind in DISK_EFFECTS:
                    row = decisions.locator("tr", has_text=f"{kind}|database")
                    await expect(row).to_contain_text("resource_guard", timeout=90_000)
                    await expect(row.locator(".badge").last).to_have_text("done", timeout=90_000)
                notice = decisions.locator("tr", has_text="notify|llm:fast_replay")
                await expect(notice).to_contain_text("model_down")
                await expect(notice.locator(".badge").last).to_have_text("done")
                assert int(re.sub(r"\D", "", await stat.inner_text())) > first, "the view follows by itself"
                for sense in ("system-resource", "process-alive", "error-log", "llm-health", "queue", "database"):
                    await expect(page.locator("main")).to_contain_text(sense)
                await page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
                assert await fits(page)
                shown = await page.content()
                assert {each for each in watched.complaints if "401" not in each} == set()
            async with opened(bypass_csp=True) as watched:
                await watched.page.goto(f"{live.url}/?view=operations&tab=autonomic")
                await watched.page.get_by_label("Key", exact=True).fill(KEY)
                await watched.page.keyboard.press("Enter")
                await expect(watched.page.locator("#decisions")).to_be_visible()
                assert await audit(watched.page, node_folder) == []
            async with httpx.AsyncClient(base_url=live.url, timeout=WAIT_SECONDS) as client:
                wrong = {"Authorization": f"Bearer {words['secret']}"}
                assert (await client.get("/api/pulse/status", headers=wrong)).status_code == 401
                right = {"Authorization": f"Bearer {KEY}"}
                answers = [
                    (await client.get(path, headers=right)).text
                    for path in ("/api/pulse/status?limit=200", "/api/pulse/events?limit=200", "/metrics/targets")
                ]
                answers.append((await client.get(f"http://127.0.0.1:{metrics_port}/metrics")).text)
        finally:
            for process in (pulse, worker.popen):
                process.kill()
                process.wait()
            print(log.read_text()[-3000:])
    found: dict[str, str] = {"page": shown, **{f"answer {n}": each for n, each in enumerate(answers)}}
    for table in TABLES:
        found[table] = "\n".join(row[0] for row in await pool.fetch(f"SELECT to_jsonb(t)::text FROM {table} AS t"))
    bodies = await pool.fetch("SELECT body FROM objects")
    found["contents"] = "\n".join(bytes(row[0]).decode() for row in bodies)
    found["jobs"] = "\n".join(row[0] for row in await pool.fetch(JOBS))
    found["log of the role"], found["log of the worker"] = log.read_text(), worker.lines()
    found["notices"] = (tmp_path / "notices").read_text()
    # The markers are where they belong, and the layer has seen what they caused.
    assert words["text"] in await pool.fetchval("SELECT to_jsonb(e)::text FROM events AS e")
    assert model.requests, "the model was called, and said its marker"
    for name in ("vitals", "pulse_events", "jobs", "notices", "log of the role", "answer 0", "answer 1"):
        assert found[name], name
    assert "model_down" in found["notices"]
    secrets = {**words, "key": given.text}
    assert [(name, where) for where, text in found.items() for name, each in secrets.items() if each in text] == []


async def _is_open(pool: asyncpg.Pool) -> bool:
    return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM call_breakers WHERE state <> 'closed')"))
