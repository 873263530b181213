"""One run: open sessions, inject faults while writers append, drain everything, check the rules."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from hippocampus import jobs
from hippocampus.errors import JobNotFailedError
from pulse import database
from pulse.session_service import OpenSessionService
from tests.chaos import faults, scene, writers
from tests.chaos.recovery import Recoveries
from tests.chaos.roles import Slot
from tests.chaos.verdict import QUERIES, Findings, Judge, Observer
from tests.support.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from pulse.database import Pool

#: The idle timers are polled twice a minute, and a backlog takes time; an effect whose end could not be written is
#: taken up again after three minutes.
DRAIN_SECONDS_MAX = 240.0
POLL_SECONDS = 0.3
#: After the last fault nothing delays a writer's response.
ANSWERED_SECONDS_MAX = 60.0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The results of a run."""

    seed: int
    seconds: float
    findings: Findings
    ledger: writers.Ledger
    recoveries: Recoveries
    injector: faults.Injector
    slots: tuple[Slot, ...]
    retried_by_hand: collections.Counter[str] = field(default_factory=collections.Counter)
    backfills_by_hand: int = 0
    drain_seconds: float = 0.0
    totals: dict[str, int] = field(default_factory=dict)
    gemini: dict[str, Any] = field(default_factory=dict)


async def run(folder: Path, *, seed: int, seconds: float, kills_min: int) -> Outcome:
    """Do a whole run and return its results, including all violations."""
    async with scene.set_scene(folder, seed) as stage, await database.create_pool(stage.dsn, max_size=12) as pool:
        await pool.execute(QUERIES["set_policy"], scene.POLICY)
        await writers.open_sessions(pool)
        if late := await stage.late():
            raise RuntimeError(f"{', '.join(late)} did not start: see the logs in {folder}")
        observer, ledger = Observer(pool), writers.Ledger()
        judge, recoveries = Judge(observer, ledger), Recoveries(observer, stage.slots)
        injector = faults.Injector(stage.slots, observer, recoveries, stage.network, stage.restart_database)
        outcome = Outcome(
            seed=seed,
            seconds=seconds,
            findings=judge.findings,
            ledger=ledger,
            recoveries=recoveries,
            injector=injector,
            slots=stage.slots,
        )
        async with _going_on(judge.watch):
            async with _writing(stage, pool, outcome):
                await injector.run(faults.schedule(seed, seconds, kills_min))
            await recoveries.settle()
            await _drain(stage, pool, observer, outcome)
        # The exit codes of the roles are judged as well.
        await asyncio.gather(*(slot.end() for slot in stage.slots))
        await judge.final_check()
        _judge_ends(judge.findings, stage.slots)
        outcome.totals = dict((await observer.ask("totals"))[0])
        outcome.gemini = httpx.get(f"{stage.gemini_url}/__stats", timeout=WAIT_SECONDS).json()
        return outcome


@contextlib.asynccontextmanager
async def _going_on(loop: Callable[[asyncio.Event], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a loop until the block is left. An error in one cancels the other."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(loop(stop))
        try:
            yield
        finally:
            stop.set()


@contextlib.asynccontextmanager
async def _writing(stage: scene.Scene, pool: Pool, outcome: Outcome) -> AsyncIterator[None]:
    """Run two writers over the library and two over HTTP; each has its last response when the block is left."""
    service = OpenSessionService(pool)
    async with httpx.AsyncClient(base_url=stage.api_url, timeout=writers.ANSWER_SECONDS_MAX) as client:
        library, http = writers.by_library(service, outcome.ledger), writers.by_http(client, outcome.ledger)
        made = [
            writers.Writer(name, outcome.seed, append, outcome.ledger)
            for name, append in {"la": library, "lb": library, "ha": http, "hb": http}.items()
        ]
        stop = asyncio.Event()
        tasks = {asyncio.create_task(writer.run(stop), name=writer.name) for writer in made}
        try:
            yield
            stop.set()
            done, late = await asyncio.wait(tasks, timeout=ANSWERED_SECONDS_MAX)
            for task in done:
                task.result()
            outcome.findings.note("appends_unanswered", [task.get_name() for task in late], "after the last fault")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    await service.close()


async def _drain(stage: scene.Scene, pool: Pool, observer: Observer, outcome: Outcome) -> None:
    """Finalise half of the sessions, leave the others to their idle timers, and wait until all are consolidated.

    Jobs that failed permanently are run again, as an operator would, and counted.
    """
    began = time.monotonic()
    outcome.findings.note("roles_not_back", await stage.late(), "after the last fault")
    service = OpenSessionService(pool)
    for number in range(0, writers.SESSIONS, 2):
        await service.finalize_session(writers.APP, writers.user(writers.session(number)), writers.session(number))
    await service.close()
    while time.monotonic() - began < DRAIN_SECONDS_MAX and not await _is_drained(observer):
        await _retry_by_hand(pool, observer, outcome)
        await asyncio.sleep(POLL_SECONDS)
    outcome.drain_seconds = time.monotonic() - began


async def _is_drained(observer: Observer) -> bool:
    for rule in ("jobs_unfinished", "threads_behind", "texts_without_vector"):
        if await observer.ask(rule):
            return False
    return not await observer.ask("effects_stuck", 0.0)


async def _retry_by_hand(pool: Pool, observer: Observer, outcome: Outcome) -> None:
    for row in await observer.ask("failed_jobs"):
        with contextlib.suppress(JobNotFailedError):  # Another process did.
            await jobs.retry(pool, row["id"])
            outcome.retried_by_hand[row["error_code"] or "none"] += 1
    # An operator need not wait for the timer, which fires every five minutes.
    if await observer.ask("texts_without_vector") and not await observer.value("is_backfill_alive"):
        await observer.ask("ask_backfill")
        outcome.backfills_by_hand += 1


def _judge_ends(findings: Findings, slots: tuple[Slot, ...]) -> None:
    ended = [(slot.name, code) for slot in slots for code in slot.ends.by_itself]
    findings.note("roles_ended_unasked", ended, "by the processes")
    untidy = [(slot.name, code) for slot in slots for code in slot.ends.untidy]
    findings.note("roles_ended_untidily", untidy, "by the processes")
    # 2 is a refusal at start, for example because the database was down.
    crashed = [(slot.name, code) for slot in slots for code in slot.ends.refused if code != 2]
    findings.note("starts_crashed", crashed, "by the processes")
