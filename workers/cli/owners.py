"""Whose memory is meant: options, and the only user there is where none is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse.errors import InvalidInputError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

QUERIES = load_queries("workers.cli")
OWNERS_SHOWN_MAX = 12
#: A count of something, or an event's number, as the database can hold it.
COUNT_MAX = 2**31 - 1
NUMBER_MAX = 2**63 - 1
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Owner:
    """One user of one app."""

    app: str
    user: str


def owner_options(function: Function) -> Function:
    """Add --app and --user to a command."""
    function = click.option("--user", help="Whose. Needed where there is more than one.")(function)
    return click.option("--app", help="Of which app. Needed where there is more than one.")(function)


def json_option(function: Function) -> Function:
    """Add --json to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


async def find_owner(pool: Pool, app: str | None, user: str | None) -> Owner:
    """Return who is meant.

    Raises:
        InvalidInputError: nobody, or several, fit; the message lists whom there is.
    """
    if app and user:
        return Owner(app, user)
    fitting = await _find(pool, app, user)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InvalidInputError(f"There are several users; say which: {_listed(fitting)}.")
    owners = await _find(pool, None, None)
    if not owners:
        raise InvalidInputError("There is no session yet: run `hippocampus demo`, or `hippocampus ingest FILE`.")
    raise InvalidInputError(f"There is nobody like {_wanted(app, user)}: there is {_listed(owners)}.")


async def _find(pool: Pool, app: str | None, user: str | None) -> list[Owner]:
    """Return who fits, the latest first: one more than is shown, where there are more."""
    rows = await pool.fetch(QUERIES["list_owners"], app, user, OWNERS_SHOWN_MAX + 1)
    return [Owner(row["app_name"], row["user_id"]) for row in rows]


def _wanted(app: str | None, user: str | None) -> str:
    return " ".join(part for part in (app and f"--app {app}", user and f"--user {user}") if part)


def _listed(owners: list[Owner]) -> str:
    shown = ", ".join(f"--app {each.app} --user {each.user}" for each in owners[:OWNERS_SHOWN_MAX])
    return shown if len(owners) <= OWNERS_SHOWN_MAX else f"{shown} and more (`hippocampus users` lists them)"
