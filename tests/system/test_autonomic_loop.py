"""The whole loop on real processes: sense, decision, effect, end, without a supervisor, by rules alone.

A role is killed, a model is down for ten minutes, a disk fills, and a bad release is promoted, all at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse.autonomic.survival import DISK_EFFECTS
from tests.support import least_privilege
from tests.support import worker_harness as harness
from tests.support.fake_gemini import FakeGemini
from tests.support.paths import ROOT
from tests.support.waiting import until
from tests.support.writer_process import free_port

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted, which needs root"),
]

WAIT_SECONDS = 120.0
DISK_MEGABYTES = 40
#: 13 kB that cannot be compressed much.
NOISE = "(SELECT string_agg(md5(random()::text || n || g), '') FROM generate_series(1, 400) AS g)"
#: It works while nothing is in force, as in its shadow run, and fails as soon as it is.
BAD_RULE = """
from typing import Any

async def rule(prev: dict[str, Any], curr: dict[str, Any], inner: Inner) -> Outcome:
    if curr["scope"] == "main" and curr["release"] is not None:
        raise ValueError("it worked on my machine")
    return await inner(prev, curr)
"""


class Installation:
    """Roles as processes of their own: nothing but the autonomic layer restarts them."""

    def __init__(self, dsn: str, folder: Path, disk: Path, model: str) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.archive.mkdir()
        self.reflection_port = free_port()
        self.environment = {
            **os.environ,
            "DATABASE_URL": dsn,
            "PYTHONPATH": str(ROOT),
            "HIPPOCAMPUS_MACHINE": "m1",
            "HIPPOCAMPUS_PULSE_RESTART": "spawn",
            "HIPPOCAMPUS_PULSE_NOTIFY_COMMAND": f"cat >> {folder}/notices; echo >> {folder}/notices",
            "HIPPOCAMPUS_PULSE_LLM_COMMAND": f"echo $BREAKER > {folder}/model-restart",
            "HIPPOCAMPUS_PULSE_DISKS": str(disk),
            "HIPPOCAMPUS_PULSE_ARCHIVE_FOLDER": str(self.archive),
            "HIPPOCAMPUS_TRACES_KEEP_DAYS": "1",
            "HIPPOCAMPUS_PROVIDER": "gemini",
            "HIPPOCAMPUS_PROVIDER_API_KEY": "AIza-test-key-0123456789",
            "HIPPOCAMPUS_PROVIDER_BASE_URL": model,
            "HIPPOCAMPUS_PROVIDER_ATTEMPTS_MAX": "1",
            "HIPPOCAMPUS_BREAKER_FAILURES": "2",
            "HIPPOCAMPUS_BREAKER_OPEN_SECONDS": "1",
            "HIPPOCAMPUS_DEEP_REFLECTION_METRICS_PORT": str(self.reflection_port),
            "HIPPOCAMPUS_FAST_REPLAY_METRICS_PORT": str(free_port()),
            "HIPPOCAMPUS_PULSE_METRICS_PORT": str(free_port()),
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{words[-1]}.log").open("ab")
        address = self.environment["DATABASE_URL"]
        # Only the owner may drop a month of the record that is in a file.
        if words[0] != "pulse":
            address = least_privilege.address_of(address, "worker")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "workers", *words],
                env={**self.environment, "DATABASE_URL": address},
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def cli(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "workers", "pulse", *words], env=self.environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def end(self) -> None:
        """End the processes that the test started, and show what the autonomic layer logged."""
        for process in self.processes:
            process.kill()
            process.wait()
        for log in self.folder.glob("start.log"):
            print(log.read_text()[-3000:])

    def notices(self) -> str:
        path = self.folder / "notices"
        return path.read_text() if path.exists() else ""


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A disk of its own, in memory, that the database server can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def end_process(pid: int) -> None:
    """End a process that the autonomic layer started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def percent_of(disk: Path) -> float:
    usage = shutil.disk_usage(disk)
    return 100 * usage.used / (usage.used + usage.free)


