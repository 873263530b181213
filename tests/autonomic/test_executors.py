"""Executors: what each kind does, and what happens to an effect whose process is killed in its middle."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse import database
from pulse.autonomic import Effect, ReleaseService
from pulse.autonomic.statements import STATEMENTS
from pulse.tools.registries import ToolRegistries
from tests.support.autonomic_scene import promote
from tests.support.effect_worker import TABLE
from tests.support.tool_service import document, tool_service
from tests.support.waiting import until
from tests.support.webhook_receiver import receiving
from tests.support.worker_harness import Workers, make_thread
from workers.autonomic.executors import Executors
from workers.autonomic.restarting import Commanded, CommandFailedError, end_process, is_same, make_restarter
from workers.settings import load, machine_name

MODULE = "tests.support.effect_worker"


async def decide(pool: asyncpg.Pool, *effects: Effect) -> list[int]:
    described = [each.to_json() for each in effects]
    ids: list[int] = await STATEMENTS.fetchval(pool, "end_tick", "main", described, {}, {}, None)
    return ids


async def ends(pool: asyncpg.Pool) -> dict[int, str]:
    rows = await pool.fetch(
        "SELECT ref, kind, meta FROM pulse_events WHERE kind IN ('effect-acked', 'effect-failed') ORDER BY id"
    )
    return {row["ref"]: row["meta"].get("code", row["kind"]) for row in rows}


class Restarts:
    def __init__(self) -> None:
        self.started: list[Any] = []

    async def start(self, process: Any) -> None:
        self.started.append(process["role"])


#: How often the act happened and how the effect ended, by its nature and the step at which its process was killed.
KILLED = {
    "sql": {"fetched": (1, "acked"), "begun": (1, "acked"), "acted": (1, "acked"), "ended": (1, "acked")},
    "again": {
        "fetched": (1, "acked"), "begun": (1, "acked"), "acted": (2, "acked"), "returned": (2, "acked"),
        "ended": (1, "acked"),
    },
    "once": {
        "fetched": (1, "acked"), "begun": (0, "lost"), "acted": (1, "lost"), "returned": (1, "lost"),
        "ended": (1, "acked"),
    },
}  # fmt: skip


async def test_kill_9_at_each_step_of_each_nature(pool: asyncpg.Pool, workers: Workers) -> None:
    """sql: exactly once. again: at least once. once: at most once, then failed. Nothing is left open."""
    await pool.execute(TABLE)
    await ReleaseService(pool, "main").make_scope()
    cases = [(nature, step) for nature, steps in KILLED.items() for step in steps]
    async with pool.acquire() as gate:
        await gate.execute("SELECT pg_advisory_lock(78, 1)")
        many = {"pulse_concurrency": "20", "database_pool_size": "30"}
        first = await workers.start("pulse", module=MODULE, **many)
        events = await decide(pool, *(Effect(f"by_{nature}", step) for nature, step in cases))
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 78 AND NOT granted"

        async def all_wait() -> bool:
            return bool(await pool.fetchval(waiting) == len(cases))

        await until(all_wait)
        first.send(signal.SIGKILL)
        await first.ended()
        await gate.execute("SELECT pg_advisory_unlock(78, 1)")
        await workers.start("pulse", module=MODULE, **many)
        await workers.start("pulse", module=MODULE, **many)

        async def all_ended() -> bool:
            return len(await ends(pool)) == len(cases)

        await until(all_ended)
    acts = {
        row["event_id"]: row["n"] for row in await pool.fetch("SELECT event_id, count(*) AS n FROM acts GROUP BY 1")
    }
    codes = {"effect-acked": "acked", "executor_lost": "lost"}
    ended = await ends(pool)
    found = {
        case: (acts.get(event, 0), codes.get(ended[event], ended[event]))
        for case, event in zip(cases, events, strict=True)
    }
    assert found == {(nature, step): KILLED[nature][step] for nature, step in cases}


@pytest.mark.system
async def test_a_thousand_effects_under_chaos(dsn: str, pool: asyncpg.Pool, workers: Workers) -> None:
    """Processes are killed, started and suspended, and connections end: no effect is lost, and none of `once` or `sql`
    acts twice."""
    await pool.execute(TABLE)
    await pool.execute("GRANT ALL ON acts TO PUBLIC")
    await ReleaseService(pool, "main").make_scope()
    await pool.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
    later = await asyncpg.connect(dsn)  # Reconciliation waits two minutes: here it is four minutes later.
    await later.execute("SELECT set_config('hippocampus.fake_time', (now() + interval '4 min')::text, false)")
    running = [workers.spawn("pulse", module=MODULE) for _ in range(3)]
    kinds = ("by_sql", "by_again", "by_once")
    for batch in range(10):
        effects = [Effect(kinds[number % 3], f"{batch}-{number}") for number in range(100)]
        await decide(pool, *effects)

        async def some_ended(wanted: int = 100 * batch + 10) -> bool:
            return len(await ends(pool)) >= wanted

        await until(some_ended)
        if batch in (1, 4, 7):
            running.pop(0).send(signal.SIGKILL)
            running.append(workers.spawn("pulse", module=MODULE))
        elif batch in (2, 8):
            frozen = running[0]
            frozen.send(signal.SIGSTOP)
        elif batch in (3, 9):
            frozen.send(signal.SIGCONT)
        elif batch == 5:
            await later.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name LIKE '%pulse%' AND pid <> pg_backend_pid()"""
            )

    async def all_ended() -> bool:
        await later.execute("SELECT reconcile_effects('main')")
        return len(await ends(pool)) == 1000

    await until(all_ended, seconds=100)
    await later.close()
    twice = (
        """SELECT event_id, kind, count(*) AS n FROM acts WHERE kind <> 'by_again' GROUP BY 1, 2 HAVING count(*) > 1"""
    )
    assert await pool.fetch(twice) == []
    rows = await pool.fetch("SELECT id, meta ->> 'kind' AS kind FROM pulse_events WHERE kind = 'effect'")
    ended, acted = await ends(pool), {row[0] for row in await pool.fetch("SELECT DISTINCT event_id FROM acts")}
    for row in rows:
        if ended[row["id"]] == "effect-acked":
            assert row["id"] in acted
        else:
            assert row["kind"] != "by_sql" or row["id"] not in acted
    ways = collections.Counter((row["kind"], ended[row["id"]]) for row in rows)
    assert sum(count for (_, end), count in ways.items() if end == "effect-acked") > 900, ways


