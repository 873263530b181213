"""`hippocampus facts`, and one fact's history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import click

from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import Fact, FactVersion
from pulse.errors import InvalidInputError
from workers.cli import databases, fact_ledger, output
from workers.cli.owners import QUERIES, find_owner, json_option, owner_options
from workers.cli.page import Item, write_items

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


class Moment(click.ParamType[datetime]):
    """A date, or a date and time; UTC where it names no zone."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it."""
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no date and time such as 2026-05-01T12:00:00Z", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """A turn that something was drawn from."""

    session_id: str
    sequence_num: int
    author: str
    text: str
    occurred_at: datetime


#: A moment without a zone is UTC.
MOMENT = Moment()

#: Turns by thread and sequence number.
Turns = dict[tuple[UUID, int], SaidTurn]


@click.command(
    epilog="Examples:  hippocampus facts --type preference;  hippocampus facts --history preference:tea;"
    "  hippocampus facts --as-of 2026-05-01"
)
@owner_options
@click.option(
    "--type", "fact_type", type=click.Choice(["preference", "rule", "profile", "custom"]), help="Only of this type."
)
@click.option("--history", metavar="KEY", help="Every statement about one key, the newest first.")
@click.option("--as-of", type=MOMENT, help="What was true then, such as 2026-05-01 or 2026-05-01T12:00:00Z.")
@click.option("--known-at", type=MOMENT, help="As it was known then.")
@click.option("--candidates", is_flag=True, help="What was too unsure to replace what held.")
@click.option("--promote", type=click.UUID, metavar="ID", help="Believe a candidate.")
@click.option("--merges", is_flag=True, help="Keys that were taken for other spellings of a key.")
@click.option("--undo-merge", type=click.UUID, metavar="ID", help="Part a merged key.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1000), help="How many at most.")
@json_option
def command(
    app: str | None,
    user: str | None,
    fact_type: str | None,
    history: str | None,
    as_of: datetime | None,
    known_at: datetime | None,
    candidates: bool,
    promote: UUID | None,
    merges: bool,
    undo_merge: UUID | None,
    limit: int,
    as_json: bool,
) -> None:
    """List what is known of a user, with the turns that say so; or one fact's history, and what stands beside it."""
    views = {"--history": history, "--candidates": candidates, "--promote": promote, "--merges": merges}
    if sum(bool(given) for given in (*views.values(), undo_merge)) > 1:
        raise click.UsageError(f"Give one of {', '.join(views)} and --undo-merge.")
    if (as_of or known_at) and (any(views.values()) or undo_merge):
        raise click.UsageError("--as-of and --known-at are for the list of facts.")
    if promote or undo_merge:
        fact_ledger.change(app, user, promote=promote, undo_merge=undo_merge, as_json=as_json)
    elif candidates or merges:
        fact_ledger.show(
            app, user, fact_type, what="candidates" if candidates else "merges", limit=limit, as_json=as_json
        )
    else:
        _list(app, user, fact_type, history, as_of, known_at, limit, as_json)


def _list(
    app: str | None,
    user: str | None,
    fact_type: str | None,
    history: str | None,
    as_of: datetime | None,
    known_at: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    async def work(_config: Settings, pool: Pool) -> tuple[list[Fact] | list[FactVersion], Turns]:
        owner = await find_owner(pool, app, user)
        service = OpenMemoryService(pool, None)
        facts = await service.list_facts(
            app_name=owner.app,
            user_id=owner.user,
            fact_type=fact_type,  # type: ignore[arg-type]  # click checked it
            key=history,
            as_of=as_of,
            known_at=known_at,
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