@contextlib.asynccontextmanager
async def tablespace(pool: asyncpg.Pool, disk: Path) -> AsyncIterator[str]:
    """A tablespace on the disk."""
    owner = Path(await pool.fetchval("SHOW data_directory")).stat()
    os.chown(disk, owner.st_uid, owner.st_gid)
    name = f"small_{os.getpid()}"
    await pool.execute(f"CREATE TABLESPACE {name} LOCATION '{disk}'")
    try:
        yield name
    finally:
        rows = await pool.fetch(
            """SELECT c.oid::regclass::text AS name
               FROM pg_class AS c JOIN pg_tablespace AS t ON t.oid = c.reltablespace
               WHERE t.spcname = $1 AND c.relkind = 'r'""",
            name,
        )
        for row in rows:
            await pool.execute(f"DROP TABLE {row['name']}")
        await pool.execute(f"DROP TABLESPACE {name}")


async def fill(pool: asyncpg.Pool, disk: Path, space: str) -> str:
    """Fill the disk with a month of the record from two years ago and a day of traces from last week."""
    today = datetime.datetime.now(datetime.UTC).date()
    month, day = today.replace(year=today.year - 2, day=1), today - datetime.timedelta(days=7)
    name = f"pulse_events_{month:%Y%m}"
    await pool.execute(f"CREATE TABLE {name} PARTITION OF pulse_events FOR VALUES IN ('{month}') TABLESPACE {space}")
    await pool.execute(
        f"""CREATE TABLE traces_{day:%Y%m%d} PARTITION OF traces
            FOR VALUES FROM ('{day} 00:00+00') TO ('{day + datetime.timedelta(days=1)} 00:00+00') TABLESPACE {space}"""
    )
    await pool.execute(
        f"""INSERT INTO pulse_events (scope, kind, key, meta, occurred_at, month)
            SELECT 'main', 'collect', '', jsonb_build_object('noise', {NOISE}), '{month}', '{month}'
            FROM generate_series(1, 1000) AS n"""
    )
    with contextlib.suppress(asyncpg.DiskFullError):
        while percent_of(disk) < 93:
            await pool.execute(
                f"""INSERT INTO traces (start_time, end_time, trace_id, span_id, is_root, operation_name, span_kind,
                                        service_name, duration_ns, status_code, attributes)
                    SELECT '{day} 12:00+00', '{day} 12:00+00', md5(random()::text), 'abcdef0123456789', true, 'old',
                           'internal', 'old', 1, 'ok', jsonb_build_object('noise', {NOISE})
                    FROM generate_series(1, 100) AS n"""
            )
    return name


async def transcript(pool: asyncpg.Pool, disk: Path) -> str:
    """What was seen, decided, done and how it ended, in the order of the decisions; then the disk and the breakers."""
    status = await pool.fetchval("SELECT pulse_status('main', 200)")
    lines = []
    for each in reversed(status["decisions"]):
        at, end = each["at"][11:19], (each["ended_at"] or "")[11:19]
        lines += [
            f"{at} sense     {json.dumps(each['why'])[:150]}",
            f"{at} decision  {each['rule']}",
            f"{at} effect    {each['effect']} by {each['by']}",
            f"{end} end       {each['end']} {each['code'] or ''}".rstrip(),
        ]
    rows = await pool.fetch("SELECT kind, key, meta FROM pulse_events WHERE kind IN ('promote', 'rollback', 'archive')")
    lines += [f"record {row['kind']} {row['key']} {json.dumps(row['meta'])}" for row in rows]
    breakers = [tuple(row) for row in await pool.fetch("SELECT name, state FROM call_breakers")]
    return "\n".join([*lines, f"now: the disk {percent_of(disk):.0f} %, breakers {breakers}"])


