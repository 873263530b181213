"""`hippocampus jobs`: list, show, enqueue, retry, cancel."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from hippocampus import jobs
from hippocampus.errors import JobNotFailedError, JobNotFoundError
from hippocampus.memory_service import WAIT_SECONDS
from hippocampus.records import ConsolidationJob, JobStatus, JobType
from workers.cli import databases, output, watching
from workers.cli.groups import Listing
from workers.cli.moments import Seconds
from workers.cli.owners import QUERIES, find_owner, json_option, owner_options
from workers.cli.page import Page
from workers.cli.paging import tell_next

if TYPE_CHECKING:
    from rich.console import Console

    from pulse.database import Pool
    from workers.settings import Settings


Function = TypeVar("Function", bound=Callable[..., Any])
_RUNNABLE = (JobStatus.FAILED,)
_CANCELLABLE = (JobStatus.PENDING, JobStatus.RUNNING)


def narrowing(function: Function) -> Function:
    """Add the options that say which jobs are meant."""
    for option in (
        click.option("--error-code", help="Only those whose last attempt failed of this: 503, timeout, malformed, ..."),
        click.option("--type", "job_type", type=click.Choice([each.value for each in JobType]), help="Only of it."),
        click.option("--session", help="Only of this session."),
        click.option("--user", help="Only of this user."),
        click.option("--app", help="Only of this app."),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow:
    """Which jobs are meant; None does not narrow."""

    app: str | None = None
    user: str | None = None
    session: str | None = None
    job_type: str | None = None
    error_code: str | None = None
    limit: int = 20

    async def find(self, pool: Pool, status: JobStatus | None, before: UUID | None = None) -> list[ConsolidationJob]:
        """List them, the newest first."""
        return await jobs.list_jobs(
            pool,
            app_name=self.app,
            user_id=self.user,
            session_id=self.session,
            status=status,
            job_type=JobType(self.job_type) if self.job_type else None,
            error_code=self.error_code,
            before=before,
            limit=self.limit,
        )


_limit_option = click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many at most."
)
#: The jobs of a page, and the names of their sessions.
_Listed = tuple[list[ConsolidationJob], dict[UUID, str]]


@click.group(
    cls=Listing,
    epilog="Examples:  hippocampus jobs --failed;  hippocampus jobs --watch;  hippocampus jobs retry 0199…",
)
def command() -> None:
    """List consolidation jobs, the newest first; or show, enqueue, retry, cancel them."""


@command.command("list", epilog="Examples:  hippocampus jobs list --status pending;  hippocampus jobs list --watch")
@click.option("--failed", is_flag=True, help="Only failed ones, with their errors.")
@click.option("--status", type=click.Choice([each.value for each in JobStatus]), help="Only in this state.")
@click.option("--before", type=click.UUID, help="Only older ones than this job: the last one of the page before.")
@_limit_option
@narrowing
@watching.watch_options
@json_option
def list_(
    failed: bool,
    status: str | None,
    before: UUID | None,
    watch: bool,
    every_seconds: float,
    as_json: bool,
    **narrow: Any,
) -> None:
    """List consolidation jobs, the newest first.

    With --watch it is drawn anew until Ctrl-C, which ends it with exit code 0; in a pipe, one block follows the other.
    """
    wanted = JobStatus.FAILED if failed else JobStatus(status) if status else None

    async def read(_config: Settings, pool: Pool) -> _Listed:
        found = await Narrow(**narrow).find(pool, wanted, before)
        rows = await pool.fetch(QUERIES["session_names"], [job.thread_id for job in found])
        return found, {row["id"]: row["session_id"] for row in rows}

    def write(listed: _Listed, screen: Console) -> None:
        _write_list(listed, screen, empty="No job has failed." if failed else "There is no job.")

    if watch:
        watching.watch(
            read, write, every_seconds=every_seconds, document_of=(lambda listed: listed[0]) if as_json else None
        )
        return
    found, names = databases.run(read)
    if as_json:
        output.write_json(found)
    else:
        write((found, names), output.console())
    if len(found) == narrow["limit"]:
        tell_next("--before", str(found[-1].id))


def _write_list(listed: _Listed, screen: Console, *, empty: str) -> None:
    found, names = listed
    if found and screen.is_terminal:
        _write_items(Page(screen), found, names)
        return
    columns = ("job", "type", "status", "tries", "session", "created", "outcome")
    rows = [
        (str(job.id), str(job.job_type), str(job.status), job.attempts, names.get(job.thread_id, ""), job.created_at,
         said(job))
        for job in found
    ]  # fmt: skip
    output.write_table(columns, rows, empty=empty, screen=screen)


def _write_items(page: Page, found: list[ConsolidationJob], names: dict[UUID, str]) -> None:
    """A job's id is there to be copied: it gets a line of its own, which no table would break."""
    for job in found:
        tries = "1 try" if job.attempts == 1 else f"{job.attempts} tries"
        place = f"{names.get(job.thread_id, 'deleted session')}, {output.show_time(job.created_at)}, {tries}"
        page.item(str(job.id), f"{job.job_type} {job.status}")
        page.note(f"{place}{': ' if said(job) else ''}{said(job)}", indent=8)


