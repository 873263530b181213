"""`hippocampus memories`: list, show."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, get_args
from uuid import UUID

import click

from hippocampus.erasure.provenance import Provenance, provenance
from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import Memory, MemoryPosition, MemoryType
from hippocampus.retention import advice
from hippocampus.retention.advice import RetentionExplanation
from workers.cli import output
from workers.cli.groups import Listing
from workers.cli.moments import MOMENT
from workers.cli.options import json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import Item, Page, clip
from workers.cli.paging import Paged, PageOptions, page_options
from workers.cli.rows import Owner

if TYPE_CHECKING:
    from pulse.database import Pool

CONTENT_CELLS_MAX = 400


@click.group(cls=Listing, epilog="Examples:  hippocampus memories --type summary;  hippocampus memories show 0199…")
def command() -> None:
    """List memories, or show one. `hippocampus memory` traces, pins, restores and moves them."""


@command.command("list", epilog="Example:  hippocampus memories list --since 2026-05-01")
@owner_options
@click.option("--type", "memory_type", type=click.Choice(get_args(MemoryType)), help="Only of this type.")
@click.option("--session", help="Only those derived from this session.")
@click.option("--since", type=MOMENT, help="Only of what was said from then on, such as 2026-05-01.")
@click.option("--until", type=MOMENT, help="Only of what was said before then.")
@page_options(50)
def list_(
    whose: Whose,
    memory_type: MemoryType | None,
    session: str | None,
    since: datetime | None,
    until: datetime | None,
    options: PageOptions,
) -> None:
    """List memories, the strongest first: summaries, insights (semantic), slices of conversation (episodic)."""

    async def work(pool: Pool, owner: Owner) -> Paged[Memory]:
        moments = (each and each.isoformat() for each in (since, until))
        pages = options.of("memories", *owner, memory_type, session, *moments)
        found = await OpenMemoryService(pool, None).list_memories(
            app_name=owner.app,
            user_id=owner.user,
            memory_type=memory_type,
            session_id=session,
            since=since,
            until=until,
            limit=options.limit,
            after=pages.begin(MemoryPosition),
        )
        return pages.full(found, MemoryPosition.of)

    columns = ("strength", "type", "said", "content", "id")
    options.write(whose.run(work), columns, _item, empty="There are no memories yet: see `hippocampus jobs`.")


@command.command("show", epilog="Example:  hippocampus memories show 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def show(memory_id: UUID, whose: Whose, as_json: bool) -> None:
    """Show a memory: its full text, how strong it is and for how long, and the turns that it comes from."""

    async def work(pool: Pool, owner: Owner) -> tuple[RetentionExplanation, list[Provenance]]:
        strength = await advice.explain(pool, owner.app, owner.user, memory_id)
        return strength, await provenance(pool, owner.app, owner.user, memory_id)

    strength, origins = whose.run(work)
    if as_json:
        output.write_json({"memory": strength, "origin": origins})
        return
    page = Page(output.console())
    page.field("id", str(strength.id))
    page.field("type", f"{strength.memory_type}{', pinned' if strength.pinned else ''}")
    page.field("made", output.show_time(strength.created_at))
    page.field("strength", f"{strength.score:.2f}, weak from {output.show_time(strength.falls_below_at) or 'never'}")
    page.field("used", f"{strength.access_count} times, last {output.show_time(strength.last_accessed_at)}")
    page.block(strength.content)
    for each in origins:
        for event in each.events:
            page.item(f"#{event.sequence_num}", f"{event.author}: {event.text or f'({event.event_type})'}")


def _item(memory: Memory) -> Item:
    text = " ".join(memory.content.split())
    row = (memory.retention_score, memory.memory_type, memory.occurred_at, memory.content, str(memory.id))
    notes = (f"{memory.memory_type}, {output.show_time(memory.occurred_at)}", str(memory.id))
    return Item(row, f"{memory.retention_score:.2f}", clip(text, CONTENT_CELLS_MAX), notes)
