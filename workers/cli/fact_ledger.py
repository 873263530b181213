"""What `hippocampus facts` shows and changes besides current facts: candidates, and merged keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, get_args
from uuid import UUID

import click

from hippocampus.facts.ledger import FactLedger
from hippocampus.records import FactCandidate, FactMerge, FactType
from workers.cli import output
from workers.cli.options import json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import Item
from workers.cli.paging import Paged, PageOptions, page_options
from workers.cli.rows import Owner

if TYPE_CHECKING:
    from pulse.database import Pool

type_option = click.option("--type", "fact_type", type=click.Choice(get_args(FactType)), help="Only of this type.")


@click.command("candidates", epilog="Example:  hippocampus facts candidates --type preference")
@owner_options
@type_option
@page_options(100)
def candidates(whose: Whose, fact_type: FactType | None, options: PageOptions) -> None:
    """List statements that were too uncertain to replace a fact."""

    async def work(pool: Pool, owner: Owner) -> Paged[FactCandidate]:
        pages = options.of("candidates", *owner, fact_type)
        found = await FactLedger(pool).list_candidates(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,
            limit=options.limit,
            after=pages.begin(tuple[str, str, datetime, UUID]),
        )
        return pages.full(found, lambda each: (each.fact_type, each.key, each.valid_from, each.id))

    columns = ("confidence", "type", "key", "candidate", "fact", "said", "id")
    options.write(whose.run(work), columns, _candidate, empty="There are no candidates.")


@click.command("merges", epilog="Example:  hippocampus facts merges --type preference")
@owner_options
@type_option
@page_options(100)
def merges(whose: Whose, fact_type: FactType | None, options: PageOptions) -> None:
    """List keys that were merged into another spelling, the newest first."""

    async def work(pool: Pool, owner: Owner) -> Paged[FactMerge]:
        pages = options.of("merges", *owner, fact_type)
        found = await FactLedger(pool).list_merges(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,
            limit=options.limit,
            after=pages.begin(tuple[datetime, UUID]),
        )
        return pages.full(found, lambda each: (each.merged_at, each.id))

    columns = ("similarity", "type", "key", "merged into", "by", "when", "undone", "id")
    options.write(whose.run(work), columns, _merge, empty="No keys were merged.")


@click.command("promote", epilog="Example:  hippocampus facts promote 0199…")
@click.argument("candidate_id", type=click.UUID)
@owner_options
@json_option
def promote(candidate_id: UUID, whose: Whose, as_json: bool) -> None:
    """Make a candidate the current fact."""
    _change(whose, as_json, lambda ledger, who: ledger.promote(candidate_id, app_name=who.app, user_id=who.user))


@click.command("undo-merge", epilog="Example:  hippocampus facts undo-merge 0199…")
@click.argument("merge_id", type=click.UUID)
@owner_options
@json_option
def undo_merge(merge_id: UUID, whose: Whose, as_json: bool) -> None:
    """Separate a merged key: its statements become a fact of their own."""
    _change(whose, as_json, lambda ledger, who: ledger.undo_merge(merge_id, app_name=who.app, user_id=who.user))


def _change(whose: Whose, as_json: bool, change: Callable[[FactLedger, Owner], Awaitable[UUID | None]]) -> None:
    fact_id = whose.run(lambda pool, owner: change(FactLedger(pool), owner))
    if as_json:
        output.write_json({"fact_id": fact_id})
    else:
        click.echo(f"It is now the fact {fact_id}." if fact_id else "No statement under that key is left.")


def _candidate(each: FactCandidate) -> Item:
    text, held = output.show_fact(each.value), output.show_fact(each.held_value)
    when = output.show_time(each.valid_from)
    row = (each.confidence, each.fact_type, each.key, text, f"{held} ({each.held_confidence:.2f})", when, str(each.id))
    notes = (
        f"{each.fact_type}, {each.key}; said {when}",
        f"current fact: {held} ({each.held_confidence:.2f})",
        str(each.id),
    )
    return Item(row, f"{each.confidence:.2f}", text, notes)


def _merge(each: FactMerge) -> Item:
    when, undone = output.show_time(each.merged_at), output.show_time(each.undone_at)
    row = (each.similarity, each.fact_type, each.from_key, each.to_key, each.method, when, undone, str(each.id))
    notes = (f"{each.fact_type}, by {each.method}, {when}" + (f", undone {undone}" if undone else ""), str(each.id))
    return Item(row, f"{each.similarity:.2f}", f"{each.from_key} -> {each.to_key}", notes)
