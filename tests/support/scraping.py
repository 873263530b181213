"""The metrics of processes, as a scraper reads them."""

from __future__ import annotations

import asyncio
import urllib.request

import asyncpg
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import WAIT_SECONDS
from workers.telemetry.discovery import list_targets


async def scrape(address: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a process: by name and label values, in the order of the label names."""

    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_SECONDS) as reply:
            return str(reply.read().decode())

    text = await asyncio.to_thread(read)
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def targets(pool: asyncpg.Pool) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in await list_targets(pool):
        found.setdefault(group["labels"]["role"], []).extend(group["targets"])
    return found
