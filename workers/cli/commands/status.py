"""`hippocampus status`: one screen."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from workers import settings
from workers.cli import databases, output
from workers.cli.installation import Installation
from workers.cli.options import json_option
from workers.cli.watching import Watch, watch_options
from workers.models import reach
from workers.process.roles import OPTIONAL_ROLES, ROLES
from workers.telemetry import overview
from workers.telemetry.discovery import SEEN_SECONDS_MAX

if TYPE_CHECKING:
    from rich.console import Console

    from pulse.database import Pool
    from workers.settings import Settings

ERROR_CODES_MAX = 5
_NAME_CELLS = 10
#: Of a model's line, by its state.
_STYLES = {"not_reached": "red", "other": "yellow"}

#: Name, text, style.
_Lines = Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Running:
    """What `hippocampus up` runs on the database, without the address that holds a password."""

    pid: int | None
    started_at: str
    api_url: str | None
    log: str | None
    models: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """Everything that the command shows."""

    database: str
    installation: _Running | None
    totals: overview.Totals
    processes: list[overview.Process]
    lag: list[overview.Lag]
    spend: overview.Spend
    failures: list[overview.Failures]
    breakers: list[overview.Breaker]
    limits: list[overview.Limit]
    refused_texts: list[overview.RefusedTexts]
    models: list[reach.Reach]
    queues: list[overview.Queue]


@click.command(epilog="Examples:  hippocampus status --json;  hippocampus status --watch --every 5")
@watch_options
@json_option
def command(watch: Watch, as_json: bool) -> None:
    """Show which roles run, how many jobs wait and how long, what failed, whether the models answer, what they cost.

    A role runs if it reported within the last minute. The models of this environment's settings are asked whether they
    answer, for at most eight seconds; none is asked in place of another one that `hippocampus up` runs with. With
    --watch the screen is refreshed until Ctrl-C, which ends it with exit code 0, and the models are asked each minute;
    a pipe gets one block after another.
    """
    config = settings.load()
    models = _Models(config)
    watch.run(lambda pool: _read(config, models, pool), _write, document_of=output.plain if as_json else None)


class _Models:
    """Whether the models answer; asked again once that is a minute old, since a check may cost something."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._asked_at = -math.inf  # by time.monotonic()
        self._used: dict[str, str] | None = None
        self._found: list[reach.Reach] = []

    async def read(self, installation: _Running | None) -> list[reach.Reach]:
        used = installation.models if installation else None
        if time.monotonic() - self._asked_at >= reach.REPEAT_SECONDS or used != self._used:
            self._asked_at, self._used = time.monotonic(), used
            self._found = await reach.survey(self._config, used)
        return self._found


async def _read(config: Settings, models: _Models, pool: Pool) -> _Status:
    installation = _installation(config)
    return _Status(
        database=databases.name_of(config),
        installation=installation,
        totals=await overview.totals(pool),
        processes=await overview.live_processes(pool, within_seconds=SEEN_SECONDS_MAX),
        lag=await overview.lag(pool),
        spend=await overview.spend(pool),
        failures=await overview.failures(pool, limit=ERROR_CODES_MAX),
        breakers=await overview.breakers(pool),
        limits=await overview.limits(pool),
        refused_texts=await overview.refused_texts(pool),
        models=await models.read(installation),
        queues=await overview.queues(pool),
    )


def _installation(config: Settings) -> _Running | None:
    try:
        state = Installation(config.home).read()
    except OSError:  # Another user's home.
        return None
    if state is None or state.database_url is None or not databases.is_same(config, state.database_url):
        return None
    return _Running(state.pid, state.started_at, state.api_url, state.log, state.models)


