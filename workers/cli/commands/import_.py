"""`hippocampus import FILE`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workers.cli import databases, exit_codes, output, progress
from workers.cli.commands import ingest
from workers.cli.commands.ingest import HowToRead, reading_options
from workers.cli.options import json_option
from workers.intake.source import Source
from workers.transfer.sessions import Imported, import_sessions, is_export

if TYPE_CHECKING:
    from pulse.database import Pool

REJECTS_SHOWN_MAX = 10


@click.command("import", epilog="Example:  hippocampus import shop.jsonl.gz --consolidate")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--consolidate", is_flag=True, help="Extract memories from the sessions, from their first event.")
@click.option("--app", help="The app that sessions of another program belong to.  [default: default]")
@reading_options
@json_option
@click.pass_context
def command(
    context: click.Context, file: Path, consolidate: bool, app: str | None, how: HowToRead, as_json: bool
) -> None:
    """Store sessions that `hippocampus export` wrote, or what another program did, as `hippocampus ingest` stores it.

    Exported sessions keep their app and user. Each is stored whole or not at all. Existing sessions and states are left
    unchanged, so that running the command again completes an interrupted import. Exit code 1: something was rejected;
    the rest was stored.
    """
    source = Source(file)
    if how.file_format is not None or not is_export(source):
        values = {"app": app or "default", "finalize": consolidate, "dry_run": False, "rejects_path": None}
        context.invoke(ingest.command, paths=(file,), as_json=as_json, **dataclasses.asdict(how), **values)
        return
    if app is not None or how.user is not None:
        raise click.UsageError("The sessions of an export keep their app and user: leave --app and --user out.")

    async def work(pool: Pool) -> Imported:
        with progress.file_bar(file.name, source, hidden=as_json) as bar:
            return await import_sessions(pool, source, consolidate=consolidate, on_progress=bar)

    done = databases.run(work, create=True)
    if as_json:
        output.write_json(dataclasses.asdict(done))
    else:
        sessions, events = output.counted(done.sessions, "session"), output.counted(done.events, "event")
        click.echo(f"Imported {sessions} with {events}, and {output.counted(done.states, 'state')}.")
        if done.sessions_known or done.states_kept:
            known, kept = output.counted(done.sessions_known, "session"), output.counted(done.states_kept, "state")
            click.echo(f"Left unchanged: {known} and {kept}.")
        for rejected in done.rejected[:REJECTS_SHOWN_MAX]:
            click.echo(f"{file}, line {rejected.line}: {rejected.error}", err=True)
        if len(done.rejected) > REJECTS_SHOWN_MAX:
            click.echo(f"… and {len(done.rejected) - REJECTS_SHOWN_MAX} more; --json lists all.", err=True)
    if done.rejected:
        context.exit(exit_codes.FAILED)
