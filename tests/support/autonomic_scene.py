"""Snapshots for rules under a fake clock, and releases in force."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from pulse.autonomic import SURVIVAL, Done, Effect, ReleaseService, Rule, Sample, Snapshot, decide
from tests.support.waiting import until

NOW = 1_000_000.0
STEP = 5.0


def samples(*data: Any, machine: str = "m1", now: float = NOW) -> tuple[Sample, ...]:
    """Samples at the usual distance, the last one now."""
    return tuple(Sample(now - STEP * (len(data) - 1 - index), machine, each) for index, each in enumerate(data))


def snapshot(
    senses: Mapping[str, Sequence[Sample]] | None = None,
    effects: Mapping[tuple[str, str], Done] | None = None,
    **fields: Any,
) -> Snapshot:
    return Snapshot(fields.pop("at", NOW), "s", senses or {}, effects or {}, **fields)


async def run(curr: Snapshot, business: Rule | None = None) -> tuple[list[Effect], int, list[str]]:
    """The effects, the tick and the errors of the whole chain; the last tick was 15 seconds ago."""
    errors: list[str] = []
    effects, tick_ms = await decide(SURVIVAL, business, snapshot(at=curr.at - 15), curr, errors.append)
    return effects, tick_ms, errors


async def kinds(curr: Snapshot, business: Rule | None = None) -> list[str]:
    """The decided effects, as kind|key."""
    return [f"{each.kind}|{each.key}" for each in (await run(curr, business))[0]]


def process(age: float, *, role: str = "writer", port: int = 9100, pid: int = 7) -> dict[str, Any]:
    return {"role": role, "machine": "m1", "host": "h", "port": port, "pid": pid, "started_at": 1.0, "age": age}


async def promote(releases: ReleaseService, release_id: int) -> None:
    """Put a release in force, as if it had passed its checks and its shadow run."""
    await releases.check(release_id, "checked", {})
    await releases.check(release_id, "shadow", {"shadow": {"passed": True}})
    await releases.promote(release_id, expected_version=(await releases.state()).version)


async def wait_until_it_acts(pool: asyncpg.Pool) -> None:
    """Wait for the whole loop: an error that a process counts is sensed, told of by a tick, and the effect acked."""
    error = f"made up {uuid.uuid4().hex}"

    async def is_told() -> bool:
        # It counts on: the first sample of a sense is compared with none.
        await pool.execute(
            "INSERT INTO metrics_targets (host, port, role, pid, machine, errors)"
            " VALUES ('elsewhere', 1, 'writer', 1, 'elsewhere', jsonb_build_object($1::text, 1))"
            " ON CONFLICT (host, port) DO UPDATE SET seen_at = now(), errors = jsonb_build_object($1::text,"
            " coalesce((metrics_targets.errors ->> $1)::bigint, 0) + 1)",
            error,
        )
        found: bool = await pool.fetchval(
            "SELECT EXISTS (SELECT FROM pulse_events AS e JOIN pulse_events AS d ON d.ref = e.id"
            " WHERE e.kind = 'effect' AND d.kind = 'effect-acked' AND e.meta -> 'params' ->> 'error' = $1)",
            error,
        )
        return found

    await until(is_told, "an error is sensed, decided on and told of")
    await pool.execute("DELETE FROM metrics_targets WHERE host = 'elsewhere'")