def _write(found: _Status, screen: Console) -> None:
    """Write a line for each question, then the queues and the processes."""
    totals = found.totals
    _write_lines(
        (
            ("database", found.database, ""),
            (
                "holds",
                f"{totals.sessions:,} sessions, {totals.events:,} events, {totals.memories:,} memories,"
                f" {totals.facts:,} facts",
                "",
            ),
            *_of_the_installation(found.installation),
            *_of_the_roles(found.processes),
            *_of_the_work(found),
            *_of_the_models(found),
        ),
        screen,
    )
    queues: list[tuple[Any, ...]] = [
        (each.queue, each.waiting, each.running, each.failed, output.show_age(each.oldest_seconds))
        for each in found.queues
    ]
    columns = ("queue", "waiting", "running", "failed", "oldest")
    output.write_table(columns, queues, empty="The queues are empty.", screen=screen)
    processes = [
        (each.role, each.pid, each.metrics_url, output.show_age(each.up_seconds), output.show_age(each.seen_seconds))
        for each in found.processes
    ]
    if processes:
        output.write_table(("role", "pid", "metrics", "up", "seen ago"), processes, empty="", screen=screen)


def _write_lines(lines: _Lines, screen: Console) -> None:
    if not screen.is_terminal:
        for name, text, _ in lines:
            screen.print(f"{name:<{_NAME_CELLS}}{text}", markup=False, soft_wrap=True)
        return
    grid = Table.grid()
    grid.add_column(min_width=_NAME_CELLS, style="dim")
    grid.add_column()
    for name, text, style in lines:
        grid.add_row(name, Text(text, style=style))
    screen.print(grid)


def _of_the_installation(installation: _Running | None) -> _Lines:
    if installation is None:
        return []
    log = installation.log
    where = f"detached: `hippocampus down` stops it, its log is {log}" if log else "in a terminal"
    return [("up", f"since {installation.started_at}, API {installation.api_url}, {where}", "")]


def _of_the_roles(processes: Sequence[overview.Process]) -> _Lines:
    alive = Counter(each.role for each in processes)
    lines = []
    missing = [role.name for role in ROLES if role.name not in {*alive, *OPTIONAL_ROLES}]
    if alive:
        shown = ", ".join(role if count == 1 else f"{count} {role}" for role, count in alive.items())
        lines.append(("roles", f"{'' if missing else 'all '}run: {shown}", ""))
    if missing:
        lines.append(("missing", f"{', '.join(missing)} (start them with `hippocampus up`)", "yellow"))
    return lines


def _of_the_work(found: _Status) -> _Lines:
    lines = [
        (
            "lag",
            f"{each.stage} has {each.events:,} events of {each.sessions:,} sessions to process, the oldest since"
            f" {output.show_age(each.oldest_seconds)}",
            "",
        )
        for each in found.lag
    ] or [("lag", "none: everything is consolidated", "")]
    if found.failures:
        codes = ", ".join(f"{each.jobs:,} with {each.error_code}" for each in found.failures)
        last = output.show_age(min(each.last_seconds for each in found.failures))
        lines.append(("failed", f"{codes}, the last {last} ago (`hippocampus jobs --failed`)", "red"))
    else:
        lines.append(("failed", "no job", ""))
    lines += [
        ("refused", f"{each.texts} texts have no vector: {each.model} refuses them", "yellow")
        for each in found.refused_texts
    ]
    return lines


def _of_the_models(found: _Status) -> _Lines:
    models = [(each.kind, each.said, _STYLES.get(each.state, "")) for each in found.models]
    open_ = [each for each in found.breakers if each.state != "closed"]
    lines = [("breaker", f"{each.name} is {each.state.replace('_', ' ')}: {each.reason}", "red") for each in open_] or [
        ("breaker", "none is open", "")
    ]
    lines += [
        ("limit", f"no call of {each.name} for {output.show_age(each.blocked_seconds)}: {each.reason}", "yellow")
        for each in found.limits
        if each.blocked_seconds > 0
    ]
    spend = found.spend
    calls = f"{spend.generate_calls:,} generate and {spend.embed_calls:,} embed calls"
    tokens = f"{spend.prompt_tokens:,} tokens in and {spend.output_tokens:,} out"
    return [*models, *lines, ("spend", f"{calls}, {tokens}", "")]
