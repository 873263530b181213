"""`hippocampus jobs`: list, show, retry, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hippocampus import jobs
from hippocampus.records import ConsolidationJob, JobStatus
from workers.cli import databases, output
from workers.cli.owners import QUERIES, json_option
from workers.cli.page import Page

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.group(
    invoke_without_command=True,
    epilog="Examples:  hippocampus jobs --failed;  hippocampus jobs retry 0199…",
)
@click.option("--failed", is_flag=True, help="Only failed ones, with their errors.")
@click.option("--app", help="Only of this app.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many at most.")
@json_option
@click.pass_context
def command(context: click.Context, failed: bool, app: str | None, limit: int, as_json: bool) -> None:
    """List consolidation jobs, the newest first; or show, retry, cancel one."""
    if context.invoked_subcommand is None:
        context.invoke(list_, failed=failed, app=app, limit=limit, as_json=as_json)


@command.command("list", epilog="Example:  hippocampus jobs list --status pending")
@click.option("--failed", is_flag=True, help="Only failed ones, with their errors.")
@click.option("--status", type=click.Choice([each.value for each in JobStatus]), help="Only in this state.")
@click.option("--app", help="Only of this app.")
@click.option("--user", help="Only of this user.")
@click.option("--session", help="Only of this session.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many at most.")
@json_option
def list_(
    failed: bool,
    app: str | None,
    limit: int,
    as_json: bool,
    status: str | None = None,
    user: str | None = None,
    session: str | None = None,
) -> None:
    """List consolidation jobs, the newest first."""
    wanted = JobStatus.FAILED if failed else JobStatus(status) if status else None

    async def work(_config: Settings, pool: Pool) -> tuple[list[ConsolidationJob], dict[UUID, str]]:
        found = await jobs.list_jobs(pool, app_name=app, user_id=user, session_id=session, status=wanted, limit=limit)
        rows = await pool.fetch(QUERIES["session_names"], [job.thread_id for job in found])
        return found, {row["id"]: row["session_id"] for row in rows}

    found, names = databases.run(work)
    if as_json:
        output.write_json(found)
        return
    screen = output.console()
    if found and screen.is_terminal:
        _write_items(Page(screen), found, names)
        return
    columns = ("job", "type", "status", "tries", "session", "created", "outcome")
    rows = [
        (str(job.id), str(job.job_type), str(job.status), job.attempts, names.get(job.thread_id, ""), job.created_at,
         said(job))
        for job in found
    ]  # fmt: skip
    output.write_table(columns, rows, empty="No job has failed." if failed else "There is no job.")


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
    """Show a job: its result; its error and the model's raw reply where it failed."""

    async def work(_config: Settings, pool: Pool) -> ConsolidationJob:
        return await jobs.get(pool, job_id)

    _write_job(databases.run(work), as_json=as_json)


@command.command("retry", epilog="Example:  hippocampus jobs retry 0199…")
@click.argument("job_id", type=click.UUID)
@json_option
def retry(job_id: UUID, as_json: bool) -> None:
    """Run a failed job again, with all its tries."""

    async def work(_config: Settings, pool: Pool) -> ConsolidationJob:
        return await jobs.retry(pool, job_id)

    _write_job(databases.run(work), as_json=as_json)


@command.command("cancel", epilog="Example:  hippocampus jobs cancel 0199…")
@click.argument("job_id", type=click.UUID)
@json_option
def cancel(job_id: UUID, as_json: bool) -> None:
    """Cancel a job: at once where it waits, as soon as its worker hears of it where it runs."""

    async def work(_config: Settings, pool: Pool) -> ConsolidationJob:
        return await jobs.cancel(pool, job_id)

    _write_job(databases.run(work), as_json=as_json)


def _write_job(job: ConsolidationJob, *, as_json: bool) -> None:
    if as_json:
        output.write_json(job)
        return
    screen = output.console()
    for name, value in output.plain(job).items():
        if value is not None and value != {}:
            screen.print(f"{name:<13} {output.show(value)}", markup=False, soft_wrap=True)
