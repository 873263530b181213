"""`hippocampus audit`: list and export who did what in administration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pulse.audit import Act, AuditLog
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.options import known_or_logged_app
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool

_COLUMNS = ("at", "actor", "action", "app", "user", "target", "outcome")


@click.group(cls=Listing, epilog="Example:  hippocampus audit list --app shop --action key_created")
def command() -> None:
    """List and export administrative acts: keys, erasures, replays, policies, webhooks, exports.

    Entries hold ids, no words of users. They do not change, and are kept for 400 days.
    """


@command.command("list", epilog="Example:  hippocampus audit list --actor cli:root")
@click.option("--app", callback=known_or_logged_app, help="Only of this app, and of every app.")
@click.option("--action", help="Only this action, such as key_created.")
@click.option("--actor", help="Only of this actor, such as key:3k9q0c7vw2ab.")
@page_options(100)
def list_(app: str | None, action: str | None, actor: str | None, options: PageOptions) -> None:
    """List acts, the newest first."""

    async def work(pool: Pool) -> Paged[Act]:
        pages = options.of("audit", app, action, actor)
        log = AuditLog(pool)
        found = await log.list(app, action=action, actor=actor, limit=options.limit, before=pages.begin(UUID))
        return pages.full(found, lambda each: each.id)

    options.write(databases.run(work), _COLUMNS, _row, empty="Nothing was done yet.")


@command.command("export", epilog="Example:  hippocampus audit export > audit.jsonl")
@click.option("--app", callback=known_or_logged_app, help="Only of this app, and of every app.")
def export(app: str | None) -> None:
    """Write every entry as a line of JSON, the newest first."""

    async def work(pool: Pool) -> int:
        count = 0
        async for each in AuditLog(pool).all(app):
            click.echo(json.dumps(output.plain(each), ensure_ascii=False))
            count += 1
        return count

    click.echo(f"Exported {databases.run(work)} entries.", err=True)


def _row(act: Act) -> tuple[Any, ...]:
    target = " ".join(f"{name}={value}" for name, value in act.target.items())
    return act.at, act.actor, act.action, act.app_name or "every app", act.user_id, target, act.outcome
