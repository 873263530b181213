"""Metrics as scraped: every process on its own port, found by service discovery, with values that change."""

from __future__ import annotations

import signal
import socket

import asyncpg
import pytest

from tests.support import worker_harness as harness
from tests.support.scraping import scrape, targets
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers


async def test_a_worker_counts_what_it_does(tables: asyncpg.Pool, workers: Workers) -> None:
    """Outcomes, durations, latency, retries by reason: each changes as expected."""
    await workers.start("fast_replay")
    await tables.execute("INSERT INTO scripted (fault) VALUES ('503'), ('400')")
    first = await harness.enqueue(tables, await harness.make_thread(tables, "a"))
    await harness.wait_for_status(tables, first, "failed")
    second = await harness.enqueue(tables, await harness.make_thread(tables, "b"))
    await harness.wait_for_status(tables, second, "completed")
    [address] = (await targets(tables))["fast_replay"]

    async def all_counted() -> dict[tuple[str, ...], float]:
        seen = await scrape(address)
        outcomes = [("worker_jobs_total", end, *["fast_replay"] * 2) for end in ("retried", "failed", "succeeded")]
        # The outcome is counted before the attempt's duration and its end.
        is_over = (
            seen.get(("worker_job_duration_seconds_count", "fast_replay", "fast_replay")) == 3
            and seen.get(("worker_jobs_in_progress", "fast_replay")) == 0
        )
        return seen if is_over and all(each in seen for each in outcomes) else {}

    seen = await until(all_counted)
    for outcome in ("retried", "failed", "succeeded"):
        assert seen["worker_jobs_total", outcome, "fast_replay", "fast_replay"] == 1
    assert seen["worker_job_retries_total", "503", "fast_replay"] == 1
    assert seen["worker_job_duration_seconds_count", "fast_replay", "fast_replay"] == 3
    assert seen["worker_job_queue_latency_seconds_count", "fast_replay"] == 2
    assert seen["worker_jobs_in_progress", "fast_replay"] == 0
    assert seen["database_statement_duration_seconds_count", "claims.fail_job"] == 1
    assert not any("user" in label or "thread" in label for name in seen for label in name[1:])


async def test_each_process_takes_a_free_port_and_is_found_until_it_ends(
    tables: asyncpg.Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers of a pool share a base port; an occupied port is skipped."""
    monkeypatch.setenv("UNREGISTER_SECONDS", str(WAIT_SECONDS))  # otherwise half a second for removing its row
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base = taken.getsockname()[1]
        first = await workers.start("fast_replay", fast_replay_metrics_port=str(base))
        await workers.start("fast_replay", fast_replay_metrics_port=str(base))
        found = (await targets(tables))["fast_replay"]
        assert len(set(found)) == 2
        assert f"127.0.0.1:{base}" not in found
        assert all(base < int(address.rpartition(":")[2]) < base + 100 for address in found)
    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    assert len((await targets(tables))["fast_replay"]) == 1
    await tables.execute("UPDATE metrics_targets SET seen_at = now() - interval '61 seconds'")
    assert await targets(tables) == {}


async def test_the_queue_gauges_come_from_exactly_one_process(
    tables: asyncpg.Pool, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two retention processes exports depth and age; when it is killed, the other does."""
    monkeypatch.setenv("QUEUE_READ_SECONDS", "0.5")
    processes = [await workers.start("retention"), await workers.start("retention")]
    await harness.enqueue(tables, await harness.make_thread(tables, "a"))
    await harness.enqueue(tables, await harness.make_thread(tables, "b"), "deep_reflection")
    depth = ("queue_jobs", "fast_replay", "todo")
    both = (depth, ("queue_jobs", "deep_reflection", "todo"))
    age = ("queue_oldest_job_age_seconds", "fast_replay")

    async def exporters() -> list[dict[tuple[str, ...], float]]:
        seen = [await scrape(address) for address in (await targets(tables))["retention"]]
        # A read may come between the two jobs, and a scrape between two gauges.
        return [each for each in seen if all(each.get(name) == 1 for name in both) and each.get(age, 0) > 0]

    [seen] = await until(exporters)
    assert seen["queue_jobs", "fast_replay", "failed"] == 0
    rows = await tables.fetch("SELECT pid, port FROM metrics_targets WHERE role = 'retention'")
    ports = {row["pid"]: row["port"] for row in rows}
    shown = {pid: depth in await scrape(f"127.0.0.1:{port}") for pid, port in ports.items()}
    [exporter] = [process for process in processes if shown[process.pid]]
    [other] = [process for process in processes if not shown[process.pid]]
    exporter.send(signal.SIGKILL)

    async def other_exports() -> bool:
        return depth in await scrape(f"127.0.0.1:{ports[other.pid]}")

    await until(other_exports)
