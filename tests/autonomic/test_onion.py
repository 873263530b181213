"""The onion, the border to the rules of a release, and the helpers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pulse import InvalidInputError
from pulse.autonomic import (
    Done,
    Effect,
    Inner,
    Outcome,
    Rule,
    Snapshot,
    adaptive_interval,
    clamp_tick,
    compose,
    cooldown,
    dedupe,
    error_backoff,
    onion,
)
from pulse.autonomic.types import canonical_json
from tests.support.autonomic_scene import NOW, kinds, run, samples, snapshot

FULL = {"system-resource": samples(*[{"memory": 10, "disks": {"/": 95}}] * 3)}
GUARDED = ["gc_vitals|m1:/", "prune|m1:/", "retention_now|m1:/", "archive_record|m1:/", "finalize_idle|m1:/"]


async def inside(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    return [Effect("notify", f"at {curr.at:g}")], 20_000


async def decorate(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    effects, tick_ms = await inner(prev, curr)
    return [*effects, Effect("notify", "more")], tick_ms - 1_000


async def bypass(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    return [], 7_000


async def transform(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    return await inner(prev, replace(curr, at=1.0))


async def pass_through(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    return await inner(prev, curr)


@pytest.mark.parametrize(
    ("rule", "keys", "tick_ms"),
    [
        (pass_through, ["at 1e+06"], 20_000),
        (bypass, [], 7_000),
        (decorate, ["at 1e+06", "more"], 19_000),
        (transform, ["at 1"], 20_000),
    ],
)
async def test_a_rule_passes_bypasses_decorates_and_transforms(rule: Rule, keys: list[str], tick_ms: int) -> None:
    effects, found = await compose([rule, inside])(snapshot(at=0), snapshot())
    assert ([each.key for each in effects], found) == (keys, tick_ms)


async def raises(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    raise KeyError("the vault code is 4711")


async def cancels(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    raise asyncio.CancelledError


async def sleeps(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    await asyncio.sleep(60)
    return [], 1


async def floods(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    return [Effect("notify", f"n{number}") for number in range(100)], 1


async def oversteps(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    return [Effect("restart_role", "writer", survival=True), Effect("notify", "fine", survival=True)], 10**9


async def calls_often(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
    for _ in range(100):
        await inner(prev, curr)
    return [], 15_000


def returns(value: Any) -> Rule:
    async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        return value  # type: ignore[no-any-return]

    return rule


MISBEHAVED: list[tuple[Rule, int, list[str]]] = [
    (raises, 0, ["border:KeyError"]),
    (cancels, 0, ["border:CancelledError"]),
    (sleeps, 0, ["border:TimeoutError"]),
    (floods, 32, ["border:effects_dropped"]),
    (oversteps, 1, ["border:effects_dropped"]),
    (calls_often, 0, []),
    (returns(None), 0, ["border:TypeError"]),
    (returns(([], float("nan"))), 0, ["border:InvalidInputError"]),
    (returns(([], True)), 0, ["border:InvalidInputError"]),
    (returns((["<function rule>"], 5_000)), 0, ["border:InvalidInputError"]),
    (returns((Effect("notify", "n"), 5_000)), 0, ["border:InvalidInputError"]),
]


@pytest.mark.parametrize(("rule", "count", "errors"), MISBEHAVED)
async def test_rules_of_a_release_never_stop_the_survival_rules(
    rule: Rule, count: int, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they do, the disk is freed in the same tick, and nothing gets past the border."""
    monkeypatch.setattr(onion, "BUSINESS_SECONDS_MAX", 0.02)
    effects, tick_ms, reported = await run(snapshot(FULL), rule)
    assert [f"{each.kind}|{each.key}" for each in effects][: len(GUARDED)] == GUARDED
    assert len(effects) == len(GUARDED) + count
    assert all(each.kind == "notify" and not each.survival for each in effects[len(GUARDED) :])
    assert reported == errors
    assert tick_ms == 5_000


