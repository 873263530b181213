"""The survival rules: what keeps an installation alive, outermost first. No setting changes, removes or reorders them.

| rule | holds when | effect |
| --- | --- | --- |
| panic_rollback | effects on a target fail again and again while a release is in force | `rollback`, business off |
| auto_rollback | errors grow after a promotion | `rollback` |
| process_watchdog | a process has not been seen | `restart_role`, then `notify` |
| resource_guard | a disk or the memory is full | those of `DISK_EFFECTS`; `shed_load`, `restart_role` |
| llm_watchdog | a model does not answer | `notify`, `restart_command` |
| network_watchdog | neither names nor pages are reached | `notify` |
| error_escalate | an error that was not seen lately | `notify` per error |

They are pure functions of two snapshots: no clock, no I/O, no model, no network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pulse.autonomic.types import (
    KEY_BYTES_MAX,
    KEY_CHARS_MAX,
    TICK_MS_FAST,
    Done,
    Effect,
    Inner,
    Outcome,
    Rule,
    Sample,
    Snapshot,
    canonical_json,
)

#: This many failures in a row of effects on one target, the last within this time, call for an emergency rollback.
PANIC_FAILURES: Final = 3
PANIC_SECONDS: Final = 600
#: An emergency rollback is followed by no other for half an hour: it did not help.
PANIC_COOLDOWN_SECONDS: Final = 1_800

#: How long after a promotion errors count against it, how many it takes, and how many times those before.
WATCH_SECONDS: Final = 600
ROLLBACK_ERRORS: Final = 5
ROLLBACK_FACTOR: Final = 3

#: A process that misses this many report intervals, in two samples, counts as gone: two reports are missing, and the
#: third is late. The sense says how often processes report.
DEAD_REPORTS: Final = 2.5
DEAD_SAMPLES: Final = 2
#: What has not been seen for longer was given up by people.
FORGOTTEN_SECONDS: Final = 600
RESTART_COOLDOWN_SECONDS: Final = 30
#: Restarts of a process within 10 minutes; then people are notified instead.
RESTARTS_MAX: Final = 3

#: Per cent that are too full, in how many samples in a row, and below which it is over.
FULL_PERCENT: Final = 90
FULL_SAMPLES: Final = 3
FREE_PERCENT: Final = 80
#: Per cent of the last minute in which some process waited for memory (Linux's PSI).
PRESSURE_PERCENT: Final = 20
#: At this percentage the largest process is restarted.
MEMORY_EMERGENCY_PERCENT: Final = 95
RESOURCE_COOLDOWN_SECONDS: Final = 300
#: What frees a disk. Sessions are finalized, never deleted: what is consolidated, retention and upkeep can shrink.
DISK_EFFECTS: Final = ("gc_vitals", "prune", "retention_now", "archive_record", "finalize_idle")
#: How long reflections are postponed when memory is short.
SHED_SECONDS: Final = 300

#: A breaker opens for a minute at first: twice that is not a passing fault.
LLM_DOWN_SECONDS: Final = 120

NETWORK_SAMPLES: Final = 3

#: One message for each cause in a quarter of an hour.
NOTIFY_COOLDOWN_SECONDS: Final = 900
#: New errors that one tick reports; others follow with the next.
ESCALATED_MAX: Final = 8


async def panic_rollback(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    """Roll back at once when what keeps the installation alive fails repeatedly.

    It returns what is inside all the same: only the release is left out. Without the other survival rules, an
    installation in panic would have none.
    """
    failing = [
        target
        for target, done in curr.effects.items()
        if done.survival
        and target[0] != "rollback"
        and done.failures >= PANIC_FAILURES
        and curr.at - done.at < PANIC_SECONDS
    ]
    if not failing or curr.release is None:
        return await inner(prev, curr)
    effects, _ = await inner(prev, replace(curr, business=False))
    rollback = _survival(
        "rollback",
        "panic",
        {"release": curr.release[0], "cause": "panic", "failing": ["|".join(each) for each in failing[:4]]},
        PANIC_COOLDOWN_SECONDS,
    )
    return [rollback, *effects], TICK_MS_FAST


async def auto_rollback(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    """Roll back a release if errors rose after its promotion."""
    effects, tick_ms = await inner(prev, curr)
    if curr.release is None or not 0 <= curr.at - curr.release[1] < WATCH_SECONDS:
        return effects, tick_ms
    now, before = curr.errors
    if now < ROLLBACK_ERRORS or now <= ROLLBACK_FACTOR * before:
        return effects, tick_ms
    params = {"release": curr.release[0], "cause": "errors", "errors": now, "before": before}
    rollback = _survival("rollback", f"release:{curr.release[0]}", params, RESTART_COOLDOWN_SECONDS)
    return [rollback, *effects], TICK_MS_FAST


async def process_watchdog(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    """Restart a process that has not been seen; report one that was restarted too often."""
    effects, tick_ms = await inner(prev, curr)
    found = list(_dead(curr.senses.get("process-alive", ())))
    if not found:
        return effects, tick_ms
    own = []
    for process in found:
        key = _bounded(f"{process['role']}@{process['machine']}:{process['port']}")
        restarts = curr.effects.get(("restart_role", key), _NEVER).recent
        if restarts >= RESTARTS_MAX:
            own.append(_notice(f"flapping:{key}", {"code": "process_flapping", "process": key, "restarts": restarts}))
        else:
            own.append(_survival("restart_role", key, process, RESTART_COOLDOWN_SECONDS))
    return [*own, *effects], TICK_MS_FAST


async def resource_guard(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    """Free disks and memory before they are full. No session is ever deleted."""
    effects, tick_ms = await inner(prev, curr)
    own: list[Effect] = []
    for machine, samples in _by_machine(curr.senses.get("system-resource", ())):
        for path in sorted(samples[-1].data.get("disks", {})):
            percents = [each.data.get("disks", {}).get(path) for each in samples]
            if _is_full(percents, curr, _bounded(f"{machine}:{path}")):
                own += _clear_disk(_bounded(f"{machine}:{path}"), percents[-1])
        own += _free_memory(machine, samples, curr)
    quota = [each.data.get("percent") for each in curr.senses.get("database", ())]
    if _is_full(quota, curr, "database"):
        own += _clear_disk("database", quota[-1])
    return [*own, *effects], TICK_MS_FAST if own else tick_ms


async def llm_watchdog(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    """Report a model whose breaker stays open, and run the operator's command. It opens no breaker: the calls do."""
    effects, tick_ms = await inner(prev, curr)
    sample = curr.latest("llm-health")
    if sample is None:
        return effects, tick_ms
    own = []
    for breaker in sample.data.get("breakers", ()):
        if breaker["state"] == "closed" or breaker["seconds"] < LLM_DOWN_SECONDS:
            continue
        name = breaker["name"]
        own.append(_notice(f"llm:{name}", {"code": "model_down", "breaker": name, "seconds": int(breaker["seconds"])}))
        if sample.data.get("has_command"):
            own.append(_survival("restart_command", _bounded(name), {"breaker": name}, NOTIFY_COOLDOWN_SECONDS))
    return [*own, *effects], tick_ms


