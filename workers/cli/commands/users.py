"""`hippocampus users`: list, show."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from pulse.errors import InvalidInputError
from workers.cli import databases, output, rows
from workers.cli.groups import Listing
from workers.cli.options import app_filter, json_option
from workers.cli.page import Page
from workers.cli.paging import LIMIT_MAX, Paged, PageOptions, page_options
from workers.cli.rows import UserSummary

if TYPE_CHECKING:
    from pulse.database import Pool

_FIELDS = ("app", "user", "sessions", "events", "memories", "facts", "last_event")


@click.group(cls=Listing, epilog="Examples:  hippocampus users --app shop;  hippocampus users show ann --app shop")
def command() -> None:
    """List the users of all apps that have sessions, or show one."""


@command.command("list", epilog="Example:  hippocampus users list --app shop")
@app_filter
@page_options(100)
def list_(app: str | None, options: PageOptions) -> None:
    """List users by app and name, with how much is stored of each."""

    async def work(pool: Pool) -> Paged[UserSummary]:
        pages = options.of("users", app)
        found = await rows.users(pool, app, None, limit=options.limit, after=pages.begin(tuple[str, str]))
        return pages.full(found, lambda each: (each.app, each.user))

    columns = [name.replace("_", " ") for name in _FIELDS]
    options.write(databases.run(work), columns, _row, empty="No user has a session yet.")


@command.command("show", epilog="Example:  hippocampus users show ann --app shop")
@click.argument("user")
@app_filter
@json_option
def show(user: str, app: str | None, as_json: bool) -> None:
    """Show how much is stored of a user, in each app that has one of this name."""
    found = databases.run(lambda pool: rows.users(pool, app, user, limit=LIMIT_MAX))
    if not found:
        raise InvalidInputError(f"There is no user {user!r:.80} with a session: see `hippocampus users`.")
    if as_json:
        output.write_json(found)
        return
    page = Page(output.console())
    for each in found:
        for field in dataclasses.fields(each):
            page.field(field.name.replace("_", " "), output.show(getattr(each, field.name)))


def _row(each: UserSummary) -> tuple[Any, ...]:
    return tuple(getattr(each, name) for name in _FIELDS)
