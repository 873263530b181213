"""`hippocampus import FILE`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workers.cli import databases, exit_codes, output, progress
from workers.cli.options import json_option
from workers.intake.source import Source
from workers.transfer.sessions import Imported, import_sessions

if TYPE_CHECKING:
    from pulse.database import Pool

REJECTS_SHOWN_MAX = 10


@click.command("import", epilog="Example:  hippocampus import shop.jsonl.gz --consolidate")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--consolidate", is_flag=True, help="Extract memories from the sessions again, from their first event.")
@json_option
@click.pass_context
def command(context: click.Context, file: Path, consolidate: bool, as_json: bool) -> None:
    """Store sessions that `hippocampus export` wrote.

    Each is stored whole or not at all. Existing sessions and states are left unchanged, so that running the command
    again completes an interrupted import. Exit code 1: something was rejected; the rest was stored.
    """
    source = Source(file)

    async def work(pool: Pool) -> Imported:
        with progress.file_bar(file.name, source, hidden=as_json) as bar:
            return await import_sessions(pool, source, consolidate=consolidate, on_progress=bar)

    done = databases.run(work, create=True)
    if as_json:
        output.write_json(dataclasses.asdict(done))
    else:
        click.echo(f"Imported {done.sessions} sessions with {done.events} events, and {done.states} states.")
        if done.sessions_known or done.states_kept:
            click.echo(f"Left unchanged: {done.sessions_known} sessions and {done.states_kept} states.")
        for rejected in done.rejected[:REJECTS_SHOWN_MAX]:
            click.echo(f"{file}, line {rejected.line}: {rejected.error}", err=True)
        if len(done.rejected) > REJECTS_SHOWN_MAX:
            click.echo(f"… and {len(done.rejected) - REJECTS_SHOWN_MAX} more; --json lists all.", err=True)
    if done.rejected:
        context.exit(exit_codes.FAILED)
