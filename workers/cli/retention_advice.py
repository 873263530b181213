"""`hippocampus retention explain`, `compare` and `purge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from rich.console import Console

from hippocampus.retention import advice
from hippocampus.retention.advice import PolicyComparison, RetentionExplanation, Verdict
from hippocampus.retention.archive import MemoryArchive
from hippocampus.retention.policies import PRESETS
from workers.cli import databases, output
from workers.cli.options import app_filter, json_option, known_app, known_user
from workers.cli.owners import Whose, owner_options
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool

BAR_CELLS = 50


@click.command("explain", epilog="Example:  hippocampus retention explain 0199…")
@click.argument("memory_id", type=click.UUID)
@owner_options
@json_option
def explain(memory_id: UUID, whose: Whose, as_json: bool) -> None:
    """Show a memory's curve, what determines it, and the day on which it becomes too weak."""
    found = whose.run(lambda pool, owner: advice.explain(pool, owner.app, owner.user, memory_id))
    if as_json:
        output.write_json(found)
        return
    screen = output.console()
    used = "never used" if found.access_count == 0 else f"used {found.access_count} times"
    for line in (
        " ".join(found.content.split())[: output.CELL_CHARS_MAX],
        f"{found.memory_type}, {used}, last on {output.show_time(found.last_accessed_at)}"
        f"{', pinned' if found.pinned else ''}",
        f"strength now {found.score:.4f} = {found.formula}",
        f"policy of {found.policy!r}: curve {found.curve}, rate {found.decay_rate:g} a day, threshold"
        f" {found.threshold:g}, kept for at least {found.min_age_days:g} days",
        _end(found),
    ):
        screen.print(line, markup=False, soft_wrap=True)
    _draw(found, screen)


@click.command("compare", epilog="Example:  hippocampus retention compare --app shop --preset knowledge --days 30")
@click.option("--app", required=True, callback=known_app, help="The app.")
@click.option("--user", callback=known_user, help="Only of this user.")
@click.option("--preset", type=click.Choice(sorted(PRESETS)), help="Decay rate and threshold of a kind of app.")
@click.option("--curve", type=click.Choice(["strength", "classic"]), help="Instead of the app's.")
@click.option("--decay-rate", type=float, help="Per day, instead of the app's.")
@click.option("--threshold", type=float, help="Instead of the app's.")
@click.option("--min-age-days", type=float, help="Instead of the app's.")
@click.option("--days", default=0.0, show_default=True, help="Compare this many days from now, if nothing is used.")
@page_options(20)
def compare(
    app: str,
    user: str | None,
    preset: str | None,
    curve: str | None,
    decay_rate: float | None,
    threshold: float | None,
    min_age_days: float | None,
    days: float,
    options: PageOptions,
) -> None:
    """Show which memories another policy would keep and archive, before you switch to it."""
    given: dict[str, Any] = {
        "preset": preset,
        "retention_curve": curve,
        "decay_rate": decay_rate,
        "cleanup_threshold": threshold,
        "min_age_days": min_age_days,
    }
    other = {name: value for name, value in given.items() if value is not None}
    if not other:
        raise click.UsageError(
            "Name what is different: --preset, --curve, --decay-rate, --threshold or --min-age-days."
        )

    async def work(pool: Pool) -> tuple[PolicyComparison, Paged[Verdict]]:
        pages = options.of("compare", app, user, sorted(other.items()), days)
        after = pages.begin(UUID)
        found = await advice.compare(pool, app, other, user_id=user, days=days, limit=options.limit, after=after)
        return found, pages.full(found.differing, lambda each: each.id)

    found, page = databases.run(work)
    if options.as_json:
        output.write_json(found)
        page.name_next()
        return
    for name, policy, kept in (
        ("now", found.one, found.kept_by_both + found.only_by_one),
        ("then", found.other, found.kept_by_both + found.only_by_other),
    ):
        fields = ", ".join(f"{key} {output.show(value)}" for key, value in policy.items())
        click.echo(f"{name:<5} keeps {kept} of {found.total}: {fields}")
    columns = ("kept", "strength now", "then", "type", "id", "content")
    options.write(page, columns, _row, empty="Both keep the same memories.")


@click.command("purge", epilog="Example:  hippocampus retention purge --app shop")
@app_filter
@json_option
def purge(app: str | None, as_json: bool) -> None:
    """Delete for good what has been archived for longer than its app's policy says."""
    count = databases.run(lambda pool: MemoryArchive(pool).purge(app))
    if as_json:
        output.write_json({"purged": count})
    else:
        click.echo(f"Purged {count} archived memories.")


def _row(each: Verdict) -> tuple[Any, ...]:
    kept = "then" if each.other else "now"
    return (kept, each.one_score, each.other_score, each.memory_type, str(each.id), each.content)


def _end(found: RetentionExplanation) -> str:
    if found.falls_below_at is None:
        return "It never falls below the threshold."
    around = ", ".join(f"{score:.4f}" for score in found.scores_around)
    archived = (
        "" if found.cleaned_from == found.falls_below_at else f", archived from {output.show_time(found.cleaned_from)}"
    )
    return (
        f"falls below the threshold on {output.show_time(found.falls_below_at)} if it is not used{archived}"
        f" (the day before, then, the day after: {around})"
    )


def _draw(found: RetentionExplanation, screen: Console) -> None:
    for days, score in found.points[::2]:
        mark = "" if score >= found.threshold else "  below the threshold"
        bar = "█" * round(score * BAR_CELLS)
        screen.print(f"{days:>7.1f} d  {score:.3f}  {bar}{mark}", markup=False, soft_wrap=True)
