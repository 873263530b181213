"""`hippocampus jobs`: list, show, enqueue, retry, cancel."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hippocampus import jobs
from hippocampus.errors import JobNotFailedError, JobNotFoundError
from hippocampus.memory_service import WAIT_SECONDS
from hippocampus.records import ConsolidationJob, JobStatus, JobType
from workers.cli import databases, exit_codes, output, rows
from workers.cli.groups import Listing
from workers.cli.moments import Seconds
from workers.cli.options import bundled, filter_options, json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import Page
from workers.cli.paging import Paged, PageOptions, limit_option, page_options
from workers.cli.rows import JobEvent, Owner
from workers.cli.watching import Watch, watch_options

if TYPE_CHECKING:
    from rich.console import Console

    from pulse.database import Pool


_RETRYABLE = (JobStatus.FAILED,)
_CANCELLABLE = (JobStatus.PENDING, JobStatus.RUNNING)
#: Until a person who waits gets the reason.
_SAID_AFTER_SECONDS = 5.0
_SAID_AGAIN_SECONDS = 60.0
_TYPES = click.Choice([each.value for each in JobType])


class _Waiting:
    """Says on standard error what a job waits for: soon, at its first error, and again each minute."""

    def __init__(self) -> None:
        self._due = time.monotonic() + _SAID_AFTER_SECONDS
        self._has_said_why = False

    def __call__(self, job: ConsolidationJob) -> None:
        if time.monotonic() < self._due and (self._has_said_why or not job.error):
            return
        self._due = time.monotonic() + _SAID_AGAIN_SECONDS
        if job.error:
            self._has_said_why = True
            click.echo(f"The job is retried. {job.error}: `hippocampus doctor` says what to do.", err=True)
        elif job.status is JobStatus.RUNNING:
            click.echo("A worker does the job.", err=True)
        else:
            click.echo("No worker has taken the job yet: `hippocampus doctor` says what to do.", err=True)


@dataclass(frozen=True, slots=True)
class Filter:
    """The options that select jobs; None selects all."""

    app: str | None
    user: str | None
    session: str | None
    job_type: str | None
    error_code: str | None

    async def find(
        self, pool: Pool, status: JobStatus | None, *, limit: int, before: UUID | None = None
    ) -> list[ConsolidationJob]:
        """Return the selected jobs, the newest first."""
        return await jobs.list_jobs(
            pool,
            app_name=self.app,
            user_id=self.user,
            session_id=self.session,
            status=status,
            job_type=JobType(self.job_type) if self.job_type else None,
            error_code=self.error_code,
            before=before,
            limit=limit,
        )


_filter_options = bundled(
    "selected",
    Filter,
    filter_options("app", "user", "session"),
    click.option("--type", "job_type", type=_TYPES, help="Only of this type."),
    click.option("--error-code", help="Only if the last attempt failed with it: 503, timeout, malformed, ..."),
)
_limit_option = limit_option(20)


@dataclass(frozen=True, slots=True)
class _Listed:
    page: Paged[ConsolidationJob]
    sessions: dict[UUID, str]  # ids by thread


@click.group(
    cls=Listing,
    epilog="Examples:  hippocampus jobs --failed;  hippocampus jobs --watch;  hippocampus jobs retry 0199…",
)
def command() -> None:
    """List consolidation jobs, the newest first; show, enqueue, retry or cancel them."""


@command.command("list", epilog="Examples:  hippocampus jobs list --status pending;  hippocampus jobs list --watch")
@click.option("--failed", is_flag=True, help="Only failed ones, with their errors.")
@click.option("--status", type=click.Choice([each.value for each in JobStatus]), help="Only with this status.")
@click.option("--before", type=click.UUID, help="Only older ones than this job.")
@_filter_options
@page_options(20)
@watch_options
def list_(
    failed: bool, status: str | None, before: UUID | None, selected: Filter, options: PageOptions, watch: Watch
) -> None:
    """List consolidation jobs, the newest first.

    With --watch the list is refreshed until Ctrl-C, which ends it with exit code 0; a pipe gets one block after
    another.
    """
    wanted = JobStatus.FAILED if failed else JobStatus(status) if status else None

    async def read(pool: Pool) -> _Listed:
        pages = options.of("jobs", *dataclasses.astuple(selected), wanted, before and str(before))
        found = await selected.find(pool, wanted, limit=options.limit, before=pages.begin(UUID) or before)
        names = await rows.session_names(pool, [job.thread_id for job in found])
        return _Listed(pages.full(found, lambda job: job.id), names)

    def write(listed: _Listed, screen: Console) -> None:
        _write_list(listed, screen, empty="No job has failed." if failed else "There are no jobs.")

    listed = watch.run(read, write, document_of=(lambda listed: listed.page.rows) if options.as_json else None)
    if listed is not None:
        listed.page.name_next()


def _write_list(listed: _Listed, screen: Console, *, empty: str) -> None:
    found, names = listed.page.rows, listed.sessions
    if found and screen.is_terminal:
        _write_items(Page(screen), found, names)
        return
    columns = ("job", "type", "status", "attempts", "session", "created", "outcome")
    cells = [
        (str(job.id), str(job.job_type), str(job.status), job.attempts, names.get(job.thread_id, ""), job.created_at,
         outcome(job))
        for job in found
    ]  # fmt: skip
    output.write_table(columns, cells, empty=listed.page.empty(empty), screen=screen)


def _write_items(page: Page, found: list[ConsolidationJob], names: dict[UUID, str]) -> None:
    """Write jobs as items: an id gets a line of its own, to be copied, which a table might break."""
    for job in found:
        attempts = "1 attempt" if job.attempts == 1 else f"{job.attempts} attempts"
        origin = f"{names.get(job.thread_id, 'deleted session')}, {output.show_time(job.created_at)}, {attempts}"
        page.item(str(job.id), f"{job.job_type} {job.status}")
        page.note(f"{origin}{': ' if outcome(job) else ''}{outcome(job)}", indent=8)


def outcome(job: ConsolidationJob) -> str:
    """Return what a job made, in a few words, or why it failed."""
    if job.error:
        return job.error
    result: dict[str, Any] = dict(job.result)
    made = [word for key, word in (("summary", "1 summary"), ("episodic", "1 slice")) if key in result]
    made += [
        output.counted(len(result[f"{each}s"]), each)
        for each in ("fact", "insight")
        if isinstance(result.get(f"{each}s"), list)
    ]
    return ", ".join(made) or str(result.get("message", ""))


@command.command("show", epilog="Example:  hippocampus jobs show 0199…")
@click.argument("job_id", type=click.UUID)
@json_option
def show(job_id: UUID, as_json: bool) -> None:
    """Show a job: its result and its history; if it failed, its error and the model's raw reply."""

    async def work(pool: Pool) -> tuple[ConsolidationJob, list[JobEvent]]:
        return await jobs.get(pool, job_id), await rows.job_history(pool, job_id)

    job, history = databases.run(work)
    if as_json:
        output.write_json({**output.plain(job), "history": history})
        return
    output.write_fields(job)
    screen = output.console()
    for event in history:
        screen.print(f"{event.type:<20} {output.show(event.at)}", markup=False, soft_wrap=True)


