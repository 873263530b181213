"""The gate of a release: what its rules must pass before they run beside those in force."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pulse.autonomic.onion import failure_code, innermost
from pulse.autonomic.releases import PARTS, part_of
from pulse.autonomic.types import Done, Effect, Rule, Sample, Snapshot, clamped
from workers.autonomic.sandbox import RuleFailedError, Sandbox

#: How many recorded snapshots the rules are run on, the newest first.
RECORDED_MAX = 50
RUN_SECONDS_MAX = 0.05
RUNS_MAX = 10


class Verdict(NamedTuple):
    """Whether a release passed, and what each check found."""

    passed: bool
    checks: dict[str, Any]


async def check(sandbox: Sandbox, rules: Mapping[str, str], recorded: Sequence[Snapshot] = ()) -> Verdict:
    """Check rules: their syntax and load, their types, and what they do on recorded and on extreme snapshots.

    A rule must return the same each time, and take less than 50 ms in one of ten runs.
    """
    checks: dict[str, Any] = {}
    try:
        rule = await sandbox.load(rules)
        for part in PARTS:
            for name, text in part_of(rules, part).items():
                await sandbox.load_part(part, name, text)
        checks["load"] = "ok"
        for name, text in sorted(rules.items()):
            await sandbox.check_types(name, text)
        checks["types"] = "ok"
        cases = [*recorded[:RECORDED_MAX], *extreme_snapshots()]
        checks["self_test"] = await _run_all(rule, cases)
    except RuleFailedError as error:
        checks["load" if "load" not in checks else "types"] = str(error)[:500]
        return Verdict(False, checks)
    return Verdict(not checks["self_test"]["failed"], checks)


async def _run_all(rule: Rule, cases: Sequence[Snapshot]) -> dict[str, Any]:
    failed: dict[str, int] = {}
    slowest = 0.0
    for index, curr in enumerate(cases):
        prev = cases[index - 1] if index else curr
        try:
            outcomes: list[tuple[list[Effect], int]] = []
            seconds = math.inf
            # A busy machine does not make the rule slow: the best of several counts, and all must be equal.
            while len(outcomes) < 2 or (seconds > RUN_SECONDS_MAX and len(outcomes) < RUNS_MAX):
                began = time.perf_counter()
                outcomes.append(await _outcome(rule, prev, curr))
                seconds = min(seconds, time.perf_counter() - began)
        except Exception as error:  # noqa: BLE001 - whatever a rule raises
            code = failure_code(error)
        else:
            slowest = max(slowest, seconds)
            has_changed = any(each != outcomes[0] for each in outcomes)
            code = "differs" if has_changed else "slow" if seconds > RUN_SECONDS_MAX else ""
        if code:
            failed[code] = failed.get(code, 0) + 1
    return {"snapshots": len(cases), "slowest_ms": round(slowest * 1000, 1), "failed": failed}


async def _outcome(rule: Rule, prev: Snapshot, curr: Snapshot) -> tuple[list[Effect], int]:
    effects, tick_ms = await rule(prev, curr, innermost)
    return effects, clamped(tick_ms)


def extreme_snapshots() -> list[Snapshot]:
    """Return twelve presents that rules seldom see: empty, full, broken, huge."""
    at = 1_800_000_000.0

    def sampled(sense: str, *data: Any) -> Snapshot:
        return Snapshot(at, "gate", {sense: tuple(Sample(at - 5 * n, "m", each) for n, each in enumerate(data))})

    process = {"role": "writer", "machine": "m", "host": "h", "port": 1, "pid": 1, "started_at": at, "age": math.pi}
    return [
        Snapshot(0.0, "gate"),
        Snapshot(at, "gate"),
        sampled("system-resource", {"memory": 100.0, "disks": {}, "pressure": None}),
        sampled("system-resource", *[{"memory": 0.0, "disks": {"/": 100.0}, "pressure": 99.0}] * 12),
        sampled("process-alive", {"processes": [], "is_settling": True, "report_seconds": 20.0}),
        sampled("process-alive", {"processes": [process] * 200, "is_settling": False, "report_seconds": 20.0}),
        sampled("error-log", {"new": {f"error_{n}": 10**6 for n in range(100)}}),
        sampled("network", {"dns": False, "http": False}),
        sampled("llm-health", {"breakers": [{"name": "b", "state": "open", "seconds": 1e9}], "has_command": True}),
        sampled("_error:network", {"code": "TimeoutError"}),
        Snapshot(at, "gate", effects={("notify", f"k{n}"): Done(at, "failed", False, 9, 9) for n in range(200)}),
        Snapshot(at, "gate", errors=(10**9, 0), release=(1, at), projections={"pending-tasks": {"tasks": []}}),
    ]
