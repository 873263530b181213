"""Agents come and go: killing the processes that host them changes neither the ticks nor the rules in force."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from pulse.autonomic import ReleaseService
from pulse.autonomic.statements import STATEMENTS
from tests.support.executor_process import EFFECTS
from tests.support.least_privilege import address_of
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.system

#: Notifies once for each tick: so the record shows that this release decided.
RULE = """
from typing import Any

async def rule(prev: dict[str, Any], curr: dict[str, Any], inner: Inner) -> Outcome:
    effects, tick_ms = await inner(prev, curr)
    effects.append({"kind": "notify", "key": "at:" + str(int(curr["at"])), "params": {"code": "ticked"}})
    return effects, tick_ms
"""


@contextlib.asynccontextmanager
async def role(folder: Path, dsn: str, *words: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    address = address_of(dsn, "worker" if words[0] == "worker" else "writer")
    environment = {
        **os.environ, "DATABASE_URL": address, "PYTHONPATH": str(ROOT), "HIPPOCAMPUS_PULSE_METRICS_PORT": "9370",
        "HIPPOCAMPUS_API_PORT": "0", "HIPPOCAMPUS_WRITER_METRICS_PORT": "9372",
    }  # fmt: skip
    with (folder / f"{words[-1]}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "workers", *words], env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print((folder / f"{words[-1]}.log").read_text()[-2000:])


async def test_killing_agents_hosts_changes_neither_ticks_nor_rules(
    dsn: str, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    """An agent's process dies in the middle of a tool's call, the writer with it; the same leader ticks by the same
    release, whose rules go on deciding."""
    await pool.execute(EFFECTS)
    await pool.execute("SELECT create_session('shop', 'ann', 's')")
    releases = ReleaseService(pool, "main")
    await releases.make_scope()
    release = await releases.stage({"a.py": RULE})
    await releases.check(release, "checked", {})
    await releases.check(release, "shadow", {"shadow": {"passed": True}})
    await releases.promote(release, expected_version=(await releases.state()).version)

    async def decided() -> int:
        count: int = await pool.fetchval(
            "SELECT count(*) FROM pulse_events WHERE kind = 'effect' AND key LIKE 'notify|at:%'"
        )
        return count

    async def goes_on() -> None:
        """Wait for two more decisions of the release."""
        seen = await decided()

        async def more() -> bool:
            await STATEMENTS.execute(pool, "wake", "main")
            return await decided() >= seen + 2

        await until(more)

    async def present() -> asyncpg.Record | None:
        return await pool.fetchrow("SELECT holder, release_id, version FROM pulse_scopes WHERE scope = 'main'")

    async def writes() -> bool:
        return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM metrics_targets WHERE role = 'writer')"))

    async with role(tmp_path, dsn, "worker", "pulse") as pulse, role(tmp_path, dsn, "writer") as writer:
        await until(writes)
        await goes_on()
        before = await present()
        assert before is not None
        assert before["release_id"] == release

        arguments = [sys.executable, "-m", "tests.support.executor_process", dsn, "in:pay:1", "go"]
        agent = await asyncio.to_thread(subprocess.run, arguments, cwd=ROOT, capture_output=True, check=False)
        assert agent.returncode == -9, agent.stderr
        assert await pool.fetchval("SELECT count(*) FROM effects WHERE tool = 'pay'") == 1
        writer.kill()
        assert writer.wait() == -9
        await goes_on()
        assert await present() == before
        assert pulse.poll() is None
    assert (await releases.get(release)).status == "active"
    assert not await pool.fetchval("SELECT EXISTS (SELECT FROM pulse_events WHERE kind IN ('error', 'rollback'))")
