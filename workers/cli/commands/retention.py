"""`hippocampus retention`: run, dry-run, explain, compare, purge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import click

from hippocampus.retention_manager import MemoryRetentionManager, MemoryStats, WeakMemory
from workers.cli import databases, output
from workers.cli.commands import retention_advice
from workers.cli.groups import Verbs
from workers.cli.owners import QUERIES, json_option
from workers.cli.page import Item, clip, write_items
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

CONTENT_CELLS_MAX = 200
FORECAST_DAYS = (0.0, 7.0, 30.0, 90.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How many memories would be archived some days from now, if nobody used them."""

    days: float
    memories: int
    weak: int


@click.group(cls=Verbs, epilog="Examples:  hippocampus retention dry-run;  hippocampus retention run --app shop")
def command() -> None:
    """Archive the memories that became too weak, or say which would go."""


@command.command("dry-run", epilog="Example:  hippocampus retention dry-run --threshold 0.6 --min-age-days 0")
@click.option("--app", help="Only of this app.")
@click.option("--threshold", type=float, help="In place of the policy's: weaker memories go.")
@click.option("--min-age-days", type=float, help="In place of the policy's: younger memories stay.")
@page_options(100)
@json_option
def dry_run(
    app: str | None,
    threshold: float | None,
    min_age_days: float | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """Say which memories a clean-up would archive now, and why; and how many in the weeks to come."""

    async def work(_config: Settings, pool: Pool) -> tuple[MemoryStats, Paged[WeakMemory], list[Forecast]]:
        manager = MemoryRetentionManager(pool)
        pages = Pages(cursor, limit, "weak", app, threshold, min_age_days)
        stats = await manager.cleanup_low_value_memories(threshold, min_age_days, dry_run=True, app_name=app)
        weak = await manager.preview(threshold, min_age_days, app, limit=limit, after=pages.begin(UUID))
        return stats, pages.full(weak, lambda each: each.id), await forecast(pool, app)

    stats, page, days = databases.run(work)
    if as_json:
        output.write_json({"stats": stats, "would_archive": page.rows, "forecast": days})
        tell_more(page)
        return
    screen = output.console()
    screen.print(
        f"A clean-up now would archive {stats.cleaned_count} of {stats.total_memories} memories.", markup=False
    )
    if page.rows:
        items = [
            Item(
                (each.score, each.threshold, each.memory_type, because(each), each.content),
                f"{each.score:.2f}",
                clip(" ".join(each.content.split()), CONTENT_CELLS_MAX),
                (f"{each.memory_type}, threshold {each.threshold:g}; why: {because(each)}",),
            )
            for each in page.rows
        ]
        write_items(("strength", "threshold", "type", "because", "content"), items, empty="")
    screen.print(f"Under the policies, if nothing is used: {outlook(days)}.", markup=False)
    tell_more(page)


@command.command("run", epilog="Example:  hippocampus retention run --app shop")
@click.option("--app", help="Only of this app.")
@json_option
def run(app: str | None, as_json: bool) -> None:
    """Archive what is too weak under each app's policy, in small batches. Nothing is lost: see memories_archive."""

    async def work(_config: Settings, pool: Pool) -> MemoryStats:
        return await MemoryRetentionManager(pool).cleanup_low_value_memories(app_name=app)

    stats = databases.run(work)
    if as_json:
        output.write_json(stats)
        return
    click.echo(f"Archived {stats.cleaned_count} memories in {stats.batch_count} batches; {stats.total_memories} stay.")


command.add_command(retention_advice.explain)
command.add_command(retention_advice.compare)
command.add_command(retention_advice.purge)


async def forecast(pool: Pool, app: str | None) -> list[Forecast]:
    """Return how many memories would be archived, at once and in the weeks to come."""
    return [Forecast(**row) for row in await pool.fetch(QUERIES["forecast"], app, list(FORECAST_DAYS))]


def outlook(days: list[Forecast]) -> str:
    """Write a forecast as one line."""
    return ", ".join(
        f"{'now' if each.days == 0 else f'in {each.days:g} days'} {each.weak} of {each.memories}" for each in days
    )


def because(weak: WeakMemory) -> str:
    """Say why a memory is weak."""
    times = "once" if weak.access_count == 1 else f"{weak.access_count} times"
    used = f"used {times}" if weak.access_count else "never used"
    return f"began at {weak.initial_score:g}, {used}, idle {weak.idle_days:.1f} days"
