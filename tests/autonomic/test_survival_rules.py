"""Each survival rule by a fake clock: one below its threshold, at it, above it, and in its cooldown."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from pulse.autonomic import SURVIVAL, Done, Effect, Outcome, Snapshot, survival
from tests.support.autonomic_scene import NOW, kinds, process, run, samples, snapshot
from tests.support.paths import ROOT

RELEASE = (4, NOW - 5_000)
FAILED = Done(NOW - 1, "failed", survival=True, failures=3, recent=1)


def alive(*ages: float, **fields: Any) -> dict[str, Any]:
    """Snapshots' sense of processes that report every 20 s."""
    return {
        "process-alive": samples(*({"processes": [process(age)], "report_seconds": 20.0, **fields} for age in ages))
    }


def resources(*readings: dict[str, Any]) -> dict[str, Any]:
    return {"system-resource": samples(*readings)}


def disk(*percents: float) -> dict[str, Any]:
    return resources(*({"memory": 10, "disks": {"/": each}} for each in percents))


def memory(*percents: float, **fields: Any) -> dict[str, Any]:
    return resources(*({"memory": each, "disks": {}, **fields} for each in percents))


def llm(seconds: float, state: str = "open", **fields: Any) -> dict[str, Any]:
    return {"llm-health": samples({"breakers": [{"name": "b", "state": state, "seconds": seconds}], **fields})}


def network(*reached: tuple[bool, bool]) -> dict[str, Any]:
    return {"network": samples(*({"dns": dns, "http": http} for dns, http in reached))}


def errors(**new: int) -> dict[str, Any]:
    return {"error-log": samples({"new": new})}


DISK = [f"{kind}|m1:/" for kind in ("gc_vitals", "prune", "retention_now", "archive_record", "finalize_idle")]
RESTART = "restart_role|writer@m1:9100"
PANIC = ("restart_role", "x")
LARGEST = process(1, role="fast_replay", port=9110)
DOWN = (False, False)
ERROR = "notify|error:2c26b46b68ffc68f"  # of 'foo'

