"""The metrics endpoints of live processes, in the form of Prometheus's HTTP service discovery."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from pulse.postgres.statements import Statements
from workers.process import logs
from workers.settings import machine_name

if TYPE_CHECKING:
    from pulse.database import Pool

#: A process that has not refreshed its target for this long is no longer scraped: three of its heartbeats.
SEEN_SECONDS_MAX = 60.0
#: A database that does not answer must delay neither the start nor the end of a process.
REGISTER_SECONDS_MAX = 2.0
UNREGISTER_SECONDS_MAX = 0.5

_STATEMENTS = Statements("workers.telemetry", "discovery.sql")


class Target(NamedTuple):
    """Where a process serves its metrics."""

    host: str
    port: int
    role: str
    pid: int


class TargetGroup(TypedDict):
    """One element of the list that Prometheus's `http_sd_configs` reads."""

    targets: list[str]
    labels: dict[str, str]


async def register(pool: Pool, target: Target) -> None:
    """Store or refresh a target."""
    await _STATEMENTS.execute(
        pool,
        "put_metrics_target",
        *target,
        time.time(),
        machine_name(),
        logs.error_counts() or None,
        timeout=REGISTER_SECONDS_MAX,
    )


async def unregister(pool: Pool, target: Target) -> None:
    """Remove a target, and every target that has not been refreshed for a day."""
    await _STATEMENTS.execute(
        pool, "delete_metrics_target", target.host, target.port, target.pid, timeout=UNREGISTER_SECONDS_MAX
    )


async def list_targets(pool: Pool) -> list[TargetGroup]:
    """Return every live process, with its role as a label."""
    rows = await _STATEMENTS.fetch(pool, "list_metrics_targets", SEEN_SECONDS_MAX)
    return [TargetGroup(targets=[_address(row["host"], row["port"])], labels={"role": row["role"]}) for row in rows]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
