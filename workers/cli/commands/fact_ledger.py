"""What `hippocampus facts` shows and changes beside the facts that hold: candidates, and merged keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, get_args
from uuid import UUID

import click

from hippocampus.facts.ledger import FactLedger
from hippocampus.records import FactCandidate, FactMerge, FactType
from workers.cli import databases, output
from workers.cli.owners import Owner, find_owner, json_option, owner_options
from workers.cli.page import Item, write_items
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

type_option = click.option("--type", "fact_type", type=click.Choice(get_args(FactType)), help="Only of this type.")


@click.command("candidates", epilog="Example:  hippocampus facts candidates --type preference")
@owner_options
@type_option
@page_options(100)
@json_option
def candidates(
    app: str | None, user: str | None, fact_type: FactType | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List what was too unsure to replace what held."""

    async def work(_config: Settings, pool: Pool) -> Paged[FactCandidate]:
        owner = await find_owner(pool, app, user)
        pages = Pages(cursor, limit, "candidates", owner.app, owner.user, fact_type)
        found = await FactLedger(pool).list_candidates(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,
            limit=limit,
            after=pages.begin(tuple[str, str, datetime, UUID]),
        )
        return pages.full(found, lambda each: (each.fact_type, each.key, each.valid_from, each.id))

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        columns = ("confidence", "type", "key", "unsure", "what holds", "said", "id")
        items = [_candidate(each) for each in page.rows]
        write_items(columns, items, empty=page.empty("Nothing waits to be believed."))
    tell_more(page)


@click.command("merges", epilog="Example:  hippocampus facts merges --type preference")
@owner_options
@type_option
@page_options(100)
@json_option
def merges(
    app: str | None, user: str | None, fact_type: FactType | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List keys that were taken for other spellings of a key, the newest first."""

    async def work(_config: Settings, pool: Pool) -> Paged[FactMerge]:
        owner = await find_owner(pool, app, user)
        pages = Pages(cursor, limit, "merges", owner.app, owner.user, fact_type)
        found = await FactLedger(pool).list_merges(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,
            limit=limit,
            after=pages.begin(tuple[datetime, UUID]),
        )
        return pages.full(found, lambda each: (each.merged_at, each.id))

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        columns = ("likeness", "type", "key", "taken for", "by", "when", "undone", "id")
        write_items(columns, [_merge(each) for each in page.rows], empty=page.empty("No keys were merged."))
    tell_more(page)


@click.command("promote", epilog="Example:  hippocampus facts promote 0199…")
@click.argument("candidate_id", type=click.UUID)
@owner_options
@json_option
def promote(candidate_id: UUID, app: str | None, user: str | None, as_json: bool) -> None:
    """Believe a candidate."""
    _change(app, user, as_json, lambda ledger, who: ledger.promote(candidate_id, app_name=who.app, user_id=who.user))


@click.command("undo-merge", epilog="Example:  hippocampus facts undo-merge 0199…")
@click.argument("merge_id", type=click.UUID)
@owner_options
@json_option
def undo_merge(merge_id: UUID, app: str | None, user: str | None, as_json: bool) -> None:
    """Part a merged key: what was said under it becomes a fact of its own."""
    _change(app, user, as_json, lambda ledger, who: ledger.undo_merge(merge_id, app_name=who.app, user_id=who.user))


def _change(
    app: str | None,
    user: str | None,
    as_json: bool,
    change: Callable[[FactLedger, Owner], Awaitable[UUID | None]],
) -> None:
    async def work(_config: Settings, pool: Pool) -> UUID | None:
        return await change(FactLedger(pool), await find_owner(pool, app, user))

    fact_id = databases.run(work)
    if as_json:
        output.write_json({"fact_id": fact_id})
    else:
        click.echo(f"It is the fact {fact_id} now." if fact_id else "Nothing is left that was said under that key.")


def _candidate(each: FactCandidate) -> Item:
    said, holds = output.show_fact(each.value), output.show_fact(each.held_value)
    when = output.show_time(each.valid_from)
    row = (each.confidence, each.fact_type, each.key, said, f"{holds} ({each.held_confidence:.2f})", when, str(each.id))
    notes = (
        f"{each.fact_type}, {each.key}; said {when}",
        f"what holds: {holds} ({each.held_confidence:.2f})",
        str(each.id),
    )
    return Item(row, f"{each.confidence:.2f}", said, notes)


def _merge(each: FactMerge) -> Item:
    when, undone = output.show_time(each.merged_at), output.show_time(each.undone_at)
    row = (each.similarity, each.fact_type, each.from_key, each.to_key, each.method, when, undone, str(each.id))
    notes = (f"{each.fact_type}, by {each.method}, {when}" + (f", undone {undone}" if undone else ""), str(each.id))
    return Item(row, f"{each.similarity:.2f}", f"{each.from_key} -> {each.to_key}", notes)
