"""`hippocampus memories`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import Memory
from workers.cli import databases, output
from workers.cli.owners import find_owner, json_option, owner_options
from workers.cli.page import Item, clip, write_items

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

CONTENT_CELLS_MAX = 400


@click.command(epilog="Example:  hippocampus memories --type summary")
@owner_options
@click.option(
    "--type", "memory_type", type=click.Choice(["episodic", "semantic", "summary"]), help="Only of this type."
)
@click.option("--session", help="Only those drawn from this session.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="How many at most.")
@json_option
def command(
    app: str | None, user: str | None, memory_type: str | None, session: str | None, limit: int, as_json: bool
) -> None:
    """List what is remembered, the strongest first: summaries, insights (semantic), raw slices (episodic)."""

    async def work(_config: Settings, pool: Pool) -> list[Memory]:
        owner = await find_owner(pool, app, user)
        return await OpenMemoryService(pool, None).list_memories(
            app_name=owner.app,
            user_id=owner.user,
            memory_type=memory_type,  # type: ignore[arg-type]  # click checked it
            session_id=session,
            limit=limit,
        )

    memories = databases.run(work)
    if as_json:
        output.write_json(memories)
        return
    items = [
        Item(
            (each.retention_score, each.memory_type, each.occurred_at, each.content),
            f"{each.retention_score:.2f}",
            clip(" ".join(each.content.split()), CONTENT_CELLS_MAX),
            (f"{each.memory_type}, {output.show_time(each.occurred_at)}",),
        )
        for each in memories
    ]
    empty = "Nothing is remembered yet: see `hippocampus jobs`."
    write_items(("strength", "type", "said", "content"), items, empty=empty)
