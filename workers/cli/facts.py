"""`hippocampus facts`, and one fact's history."""

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
from workers.cli.owners import QUERIES, find_owner, json_option, owner_options
from workers.cli.page import Item, write_items

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


@click.command(epilog="Examples:  hippocampus facts --type preference;  hippocampus facts --history preference:tea")
@owner_options
@click.option(
    "--type", "fact_type", type=click.Choice(["preference", "rule", "profile", "custom"]), help="Only of this type."
)
@click.option("--history", metavar="KEY", help="Every statement about one key, the newest first.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1000), help="How many at most.")
@json_option
def command(
    app: str | None, user: str | None, fact_type: str | None, history: str | None, limit: int, as_json: bool
) -> None:
    """List what is known of a user, with the turns that say so; or one fact's history."""

    async def work(_config: Settings, pool: Pool) -> tuple[list[Fact] | list[FactVersion], Turns]:
        owner = await find_owner(pool, app, user)
        service = OpenMemoryService(pool, None)
        facts = await service.list_facts(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,  # type: ignore[arg-type]  # click checked it
            key=history,
            limit=limit,
        )
        if history is None:
            return facts, await read_turns(pool, facts)
        if not facts:
            raise InvalidInputError(f"There is no fact with the key {history!r}: see `hippocampus facts`.")
        versions: list[FactVersion] = []
        for fact in facts:
            versions += await service.fact_history(
                app_name=owner.app, user_id=owner.user, fact_type=fact.fact_type, key=fact.key
            )
        return versions, await read_turns(pool, versions)

    found, turns = databases.run(work)
    if as_json:
        output.write_json([{**output.plain(each), "said": quotes(each, turns)} for each in found])
    elif history is None:
        items = [_item(each, turns) for each in found if isinstance(each, Fact)]
        write_items(("type", "key", "fact", "confidence", "said in"), items, empty="Nothing is known yet.")
    else:
        items = [_history_item(each, turns) for each in found if isinstance(each, FactVersion)]
        write_items(("standing", "fact", "confidence", "from", "until", "said in"), items, empty="")


def _item(fact: Fact, turns: Turns) -> Item:
    said = [shown(turn) for turn in quotes(fact, turns)]
    row = (fact.fact_type, fact.key, output.show_fact(fact.value), fact.confidence, " ".join(said))
    return Item(row, f"{fact.confidence:.2f}", output.show_fact(fact.value), (f"{fact.fact_type}, {fact.key}", *said))


def _history_item(version: FactVersion, turns: Turns) -> Item:
    said = [shown(turn) for turn in quotes(version, turns)]
    begin, end = output.show_time(version.valid_from), output.show_time(version.valid_until)
    text = output.show_fact(version.value)
    row = (version.outcome, text, version.confidence, begin, end, " ".join(said))
    return Item(
        row, f"{version.confidence:.2f}", text, (f"{version.outcome}, from {begin} until {end or 'now'}", *said)
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
