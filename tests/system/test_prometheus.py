"""The shipped Prometheus configuration, alerts and dashboard, with Prometheus itself and its own checker."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import yaml

from pulse.tools.registry import ToolRegistry
from tests.support.fake_gemini import FakeGemini
from tests.support.metric_names import DEPLOY, alerts, exposition, panels
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.webhook_receiver import Receiver, receiving
from tests.support.worker_harness import Workers
from tests.support.writer_process import KEY, WriterProcess, free_port, say

pytestmark = pytest.mark.system

ROLES = {"writer", "fast_replay", "deep_reflection", "retention", "pulse"}

#: Series that fire each alert, and its labels then. One sample a minute, for three hours: `0+60` is one a second.
FIRES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "HippocampusProcessDown": (
        {'up{job="hippocampus",instance="a"}': "0x180"},
        {"instance": "a", "job": "hippocampus"},
    ),
    "HippocampusNoProcess": ({'up{job="other"}': "1x180"}, {"job": "hippocampus"}),
    "HippocampusJobsStartLate": (
        {
            'worker_job_queue_latency_seconds_bucket{queue="q",le="60"}': "0+0x180",
            'worker_job_queue_latency_seconds_bucket{queue="q",le="300"}': "0+60x180",
            'worker_job_queue_latency_seconds_bucket{queue="q",le="+Inf"}': "0+60x180",
        },
        {"queue": "q"},
    ),
    "HippocampusBacklogOld": ({'queue_oldest_job_age_seconds{queue="q"}': "601x180"}, {"queue": "q"}),
    "HippocampusBacklogGrows": ({'queue_jobs{queue="q",status="todo"}': "1000+10x180"}, {"queue": "q"}),
    "HippocampusJobsFail": (
        {
            'worker_jobs_total{queue="q",outcome="failed"}': "0+6x180",
            'worker_jobs_total{queue="q",outcome="succeeded"}': "0+60x180",
        },
        {"queue": "q"},
    ),
    "HippocampusModelUnavailable": (
        {
            'model_requests_total{provider="p",code="503"}': "0+60x180",
            'model_requests_total{provider="p",code="200"}': "0+6x180",
        },
        {"provider": "p"},
    ),
    "HippocampusBreakerOpen": ({'model_breaker_state{breaker="b",state="half_open"}': "1x180"}, {"breaker": "b"}),
    "HippocampusModelBlocked": ({'model_limit_blocked_seconds{limit="l"}': "601x180"}, {"limit": "l"}),
    "HippocampusJobsFailed": ({'queue_jobs{queue="q",status="failed"}': "1x180"}, {"queue": "q"}),
    "HippocampusRefused": ({"consolidation_turns_skipped_total": "0+1x180"}, {}),
    "HippocampusSessionsSlow": (
        {
            'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/sessions",le="0.1"}': "0+0x180",
            'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/sessions",le="+Inf"}': "0+60x180",
        },
        {},
    ),
    "HippocampusSearchSlow": (
        {
            'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/search",le="0.25"}': "0+0x180",
            'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/search",le="+Inf"}': "0+60x180",
        },
        {},
    ),
    "HippocampusToolsSlow": (
        {
            'tool_call_duration_seconds_bucket{kind="http",status="succeeded",le="0.5"}': "0+0x180",
            'tool_call_duration_seconds_bucket{kind="http",status="succeeded",le="+Inf"}': "0+60x180",
        },
        {"kind": "http"},
    ),
    "HippocampusRequestsFail": (
        {'writer_requests_total{status="500"}': "0+2x180", 'writer_requests_total{status="200"}': "0+60x180"},
        {},
    ),
    "HippocampusCommitsSlow": (
        {
            'database_commit_duration_seconds_bucket{le="0.25"}': "0+0x180",
            'database_commit_duration_seconds_bucket{le="+Inf"}': "0+6x180",
        },
        {},
    ),
    "HippocampusConnectionsShort": (
        {'database_pool_wait_seconds_total{instance="a",role="writer"}': "0+120x180"},
        {"instance": "a", "role": "writer"},
    ),
    "HippocampusConflicts": ({"version_conflicts_total": "0+120x180", "events_appended_total": "0+300x180"}, {}),
    "HippocampusStateNearLimit": ({'states_near_limit_total{instance="a"}': "0+1x180"}, {"instance": "a"}),
    "HippocampusNotificationsLate": (
        {
            'notification_lag_seconds_bucket{le="1.0"}': "0+0x180",
            'notification_lag_seconds_bucket{le="+Inf"}': "0+60x180",
        },
        {},
    ),
    "HippocampusListenerDown": ({'listener_running{instance="a"}': "0x180"}, {"instance": "a"}),
    "HippocampusWebhooksLate": ({"webhook_oldest_waiting_seconds": "601x180"}, {}),
    "HippocampusSpansDropped": (
        {'tracing_spans_total{exit="otlp",outcome="dropped"}': "0+1x180"},
        {"exit": "otlp"},
    ),
}
#: As above, for a part that is as it should be.
QUIET = {
    'up{job="hippocampus",instance="a"}': "1x180",
    'worker_job_queue_latency_seconds_bucket{queue="q",le="0.1"}': "0+60x180",
    'worker_job_queue_latency_seconds_bucket{queue="q",le="+Inf"}': "0+60x180",
    'queue_oldest_job_age_seconds{queue="q"}': "10x180",
    'queue_jobs{queue="q",status="todo"}': "5x180",
    'queue_jobs{queue="q",status="failed"}': "0x180",
    'worker_jobs_total{queue="q",outcome="failed"}': "0+1x180",
    'worker_jobs_total{queue="q",outcome="succeeded"}': "0+60x180",
    'model_requests_total{provider="p",code="200"}': "0+60x180",
    'model_requests_total{provider="p",code="503"}': "0+20x180",
    'model_breaker_state{breaker="b",state="closed"}': "1x180",
    'model_breaker_state{breaker="b",state="open"}': "0x180",
    'model_limit_blocked_seconds{limit="l"}': "30x180",
    "consolidation_turns_skipped_total": "3x180",
    'embedding_backfill_texts_total{outcome="refused"}': "3x180",
    'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/sessions",le="0.05"}': "0+60x180",
    'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/sessions",le="+Inf"}': "0+60x180",
    'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/search",le="0.1"}': "0+60x180",
    'writer_request_duration_seconds_bucket{route="/v1/apps/{app_name}/search",le="+Inf"}': "0+60x180",
    'tool_call_duration_seconds_bucket{kind="http",status="succeeded",le="0.2"}': "0+60x180",
    'tool_call_duration_seconds_bucket{kind="http",status="succeeded",le="+Inf"}': "0+60x180",
    'tool_call_duration_seconds_bucket{kind="http",status="cancelled",le="0.3"}': "0+0x180",
    'tool_call_duration_seconds_bucket{kind="http",status="cancelled",le="+Inf"}': "0+60x180",
    'writer_requests_total{status="500"}': "2x180",
    'writer_requests_total{status="200"}': "0+60x180",
    'database_commit_duration_seconds_bucket{le="0.05"}': "0+6x180",
    'database_commit_duration_seconds_bucket{le="+Inf"}': "0+6x180",
    'database_pool_wait_seconds_total{instance="a",role="writer"}': "0+1x180",
    "version_conflicts_total": "0+6x180",
    "events_appended_total": "0+300x180",
    'states_near_limit_total{instance="a"}': "4x180",
    'notification_lag_seconds_bucket{le="0.01"}': "0+60x180",
    'notification_lag_seconds_bucket{le="+Inf"}': "0+60x180",
    'listener_running{instance="a"}': "1x180",
    "webhook_oldest_waiting_seconds": "20x180",
    'tracing_spans_total{exit="otlp",outcome="dropped"}': "7x180",
}


def promtool(*arguments: str, stdin: bytes | None = None) -> str:
    done = subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, check=False, timeout=60)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


def test_promtool_accepts_configuration_rules_and_metrics(tmp_path: Path) -> None:
    """The files as they are; the key's file need not exist. Metrics as a worker and a writer export them."""
    promtool("check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml"))
    promtool("check", "rules", str(DEPLOY / "alerts.yml"))
    for each in exposition().split(b"# HELP python_gc_objects_collected_total")[1:]:
        promtool("check", "metrics", stdin=b"# HELP python_gc_objects_collected_total" + each)