@command.command("enqueue", epilog="Example:  hippocampus jobs enqueue order-17 --type deep_reflection --wait")
@click.argument("session_id")
@owner_options
@click.option(
    "--type",
    "job_type",
    type=_TYPES,
    default=JobType.FULL_CONSOLIDATION.value,
    show_default=True,
    help="The work to do.",
)
@click.option("--wait", is_flag=True, help="Wait until a worker has done it.")
@click.option(
    "--timeout-seconds",
    default=WAIT_SECONDS,
    show_default=True,
    type=Seconds(0.1, 86400),
    help="Wait no longer than this.",
)
@json_option
@click.pass_context
def enqueue(
    context: click.Context,
    session_id: str,
    whose: Whose,
    job_type: str,
    wait: bool,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Have the new events of a session consolidated, whatever its app's policy says. Exit code 1: the job failed."""

    async def work(pool: Pool, owner: Owner) -> ConsolidationJob:
        job = await jobs.enqueue_session(pool, owner.app, owner.user, session_id, JobType(job_type))
        return await jobs.wait(pool, job, timeout_seconds=timeout_seconds, on_poll=_Waiting()) if wait else job

    job = whose.run(work)
    output.write_record(job, as_json=as_json)
    if job.status is JobStatus.FAILED:
        context.exit(exit_codes.FAILED)


@command.command(
    "retry", epilog="Examples:  hippocampus jobs retry 0199…;  hippocampus jobs retry --all --error-code 503"
)
@click.argument("job_ids", type=click.UUID, nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every failed job that the options select, up to --limit.")
@_limit_option
@_filter_options
@json_option
def retry(job_ids: tuple[UUID, ...], is_all: bool, limit: int, selected: Filter, as_json: bool) -> None:
    """Run failed jobs again, with all their attempts. A cancelled job is replaced by a new one."""
    _change(jobs.retry, _RETRYABLE, job_ids, selected if is_all else None, limit=limit, as_json=as_json)


@command.command("cancel", epilog="Examples:  hippocampus jobs cancel 0199…;  hippocampus jobs cancel --all --app shop")
@click.argument("job_ids", type=click.UUID, nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every live job that the options select, up to --limit.")
@_limit_option
@_filter_options
@json_option
def cancel(job_ids: tuple[UUID, ...], is_all: bool, limit: int, selected: Filter, as_json: bool) -> None:
    """Cancel jobs: pending ones at once, running ones as soon as their worker notices."""
    _change(jobs.cancel, _CANCELLABLE, job_ids, selected if is_all else None, limit=limit, as_json=as_json)


def _change(
    change: Callable[[Pool, UUID], Awaitable[ConsolidationJob]],
    statuses: tuple[JobStatus, ...],
    job_ids: tuple[UUID, ...],
    selected: Filter | None,
    *,
    limit: int,
    as_json: bool,
) -> None:
    """Change the named jobs, or all selected ones with these statuses."""
    if (selected is None) == (not job_ids):
        raise click.UsageError("Name jobs by their ids, or use --all; not both.")

    async def work(pool: Pool) -> list[ConsolidationJob]:
        if selected is None:
            return [await change(pool, job_id) for job_id in job_ids]
        changed = []
        for status in statuses:
            for job in await selected.find(pool, status, limit=limit):
                with contextlib.suppress(JobNotFailedError, JobNotFoundError):  # Another process was faster.
                    changed.append(await change(pool, job.id))
        return changed

    changed = databases.run(work)
    if len(job_ids) == 1:
        output.write_record(changed[0], as_json=as_json)
    elif as_json:
        output.write_json(changed)
    else:
        output.write_table(
            ("job", "type", "status"),
            [(str(job.id), str(job.job_type), str(job.status)) for job in changed],
            empty="There is no such job.",
        )
