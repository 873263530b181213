"""`hippocampus facts`: list, show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import click

from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import Fact, FactVersion
from pulse.errors import InvalidInputError
from workers.cli import databases, output
from workers.cli.commands import fact_ledger, fact_styles
from workers.cli.groups import Listing
from workers.cli.moments import MOMENT
from workers.cli.owners import QUERIES, find_owner, json_option, owner_options
from workers.cli.page import Item, write_items
from workers.cli.paging import LIMIT_MAX, Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """A turn that something was drawn from."""

    session_id: str
    sequence_num: int
    author: str
    text: str
    occurred_at: datetime


#: Turns by thread and sequence number.
Turns = dict[tuple[UUID, int], SaidTurn]


@click.group(
    cls=Listing,
    epilog="Examples:  hippocampus facts --type preference;  hippocampus facts show preference:tea;"
    "  hippocampus facts --as-of 2026-05-01",
)
def command() -> None:
    """List what is known of a user, or one fact's history, and look after what stands beside it."""


for each in (
    fact_ledger.candidates, fact_ledger.promote, fact_ledger.merges, fact_ledger.undo_merge,
    fact_styles.styles, fact_styles.set_style, fact_styles.reset_style,
):  # fmt: skip
    command.add_command(each)


@command.command("list", epilog="Example:  hippocampus facts list --as-of 2026-05-01")
@owner_options
@fact_ledger.type_option
@click.option("--as-of", type=MOMENT, help="What was true then, such as 2026-05-01 or 2026-05-01T12:00:00Z.")
@click.option("--known-at", type=MOMENT, help="As it was known then.")
@page_options(100)
@json_option
def list_(
    app: str | None,
    user: str | None,
    fact_type: str | None,
    as_of: datetime | None,
    known_at: datetime | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List what is known of a user, with the turns that say so."""

    async def work(_config: Settings, pool: Pool) -> tuple[Paged[Fact], Turns]:
        owner = await find_owner(pool, app, user)
        moments = (each and each.isoformat() for each in (as_of, known_at))
        pages = Pages(cursor, limit, "facts", owner.app, owner.user, fact_type, *moments)
        facts = await OpenMemoryService(pool, None).list_facts(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,  # type: ignore[arg-type]  # click checked it
            as_of=as_of,
            known_at=known_at,
            limit=limit,
            after=pages.begin(tuple[str, str]),
        )
        return pages.full(facts, lambda fact: (fact.fact_type, fact.key)), await read_turns(pool, facts)

    page, turns = databases.run(work)
    if as_json:
        output.write_json([{**output.plain(each), "said": quotes(each, turns)} for each in page.rows])
    else:
        items = [_item(each, turns) for each in page.rows]
        columns = ("type", "key", "fact", "confidence", "said in")
        write_items(columns, items, empty=page.empty("Nothing is known yet."))
    tell_more(page)


@command.command("show", epilog="Example:  hippocampus facts show preference:tea")
@click.argument("key")
@owner_options
@fact_ledger.type_option
@json_option
def show(key: str, app: str | None, user: str | None, fact_type: str | None, as_json: bool) -> None:
    """Show every statement about a key, what holds first: what it says, from when until when, and who said so."""

    async def work(_config: Settings, pool: Pool) -> tuple[list[FactVersion], Turns]:
        owner = await find_owner(pool, app, user)
        service = OpenMemoryService(pool, None)
        facts = await service.list_facts(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,  # type: ignore[arg-type]  # click checked it
            key=key,
            limit=LIMIT_MAX,
        )
        if not facts:
            raise InvalidInputError(f"There is no fact with the key {key!r:.80}: see `hippocampus facts`.")
        versions: list[FactVersion] = []
        for fact in facts:
            versions += await service.fact_history(
                app_name=owner.app, user_id=owner.user, fact_type=fact.fact_type, key=fact.key
            )
        return versions, await read_turns(pool, versions)

    versions, turns = databases.run(work)
    if as_json:
        output.write_json([{**output.plain(each), "said": quotes(each, turns)} for each in versions])
        return
    items = [_history_item(each, turns) for each in versions]
    write_items(("standing", "fact", "confidence", "from", "until", "said in"), items, empty="")


def _item(fact: Fact, turns: Turns) -> Item:
    said = [shown(turn) for turn in quotes(fact, turns)]
    row = (fact.fact_type, fact.key, output.show_fact(fact.value), fact.confidence, " ".join(said))
    return Item(row, f"{fact.confidence:.2f}", output.show_fact(fact.value), (f"{fact.fact_type}, {fact.key}", *said))


def _history_item(version: FactVersion, turns: Turns) -> Item:
    said = [shown(turn) for turn in quotes(version, turns)]
    begin, end = output.show_time(version.valid_from), output.show_time(version.valid_until)
    until = "now" if version.outcome == "current" else "never: it does not count"
    text = output.show_fact(version.value)
    row = (version.outcome, text, version.confidence, begin, end, " ".join(said))
    return Item(
        row, f"{version.confidence:.2f}", text, (f"{version.outcome}, from {begin} until {end or until}", *said)
    )


async def read_turns(pool: Pool, facts: Sequence[Fact | FactVersion]) -> Turns:
    """Read the turns that facts were drawn from; those of deleted sessions are not there."""
    wanted = {(fact.thread_id, seq) for fact in facts if fact.thread_id is not None for seq in fact.source_seqs}
    rows = await pool.fetch(QUERIES["turns"], [thread for thread, _ in wanted], [seq for _, seq in wanted])
    return {
        (row["thread_id"], row["sequence_num"]): SaidTurn(
            row["session_id"], row["sequence_num"], row["author"], row["content"], row["occurred_at"]
        )
        for row in rows
    }


def quotes(fact: Fact | FactVersion, turns: Turns) -> list[SaidTurn]:
    """Return the turns of one fact, in their order."""
    if fact.thread_id is None:
        return []
    return [turns[fact.thread_id, seq] for seq in fact.source_seqs if (fact.thread_id, seq) in turns]


def shown(turn: SaidTurn) -> str:
    """Write a turn in one line: where, and what was said."""
    return f"{turn.session_id} #{turn.sequence_num} {turn.author}: “{turn.text}”"