def test_every_alert_fires_and_none_without_cause(tmp_path: Path) -> None:
    """On made-up series, by Prometheus's own evaluation; what the summary refers to is there."""
    assert set(FIRES) == set(alerts())
    tests: list[dict[str, Any]] = []
    for name, (series, labels) in FIRES.items():
        wanted = {"alertname": name, "alertstate": "firing", **alerts()[name]["labels"], **labels}
        text = ", ".join(f'{key}="{value}"' for key, value in wanted.items())
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": values} for key, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'ALERTS{{alertname="{name}",alertstate="firing"}}',
                        "eval_time": "150m",
                        "exp_samples": [{"labels": f"ALERTS{{{text}}}", "value": 1}],
                    }
                ],
            }
        )
        used = set(re.findall(r"\$labels\.(\w+)", alerts()[name]["annotations"]["summary"]))
        assert used <= set(labels), name
    tests.append(
        {
            "interval": "1m",
            "input_series": [{"series": key, "values": values} for key, values in QUIET.items()],
            "promql_expr_test": [{"expr": "ALERTS", "eval_time": "150m", "exp_samples": []}],
        }
    )
    file = tmp_path / "test.yml"
    rules = {"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(rules))
    promtool("test", "rules", str(file))


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path)
    yield running
    running.stop()


