"""`hippocampus demo [FILE]`: the whole path, once, with real processes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from hippocampus.errors import HippocampusError
from hippocampus.transfer.given_memories import GivenMemories
from pulse.process.background import in_background
from pulse.session_service import OpenSessionService
from workers import settings
from workers.cli import databases, demo_report, interrupts, output, progress, rows, running
from workers.cli.commands.ingest import HowToRead, reading_options
from workers.cli.demo_report import Worked
from workers.cli.page import Page
from workers.cli.rows import JobCounts, Owner
from workers.intake import conversations, samples
from workers.intake.conversations import ConversationFile
from workers.intake.ingest import Ingested, ingest
from workers.models.factory import make_embedder, make_generator
from workers.models.reach import REPEAT_SECONDS, chosen_of, reach_of, report_unreachable
from workers.process.roles import RoleFailedError

if TYPE_CHECKING:
    from datetime import datetime

    from rich.progress import Progress, TaskID

    from hippocampus.errors import ProviderError
    from pulse.database import Pool
    from workers.process.forking import ForkServer
    from workers.settings import ChosenModel, Settings

APP = "demo"
POLL_SECONDS = 0.1
#: The demo gives up if no job ends for this long. A model's rate limit lasts a minute or two.
STALL_SECONDS = 240.0


class DemoFailedError(HippocampusError):
    """Jobs failed, or none ends any more. What was made before is kept."""


@click.command(epilog="Examples:  hippocampus demo;  hippocampus demo my-chats.jsonl")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@reading_options
def command(file: Path | None, how: HowToRead) -> None:
    """Show the whole path: append a conversation, consolidate it, search what is remembered.

    Starts an embedded PostgreSQL (unless DATABASE_URL is set) and every role as a process, on free ports, and stops
    them at the end. The data is kept. FILE may have any format that `hippocampus ingest` reads; the default is
    a sample.
    """
    config = settings.load()
    path = file or samples.sample_path()
    read = conversations.read(path, user=how.user, day_first=how.day_first, file_format=how.file_format)
    page = Page(output.console())
    demo_report.write_intro(page, config, path, read)
    asked = interrupts.Interrupts()
    interrupts.raise_on_all()
    try:
        with (
            running.fork_server() as forks,
            databases.opened(config, create=True, keep_seconds=running.grace_of(config)) as ready,
        ):
            steps = asyncio.run(_demo(page, ready, read, asked, forks, is_sample=file is None))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except RoleFailedError as error:
        raise settings.SettingsError(str(error)) from error
    demo_report.write_farewell(page, config, steps)


async def _demo(
    page: Page,
    config: Settings,
    read: ConversationFile,
    asked: interrupts.Interrupts,
    forks: ForkServer,
    *,
    is_sample: bool,
) -> demo_report.NextSteps:
    with asked.cancelling():
        await databases.migrated(config)
        async with (
            databases.pool_of(config) as pool,
            running.running(
                config,
                pool,
                free_port=True,
                on_change=lambda role, change: page.note(f"{role}: {change}", style="yellow"),
                forks=forks,
            ) as all_roles,
        ):
            asked.on_second = all_roles.supervisor.kill
            page.field("roles", f"{', '.join(all_roles.supervisor.pids)}: all run")
            async with in_background(_report_unreachable(config, page.screen)):
                worked = await _work(page.screen, pool, read)
            demo_report.write_worked(page, worked)
            owner = Owner(APP, read.sessions[0].user_id)
            steps = await demo_report.write(page, config, pool, read, owner, is_sample=is_sample)
            demo_report.write_places(page, all_roles)
            _raise_failures(worked)
            return steps


async def _report_unreachable(config: Settings, screen: Console, *, repeat_seconds: float = REPEAT_SECONDS) -> None:
    """Show which models do not answer and what to do, at once and again each minute, until they do."""

    def show(chosen: ChosenModel, fault: ProviderError | None) -> None:
        found = reach_of(chosen, fault)
        screen.print(Text(f"The {found.kind} {found.said}", style="yellow"), soft_wrap=True)

    generator, embedder = make_generator(config), make_embedder(config)
    models = chosen_of(config, generator, embedder)
    try:
        await report_unreachable(models, repeat_seconds=repeat_seconds, report=show)
    finally:
        await generator.close()
        await embedder.close()


async def _work(screen: Console, pool: Pool, read: ConversationFile) -> Worked:
    """Append the file, and wait until all of it is consolidated."""
    since = await rows.now(pool)
    service = OpenSessionService(pool)
    started = time.monotonic()
    with progress.make(screen) as bars:
        events, jobs = bars.add_task("events", total=read.event_count), bars.add_task("jobs", total=None)
        watch = asyncio.create_task(_watch(pool, since, bars, jobs))
        try:
            done, append_seconds = await _append(
                service, GivenMemories(pool), read, lambda steps: bars.advance(events, steps), started
            )
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            counts = await _wait(pool, since, bars, jobs)
        finally:
            watch.cancel()
            await service.close()
    return Worked(
        ingested=done,
        append_seconds=append_seconds,
        total_seconds=time.monotonic() - started,
        jobs_completed=counts.completed,
        jobs_failed=counts.failed,
        error=counts.error,
    )


async def _append(
    service: OpenSessionService,
    memories: GivenMemories,
    read: ConversationFile,
    advance: progress.Advance,
    started: float,
) -> tuple[Ingested, float]:
    done = Ingested()
    # One session at a time, so that the first is consolidated while the others are appended.
    for number, session in enumerate(read.sessions):
        one = replace(read, sessions=(session,), items_beside=() if number else read.items_beside)
        done = done.plus(
            await ingest(
                service,
                memories,
                one.items(),
                app_name=APP,
                user_id=session.user_id,
                file_format=read.file_format,
                finalize=True,
                on_progress=advance,
            )
        )
    return done, time.monotonic() - started


async def _watch(pool: Pool, since: datetime, bars: Progress, task: TaskID) -> None:
    while True:
        _show(bars, task, await rows.job_counts(pool, APP, since=since))
        await asyncio.sleep(POLL_SECONDS)


async def _wait(pool: Pool, since: datetime, bars: Progress, task: TaskID) -> JobCounts:
    """Wait until no job waits or runs. The first error of a job that will be retried is shown.

    Raises:
        DemoFailedError: no job has ended for too long.
    """
    moved_at = time.monotonic()
    before = await rows.job_counts(pool, APP, since=since)
    is_error_shown = False
    while True:
        counts = await rows.job_counts(pool, APP, since=since)
        _show(bars, task, counts)
        if counts.waiting_error and not is_error_shown:
            text = Text(f"A job will be retried. {counts.waiting_error}")
            bars.console.print(text, style="yellow", soft_wrap=True)
            is_error_shown = True
        if counts.waiting == 0:
            return counts
        if (counts.waiting, counts.ended) != (before.waiting, before.ended):
            before, moved_at = counts, time.monotonic()
        elif time.monotonic() - moved_at > STALL_SECONDS:
            why = f" {counts.waiting_error}" if counts.waiting_error else ""
            raise DemoFailedError(
                f"{counts.waiting} jobs wait, and none has ended for {STALL_SECONDS:.0f} s:"
                f" see `hippocampus jobs`.{why}"
            )
        await asyncio.sleep(POLL_SECONDS)


def _show(bars: Progress, task: TaskID, counts: JobCounts) -> None:
    bars.update(task, completed=counts.ended, total=counts.ended + counts.waiting)


def _raise_failures(worked: Worked) -> None:
    if worked.jobs_failed:
        reason = (worked.error or "").rstrip(".")
        raise DemoFailedError(
            f"{worked.jobs_failed} jobs failed: {reason}. See `hippocampus jobs --failed`; fix the cause, then"
            " run `hippocampus jobs retry ID`."
        )
