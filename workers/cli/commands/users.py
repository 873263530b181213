"""`hippocampus users`: list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pulse.errors import InvalidInputError
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.owners import QUERIES, json_option
from workers.cli.page import Page
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

_COLUMNS = ("app", "user", "sessions", "events", "memories", "facts", "last_event")


@click.group(cls=Listing, epilog="Examples:  hippocampus users --app shop;  hippocampus users show ann --app shop")
def command() -> None:
    """List the users of all apps that have sessions, or show one."""


@command.command("list", epilog="Example:  hippocampus users list --app shop")
@click.option("--app", help="Only of this app.")
@page_options(100)
@json_option
def list_(app: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List users by app and name, with what there is of them."""

    async def work(_config: Settings, pool: Pool) -> Paged[dict[str, Any]]:
        pages = Pages(cursor, limit, "users", app)
        after = pages.begin(tuple[str, str]) or (None, None)
        rows = await pool.fetch(QUERIES["users"], app, None, limit, *after)
        return pages.full([dict(row) for row in rows], lambda row: (row["app"], row["user"]))

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        rows = [tuple(row[name] for name in _COLUMNS) for row in page.rows]
        columns = [name.replace("_", " ") for name in _COLUMNS]
        output.write_table(columns, rows, empty=page.empty("Nobody has a session yet."))
    tell_more(page)


@command.command("show", epilog="Example:  hippocampus users show ann --app shop")
@click.argument("user")
@click.option("--app", help="Of which app. Needed where several have such a user.")
@json_option
def show(user: str, app: str | None, as_json: bool) -> None:
    """Show what there is of a user, in each app that knows the name."""

    async def work(_config: Settings, pool: Pool) -> list[dict[str, Any]]:
        return [dict(row) for row in await pool.fetch(QUERIES["users"], app, user, 1000, None, None)]

    found = databases.run(work)
    if not found:
        raise InvalidInputError(f"There is no user {user!r:.80} with a session: see `hippocampus users`.")
    if as_json:
        output.write_json(found)
        return
    page = Page(output.console())
    for row in found:
        for name, value in row.items():
            page.field(name.replace("_", " "), output.show(value))