async def test_an_effect_calls_a_registered_tool_once(pool: asyncpg.Pool) -> None:
    """The tool is one of the app that it names, called within its permissions, and is in the log of tools."""
    await ReleaseService(pool, "main").make_scope()
    tools = ToolRegistries(pool)
    ended: list[str] = []
    executors = Executors(pool, load(), Restarts(), on_end=lambda _kind, end: ended.append(end), tools=tools)
    async with tool_service() as service:
        paths = {f"/{name}": {"get": {"operationId": name}} for name in ("echo", "pay")}
        registry = tools.of("shop")
        await registry.put_openapi("service", document(service.url, paths), allowed_networks="127.0.0.0/8")
        await registry.set_permissions("pay", {"allowed_agents": ["teller"]})
        for app, tool in (("shop", "echo"), ("shop", "pay"), ("shop", "none"), ("other", "echo")):
            (event,) = await decide(pool, Effect("tool", f"{app}-{tool}", {"app": app, "tool": tool}))
            await executors.execute(event)
            await executors.execute(event)
    await tools.close()
    assert ended == ["acked", "tool_not_allowed", "tool_unknown_tool", "tool_unknown_tool"]
    log = await pool.fetch("SELECT tool_name, status FROM tool_executions WHERE status = 'succeeded'")
    assert [tuple(row) for row in log] == [("echo", "succeeded")]


