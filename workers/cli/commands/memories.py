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
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.moments import MOMENT
from workers.cli.owners import find_owner, json_option, owner_options
from workers.cli.page import Item, Page, clip, write_items
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

CONTENT_CELLS_MAX = 400


@click.group(cls=Listing, epilog="Examples:  hippocampus memories --type summary;  hippocampus memories show 0199…")
def command() -> None:
    """List what is remembered, or show one memory. `hippocampus memory` traces, pins, restores and moves them."""


@command.command("list", epilog="Example:  hippocampus memories list --since 2026-05-01")
@owner_options
@click.option("--type", "memory_type", type=click.Choice(get_args(MemoryType)), help="Only of this type.")
@click.option("--session", help="Only those drawn from this session.")
@click.option("--since", type=MOMENT, help="Only of what was said from then on, such as 2026-05-01.")
@click.option("--until", type=MOMENT, help="Only of what was said before then.")
@page_options(50)
@json_option
def list_(
    app: str | None,
    user: str | None,
    memory_type: MemoryType | None,
    session: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List what is remembered, the strongest first: summaries, insights (semantic), raw slices (episodic)."""

    async def work(_config: Settings, pool: Pool) -> Paged[Memory]:
        owner = await find_owner(pool, app, user)
        moments = (each and each.isoformat() for each in (since, until))
        pages = Pages(cursor, limit, "memories", owner.app, owner.user, memory_type, session, *moments)
        found = await OpenMemoryService(pool, None).list_memories(
            app_name=owner.app,
            user_id=owner.user,
            memory_type=memory_type,
            session_id=session,
            since=since,
            until=until,
            limit=limit,
            after=pages.begin(MemoryPosition),
        )
        return pages.full(found, MemoryPosition.of)

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        columns = ("strength", "type", "said", "content", "id")
        empty = page.empty("Nothing is remembered yet: see `hippocampus jobs`.")
        write_items(columns, [_item(each) for each in page.rows], empty=empty)
    tell_more(page)


@command.command("show", epilog="Example:  hippocampus memories show 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def show(memory_id: UUID, app: str | None, user: str | None, as_json: bool) -> None:
    """Show a memory whole: its text, how strong it is and for how long, and the turns that it comes from."""

    async def work(_config: Settings, pool: Pool) -> tuple[RetentionExplanation, list[Provenance]]:
        who = await find_owner(pool, app, user)
        strength = await advice.explain(pool, who.app, who.user, memory_id)
        return strength, await provenance(pool, who.app, who.user, memory_id)

    strength, origins = databases.run(work)
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
