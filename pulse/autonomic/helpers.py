"""Rules that others are built with: each returns a rule for `compose`."""

from __future__ import annotations

from dataclasses import replace

from pulse.autonomic.types import (
    TICK_MS_DEFAULT,
    TICK_MS_FAST,
    TICK_MS_MAX,
    TICK_MS_MIN,
    Inner,
    Outcome,
    Rule,
    Snapshot,
)


def clamp_tick(low_ms: int = TICK_MS_MIN, high_ms: int = TICK_MS_MAX) -> Rule:
    """Keep the tick of the rules inside between two bounds."""

    async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        effects, tick_ms = await inner(prev, curr)
        return effects, min(max(tick_ms, low_ms), high_ms)

    return rule


def error_backoff(base_ms: int = TICK_MS_FAST, max_ms: int = TICK_MS_MAX) -> Rule:
    """Tick more slowly while errors last: twice the time for each error of the last 10 minutes."""

    async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        effects, tick_ms = await inner(prev, curr)
        errors = curr.errors[0]
        return effects, tick_ms if errors == 0 else min(base_ms * 2 ** min(errors - 1, 16), max_ms)

    return rule


def adaptive_interval(busy_ms: int = TICK_MS_FAST, idle_ms: int = TICK_MS_DEFAULT) -> Rule:
    """Tick fast while there is something to do, else slowly."""

    async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        effects, _ = await inner(prev, curr)
        is_busy = bool(effects) or any(done.state == "open" for done in curr.effects.values())
        return effects, busy_ms if is_busy else idle_ms

    return rule


def dedupe() -> Rule:
    """Keep the first of equal effects: the same kind, key and params."""

    async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        effects, tick_ms = await inner(prev, curr)
        return list({each.hash(): each for each in reversed(effects)}.values())[::-1], tick_ms

    return rule


def cooldown(seconds: float) -> Rule:
    """Let every effect rest for at least this many seconds."""

    async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
        effects, tick_ms = await inner(prev, curr)
        return [replace(each, cooldown_seconds=max(each.cooldown_seconds, seconds)) for each in effects], tick_ms

    return rule