CASES: list[tuple[str, Snapshot, list[str]]] = [
    ("panic: two failures", snapshot(effects={PANIC: FAILED._replace(failures=2)}, release=RELEASE), []),
    ("panic: three failures", snapshot(effects={PANIC: FAILED}, release=RELEASE), ["rollback|panic"]),
    (
        "panic: four failures",
        snapshot(effects={PANIC: FAILED._replace(failures=4)}, release=RELEASE),
        ["rollback|panic"],
    ),
    ("panic: not the package's own", snapshot(effects={PANIC: FAILED._replace(survival=False)}, release=RELEASE), []),
    ("panic: nothing to roll back", snapshot(effects={PANIC: FAILED}), []),
    ("panic: 599 s ago", snapshot(effects={PANIC: FAILED._replace(at=NOW - 599)}, release=RELEASE), ["rollback|panic"]),
    ("panic: 600 s ago", snapshot(effects={PANIC: FAILED._replace(at=NOW - 600)}, release=RELEASE), []),
    (
        "panic: 1,799 s after the last",
        snapshot(effects={PANIC: FAILED, ("rollback", "panic"): Done(NOW - 1_799, "acked", True)}, release=RELEASE),
        [],
    ),
    (
        "panic: 1,800 s after the last",
        snapshot(effects={PANIC: FAILED, ("rollback", "panic"): Done(NOW - 1_800, "acked", True)}, release=RELEASE),
        ["rollback|panic"],
    ),
    ("auto: four errors", snapshot(errors=(4, 0), release=(4, NOW - 60)), []),
    ("auto: five errors", snapshot(errors=(5, 0), release=(4, NOW - 60)), ["rollback|release:4"]),
    ("auto: three times those before", snapshot(errors=(6, 2), release=(4, NOW - 60)), []),
    ("auto: over three times those before", snapshot(errors=(7, 2), release=(4, NOW - 60)), ["rollback|release:4"]),
    ("auto: 599 s after the promotion", snapshot(errors=(5, 0), release=(4, NOW - 599)), ["rollback|release:4"]),
    ("auto: 600 s after the promotion", snapshot(errors=(5, 0), release=(4, NOW - 600)), []),
    ("auto: no release", snapshot(errors=(50, 0)), []),
    (
        "auto: it runs already",
        snapshot(effects={("rollback", "release:4"): Done(NOW, "open")}, errors=(5, 0), release=(4, NOW - 60)),
        [],
    ),
    ("process: 50 s", snapshot(alive(50, 50)), []),
    ("process: over 50 s once", snapshot(alive(51)), []),
    ("process: over 50 s, then seen", snapshot(alive(51, 2)), []),
    ("process: over 50 s twice", snapshot(alive(50.1, 55.1)), [RESTART]),
    ("process: one that reports more often", snapshot(alive(26, 31, report_seconds=10.0)), [RESTART]),
    ("process: after an outage of the database", snapshot(alive(60, 65, is_settling=True)), []),
    ("process: forgotten", snapshot(alive(596, 601)), []),
    (
        "process: open",
        snapshot(alive(60, 65), {("restart_role", "writer@m1:9100"): Done(NOW - 9, "open", recent=1)}),
        [],
    ),
    ("process: 29 s after", snapshot(alive(60, 65), {("restart_role", "writer@m1:9100"): Done(NOW - 29, "acked")}), []),
    (
        "process: 30 s after",
        snapshot(alive(60, 65), {("restart_role", "writer@m1:9100"): Done(NOW - 30, "acked", recent=2)}),
        [RESTART],
    ),
    (
        "process: the fourth time",
        snapshot(alive(60, 65), {("restart_role", "writer@m1:9100"): Done(NOW - 30, "acked", recent=3)}),
        ["notify|flapping:writer@m1:9100"],
    ),
    ("disk: 89 %", snapshot(disk(89, 89, 89)), []),
    ("disk: 90 % in two samples", snapshot(disk(89, 90, 90)), []),
    ("disk: 90 %", snapshot(disk(90, 90, 90)), DISK),
    ("disk: 99 %", snapshot(disk(99, 99, 99)), DISK),
    (
        "disk: in the cooldown",
        snapshot(disk(99, 99, 99), {("prune", "m1:/"): Done(NOW - 299, "acked")}),
        [DISK[0], *DISK[2:]],
    ),
    ("disk: not yet free", snapshot(disk(85, 80), {("prune", "m1:/"): Done(NOW - 300, "acked")}), DISK),
    ("disk: free again", snapshot(disk(85, 79), {("prune", "m1:/"): Done(NOW - 300, "acked")}), []),
    (
        "database: its quota",
        snapshot({"database": samples(*({"percent": 90} for _ in range(3)))}),
        [each.replace("m1:/", "database") for each in DISK],
    ),
    ("database: no quota", snapshot({"database": samples(*({"percent": None} for _ in range(3)))}), []),
    ("memory: 89 %", snapshot(memory(89, 89, 89, pressure=20)), []),
    ("memory: 90 %", snapshot(memory(90, 90, 90, largest=LARGEST)), ["shed_load|m1:memory"]),
    ("memory: under pressure", snapshot(memory(50, 50, 50, pressure=21)), ["shed_load|m1:memory"]),
    (
        "memory: 95 %",
        snapshot(memory(95, 95, 95, largest=LARGEST)),
        ["shed_load|m1:memory", "restart_role|fast_replay@m1:9110"],
    ),
    ("memory: cooldown", snapshot(memory(92, 92, 92), {("shed_load", "m1:memory"): Done(NOW - 299, "acked")}), []),
    ("llm: 119 s", snapshot(llm(119)), []),
    ("llm: 120 s", snapshot(llm(120)), ["notify|llm:b"]),
    ("llm: half open", snapshot(llm(500, "half_open")), ["notify|llm:b"]),
    ("llm: closed", snapshot(llm(500, "closed")), []),
    ("llm: with a command", snapshot(llm(120, has_command=True)), ["notify|llm:b", "restart_command|b"]),
    ("llm: 899 s after", snapshot(llm(500), {("notify", "llm:b"): Done(NOW - 899, "acked")}), []),
    ("llm: 900 s after", snapshot(llm(500), {("notify", "llm:b"): Done(NOW - 900, "acked")}), ["notify|llm:b"]),
    ("network: two samples", snapshot(network(DOWN, DOWN)), []),
    ("network: three samples", snapshot(network(DOWN, DOWN, DOWN)), ["notify|network:m1"]),
    ("network: names only", snapshot(network(DOWN, (True, False), DOWN)), []),
    ("network: cooldown", snapshot(network(*[DOWN] * 4), {("notify", "network:m1"): Done(NOW - 899, "acked")}), []),
    ("errors: none", snapshot(errors()), []),
    ("errors: one", snapshot(errors(foo=1)), [ERROR]),
    (
        "errors: left over by the last tick",
        snapshot({"error-log": samples({"new": {"foo": 1}}, now=NOW - 15)}),
        [ERROR],
    ),
    ("errors: a known one", snapshot(errors(foo=9), {("notify", ERROR[7:]): Done(NOW - 899, "acked")}), []),
    ("errors: a known one, later", snapshot(errors(foo=9), {("notify", ERROR[7:]): Done(NOW - 900, "acked")}), [ERROR]),
]


