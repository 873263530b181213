"""How often an idle process wakes."""

from __future__ import annotations

import asyncio
from pathlib import Path

_WINDOWS_MAX = 5


async def wakeups(pid: int, *, seconds: float, limit: float) -> list[int]:
    """Return how often the main thread of a process has waited in each of some windows of so many seconds.

    The last one is the first below the limit, or the fifth: what follows a start or a job may take longer than one
    window of a busy machine.
    """
    counts: list[int] = []
    while not counts or (counts[-1] >= limit and len(counts) < _WINDOWS_MAX):
        before = _waits(pid)
        await asyncio.sleep(seconds)
        counts.append(_waits(pid) - before)
    return counts


def _waits(pid: int) -> int:
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
