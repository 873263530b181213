"""What `hippocampus facts` shows and changes beside the facts that hold: candidates, and merged keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import click

from hippocampus.facts import FactLedger
from hippocampus.records import FactCandidate, FactMerge
from workers.cli import databases, output
from workers.cli.owners import find_owner
from workers.cli.page import Item, write_items

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


def show(
    app: str | None,
    user: str | None,
    fact_type: str | None,
    *,
    what: Literal["candidates", "merges"],
    limit: int,
    as_json: bool,
) -> None:
    """List candidates, or merged keys."""

    async def work(_config: Settings, pool: Pool) -> Sequence[FactCandidate | FactMerge]:
        owner = await find_owner(pool, app, user)
        ledger = FactLedger(pool)
        listing = ledger.list_candidates if what == "candidates" else ledger.list_merges
        return await listing(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,  # type: ignore[arg-type]  # click checked it
            limit=limit,
        )

    found = databases.run(work)
    if as_json:
        output.write_json(list(found))
    elif what == "candidates":
        items = [_candidate(each) for each in found if isinstance(each, FactCandidate)]
        write_items(
            ("confidence", "type", "key", "unsure", "what holds", "said", "id"),
            items,
            empty="Nothing waits to be believed.",
        )
    else:
        items = [_merge(each) for each in found if isinstance(each, FactMerge)]
        write_items(
            ("likeness", "type", "key", "taken for", "by", "when", "undone", "id"), items, empty="No keys were merged."
        )


def change(app: str | None, user: str | None, *, promote: UUID | None, undo_merge: UUID | None, as_json: bool) -> None:
    """Believe a candidate, or part a merged key, and say which fact it is now."""

    async def work(_config: Settings, pool: Pool) -> UUID | None:
        owner = await find_owner(pool, app, user)
        ledger = FactLedger(pool)
        if promote is not None:
            return await ledger.promote(promote, app_name=owner.app, user_id=owner.user)
        assert undo_merge is not None  # noqa: S101  # one of the two is given
        return await ledger.undo_merge(undo_merge, app_name=owner.app, user_id=owner.user)

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
