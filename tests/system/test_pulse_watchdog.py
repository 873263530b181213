"""A role pulse that hangs under a supervisor of roles: it is killed and started again."""

from __future__ import annotations

import os
import signal

import asyncpg
import pytest

from tests.support.least_privilege import address_of
from tests.support.paths import ROOT
from tests.support.waiting import until
from tests.support.writer_process import free_port
from workers.process.roles import ROLES, RoleSupervisor
from workers.process.watchdog import SILENT_SECONDS_MAX

pytestmark = pytest.mark.system


async def test_a_pulse_that_hangs_is_killed_and_started_again(dsn: str, pool: asyncpg.Pool) -> None:
    """It sends signs of life as it does to systemd; one that never hangs is left alone."""
    roles = [each for each in ROLES if each.name == "pulse"]
    environment = {
        **os.environ, "DATABASE_URL": address_of(dsn, "worker"), "PYTHONPATH": str(ROOT),
        "HIPPOCAMPUS_PULSE_METRICS_PORT": str(free_port()),
    }  # fmt: skip
    changes: list[str] = []

    async def holder() -> str | None:
        found: str | None = await pool.fetchval("SELECT holder FROM pulse_scopes")
        return found

    async with RoleSupervisor(
        environment,
        grace_seconds=1,
        roles=roles,
        on_change=lambda role, change: changes.append(f"{role} {change}"),
    ) as supervisor:

        async def leads() -> bool:
            return (await holder() or "").endswith(f":{supervisor.pids.get('pulse')}")

        await until(leads)
        hung = supervisor.pids["pulse"]
        os.kill(hung, signal.SIGSTOP)
        await until(lambda: supervisor.pids.get("pulse", hung) != hung)
        await until(leads)
    assert changes[0] == f"pulse gave no sign of life for {SILENT_SECONDS_MAX:g} s; it is killed"
    assert changes[1].startswith("pulse killed by SIGKILL; it is started again")
    assert len(changes) == 2
