"""`hippocampus status`: one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from workers import settings
from workers.cli import databases, output, watching
from workers.cli.owners import QUERIES, json_option
from workers.process.roles import ROLES
from workers.telemetry import queue_state
from workers.telemetry.discovery import SEEN_SECONDS_MAX

if TYPE_CHECKING:
    from rich.console import Console

    from pulse.database import Pool
    from workers.settings import Settings

ERROR_CODES_MAX = 5
_NAME_CELLS = 10


@click.command(epilog="Examples:  hippocampus status --json;  hippocampus status --watch --every 5")
@watching.watch_options
@json_option
def command(watch: bool, every_seconds: float, as_json: bool) -> None:
    """Show which roles run, what waits and for how long, what failed, what is not consolidated, what models cost.

    A role runs if it was heard of within the last minute. With --watch it is drawn anew until Ctrl-C, which ends it
    with exit code 0; in a pipe, one block follows the other.
    """
    where = databases.name_of(settings.load())

    async def look(config: Settings, pool: Pool) -> dict[str, Any]:
        return {"database": where, **await read(config, pool)}

    if watch:
        watching.watch(look, write, every_seconds=every_seconds, document_of=dict if as_json else None)
        return
    found = databases.run(look)
    if as_json:
        output.write_json(found)
    else:
        write(found, output.console())


async def read(_config: Settings, pool: Pool) -> dict[str, Any]:
    """Read everything that the command shows."""
    totals = await pool.fetchrow(QUERIES["totals"])
    spend = await pool.fetchrow(QUERIES["spend"])
    ages = await queue_state.read_ages(pool)
    by_queue: dict[str, dict[str, int]] = {}
    for (queue, status), jobs in (await queue_state.read_depths(pool)).items():
        by_queue.setdefault(queue, {})[status] = jobs
    return {
        "totals": dict(totals or {}),
        "processes": await _rows(pool, QUERIES["live_processes"], SEEN_SECONDS_MAX),
        "lag": await _rows(pool, QUERIES["lag"]),
        "spend": dict(spend or {}),
        "failures": await _rows(pool, QUERIES["failures"], ERROR_CODES_MAX),
        "breakers": [breaker._asdict() for breaker in await queue_state.read_breakers(pool)],
        "limits": [limit._asdict() for limit in await queue_state.read_limits(pool)],
        "refused_texts": [
            {"model": model, "texts": texts} for model, texts in (await queue_state.read_refused(pool)).items()
        ],
        "queues": [
            {
                "queue": queue,
                "waiting": jobs.get("todo", 0),
                "running": jobs.get("doing", 0),
                "failed": jobs.get("failed", 0),
                "oldest_seconds": ages.get(queue),
            }
            for queue, jobs in sorted(by_queue.items())
        ],
    }


async def _rows(pool: Pool, query: str, *arguments: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in await pool.fetch(query, *arguments)]


def write(found: Mapping[str, Any], screen: Console) -> None:
    """Write what was read: a line for each question, then the queues and the processes."""
    _write_lines(
        (
            ("database", str(found["database"]), ""),
            ("holds", _counts(found["totals"], "sessions", "events", "memories", "facts"), ""),
            *_of_the_roles(found["processes"]),
            *_of_the_work(found["lag"], found["failures"], found["refused_texts"]),
            *_of_the_models(found["breakers"], found["limits"], found["spend"]),
        ),
        screen,
    )
    queues = [
        (each["queue"], each["waiting"], each["running"], each["failed"], output.show_age(each["oldest_seconds"]))
        for each in found["queues"]
    ]
    columns = ("queue", "waiting", "running", "failed", "oldest")
    output.write_table(columns, queues, empty="The queues are empty.", screen=screen)
    processes = [
        (
            each["role"],
            each["pid"],
            f"http://{each['host']}:{each['port']}/metrics",
            output.show_age(each["up_seconds"]),
            output.show_age(each["seen_seconds"]),
        )
        for each in found["processes"]
    ]
    if processes:
        output.write_table(("role", "pid", "metrics", "up", "seen ago"), processes, empty="", screen=screen)


#: Name, text, style.
_Lines = Sequence[tuple[str, str, str]]


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


def _of_the_roles(processes: Sequence[Mapping[str, Any]]) -> _Lines:
    alive = Counter(each["role"] for each in processes)
    lines = []
    missing = [role.name for role in ROLES if role.name not in alive]
    if alive:
        shown = ", ".join(role if count == 1 else f"{count} {role}" for role, count in alive.items())
        lines.append(("roles", f"{'' if missing else 'all '}run: {shown}", ""))
    if missing:
        lines.append(("missing", f"{', '.join(missing)} (start them with `hippocampus up`)", "yellow"))
    return lines


def _of_the_work(
    lags: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]], refused: Sequence[Mapping[str, Any]]
) -> _Lines:
    lines = [
        (
            "lag",
            f"{each['stage']} has {each['events']:,} events of {each['sessions']:,} sessions to come, the oldest since"
            f" {output.show_age(each['oldest_seconds'])}",
            "",
        )
        for each in lags
    ] or [("lag", "none: everything is consolidated", "")]
    if failures:
        codes = ", ".join(f"{each['jobs']:,} with {each['error_code']}" for each in failures)
        last = output.show_age(min(each["last_seconds"] for each in failures))
        text = f"{codes}, the last {last} ago (`hippocampus jobs --failed`)"
        lines.append(("failed", text, "red"))
    else:
        lines.append(("failed", "no job", ""))
    lines += [
        ("refused", f"{each['texts']} texts have no vector: {each['model']} refuses them", "yellow") for each in refused
    ]
    return lines


def _of_the_models(
    breakers: Sequence[Mapping[str, Any]], limits: Sequence[Mapping[str, Any]], spend: Mapping[str, Any]
) -> _Lines:
    tripped = [each for each in breakers if each["state"] != "closed"]
    lines = [
        ("breaker", f"{each['name']} is {each['state'].replace('_', ' ')}: {each['reason']}", "red") for each in tripped
    ] or [("breaker", "none is open", "")]
    lines += [
        (
            "limit",
            f"no call of {each['name']} for {output.show_age(each['blocked_seconds'])}: {each['reason']}",
            "yellow",
        )
        for each in limits
        if each["blocked_seconds"] > 0
    ]
    calls = f"{spend['generate_calls']:,} generate and {spend['embed_calls']:,} embed calls"
    tokens = f"{spend['prompt_tokens']:,} tokens in and {spend['output_tokens']:,} out"
    return [*lines, ("spend", f"{calls}, {tokens}", "")]


def _counts(totals: Mapping[str, int], *names: str) -> str:
    return ", ".join(f"{totals[name]:,} {name}" for name in names)
