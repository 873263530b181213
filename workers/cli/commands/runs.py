"""`hippocampus runs`: list, show, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from hippocampus.names import require_session
from pulse.runs.records import Run
from pulse.runs.service import RunService
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.owners import find_owner, json_option, owner_options
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.group(cls=Listing, epilog="Examples:  hippocampus runs list order-17;  hippocampus runs show run-3")
def command() -> None:
    """List the runs of a session's agent, show one, or ask for its end."""


@command.command("list", epilog="Example:  hippocampus runs list order-17")
@click.argument("session_id")
@owner_options
@page_options(50)
@json_option
def list_(session_id: str, app: str | None, user: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List a session's runs, the newest first."""

    async def work(_config: Settings, pool: Pool) -> Paged[Run]:
        who = await find_owner(pool, app, user)
        pages = Pages(cursor, limit, "runs", who.app, who.user, session_id)
        await require_session(pool, who.app, who.user, session_id)
        found = await RunService(pool).list_runs(who.app, who.user, session_id, limit=limit, before=pages.begin(UUID))
        return pages.full(found, lambda run: run.id)

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        columns = ("run", "status", "events", "started", "ended", "error")
        rows = [
            (
                run.run_id,
                str(run.status),
                f"#{run.first_sequence_num} to #{run.last_sequence_num}",
                run.started_at,
                run.completed_at,
                run.error,
            )
            for run in page.rows
        ]
        output.write_table(columns, rows, empty=page.empty("No agent ran in this session."))
    tell_more(page)


@command.command("show", epilog="Example:  hippocampus runs show run-3 --app shop --user ann")
@click.argument("run_id")
@owner_options
@json_option
def show(run_id: str, app: str | None, user: str | None, as_json: bool) -> None:
    """Show a run: where it stands, who executes it, its thoughts and tool calls."""

    async def work(_config: Settings, pool: Pool) -> Run:
        who = await find_owner(pool, app, user)
        return await RunService(pool).get(who.app, who.user, run_id)

    _write(databases.run(work), as_json=as_json)


@command.command("cancel", epilog="Example:  hippocampus runs cancel run-3 --app shop --user ann")
@click.argument("run_id")
@owner_options
@json_option
def cancel(run_id: str, app: str | None, user: str | None, as_json: bool) -> None:
    """Ask whoever executes a run to end it."""

    async def work(_config: Settings, pool: Pool) -> Run:
        who = await find_owner(pool, app, user)
        service = RunService(pool)
        try:
            return await service.request_cancel(who.app, who.user, run_id)
        finally:
            await service.close()

    _write(databases.run(work), as_json=as_json)


def _write(run: Run, *, as_json: bool) -> None:
    if as_json:
        output.write_json(run)
        return
    output.write_fields(run)
