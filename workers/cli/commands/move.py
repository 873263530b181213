"""`hippocampus move`: move an app to another cell while it is live."""

from __future__ import annotations

import asyncio
import dataclasses

import click

from workers import settings
from workers.cli import output
from workers.cli.options import json_option
from workers.settings import SettingsError
from workers.transfer import moves


@click.command(epilog="Example:  hippocampus move shop --to east")
@click.argument("app")
@click.option("--to", "cell", required=True, help="The cell: a name of HIPPOCAMPUS_CELLS, or main for DATABASE_URL's.")
@click.option(
    "--keep-seconds",
    type=click.FloatRange(0, 86_400),
    default=moves.GRACE_SECONDS,
    show_default=True,
    help="How long the former cell keeps the rows, in which every process follows.",
)
@json_option
def command(app: str, cell: str, keep_seconds: float, as_json: bool) -> None:
    """Move an app with everything that belongs to it to another cell.

    It stays available: writers wait only at the end, and then follow. Repeat the command if it was interrupted. An app
    that does not exist yet is placed: it begins in that cell.
    """
    config = settings.load()
    cells = config.all_direct_cells
    if cells is None:
        raise SettingsError(
            "DATABASE_URL and HIPPOCAMPUS_CELLS name the cells of a move: set both, such as"
            " HIPPOCAMPUS_CELLS='east=postgresql://…'."
        )
    moved = asyncio.run(
        moves.move(cells, app, cell, grace_seconds=keep_seconds, on_step=lambda text: click.echo(text, err=True))
    )
    if as_json:
        output.write_json(dataclasses.asdict(moved))
        return
    rows = [
        (name, each.rows, f"{each.hash & 0xFFFFFFFFFFFFFFFF:016x}") for name, each in moved.digests.items() if each.rows
    ]
    output.write_table(("table", "rows", "hash on both sides"), rows, empty="There was nothing to copy.")
