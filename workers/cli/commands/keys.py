"""`hippocampus keys`: make, list, show and revoke keys of the HTTP API."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import click

from pulse.api_keys import LIFETIME_MAX, ROLES, ApiKey, ApiKeyService, NewApiKey, Role
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.owners import json_option
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

_LIFETIME = re.compile(r"([1-9]\d{0,5})([dhm])")
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


class _Lifetime(click.ParamType[timedelta]):
    """A time such as 90d, 12h or 30m."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        parts = _LIFETIME.fullmatch(value)
        lifetime = None if parts is None else int(parts[1]) * _UNITS[parts[2]]
        if lifetime is None or lifetime > LIFETIME_MAX:
            self.fail(f"{value!r} is no time: write it as 90d, 12h or 30m, up to {LIFETIME_MAX.days}d.", param, ctx)
        return lifetime


@click.group(cls=Listing, epilog="Example:  hippocampus keys create --app shop --role append --role read --expires 90d")
def command() -> None:
    """Make, list, show and revoke keys of the HTTP API.

    HIPPOCAMPUS_API_KEY is the operator's own, of all apps and roles.
    """


@command.command(epilog="Example:  hippocampus keys create --app shop --role append --role read --expires 90d")
@click.option("--app", help="The app that it is for.")
@click.option("--every-app", is_flag=True, help="For every app instead, as a metrics collector needs it.")
@click.option(
    "--role", "roles", type=click.Choice(ROLES), multiple=True, required=True, help="May be repeated; admin has all."
)
@click.option("--name", default="", help="Whose it is, for people.")
@click.option("--expires", "lifetime", type=_Lifetime(), help="After how long, such as 90d; never by default.")
@json_option
def create(
    app: str | None, every_app: bool, roles: tuple[str, ...], name: str, lifetime: timedelta | None, as_json: bool
) -> None:
    """Make a key. Its text is printed this once: only its hash is kept."""
    if (app is None) == (not every_app):
        raise click.UsageError("Name the app with --app, or say --every-app; not both.")

    async def work(_config: Settings, pool: Pool) -> NewApiKey:
        return await ApiKeyService(pool).create(app, cast("tuple[Role, ...]", roles), name=name, lifetime=lifetime)

    made = databases.run(work)
    if as_json:
        output.write_json({**_fields(made.key), "key": made.text})
        return
    click.echo(made.text)
    click.echo("Keep it now: it is not shown again.", err=True)


@command.command("list", epilog="Example:  hippocampus keys list --app shop")
@click.option("--app", help="Only keys that can be used for this app.")
@page_options(100)
@json_option
def list_(app: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List keys, the newest first; also those that are revoked or too old."""

    async def work(_config: Settings, pool: Pool) -> Paged[ApiKey]:
        pages = Pages(cursor, limit, "keys", app)
        found = await ApiKeyService(pool).list(app, limit=limit, after=pages.begin(tuple[datetime, str]))
        return pages.full(found, lambda key: (key.created_at, key.id))

    page = databases.run(work)
    _write(page.rows, as_json, empty=page.empty("There is no key yet: see `hippocampus keys create --help`."))
    tell_more(page)


@command.command(epilog="Example:  hippocampus keys show 3k9q0c7vw2ab")
@click.argument("key_id")
@json_option
def show(key_id: str, as_json: bool) -> None:
    """Show a key: whose, what it may, when it was used. Its text is not kept."""

    async def work(_config: Settings, pool: Pool) -> ApiKey:
        return await ApiKeyService(pool).get(key_id)

    found = _fields(databases.run(work))
    if as_json:
        output.write_json(found)
    else:
        output.write_fields(found)


@command.command(epilog="Example:  hippocampus keys revoke 3k9q0c7vw2ab")
@click.argument("key_id")
@json_option
def revoke(key_id: str, as_json: bool) -> None:
    """End a key for good. Every writer refuses it within a second."""

    async def work(_config: Settings, pool: Pool) -> ApiKey:
        return await ApiKeyService(pool).revoke(key_id)

    revoked = databases.run(work)
    if as_json:
        output.write_json(_fields(revoked))
    else:
        _write([revoked], as_json)


def _write(keys: list[ApiKey], as_json: bool, *, empty: str = "") -> None:
    if as_json:
        output.write_json([_fields(key) for key in keys])
        return
    columns = ("id", "app", "roles", "name", "status", "created", "last used", "expires")
    rows = [
        (
            key.id,
            key.app_name or "every app",
            ",".join(key.roles),
            key.name,
            _status(key),
            key.created_at,
            key.last_used_at,
            key.expires_at,
        )
        for key in keys
    ]
    output.write_table(columns, rows, empty=empty)


def _fields(key: ApiKey) -> dict[str, Any]:
    return {**output.plain(key), "status": _status(key)}


def _status(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_old = key.expires_at is not None and key.expires_at <= datetime.now(UTC)
    return "expired" if is_old else "good"