async def test_each_kind_calls_what_the_project_has(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Retention, upkeep, load, consolidation, releases, notices; what is unknown fails with the reason."""
    said = tmp_path / "said"
    async with receiving() as receiver:
        monkeypatch.setenv("HIPPOCAMPUS_PULSE_NOTIFY_URL", receiver.url)
        monkeypatch.setenv("HIPPOCAMPUS_PULSE_NOTIFY_COMMAND", f"cat > {said}")
        monkeypatch.setenv("HIPPOCAMPUS_WEBHOOK_NETWORKS", "127.0.0.1")
        monkeypatch.setenv("HIPPOCAMPUS_PULSE_LLM_COMMAND", f"echo $BREAKER > {tmp_path}/llm; exit 3")
        ended: list[tuple[str, str]] = []
        executors = Executors(pool, load(), Restarts(), on_end=lambda kind, end: ended.append((kind, end)))
        releases = ReleaseService(pool, "main")
        await releases.make_scope()
        release = await releases.stage({"a.py": "1"})
        await promote(releases, release)
        thread = await make_thread(pool)
        await pool.execute("SELECT enqueue_consolidation($1, 'deep_reflection')", thread)
        idle, expired = await make_thread(pool, "idle"), await make_thread(pool, "expired")
        await pool.execute(
            """UPDATE threads SET fast_due_at = now() - interval '1 s', last_event_at = now() - interval '1 day'
               WHERE id = $1""",
            idle,
        )
        await pool.execute("UPDATE threads SET ttl = '1 h', expires_at = now() - interval '1 h' WHERE id = $1", expired)
        await pool.execute(
            """INSERT INTO vitals (scope, sense, machine, at, data)
               VALUES ('main', 'x', 'm', now() - interval '25 h', '{}')"""
        )
        given = [
            Effect("rollback", "panic", {"release": release, "cause": "panic"}),
            Effect("gc_vitals", "d"),
            Effect("retention_now", "d"),
            Effect("shed_load", "m", {"seconds": 300}),
            Effect("enqueue_consolidation", "c", {"thread_id": str(thread)}),
            Effect("finalize_idle", "i"),
            Effect("prune", "d"),
            Effect("archive_record", "d"),
            Effect("notify", "n", {"code": "model_down"}),
            Effect("restart_command", "b", {"breaker": "b"}),
            Effect("tool", "t", {"tool": "x"}),
            Effect("dance", "d"),
            Effect("enqueue_consolidation", "c2", {"thread_id": "no uuid"}),
        ]
        for event in await decide(pool, *given):
            await executors.execute(event)
            await executors.execute(event)  # A job that is given back after its effect's end does nothing.
        request = receiver.received[0]
    assert ended == [
        *[(each.kind, "acked") for each in given[:9]],
        ("restart_command", "exit_3"),
        ("tool", "no_tools"),
        ("dance", "unhandled"),
        ("enqueue_consolidation", "ValueError"),
    ]
    assert (await releases.state()).release_id is None
    assert await pool.fetchval("SELECT count(*) FROM vitals") == 0
    queued = await pool.fetch("SELECT thread_id, job_type FROM consolidation_jobs ORDER BY thread_id = $1", idle)
    assert [tuple(row) for row in queued][-1] == (idle, "fast_replay")
    assert await pool.fetchval("SELECT count(*) FROM threads") == 3, "no effect deletes a session"
    jobs = await pool.fetch(
        "SELECT task_name, scheduled_at > now() AS later FROM procrastinate_jobs WHERE queue_name <> 'effects'"
    )
    assert {(job["task_name"], job["later"]) for job in jobs} == {
        ("retention", None), ("deep_reflection", True), ("fast_replay", None),
    }  # fmt: skip
    assert b'"code": "model_down"' in request.body
    assert "model_down" in said.read_text()
    assert (tmp_path / "llm").read_text() == "b\n"
    assert len(receiver.received) == 1


async def test_a_role_is_ended_by_its_id_and_its_time(pool: asyncpg.Pool) -> None:
    """Also one that ignores SIGTERM; another process that has the id by now is left alone."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        now = time.time()
        assert not await end_process(process.pid, now - 3600, grace_seconds=0.1)
        assert not await end_process(process.pid, now + 3600, grace_seconds=0.1)
        assert is_same(process.pid, now)
        restarts = Restarts()
        executors = Executors(pool, load(), restarts)
        await ReleaseService(pool, "main").make_scope()
        row = {
            "role": "writer",
            "machine": machine_name(),
            "host": "h",
            "port": 1,
            "pid": process.pid,
            "started_at": now,
        }
        await pool.execute(
            "INSERT INTO metrics_targets (host, port, role, pid) VALUES ('h', 1, 'writer', $1)", process.pid
        )
        executors._settings = load().model_copy(update={"shutdown_grace_seconds": 0.1})
        (event,) = await decide(pool, Effect("restart_role", "w", row, survival=True))
        assert executors.route(Effect("restart_role", "w", row)) == f"effects@{machine_name()}"
        await executors.execute(event)
        assert process.wait(5) == -signal.SIGKILL
        assert restarts.started == ["writer"]
        assert await pool.fetchval("SELECT count(*) FROM metrics_targets") == 0
        assert (await ends(pool))[event] == "effect-acked"
    finally:
        process.kill()
        process.communicate()


async def test_an_operators_command_is_given_the_role(tmp_path: Path) -> None:
    restarter = Commanded(f'echo "$ROLE $MACHINE $PID" > {tmp_path}/out')
    await restarter.start({"role": "writer", "machine": "m1", "pid": os.getpid()})
    assert (tmp_path / "out").read_text() == f"writer m1 {os.getpid()}\n"
    with pytest.raises(CommandFailedError, match="no_command"):
        await Commanded("").start({"role": "writer", "machine": "m1", "pid": 1})


async def test_a_command_starts_a_role_of_any_machine(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`remote_command` runs a program of the operator's PATH wherever a pulse runs, `command` on the role's machine.

    A process of another machine is not ended here, whatever its id; a program that fails is the effect's end.
    """
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    kubectl = programs / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$@" >> {calls}\ntest "$3" != gone\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_RESTART_COMMAND", "kubectl delete pod $MACHINE --wait=false")
    await ReleaseService(pool, "main").make_scope()
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        for restart, queue in (("remote_command", "effects"), ("command", "effects@pod-1")):
            monkeypatch.setenv("HIPPOCAMPUS_PULSE_RESTART", restart)
            settings = load()
            executors = Executors(pool, settings, make_restarter(settings))
            role = {"role": "writer", "host": "h", "port": 1, "pid": bystander.pid, "started_at": time.time()}
            assert executors.route(Effect("restart_role", "w", {**role, "machine": "pod-1"})) == queue
            for machine in ("pod-1", "gone"):
                await pool.execute(
                    "INSERT INTO metrics_targets (host, port, role, pid) VALUES ('h', 1, 'writer', $1)", bystander.pid
                )
                effect = Effect("restart_role", f"{restart} {machine}", {**role, "machine": machine}, survival=True)
                (event,) = await decide(pool, effect)
                await executors.execute(event)
                await executors.execute(event)
                assert (await ends(pool))[event] == ("effect-acked" if machine == "pod-1" else "exit_1")
                assert await pool.fetchval("SELECT count(*) FROM metrics_targets") == 0
        assert calls.read_text().splitlines() == [
            f"delete pod {machine} --wait=false" for _ in range(2) for machine in ("pod-1", "gone")
        ]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_an_archive_that_may_not_be_dropped_is_kept_and_is_no_failure(
    dsn: str, pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role with least privileges: no file is written, no table dropped, and the reason is in the record; as the
    owner, the same effect moves the month into its file."""
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_ARCHIVE_FOLDER", str(tmp_path))
    await ReleaseService(pool, "main").make_scope()
    await pool.execute(
        """CREATE TABLE pulse_events_202001 PARTITION OF pulse_events FOR VALUES IN ('2020-01-01');
           INSERT INTO pulse_events (scope, kind, key, occurred_at, month)
           VALUES ('main', 'tick', '', '2020-01-05', '2020-01-01')"""
    )
    role = f"least_{os.getpid()}"
    await pool.execute(f"CREATE ROLE {role} LOGIN")
    least: asyncpg.Pool | None = None
    try:
        await pool.execute(
            f"""GRANT USAGE ON SCHEMA public TO {role};
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
                GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role};
                GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}"""
        )
        least = await database.create_pool(f"{dsn}{'&' if '?' in dsn else '?'}role={role}", min_size=1, max_size=2)
        found = []
        for connections in (least, pool):
            (event,) = await decide(pool, Effect("archive_record", f"d{len(found)}", survival=True))
            await Executors(connections, load(), Restarts()).execute(event)
            found.append(
                await pool.fetchval("SELECT meta FROM pulse_events WHERE kind = 'effect-acked' AND ref = $1", event)
            )
            assert sorted(each.name for each in tmp_path.iterdir()) == (
                [] if len(found) == 1 else ["pulse_events_202001.jsonl.gz"]
            )
        assert found[0] == {"files": 0, "kept": "not_owner"}
        assert found[1]["files"] == 1
        assert await pool.fetchval("SELECT to_regclass('pulse_events_202001')") is None
    finally:
        if least is not None:
            await least.close()
        await pool.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
