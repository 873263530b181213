"""The clock of a machine jumps, ahead and back, under a worker and a writer that run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from tests.support import worker_harness as harness
from tests.support.least_privilege import address_of
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import append, free_port, say

pytestmark = pytest.mark.system

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
DONE = "SELECT bool_and(status = 'completed') FROM consolidation_jobs"
#: By hand, by a bad time server, or when a machine wakes: in days from the true time.
JUMPS = ("+3d", "-2d", "+0")


class Clock:
    """The clock of processes that are started with its environment; the time that they measure goes on."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._folder = folder
        self.jump("+0")

    def jump(self, by: str) -> None:
        """Set it to an offset from the true time."""
        self._file.with_suffix(".new").write_text(by)
        self._file.with_suffix(".new").rename(self._file)

    @contextlib.contextmanager
    def running(self, *command: str, dsn: str, **settings: str) -> Iterator[Path]:
        """Run a module of the product by this clock; return its log."""
        log = self._folder / f"{command[0]}-{command[-1]}.log"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HIPPOCAMPUS_")},
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DATABASE_URL": address_of(dsn, "writer" if command[0] == "workers.writer" else "worker"),
            **{f"HIPPOCAMPUS_{name.upper()}": value for name, value in settings.items()},
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=environment, stdout=output, stderr=output
            )
            try:
                yield log
                assert process.poll() is None, log.read_text()
            finally:
                process.terminate()
                try:
                    code = process.wait(WAIT_SECONDS)
                finally:
                    process.kill()
        assert code == 0, log.read_text()


async def test_jobs_upkeep_and_appends_go_on(dsn: str, tables: asyncpg.Pool, tmp_path: Path) -> None:
    """A retry waits as long as it should, upkeep neither stops nor repeats what was missed, events stay in order."""
    assert LIBRARY is not None, "libfaketime is missing. On Debian: apt install faketime"
    clock, port = Clock(tmp_path), free_port()
    retry = {"retry_base_seconds": "0.05", "retry_delay_seconds_max": "1"}
    with (
        clock.running("tests.support.worker_process", "fast_replay", dsn=dsn, **retry),
        clock.running("tests.support.worker_process", "retention", dsn=dsn, retention_cron="* * * * * *"),
        clock.running("workers.writer", dsn=dsn, api_port=str(port)),
    ):
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=WAIT_SECONDS, trust_env=False
        ) as client:
            await until(lambda: _answers(client))
            session = "/v1/apps/app/users/user/sessions/s"
            created = await client.post("/v1/apps/app/users/user/sessions", json={"session_id": "s"})
            assert created.status_code == 201
            for number, jump in enumerate(("+0", *JUMPS)):
                clock.jump(jump)
                before = await _runs(tables)
                await tables.execute("INSERT INTO scripted (fault) VALUES ('503')")
                job = await harness.enqueue(tables, await harness.make_thread(tables, f"job{number}"))
                await harness.wait_for_status(tables, job, "completed")
                # A job of the upkeep's may have met the fault.
                assert await harness.count(tables, "scripted") == 0
                await until(lambda: tables.fetchval(DONE), f"all jobs end after {jump}")
                assert (await append(client, session, say(f"A turn after {jump}."))).status_code in (200, 201)
                assert (await client.get("/health")).status_code == 200
                await until(lambda before=before: _has_run(tables, before + 2), f"upkeep after {jump}")
    numbers = await tables.fetch("SELECT sequence_num FROM events WHERE event_type <> 'message' ORDER BY created_at")
    assert [row["sequence_num"] for row in numbers] == list(range(1, 2 + len(JUMPS)))


async def _answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False


async def _runs(pool: asyncpg.Pool) -> int:
    runs: int = await pool.fetchval("SELECT count(*) FROM upkeep_runs WHERE name = 'retention'")
    return runs


async def _has_run(pool: asyncpg.Pool, times: int) -> bool:
    return await _runs(pool) >= times