class Prometheus:
    """A Prometheus with the shipped configuration, but for the writer's address, the key's file and the interval."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, writer_port: int) -> None:
        (self.folder / "key").write_text(KEY)
        (self.folder / "alerts.yml").write_text((DEPLOY / "alerts.yml").read_text())
        text = (DEPLOY / "prometheus.yml").read_text()
        for shipped, here in (
            ("writer:8000", f"127.0.0.1:{writer_port}"),
            ("/run/secrets/hippocampus_api_key", str(self.folder / "key")),
            ("15s", "1s"),
        ):
            assert shipped in text
            text = text.replace(shipped, here)
        (self.folder / "prometheus.yml").write_text(text)
        promtool("check", "config", str(self.folder / "prometheus.yml"))
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def get(self, path: str, **parameters: str) -> Any:
        reply = httpx.get(f"http://127.0.0.1:{self.port}/api/v1/{path}", params=parameters, timeout=WAIT_SECONDS)
        reply.raise_for_status()
        body = reply.json()
        assert body["status"] == "success", body
        return body["data"]

    def up(self) -> set[str]:
        """Roles that were scraped last; none before Prometheus listens and, 503 until then, has opened its storage."""
        try:
            found = self.get("query", query='up{job="hippocampus"} == 1')["result"]
        except httpx.TransportError:
            return set()
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                return set()
            raise
        return {each["metric"]["role"] for each in found}

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


async def test_prometheus_scrapes_every_role_and_answers_every_panel(
    dsn: str, pool: asyncpg.Pool, registry: ToolRegistry, tmp_path: Path, prometheus: Prometheus
) -> None:
    """Found through the writer, with its key; each query of the dashboard has an answer, and no rule fails. What a
    panel shows of work is shown of work that was done, not the zero of a quiet installation."""
    ports = {f"{role}_metrics_port": str(free_port()) for role in ROLES}
    workers = Workers(dsn, tmp_path)
    try:
        async with FakeGemini() as gemini, receiving() as receiver:
            settings = {
                **ports,
                "tracing": "postgres",
                "retention_cron": "* * * * * */2",
                "webhook_networks": "127.0.0.0/8",
                "provider": "gemini",
                "provider_api_key": "AIza-test-key-0123456789",
                "provider_base_url": gemini.base_url,
            }
            with WriterProcess(dsn, tmp_path / "writer.log", api_key=KEY, **settings) as writer:
                for role in sorted(ROLES - {"writer"}):
                    workers.spawn(role, module="workers", **settings)
                prometheus.start(writer.port)
                await until(lambda: prometheus.up() == ROLES, "every role is scraped")
                await add_tool(registry, receiver)
                # A counter that is first seen with its value has no rate.
                missing = {title: [of_work(each) for each in several] for title, several in panels().items()}
                deadline = time.monotonic() + WAIT_SECONDS
                while missing and time.monotonic() < deadline:
                    await work(writer.url, pool, gemini, receiver)
                    missing = {
                        title: each for title, each in missing.items() if not all(map(answers(prometheus), each))
                    }
                    await asyncio.sleep(1)
                await add_up(prometheus, pool)
            assert not missing, missing
            (group,) = prometheus.get("rules")["groups"]
            assert {rule["name"] for rule in group["rules"]} == set(alerts())
            assert [rule["name"] for rule in group["rules"] if rule["health"] == "err"] == []
            series = prometheus.get("series", **{"match[]": '{job="hippocampus"}'})
            assert not any(label in each for each in series for label in ("user", "thread", "session", "user_id"))
            assert len(series) < 5000
    finally:
        workers.end()


async def test_a_panel_shows_zero_while_nothing_happens_and_nothing_once_its_processes_are_gone(
    dsn: str, tmp_path: Path, prometheus: Prometheus
) -> None:
    """On a new installation no panel says that it has no data; a zero is no statement about processes that are down."""
    settings = {f"{role}_metrics_port": str(free_port()) for role in ROLES}
    workers = Workers(dsn, tmp_path)
    ask = answers(prometheus, rate_interval="5s")
    try:
        with WriterProcess(dsn, tmp_path / "writer.log", api_key=KEY, **settings) as writer:
            for role in sorted(ROLES - {"writer"}):
                workers.spawn(role, module="workers", **settings)
            prometheus.start(writer.port)
            await until(lambda: prometheus.up() == ROLES, "every role is scraped")
            for title, several in panels().items():
                for expression in several:
                    await until(functools.partial(ask, expression), title)
    finally:
        workers.end()
    zeros = [each for several in panels().values() for each in several if " or on() 0 * " in each]
    assert len(zeros) > 10
    await until(lambda: not any(map(ask, zeros)), "what is down is not shown as zero")


def answers(prometheus: Prometheus, *, rate_interval: str = "1m") -> Any:
    def ask(expression: str) -> bool:
        return bool(prometheus.get("query", query=expression.replace("$__rate_interval", rate_interval))["result"])

    return ask


def of_work(expression: str) -> str:
    """The query without the zero that a panel shows while nothing happens."""
    return expression.partition(" or on() 0 * ")[0]


async def add_tool(registry: ToolRegistry, receiver: Receiver) -> None:
    operation = {"operationId": "look_up", "responses": {"200": {"description": "Found."}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": f"http://127.0.0.1:{receiver.port}"}],
        "paths": {"/things": {"post": operation}},
    }
    await registry.put_openapi("things", json.dumps(document), allowed_networks="127.0.0.0/8")


async def work(url: str, pool: asyncpg.Pool, gemini: FakeGemini, receiver: Receiver) -> None:
    """Appends, a consolidation, a search and one without its vector, a webhook, a tool call, a memory to archive."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=WAIT_SECONDS) as client:

        async def post(path: str, body: Any) -> Any:
            done = await client.post(f"/v1/apps/shop/{path}", json=body)
            assert done.is_success, (path, done.text)
            return done.json()

        session = (await post("users/mei/sessions", {}))["id"]
        events = {"events": [say("I live in Oslo."), say("My cat is called Miso.")]}
        await post(f"users/mei/sessions/{session}/events", events)
        assert (await post("users/mei/search", {"query": f"cat {session}"}))["degraded"] is None
        gemini.script("status", code=400, operation="batchEmbedContents")
        assert (await post("users/mei/search", {"query": f"dog {session}"}))["degraded"] is not None
        await post(f"users/mei/sessions/{session}/jobs", {"job_type": "full_consolidation"})
        hook = await post("webhooks", {"url": receiver.url})
        await post(f"webhooks/{hook['endpoint']['id']}/ping", {})
        assert (await post("users/mei/tools/look_up/call", {"params": {}}))["status"] == "succeeded"
    await pool.execute(
        "INSERT INTO memories (app_name, user_id, content, initial_score, created_at, last_accessed_at)"
        " VALUES ('shop', 'mei', 'forgotten', 0.1, now() - interval '2 years', now() - interval '2 years')"
    )
    # As the first failure of a model leaves it, closed again.
    await pool.execute("INSERT INTO call_breakers (name) VALUES ('answers') ON CONFLICT DO NOTHING")
    # The fault that is scripted next is meant for a search.
    unfinished = "SELECT NOT EXISTS (SELECT FROM consolidation_jobs WHERE status NOT IN ('completed', 'failed'))"
    await until(lambda: pool.fetchval(unfinished), "jobs have ended")


async def add_up(prometheus: Prometheus, pool: asyncpg.Pool) -> None:
    """What the counters say is what the database has."""
    for counted, held in (
        (
            'sum(memories_stored_total{app="shop"})',
            "SELECT count(*) FROM memories WHERE thread_id IS NOT NULL",
        ),
        ('sum(retention_memories_deleted_total{app="shop"})', "SELECT count(*) FROM memories_archive"),
    ):

        async def agree(counted: str = counted, held: str = held) -> bool:
            found = prometheus.get("query", query=counted)["result"]
            number: int = await pool.fetchval(held)
            return number > 0 and bool(found) and float(found[0]["value"][1]) == number

        await until(agree, counted)
    moved = ("database_commit_duration_seconds_count", "queue_pool_connections", "database_pool_connections")
    for name in moved:
        (found,) = prometheus.get("query", query=f"sum({name})")["result"]
        assert float(found["value"][1]) > 0, name
