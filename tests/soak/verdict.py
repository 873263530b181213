"""What a soak must show: memory and connections that stay flat, queues that drain, no refused append."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: How much a process may grow after its first third, when caches and statement plans are filled.
GROWTH_MAX = 0.10
#: Below this, a growth is noise of the allocator.
GROWTH_BYTES_MIN = 12 * 2**20
#: An append takes longer only if something is in its way.
APPEND_P99_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The installation at one moment.

    Attributes:
        memory: resident bytes of each process, by name.
        connections: of the database.
        files: open files of each process, by name.
    """

    seconds: float
    memory: Mapping[str, int]
    connections: int
    files: Mapping[str, int]


@dataclass(slots=True)
class Run:
    """What a soak saw.

    Attributes:
        appends: seconds of each append that was acknowledged.
        searches: seconds of each search.
        failed: calls that were answered with an error, or not at all, by what was answered.
        waiting: jobs that are left at the end, by queue.
        missing: acknowledged events that are not stored, and sessions behind their last event.
    """

    samples: list[Sample] = field(default_factory=list)
    appends: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    missing: int = 0


def judge(run: Run) -> list[str]:
    """Return what is wrong with a run; nothing if all is as it must be."""
    wrong = [f"{count} calls failed with {what}" for what, count in sorted(run.failed.items())]
    wrong += [f"{count} jobs are left in {queue}" for queue, count in sorted(run.waiting.items()) if count]
    if run.missing:
        wrong.append(f"{run.missing} events or sessions are missing or behind")
    if not run.appends:
        wrong.append("nothing was appended")
    elif (p99 := percentile(run.appends, 0.99)) > APPEND_P99_SECONDS:
        wrong.append(f"99 % of the appends took up to {p99:.2f} s, not {APPEND_P99_SECONDS:g} s")
    for name in run.samples[-1].memory if run.samples else ():
        wrong += _growth(name, [sample.memory.get(name, 0) for sample in run.samples], "bytes", GROWTH_BYTES_MIN)
        wrong += _growth(name, [sample.files.get(name, 0) for sample in run.samples], "open files", 8)
    wrong += _growth("PostgreSQL", [sample.connections for sample in run.samples], "connections", 4)
    return wrong


def _growth(name: str, held: Sequence[int], what: str, least: int) -> list[str]:
    """Compare the medians of the second and the last third."""
    third = len(held) // 3
    if third == 0:
        return []
    before, after = statistics.median(held[third : 2 * third]), statistics.median(held[-third:])
    if after - before <= max(least, GROWTH_MAX * before):
        return []
    return [f"{name} grew from {before:,.0f} to {after:,.0f} {what}"]


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample below which `share` (0 to 1) of them lie."""
    ordered = sorted(samples)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
