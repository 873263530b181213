"""`hippocampus runs`: list, show, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hippocampus.names import require_session
from pulse.runs.records import Run
from pulse.runs.service import RunService
from workers.cli import output
from workers.cli.groups import Listing
from workers.cli.options import json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.paging import Paged, PageOptions, page_options
from workers.cli.rows import Owner

if TYPE_CHECKING:
    from pulse.database import Pool


@click.group(cls=Listing, epilog="Examples:  hippocampus runs list order-17;  hippocampus runs show run-3")
def command() -> None:
    """List the runs of an agent in a session, show one, or cancel one."""


@command.command("list", epilog="Example:  hippocampus runs list order-17")
@click.argument("session_id")
@owner_options
@page_options(50)
def list_(session_id: str, whose: Whose, options: PageOptions) -> None:
    """List a session's runs, the newest first."""

    async def work(pool: Pool, owner: Owner) -> Paged[Run]:
        pages = options.of("runs", *owner, session_id)
        await require_session(pool, owner.app, owner.user, session_id)
        found = await RunService(pool).list_runs(
            owner.app, owner.user, session_id, limit=options.limit, before=pages.begin(UUID)
        )
        return pages.full(found, lambda run: run.id)

    columns = ("run", "status", "events", "started", "ended", "error")
    options.write(whose.run(work), columns, _row, empty="No agent ran in this session.")


@command.command("show", epilog="Example:  hippocampus runs show run-3 --app shop --user ann")
@click.argument("run_id")
@owner_options
@json_option
def show(run_id: str, whose: Whose, as_json: bool) -> None:
    """Show a run: its status, the process that executes it, its thoughts and tool calls."""
    run = whose.run(lambda pool, owner: RunService(pool).get(owner.app, owner.user, run_id))
    output.write_record(run, as_json=as_json)


@command.command("cancel", epilog="Example:  hippocampus runs cancel run-3 --app shop --user ann")
@click.argument("run_id")
@owner_options
@json_option
def cancel(run_id: str, whose: Whose, as_json: bool) -> None:
    """Request the process that executes a run to end it."""

    async def work(pool: Pool, owner: Owner) -> Run:
        service = RunService(pool)
        try:
            return await service.request_cancel(owner.app, owner.user, run_id)
        finally:
            await service.close()

    output.write_record(whose.run(work), as_json=as_json)


def _row(run: Run) -> tuple[Any, ...]:
    events = f"#{run.first_sequence_num} to #{run.last_sequence_num}"
    return (run.run_id, str(run.status), events, run.started_at, run.completed_at, run.error)
