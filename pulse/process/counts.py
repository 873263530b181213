"""What this process has done since its start: plain numbers, which cost nothing. `pulse.telemetry` exports them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Numbers that only grow.

    Attributes:
        events_appended: new events, without those that were stored before.
        version_conflicts: statements refused because a session or a shared state had changed.
        conflict_retries: changes that were computed and sent again after such a conflict.
        states_near_limit: appends that left a state over 80 % of its app's limit.
        pool_waits, pool_wait_seconds: callers that found no connection free in their pool, and how long they waited.
        on_notified: called with the seconds from an event's append until its notification had it read.
        on_tool_call: called with the kind of a tool, what became of its call, and the seconds that it took.
    """

    events_appended: int = 0
    version_conflicts: int = 0
    conflict_retries: int = 0
    states_near_limit: int = 0
    pool_waits: int = 0
    pool_wait_seconds: float = 0.0
    on_notified: list[Callable[[float], None]] = field(default_factory=list)
    on_tool_call: list[Callable[[str, str, float], None]] = field(default_factory=list)


COUNTS = Counts()
