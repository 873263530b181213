"""The processes that offer metrics now, in the form of Prometheus's HTTP service discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from workers.queue.claims import QUERIES

if TYPE_CHECKING:
    from pulse.database import Pool

#: A process that has not been seen for so long is not scraped any more: six of its heartbeats.
SEEN_SECONDS_MAX = 60.0


class TargetGroup(TypedDict):
    """One element of the list that Prometheus's `http_sd_configs` reads."""

    targets: list[str]
    labels: dict[str, str]


async def list_targets(pool: Pool) -> list[TargetGroup]:
    """Return every live process, with its role as a label."""
    rows = await pool.fetch(QUERIES["metrics_targets"], SEEN_SECONDS_MAX)
    return [TargetGroup(targets=[_address(row["host"], row["port"])], labels={"role": row["role"]}) for row in rows]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
