"""The onion: rules around rules, each of which sees what those inside of it decided.

A rule passes through (`return await inner(prev, curr)`), bypasses (does not call `inner`), decorates (changes what
`inner` returned) or transforms (`inner` gets another snapshot).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pulse.autonomic.types import TICK_MS_DEFAULT, TICK_MS_FAST, Done, Effect, Inner, Outcome, Rule, Snapshot, clamped
from pulse.errors import InvalidInputError

#: The time limit for all rules of a release together.
BUSINESS_SECONDS_MAX = 1.0
#: What rules of a release may ask for.
BUSINESS_KINDS = frozenset({"notify", "tool"})
BUSINESS_EFFECTS_MAX = 32

_CODE = re.compile(r"[A-Za-z0-9_.-]{1,100}")

#: Called with what went wrong, as 'rule:auto_rollback:KeyError'.
Report = Callable[[str], None]


async def innermost(_prev: Snapshot, _curr: Snapshot) -> Outcome:
    """Decide nothing, at the usual pace."""
    return [], TICK_MS_DEFAULT


def compose(rules: Sequence[Rule], inside: Inner = innermost) -> Inner:
    """Return the chain of rules, the first one outermost."""
    for rule in reversed(rules):
        inside = _around(rule, inside)
    return inside


def _around(rule: Rule, inner: Inner) -> Inner:
    async def chain(prev: Snapshot, curr: Snapshot) -> Outcome:
        return await rule(prev, curr, inner)

    return chain


def guarded(rule: Rule, report: Report) -> Rule:
    """Return a survival rule that cannot stop the others: if it raises, what is inside of it counts, run once."""
    name = getattr(rule, "__name__", "rule")

    async def run(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        known: list[Outcome] = []

        async def once(inner_prev: Snapshot, inner_curr: Snapshot) -> Outcome:
            if not known:
                known.append(await inner(inner_prev, inner_curr))
            effects, tick_ms = known[0]
            return list(effects), tick_ms

        try:
            effects, tick_ms = await rule(prev, curr, once)
            return [each if each.rule else replace(each, rule=name) for each in effects], clamped(tick_ms)
        except Exception as error:  # noqa: BLE001 - whatever a rule raises
            report(f"rule:{name}:{type(error).__name__}")
            return await once(prev, curr)

    return run


def border(business: Rule, report: Report, own_kinds: frozenset[str] = frozenset()) -> Rule:
    """Return the rules of a release as one that never raises, ends within a second, and asks only for what it may.

    That is `BUSINESS_KINDS`, and what the release's own executors execute.
    """

    async def run(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        if not curr.business:
            return await inner(prev, curr)
        try:
            async with asyncio.timeout(BUSINESS_SECONDS_MAX):
                effects, tick_ms = await business(prev, curr, inner)
            return _allowed(effects, report, own_kinds), clamped(tick_ms)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # The process stops.
            report("border:CancelledError")
        except Exception as error:  # noqa: BLE001 - whatever a rule raises
            report(f"border:{failure_code(error)}")
        return [], TICK_MS_FAST

    return run


def failure_code(error: BaseException) -> str:
    """Return what is recorded of a failure: a code or a class, and no message, which may quote anything."""
    code = str(getattr(error, "code", None) or "")
    return code if _CODE.fullmatch(code) else type(error).__name__[:100]


def _allowed(effects: Any, report: Report, own_kinds: frozenset[str]) -> list[Effect]:
    if not isinstance(effects, list) or not all(isinstance(each, Effect) for each in effects):
        raise InvalidInputError("a rule returns a list of effects and a tick")
    allowed = [each for each in effects if each.kind in BUSINESS_KINDS | own_kinds][:BUSINESS_EFFECTS_MAX]
    if len(allowed) < len(effects):
        report("border:effects_dropped")
    return [replace(each, survival=False, rule=each.rule or "business") for each in allowed]


def settle(effects: Sequence[Effect], curr: Snapshot) -> list[Effect]:
    """Return what is to be done of what was decided: one effect per target, none that is open or in its cooldown."""
    settled: dict[tuple[str, str], Effect] = {}
    for each in effects:
        done = curr.effects.get(each.target)
        if each.target in settled or (done is not None and _rests(each, done, curr.at)):
            continue
        settled[each.target] = each
    return list(settled.values())


def _rests(effect: Effect, done: Done, now: float) -> bool:
    return done.state == "open" or now < done.at + effect.cooldown_seconds


async def decide(
    survival: Sequence[Rule],
    business: Rule | None,
    prev: Snapshot,
    curr: Snapshot,
    report: Report,
    own_kinds: frozenset[str] = frozenset(),
) -> Outcome:
    """Run the survival rules around those of a release, and return what is to be done and when to tick again."""
    rules = [guarded(rule, report) for rule in survival]
    if business is not None:
        rules.append(border(business, report, own_kinds))
    effects, tick_ms = await compose(rules)(prev, curr)
    return settle(effects, curr), clamped(tick_ms)
