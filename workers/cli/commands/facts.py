"""`hippocampus facts`: list, show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import Fact, FactType, FactVersion
from pulse.errors import InvalidInputError
from workers.cli import by_hand, fact_ledger, fact_styles, output, rows
from workers.cli.groups import Listing
from workers.cli.moments import MOMENT
from workers.cli.options import json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import Item, write_rows
from workers.cli.paging import LIMIT_MAX, Paged, PageOptions, page_options
from workers.cli.rows import Owner, SourceTurn, Turns

if TYPE_CHECKING:
    from pulse.database import Pool


@click.group(
    cls=Listing,
    epilog="Examples:  hippocampus facts --type preference;  hippocampus facts show preference:tea;"
    "  hippocampus facts --as-of 2026-05-01",
)
def command() -> None:
    """List the facts about a user, show the history of one, write them, manage candidates, merged keys and styles."""


for each in (
    fact_ledger.candidates, fact_ledger.promote, fact_ledger.merges, fact_ledger.undo_merge,
    fact_styles.styles, fact_styles.set_style, fact_styles.reset_style,
    by_hand.remember_fact, by_hand.correct, by_hand.retire, by_hand.confirm,
):  # fmt: skip
    command.add_command(each)


@command.command("list", epilog="Example:  hippocampus facts list --as-of 2026-05-01")
@owner_options
@fact_ledger.type_option
@click.option("--as-of", type=MOMENT, help="What was true then, such as 2026-05-01 or 2026-05-01T12:00:00Z.")
@click.option("--known-at", type=MOMENT, help="What was known then.")
@page_options(100)
def list_(
    whose: Whose, fact_type: FactType | None, as_of: datetime | None, known_at: datetime | None, options: PageOptions
) -> None:
    """List the facts about a user, each with the turns that it was extracted from."""

    async def work(pool: Pool, owner: Owner) -> tuple[Paged[Fact], Turns]:
        moments = (each and each.isoformat() for each in (as_of, known_at))
        pages = options.of("facts", *owner, fact_type, *moments)
        facts = await OpenMemoryService(pool, None).list_facts(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,
            as_of=as_of,
            known_at=known_at,
            limit=options.limit,
            after=pages.begin(tuple[str, str]),
        )
        return pages.full(facts, lambda fact: (fact.fact_type, fact.key)), await read_turns(pool, facts)

    page, turns = whose.run(work)
    options.write(
        page,
        ("type", "key", "fact", "confidence", "said in"),
        lambda fact: _item(fact, turns),
        empty="No facts are known yet.",
        document_of=lambda fact: _document(fact, turns),
    )


@command.command("show", epilog="Example:  hippocampus facts show preference:tea")
@click.argument("key")
@owner_options
@fact_ledger.type_option
@json_option
def show(key: str, whose: Whose, fact_type: FactType | None, as_json: bool) -> None:
    """Show every statement about a key, the current one first: its text, from when until when, and its turns."""

    async def work(pool: Pool, owner: Owner) -> tuple[list[FactVersion], Turns]:
        service = OpenMemoryService(pool, None)
        facts = await service.list_facts(
            app_name=owner.app, user_id=owner.user, fact_type=fact_type, key=key, limit=LIMIT_MAX
        )
        if not facts:
            raise InvalidInputError(f"There is no fact with the key {key!r:.80}: see `hippocampus facts`.")
        versions: list[FactVersion] = []
        for fact in facts:
            versions += await service.fact_history(
                app_name=owner.app, user_id=owner.user, fact_type=fact.fact_type, key=fact.key
            )
        return versions, await read_turns(pool, versions)

    versions, turns = whose.run(work)
    if as_json:
        output.write_json([_document(each, turns) for each in versions])
        return
    items = [_history_item(each, turns) for each in versions]
    write_rows(("standing", "fact", "confidence", "from", "until", "said in"), items, empty="")


def _document(fact: Fact | FactVersion, turns: Turns) -> dict[str, Any]:
    return {**output.plain(fact), "said": quotes(fact, turns)}


def _item(fact: Fact, turns: Turns) -> Item:
    quoted = [_shown(turn) for turn in quotes(fact, turns)]
    row = (fact.fact_type, fact.key, output.show_fact(fact.value), fact.confidence, " ".join(quoted))
    return Item(row, f"{fact.confidence:.2f}", output.show_fact(fact.value), (f"{fact.fact_type}, {fact.key}", *quoted))


def _history_item(version: FactVersion, turns: Turns) -> Item:
    quoted = [_shown(turn) for turn in quotes(version, turns)] + _hands(version)
    begin, end = output.show_time(version.valid_from), output.show_time(version.valid_until)
    until = "now" if version.outcome == "current" else "never: it does not count"
    text = output.show_fact(version.value)
    row = (version.outcome, text, version.confidence, begin, end, " ".join(quoted))
    return Item(
        row, f"{version.confidence:.2f}", text, (f"{version.outcome}, from {begin} until {end or until}", *quoted)
    )


def _hands(version: FactVersion) -> list[str]:
    """Return what people did with a statement."""
    return [
        *([] if version.written_by is None else [f"by hand ({version.written_by or 'unnamed'})"]),
        *([] if version.confirmed_by is None else [f"confirmed by {version.confirmed_by or 'hand'}"]),
        *([] if version.superseded_by is None else [f"ended by {version.superseded_by or 'hand'}"]),
    ]


async def read_turns(pool: Pool, facts: Sequence[Fact | FactVersion]) -> Turns:
    """Return the turns that facts were extracted from. Those of deleted sessions are absent."""
    keys = {(fact.thread_id, seq) for fact in facts if fact.thread_id is not None for seq in fact.source_seqs}
    return await rows.turns(pool, keys)


def quotes(fact: Fact | FactVersion, turns: Turns) -> list[SourceTurn]:
    """Return the turns of one fact, in their order."""
    if fact.thread_id is None:
        return []
    return [turns[fact.thread_id, seq] for seq in fact.source_seqs if (fact.thread_id, seq) in turns]


def _shown(turn: SourceTurn) -> str:
    return f"{turn.session_id} #{turn.sequence_num} {turn.author}: “{turn.text}”"