@pytest.mark.parametrize(("curr", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_each_rule_fires_when_it_should_and_not_twice(curr: Snapshot, expected: list[str]) -> None:
    """Below, at and above each threshold, and in each cooldown."""
    effects, _, failures = await run(curr)
    assert [f"{each.kind}|{each.key}" for each in effects] == expected
    assert failures == []
    assert all(each.survival and each.rule for each in effects)
    assert all(Effect.from_json(each.to_json()) == each for each in effects)


async def test_a_tick_is_fast_while_something_is_wrong() -> None:
    """And slow otherwise."""
    assert (await run(snapshot()))[1] == 15_000
    for curr in (snapshot(alive(60, 65)), snapshot(disk(95, 95, 95)), snapshot(errors(foo=1))):
        assert (await run(curr))[1] == 5_000


async def test_panic_leaves_out_the_release_and_no_survival_rule() -> None:
    """A bypass by the outermost rule would switch the other six off."""

    async def business(prev: Snapshot, curr: Snapshot, inner: Any) -> Outcome:
        return [Effect("notify", "business")], 5_000

    curr = snapshot(alive(60, 65), {PANIC: FAILED}, release=RELEASE)
    assert await kinds(curr, business) == ["rollback|panic", RESTART]
    assert "notify|business" in await kinds(snapshot(alive(60, 65), release=RELEASE), business)


async def test_storms_are_damped() -> None:
    """10,000 error lines a second are one message for each error; a flapping process is reported once."""
    found = await kinds(snapshot(errors(**{f"e{number}": 10_000 for number in range(50)})))
    assert len(found) == len(set(found)) == survival.ESCALATED_MAX
    burst, reported = samples({"new": {f"e{number}": 1 for number in range(50)}}), dict[tuple[str, str], Done]()
    for tick in range(10):  # once, and never again: every error is reported once, within a minute
        for kind in await kinds(snapshot({"error-log": burst}, reported, at=NOW + 5 * tick)):
            name, _, key = kind.partition("|")
            assert (name, key) not in reported
            reported[name, key] = Done(NOW + 5 * tick, "acked", True)
    assert len(reported) == 50
    clock, states, decided = NOW, {}, []
    for _ in range(720):  # an hour of ticks, 5 s each, while the process is always dead
        curr = snapshot({"process-alive": samples(*[{"processes": [process(40)]}] * 2, now=clock)}, states, at=clock)
        for each in (await run(curr))[0]:
            decided.append((clock, each.kind))
            states[each.target] = Done(clock, "acked", True)
        for target, done in states.items():
            recent = sum(1 for at, kind in decided if kind == target[0] and at > clock - 600)
            states[target] = done._replace(recent=recent)
        clock += 5
    assert sum(kind == "restart_role" for _, kind in decided) <= 3 * 7
    assert sum(kind == "notify" for _, kind in decided) <= 5


def test_survival_rules_are_fixed_and_pure() -> None:
    """Seven, in their order; their module imports nothing with which they could reach the world."""
    names = "panic_rollback auto_rollback process_watchdog resource_guard llm_watchdog network_watchdog error_escalate"
    assert isinstance(SURVIVAL, tuple)
    assert [rule.__name__ for rule in SURVIVAL] == names.split()
    allowed = {"__future__", "collections.abc", "dataclasses", "hashlib", "typing", "pulse.autonomic.types"}
    for name in ("survival", "helpers"):
        tree = ast.parse(Path(ROOT / f"pulse/autonomic/{name}.py").read_text())
        imports = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
        imports |= {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
        assert imports <= allowed
