"""`hippocampus status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from workers import settings
from workers.claims import QUERIES as QUEUE_QUERIES
from workers.cli import databases, output
from workers.cli.owners import QUERIES, json_option
from workers.discovery import SEEN_SECONDS_MAX
from workers.roles import ROLES

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.command(epilog="Example:  hippocampus status --json")
@json_option
def command(as_json: bool) -> None:
    """Show which roles run, what waits in the queues and for how long, what failed, and whether the model answers."""
    found = {"database": databases.name_of(settings.load()), **databases.run(read)}
    if as_json:
        output.write_json(found)
        return
    screen = output.console()
    screen.print(f"database  {found['database']}", markup=False)
    screen.print(
        "holds     {sessions} sessions, {events} events, {memories} memories, {facts} facts".format(**found["totals"]),
        markup=False,
    )
    missing = [role.name for role in ROLES if role.name not in {each["role"] for each in found["processes"]}]
    screen.print(
        f"missing   {', '.join(missing)} (start them with `hippocampus up`)" if missing else "roles     all run"
    )
    if found["processes"]:
        processes = [
            (
                each["role"],
                each["pid"],
                f"http://{each['host']}:{each['port']}/metrics",
                output.show_age(each["up_seconds"]),
            )
            for each in found["processes"]
        ]
        output.write_table(("role", "pid", "metrics", "up"), processes, empty="")
    for breaker in found["breakers"]:
        if breaker["state"] != "closed":
            state = breaker["state"].replace("_", " ")
            screen.print(f"breaker   {breaker['name']} is {state}: {breaker['reason']}", markup=False)
    for limit in found["limits"]:
        if limit["blocked_seconds"] > 0:
            seconds = output.show_age(limit["blocked_seconds"])
            screen.print(f"limit     no call of {limit['name']} for {seconds}: {limit['reason']}", markup=False)
    for each in found["refused_texts"]:
        screen.print(f"refused   {each['texts']} texts have no vector: {each['model']} refuses them", markup=False)
    rows = [
        (each["queue"], each["waiting"], each["running"], each["failed"], output.show_age(each["oldest_seconds"]))
        for each in found["queues"]
    ]
    output.write_table(("queue", "waiting", "running", "failed", "oldest"), rows, empty="The queues are empty.")


async def read(_config: Settings, pool: Pool) -> dict[str, Any]:
    """Read everything that the command shows."""
    totals = await pool.fetchrow(QUERIES["totals"])
    depths = await pool.fetch(QUEUE_QUERIES["queue_depths"])
    ages = {row["queue_name"]: row["oldest_seconds"] for row in await pool.fetch(QUEUE_QUERIES["queue_ages"])}
    by_queue: dict[str, dict[str, int]] = {}
    for row in depths:
        by_queue.setdefault(row["queue_name"], {})[row["status"]] = row["jobs"]
    return {
        "totals": dict(totals or {}),
        "processes": [dict(row) for row in await pool.fetch(QUERIES["live_processes"], SEEN_SECONDS_MAX)],
        "breakers": [dict(row) for row in await pool.fetch(QUEUE_QUERIES["breaker_states"])],
        "limits": [dict(row) for row in await pool.fetch(QUEUE_QUERIES["limit_states"])],
        "refused_texts": [dict(row) for row in await pool.fetch(QUEUE_QUERIES["refused_texts"])],
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