def said(job: ConsolidationJob) -> str:
    """Say what a job made, in a few words, or why it did not."""
    if job.error:
        return job.error
    result: dict[str, Any] = dict(job.result)
    parts = [word for key, word in (("summary", "1 summary"), ("episodic", "1 slice")) if key in result]
    parts += [f"{len(result[key])} {key}" for key in ("facts", "insights") if isinstance(result.get(key), list)]
    return ", ".join(parts) or str(result.get("message", ""))


@command.command("show", epilog="Example:  hippocampus jobs show 0199…")
@click.argument("job_id", type=click.UUID)
@json_option
def show(job_id: UUID, as_json: bool) -> None:
    """Show a job: its result and what happened to it; its error and the model's raw reply where it failed."""

    async def work(_config: Settings, pool: Pool) -> tuple[ConsolidationJob, list[dict[str, Any]]]:
        job = await jobs.get(pool, job_id)
        return job, [dict(row) for row in await pool.fetch(QUERIES["job_history"], job_id)]

    job, history = databases.run(work)
    if as_json:
        output.write_json({**output.plain(job), "history": output.plain(history)})
        return
    output.write_fields(job)
    screen = output.console()
    for event in history:
        screen.print(f"{event['type']:<20} {output.show(event['at'])}", markup=False, soft_wrap=True)


@command.command("enqueue", epilog="Example:  hippocampus jobs enqueue order-17 --type deep_reflection --wait")
@click.argument("session_id")
@owner_options
@click.option(
    "--type",
    "job_type",
    type=click.Choice([each.value for each in JobType]),
    default=JobType.FULL_CONSOLIDATION.value,
    show_default=True,
    help="What is to be done.",
)
@click.option("--wait", is_flag=True, help="Until a worker has done it.")
@click.option("--timeout-seconds", default=WAIT_SECONDS, show_default=True, type=Seconds(0.1, 86400), help="At most.")
@json_option
@click.pass_context
def enqueue(
    context: click.Context,
    session_id: str,
    app: str | None,
    user: str | None,
    job_type: str,
    wait: bool,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Have what is new in a session consolidated, whatever its app's policy says. Exit code 1: the job failed."""

    async def work(_config: Settings, pool: Pool) -> ConsolidationJob:
        who = await find_owner(pool, app, user)
        job = await jobs.enqueue_session(pool, who.app, who.user, session_id, JobType(job_type))
        return await jobs.wait(pool, job, timeout_seconds=timeout_seconds) if wait else job

    job = databases.run(work)
    if as_json:
        output.write_json(job)
    else:
        output.write_fields(job)
    if job.status is JobStatus.FAILED:
        context.exit(1)


@command.command(
    "retry", epilog="Examples:  hippocampus jobs retry 0199…;  hippocampus jobs retry --all --error-code 503"
)
@click.argument("job_ids", type=click.UUID, nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every failed job that the options name, up to --limit.")
@_limit_option
@narrowing
@json_option
def retry(job_ids: tuple[UUID, ...], is_all: bool, as_json: bool, **narrow: Any) -> None:
    """Run failed jobs again, with all their tries. For a cancelled job, another is made."""
    _change(jobs.retry, _RUNNABLE, job_ids, Narrow(**narrow) if is_all else None, as_json=as_json)


@command.command("cancel", epilog="Examples:  hippocampus jobs cancel 0199…;  hippocampus jobs cancel --all --app shop")
@click.argument("job_ids", type=click.UUID, nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every live job that the options name, up to --limit.")
@_limit_option
@narrowing
@json_option
def cancel(job_ids: tuple[UUID, ...], is_all: bool, as_json: bool, **narrow: Any) -> None:
    """Cancel jobs: at once where they wait, as soon as their worker hears of it where they run."""
    _change(jobs.cancel, _CANCELLABLE, job_ids, Narrow(**narrow) if is_all else None, as_json=as_json)


def _change(
    change: Callable[[Pool, UUID], Awaitable[ConsolidationJob]],
    statuses: tuple[JobStatus, ...],
    job_ids: tuple[UUID, ...],
    narrow: Narrow | None,
    *,
    as_json: bool,
) -> None:
    """Change the jobs that are named, or all of these statuses that `narrow` means."""
    if (narrow is None) == (not job_ids):
        raise click.UsageError("Name jobs by their ids, or say --all; not both.")

    async def work(_config: Settings, pool: Pool) -> list[ConsolidationJob]:
        if narrow is None:
            return [await change(pool, job_id) for job_id in job_ids]
        changed = []
        for status in statuses:
            for job in await narrow.find(pool, status):
                with contextlib.suppress(JobNotFailedError, JobNotFoundError):  # Somebody was faster.
                    changed.append(await change(pool, job.id))
        return changed

    changed = databases.run(work)
    if as_json:
        output.write_json(changed[0] if len(job_ids) == 1 else changed)
    elif len(job_ids) == 1:
        output.write_fields(changed[0])
    else:
        output.write_table(
            ("job", "type", "status"),
            [(str(job.id), str(job.job_type), str(job.status)) for job in changed],
            empty="There is no such job.",
        )