async def network_watchdog(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    """Report a machine that reaches neither names nor pages."""
    effects, tick_ms = await inner(prev, curr)
    own = [
        _notice(f"network:{machine}", {"code": "network_down", "machine": machine})
        for machine, samples in _by_machine(curr.senses.get("network", ()))
        if len(samples) >= NETWORK_SAMPLES
        and not any(each.data["dns"] or each.data["http"] for each in samples[-NETWORK_SAMPLES:])
    ]
    return [*own, *effects], tick_ms


async def error_escalate(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    """Report each error that processes logged in the last minute and that was not reported, and look again soon.

    The whole minute, since one tick reports only some of many: the others must not be lost with their samples.
    """
    effects, tick_ms = await inner(prev, curr)
    counts: dict[str, int] = {}
    for sample in curr.senses.get("error-log", ()):
        for name, count in sample.data.get("new", {}).items():
            counts[name] = counts.get(name, 0) + count
    if not counts:
        return effects, tick_ms
    own = []
    for name in sorted(counts):
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        done = curr.effects.get(("notify", f"error:{digest}"))
        if done is None or (done.state != "open" and curr.at >= done.at + NOTIFY_COOLDOWN_SECONDS):
            own.append(_notice(f"error:{digest}", {"code": "error_logged", "error": name[:200], "count": counts[name]}))
    return [*own[:ESCALATED_MAX], *effects], TICK_MS_FAST


#: Outermost first. The rules of a release are inside of all.
SURVIVAL: Final[tuple[Rule, ...]] = (
    panic_rollback,
    auto_rollback,
    process_watchdog,
    resource_guard,
    llm_watchdog,
    network_watchdog,
    error_escalate,
)

_NEVER = Done(at=float("-inf"), state="acked")


def _bounded(key: str) -> str:
    """Return a key that an effect may have: a long name of a machine or a disk must not switch its rule off."""
    if len(key) <= KEY_CHARS_MAX and len(canonical_json(key)) <= KEY_BYTES_MAX:
        return key
    return f"{key[:40]}~{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _survival(kind: str, key: str, params: Mapping[str, Any], cooldown_seconds: float) -> Effect:
    return Effect(kind, key, params, cooldown_seconds, survival=True)


def _notice(key: str, params: Mapping[str, Any]) -> Effect:
    return _survival("notify", _bounded(key), params, NOTIFY_COOLDOWN_SECONDS)


def _dead(samples: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    """Yield the processes that were not seen for too long in each of the last samples."""
    last = samples[-DEAD_SAMPLES:]
    if len(last) < DEAD_SAMPLES or any(each.data.get("is_settling") for each in last):
        return
    dead_seconds = DEAD_REPORTS * last[-1].data.get("report_seconds", float("inf"))
    before = [{(p["host"], p["port"], p["pid"]): p for p in each.data["processes"]} for each in last]
    for identity, process in before[-1].items():
        ages = [each[identity]["age"] if identity in each else 0 for each in before]
        if all(dead_seconds < age <= FORGOTTEN_SECONDS for age in ages):
            named = {name: process[name] for name in ("role", "machine", "host", "port", "pid", "started_at")}
            yield {**named, "silent_seconds": int(process["age"])}


def _by_machine(samples: Sequence[Sample]) -> Iterator[tuple[str, list[Sample]]]:
    machines: dict[str, list[Sample]] = {}
    for each in samples:
        machines.setdefault(each.machine, []).append(each)
    yield from sorted(machines.items())


def _is_full(percents: Sequence[float | None], curr: Snapshot, target: str, *, limit: float = FULL_PERCENT) -> bool:
    """Whether something is too full: in the last samples, or not yet free again since it was cleared."""
    last = [each for each in percents[-FULL_SAMPLES:] if each is not None]
    if len(last) == FULL_SAMPLES and min(last) >= limit:
        return True
    done = curr.effects.get(("prune", target)) or curr.effects.get(("shed_load", target))
    return done is not None and bool(last) and last[-1] >= FREE_PERCENT


def _clear_disk(target: str, percent: float | None) -> list[Effect]:
    return [
        _survival(kind, target, {"disk": target, "percent": percent}, RESOURCE_COOLDOWN_SECONDS)
        for kind in DISK_EFFECTS
    ]


def _free_memory(machine: str, samples: Sequence[Sample], curr: Snapshot) -> list[Effect]:
    target = _bounded(f"{machine}:memory")
    percents = [each.data.get("memory") for each in samples]
    pressures = [each.data.get("pressure") for each in samples[-FULL_SAMPLES:]]
    is_pressed = len(pressures) == FULL_SAMPLES and all(
        each is not None and each > PRESSURE_PERCENT for each in pressures
    )
    if not is_pressed and not _is_full(percents, curr, target):
        return []
    own = [
        _survival("shed_load", target, {"seconds": SHED_SECONDS, "percent": percents[-1]}, RESOURCE_COOLDOWN_SECONDS)
    ]
    last = percents[-FULL_SAMPLES:]
    is_emergency = len(last) == FULL_SAMPLES and all(
        each is not None and each >= MEMORY_EMERGENCY_PERCENT for each in last
    )
    largest = samples[-1].data.get("largest")
    if is_emergency and largest is not None:
        key = _bounded(f"{largest['role']}@{largest['machine']}:{largest['port']}")
        if curr.effects.get(("restart_role", key), _NEVER).recent < RESTARTS_MAX:
            own.append(_survival("restart_role", key, largest, RESOURCE_COOLDOWN_SECONDS))
    return own
