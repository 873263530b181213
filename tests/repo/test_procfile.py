"""Any Procfile runner starts every role, given DATABASE_URL."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until

BIN = Path(sys.executable).parent
# Unmodified honcho, except that processes get a minute to end before they are killed.
HONCHO = """
import sys
from honcho import command, manager
manager.KILL_WAIT = 60
sys.argv = ["honcho", "start"]
command.main()
"""
ROLES = {"writer", "fast_replay", "deep_reflection", "retention", "pulse"}


def runs(pid: int) -> bool:
    """Whether a process is running, and not a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.timing  # each role has half a second to deregister
@pytest.mark.skipif(not (BIN / "hippocampus").exists(), reason="the package is not installed beside this Python")
async def test_honcho_runs_every_role_and_all_of_them_stop(dsn: str, pool: asyncpg.Pool, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "DATABASE_URL": dsn,
        "HIPPOCAMPUS_API_PORT": "0",
    }
    log = tmp_path / "log"
    with log.open("wb") as sink:
        honcho = subprocess.Popen([sys.executable, "-c", HONCHO], cwd=ROOT, env=environment, stdout=sink, stderr=sink)
    pids: list[int] = []
    try:

        async def all_registered() -> bool:
            rows = await pool.fetch("SELECT role, pid FROM metrics_targets")
            pids[:] = [row["pid"] for row in rows]
            assert honcho.poll() is None, log.read_text()
            return {row["role"] for row in rows} == ROLES

        await until(all_registered)

        def all_run() -> bool:
            said = log.read_text()
            return said.count('"worker_registered"') == len(ROLES) - 1 and '"writer_started"' in said

        await until(all_run)
        honcho.send_signal(signal.SIGTERM)
        await asyncio.to_thread(honcho.wait, WAIT_SECONDS)
        assert [pid for pid in pids if runs(pid)] == []
        assert await pool.fetchval("SELECT count(*) FROM metrics_targets") == 0, "a role has not deregistered"
    finally:
        if honcho.poll() is None:
            honcho.kill()
            honcho.wait()
        for pid in pids:
            if runs(pid):
                os.kill(pid, signal.SIGKILL)