async def test_it_keeps_itself_alive(dsn: str, pool: asyncpg.Pool, tmp_path: Path) -> None:
    """Each of the four is sensed, decided, executed once and over in the end; no job is lost, no attempt wasted."""
    async with contextlib.AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk())
        space = await stack.enter_async_context(tablespace(pool, disk))
        model = FakeGemini()
        # It is this test's own also while the model is away.
        port = free_port()
        await model.start(port)
        installation = Installation(dsn, tmp_path, disk, model.base_url)
        stack.callback(installation.end)
        doomed = installation.start("worker", "deep_reflection")
        installation.start("worker", "fast_replay")
        installation.start("pulse", "start")

        async def pids() -> dict[str, int]:
            return {row[0]: row[1] for row in await pool.fetch("SELECT role, pid FROM metrics_targets")}

        async def all_run() -> bool:
            return (await pids()).keys() == {"deep_reflection", "fast_replay", "pulse"}

        await until(all_run, seconds=WAIT_SECONDS)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        await model.stop()
        jobs = [await harness.enqueue(pool, await harness.make_thread(pool, name)) for name in "abc"]
        moved = await fill(pool, disk, space)
        assert percent_of(disk) > 90

        async def is_open() -> bool:
            return bool(await pool.fetchval("SELECT count(*) FROM call_breakers WHERE state <> 'closed'"))

        await until(is_open, seconds=WAIT_SECONDS)
        # Ten minutes are shortened: the outage is as real, and began earlier.
        await pool.execute("UPDATE call_breakers SET first_failure_at = first_failure_at - interval '10 min'")
        rules = tmp_path / "pulse" / "rules"
        rules.mkdir(parents=True)
        (rules / "bad.py").write_text(BAD_RULE)
        words = ("deploy", "--folder", str(rules.parent), "--ticks", "2", "--json")
        deployed = json.loads(await asyncio.to_thread(installation.cli, *words))
        # The command of the operator starts the model again, because the autonomic layer ran it.
        await until((tmp_path / "model-restart").exists, seconds=WAIT_SECONDS)
        await model.start(port)
        stack.push_async_callback(model.stop)

        async def jobs_are_done() -> bool:
            return {await harness.status_of(pool, job) for job in jobs} == {"completed"}

        await until(jobs_are_done, seconds=WAIT_SECONDS)
        assert not await is_open()

        async def is_rolled_back() -> bool:
            status = await pool.fetchval("SELECT status FROM rule_releases WHERE id = $1", deployed["release"])
            return bool(status == "rolled_back")

        await until(is_rolled_back, seconds=WAIT_SECONDS)
        await until(lambda: percent_of(disk) < 80, seconds=WAIT_SECONDS)

        async def is_back() -> bool:
            return (await pids()).get("deep_reflection") not in (None, doomed.pid)

        await until(is_back, seconds=WAIT_SECONDS)
        stack.callback(end_process, (await pids())["deep_reflection"])
        await until(lambda: "model_down" in installation.notices(), seconds=WAIT_SECONDS)

        async def all_ended() -> bool:
            states = await pool.fetchval("SELECT pulse_effect_states('main')")
            return all(each["state"] == "acked" for each in states)

        await until(all_ended, seconds=WAIT_SECONDS)
        said = await transcript(pool, disk)
        print(said)
        restarted = f"deep_reflection@m1:{installation.reflection_port}"
        for part in (
            f"restart_role|{restarted}",
            "rollback|release:",
            "notify|llm:fast_replay",
            "restart_command|fast_replay",
            *(f"{kind}|m1:{disk}" for kind in DISK_EFFECTS),
        ):
            assert said.count(f"effect    {part}") == 1, part
        # The old day is gone, the old month is a file, and nothing of the record is lost.
        with gzip.open(installation.archive / f"{moved}.jsonl.gz") as file:
            assert sum(1 for _ in file) == 1000
        assert await pool.fetchval("SELECT to_regclass($1)", moved) is None
        assert await pool.fetchval("SELECT release_id FROM pulse_scopes") is None
        assert await pool.fetchval("SELECT count(*) FROM consolidation_jobs WHERE status <> 'completed'") == 0
        shown = await asyncio.to_thread(installation.cli, "status")
        assert f"process_watchdog: restart_role|{restarted}, acked" in shown
        assert "rolled_back" in await asyncio.to_thread(installation.cli, "releases")
