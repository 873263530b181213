"""`hippocampus replay`: extract memories again with the current prompts and provider; a diff first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hippocampus.consolidation.replay import FactChange, MemoryReplay, ReplayReport
from workers import settings
from workers.cli import output
from workers.cli.options import json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import Item, clip, write_rows
from workers.models.factory import make_embedder, make_generator

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.cli.rows import Owner

CONTENT_CELLS_MAX = 400
_SIGNS = {"added": "+", "dropped": "-", "kept": "="}


@click.command(epilog="Examples:  hippocampus replay order-17;  hippocampus replay --app shop --user ann --apply")
@click.argument("session", required=False)
@owner_options
@click.option("--apply", is_flag=True, help="Make the changes; without it they are only shown.")
@click.option("--kept", is_flag=True, help="Show also what stays the same.")
@json_option
def command(session: str | None, whose: Whose, apply: bool, kept: bool, as_json: bool) -> None:
    """Extract the memories of a SESSION, or of all of a user's sessions, again, and show what would change.

    If it is interrupted, running it again continues where it was.
    """
    if session is None and whose.user is None:
        raise click.UsageError("Give a SESSION, or --user for all of a user's sessions.")

    async def work(pool: Pool, owner: Owner) -> ReplayReport:
        config = settings.load()
        generator, embedder = make_generator(config), make_embedder(config)
        try:
            replay = MemoryReplay(pool, generator, embedder, slice_tokens=config.slice_tokens)
            return await replay.replay(owner.app, owner.user, session, apply=apply)
        finally:
            await generator.close()
            await embedder.close()

    report = whose.run(work)
    if as_json:
        output.write_json({**output.plain(report), "counts": report.counts})
        return
    _write(report, with_kept=kept)


def _write(report: ReplayReport, *, with_kept: bool) -> None:
    shown = [each for each in report.changes if with_kept or each.change != "kept"]
    items = [
        Item(
            (each.change, each.kind, each.content),
            _SIGNS[each.change],
            clip(" ".join(each.content.split()), CONTENT_CELLS_MAX),
            (each.kind,),
        )
        for each in shown
    ]
    write_rows(("change", "kind", "content"), items, empty="Nothing changes.")
    for fact in report.facts:
        click.echo(_describe(fact))
    counts = report.counts
    done = "Changed" if report.applied else "Nothing was changed; with --apply it would be"
    click.echo(f"{done}: {counts['added']} added, {counts['dropped']} dropped, {counts['kept']} kept.")


def _describe(fact: FactChange) -> str:
    before, after = ("nothing" if value is None else output.show_fact(value) for value in (fact.before, fact.after))
    return f"{fact.fact_type}, {fact.key}: {before} -> {after}"