async def test_a_survival_rule_that_raises_is_left_out_and_the_rest_runs_once() -> None:
    calls = []

    async def counted(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        calls.append(1)
        return [Effect("notify", "n")], 9_000

    async def late(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        await inner(prev, curr)
        raise RuntimeError

    errors: list[str] = []
    chain = compose([onion.guarded(late, errors.append), onion.guarded(raises, errors.append), counted])
    effects, tick_ms = await chain(snapshot(at=0), snapshot())
    assert ([each.key for each in effects], tick_ms, len(calls)) == (["n"], 9_000, 1)
    assert errors == ["rule:raises:KeyError", "rule:late:RuntimeError"]


async def test_a_process_that_stops_ends_its_tick() -> None:
    """A cancellation from outside is no failure of a rule."""
    errors: list[str] = []
    task = asyncio.create_task(
        compose([onion.border(sleeps, errors.append)])(snapshot(at=0), snapshot()),
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert errors == []


async def test_one_effect_per_target_and_none_that_is_open_or_rests() -> None:
    async def twice(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        return [Effect("notify", key, cooldown_seconds=60) for key in ("a", "a", "open", "rests", "rested")], 5_000

    known = {"open": Done(NOW - 999, "open"), "rests": Done(NOW - 59, "failed"), "rested": Done(NOW - 60, "acked")}
    curr = snapshot(effects={("notify", key): done for key, done in known.items()})
    assert await kinds(curr, twice) == ["notify|a", "notify|rested"]


@pytest.mark.parametrize(
    ("helper", "curr", "tick_ms"),
    [
        (clamp_tick(2_000, 3_000), snapshot(), 3_000),
        (clamp_tick(30_000), snapshot(), 30_000),
        (error_backoff(), snapshot(), 20_000),
        (error_backoff(), snapshot(errors=(1, 0)), 5_000),
        (error_backoff(), snapshot(errors=(3, 0)), 20_000),
        (error_backoff(), snapshot(errors=(10**6, 0)), 60_000),
        (adaptive_interval(), snapshot(), 5_000),
        (dedupe(), snapshot(), 20_000),
        (cooldown(60), snapshot(), 20_000),
    ],
)
async def test_helpers_choose_the_tick(helper: Rule, curr: Snapshot, tick_ms: int) -> None:
    assert (await compose([helper, inside])(snapshot(at=0), curr))[1] == tick_ms


async def test_helpers_change_effects() -> None:
    async def several(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        return [
            Effect("tool", "a", {"n": 1}, 5),
            Effect("tool", "a", {"n": 1}, 9),
            Effect("tool", "a", {"n": 2}),
        ], 5_000

    effects, _ = await compose([cooldown(60), dedupe(), several])(snapshot(at=0), snapshot())
    assert [(each.params["n"], each.cooldown_seconds) for each in effects] == [(1, 60), (2, 900)]
    assert (await compose([adaptive_interval()])(snapshot(at=0), snapshot()))[1] == 15_000


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": ""},
        {"kind": "Notify"},
        {"kind": 5},
        {"key": ""},
        {"key": "k" * 201},
        {"key": "\0"},
        {"params": []},
        {"params": {"n": float("nan")}},
        {"params": {"n": object()}},
        {"params": {"n": "\ud800"}},
        {"params": {"n": "a\0b"}},
        {"params": {"n": "x" * 8_192}},
        {"cooldown_seconds": -1},
        {"cooldown_seconds": 3_601},
        {"cooldown_seconds": True},
        {"cooldown_seconds": "5"},
    ],
)
def test_an_effect_that_could_not_be_stored_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Effect(**{"kind": "notify", "key": "k", **fields})


def test_canonical_json_identifies_a_value() -> None:
    assert canonical_json({"b": "ü", "a": [1, 2.5, None]}) == '{"a":[1,2.5,null],"b":"ü"}'.encode()
    curr = snapshot(FULL, {("notify", "a|b"): Done(1.0, "open", True, 2, 3)}, errors=(1, 2), release=(3, 4.0))
    assert Snapshot.from_json(curr.to_json()) == curr
