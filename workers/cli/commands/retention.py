"""`hippocampus retention`: run, dry-run, explain, compare, purge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hippocampus.retention_manager import MemoryRetentionManager, MemoryStats, WeakMemory
from workers.cli import databases, output, retention_advice, rows
from workers.cli.groups import Verbs
from workers.cli.options import app_filter, json_option
from workers.cli.page import Item, clip, write_rows
from workers.cli.paging import Paged, PageOptions, page_options
from workers.cli.rows import Forecast

if TYPE_CHECKING:
    from pulse.database import Pool

CONTENT_CELLS_MAX = 200
FORECAST_DAYS = (0.0, 7.0, 30.0, 90.0)


@click.group(cls=Verbs, epilog="Examples:  hippocampus retention dry-run;  hippocampus retention run --app shop")
def command() -> None:
    """Archive memories that have become too weak, or show which would be archived."""


@command.command("dry-run", epilog="Example:  hippocampus retention dry-run --threshold 0.6 --min-age-days 0")
@app_filter
@click.option("--threshold", type=float, help="Archive weaker memories than this, instead of the policy's threshold.")
@click.option("--min-age-days", type=float, help="Keep younger memories than this, instead of the policy's age.")
@page_options(100)
def dry_run(app: str | None, threshold: float | None, min_age_days: float | None, options: PageOptions) -> None:
    """Show which memories a clean-up would archive now, and why; and how many in the weeks to come."""

    async def work(pool: Pool) -> tuple[MemoryStats, Paged[WeakMemory], list[Forecast]]:
        manager = MemoryRetentionManager(pool)
        pages = options.of("weak", app, threshold, min_age_days)
        stats = await manager.cleanup_low_value_memories(threshold, min_age_days, dry_run=True, app_name=app)
        weak = await manager.preview(threshold, min_age_days, app, limit=options.limit, after=pages.begin(UUID))
        return stats, pages.full(weak, lambda each: each.id), await forecast(pool, app)

    stats, page, days = databases.run(work)
    if options.as_json:
        output.write_json({"stats": stats, "would_archive": page.rows, "forecast": days})
    else:
        screen = output.console()
        screen.print(
            f"A clean-up now would archive {stats.cleaned_count} of {stats.total_memories} memories.", markup=False
        )
        if page.rows:
            columns = ("strength", "threshold", "type", "because", "content")
            write_rows(columns, [_item(each) for each in page.rows], empty="")
        screen.print(f"Under the policies, if nothing is used: {outlook(days)}.", markup=False)
    page.name_next()


@command.command("run", epilog="Example:  hippocampus retention run --app shop")
@app_filter
@json_option
def run(app: str | None, as_json: bool) -> None:
    """Archive what is too weak under each app's policy, in small batches. `memory restore` brings it back."""
    stats = databases.run(lambda pool: MemoryRetentionManager(pool).cleanup_low_value_memories(app_name=app))
    if as_json:
        output.write_json(stats)
        return
    click.echo(f"Archived {stats.cleaned_count} memories in {stats.batch_count} batches; {stats.total_memories} stay.")


for each in (retention_advice.explain, retention_advice.compare, retention_advice.purge):
    command.add_command(each)


async def forecast(pool: Pool, app: str | None, user: str | None = None) -> list[Forecast]:
    """Return how many memories would be archived, now and in the weeks to come."""
    return await rows.forecast(pool, app, user, FORECAST_DAYS)


def outlook(days: list[Forecast]) -> str:
    """Return a forecast as one line."""
    return ", ".join(
        f"{'now' if each.days == 0 else f'in {each.days:g} days'} {each.weak} of {each.memories}" for each in days
    )


def because(weak: WeakMemory) -> str:
    """Return why a memory is weak."""
    times = "once" if weak.access_count == 1 else f"{weak.access_count} times"
    used = f"used {times}" if weak.access_count else "never used"
    return f"began at {weak.initial_score:g}, {used}, idle {weak.idle_days:.1f} days"


def _item(each: WeakMemory) -> Item:
    row: tuple[Any, ...] = (each.score, each.threshold, each.memory_type, because(each), each.content)
    notes = (f"{each.memory_type}, threshold {each.threshold:g}; why: {because(each)}",)
    return Item(row, f"{each.score:.2f}", clip(" ".join(each.content.split()), CONTENT_CELLS_MAX), notes)
