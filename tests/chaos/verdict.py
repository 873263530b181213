"""Checks the rules of verdict.sql, during a run and after it."""

from __future__ import annotations

import asyncio
import collections
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.postgres.statements import load_queries
from tests.chaos import writers
from workers.failures import DATABASE_FAULTS

if TYPE_CHECKING:
    from pulse.database import Pool

QUERIES = load_queries("tests.chaos", "verdict.sql")
#: Hold at every moment; the other rules of the first part take arguments.
ALWAYS = (
    "numbers_with_gaps",
    "slices_broken",
    "watermarks_jumped",
    "insights_not_once",
    "facts_not_once",
    "statuses_disagree",
    "jobs_lost",
    "effects_not_once",
)
AT_THE_END = ("threads_behind", "jobs_unfinished", "texts_without_vector")
#: Longer than every fault: a stopped process, three hanging calls, a stale heartbeat.
STUCK_SECONDS = 60.0
CHECK_SECONDS = 3.0
EXAMPLES_KEPT = 5
ASK_SECONDS_MAX = 60.0


class Observer:
    """Queries the database, and retries while it is down: its connections are cut like all others."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def ask(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        deadline = time.monotonic() + ASK_SECONDS_MAX
        while True:
            try:
                async with asyncio.timeout(30.0):
                    return await self.pool.fetch(QUERIES[name], *arguments)
            except DATABASE_FAULTS:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)

    async def value(self, name: str, *arguments: Any) -> Any:
        return (await self.ask(name, *arguments))[0][0]


@dataclass(slots=True)
class Findings:
    """The number of checks of each rule, and its violations."""

    checks: collections.Counter[str] = field(default_factory=collections.Counter)
    broken: collections.Counter[str] = field(default_factory=collections.Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, rule: str, wrong: list[Any], when: str) -> None:
        self.checks[rule] += 1
        # A lasting violation counts once.
        self.broken[rule] = max(self.broken[rule], len(wrong))
        if wrong:
            kept = self.examples.setdefault(rule, [])
            kept.extend(f"{when}: {_shown(each)}" for each in wrong[: EXAMPLES_KEPT - len(kept)])

    @property
    def total(self) -> int:
        return sum(self.broken.values())


class Judge:
    """Checks the database against the ledger."""

    def __init__(self, observer: Observer, ledger: writers.Ledger) -> None:
        self.findings = Findings()
        self._observer = observer
        self._ledger = ledger
        self._watermarks: dict[str, tuple[int, ...]] = {}

    async def watch(self, stop: asyncio.Event) -> None:
        """Check until stopped."""
        began = time.monotonic()
        while not stop.is_set():
            await self.check(f"at {time.monotonic() - began:.0f} s")
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self, when: str) -> None:
        """Check the rules that hold at every moment."""
        for rule in ALWAYS:
            await self._count(rule, when)
        await self._count("jobs_stuck", when, STUCK_SECONDS)
        sessions, ids, numbers = self._ledger.columns()
        await self._count("events_renumbered", when, sessions, ids, numbers, [writers.text(key) for key in ids])
        await self._compare_watermarks(when)

    async def final_check(self) -> None:
        """Check all rules, including those that hold only once everything is drained."""
        await self.check("at the end")
        for rule in AT_THE_END:
            await self._count(rule, "at the end")
        await self._count("effects_stuck", "at the end", STUCK_SECONDS)
        sessions, ids, _ = self._ledger.columns()
        await self._count("events_unknown", "at the end", sessions, ids)
        self.findings.note("ids_answered_twice", self._ledger.changed, "by the writers")
        self.findings.note("answers_unexplained", self._ledger.refused, "by the writers")

    async def _compare_watermarks(self, when: str) -> None:
        rows = await self._observer.ask("watermarks")
        now = {row["session_id"]: tuple(row)[1:] for row in rows}
        wrong = [
            (session_id, before, now.get(session_id))
            for session_id, before in self._watermarks.items()
            if session_id not in now or any(a < b for a, b in zip(now[session_id], before, strict=True))
        ]
        self.findings.note("watermarks_moved_back", wrong, when)
        self._watermarks = now

    async def _count(self, rule: str, when: str, *arguments: Any) -> None:
        self.findings.note(rule, await self._observer.ask(rule, *arguments), when)


def _shown(wrong: Any) -> str:
    return str(dict(wrong) if isinstance(wrong, asyncpg.Record) else wrong)[:500]
