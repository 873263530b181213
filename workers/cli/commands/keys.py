"""`hippocampus keys`: create, list, show and revoke keys of the HTTP API."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import click

from pulse.api_keys import LIFETIME_MAX, ROLES, ApiKey, ApiKeyService, Role
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.options import json_option, known_or_set_up_app
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool

_COLUMNS = ("id", "app", "user", "roles", "user's roles", "name", "status", "created", "last used", "expires")
_LIFETIME = re.compile(r"([1-9]\d{0,5})([dhm])")
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


class _Lifetime(click.ParamType[timedelta]):
    """A duration such as 90d, 12h or 30m."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse it."""
        matched = _LIFETIME.fullmatch(value)
        lifetime = None if matched is None else int(matched[1]) * _UNITS[matched[2]]
        if lifetime is None or lifetime > LIFETIME_MAX:
            self.fail(
                f"{value!r} is not a duration: write it as 90d, 12h or 30m, up to {LIFETIME_MAX.days}d.", param, ctx
            )
        return lifetime


@click.group(cls=Listing, epilog="Example:  hippocampus keys create --app shop --role append --role read --expires 90d")
def command() -> None:
    """Create, list, show and revoke keys of the HTTP API.

    HIPPOCAMPUS_API_KEY is the operator's key, for all apps and roles.
    """


@command.command(epilog="Example:  hippocampus keys create --app shop --role append --role read --expires 90d")
@click.option("--app", help="The app that the key is for.")
@click.option("--user", help="Let it act for this user alone, as a desktop client's key should.")
@click.option("--every-app", is_flag=True, help="Make it for every app instead, as a metrics collector needs it.")
@click.option(
    "--role", "roles", type=click.Choice(ROLES), multiple=True, required=True, help="Repeatable; admin includes all."
)
@click.option(
    "--user-role",
    "user_roles",
    multiple=True,
    help="A role of users, for tools and corpora, that its calls may name; with --user, all that are given hold."
    " Repeatable; without it, a key with --user names none, and another any.",
)
@click.option("--no-user-roles", is_flag=True, help="Let its calls name no role of users.")
@click.option("--name", default="", help="A name for people, such as the key's owner.")
@click.option("--expires", "lifetime", type=_Lifetime(), help="Its lifetime, such as 90d; unlimited by default.")
@json_option
def create(
    app: str | None,
    user: str | None,
    every_app: bool,
    roles: tuple[str, ...],
    user_roles: tuple[str, ...],
    no_user_roles: bool,
    name: str,
    lifetime: timedelta | None,
    as_json: bool,
) -> None:
    """Create a key. Its text is printed only this once: the database keeps a hash."""
    if (app is None) == (not every_app):
        raise click.UsageError("Name the app with --app, or use --every-app; not both.")
    if user is not None and app is None:
        raise click.UsageError("A key of one user needs --app, the app of that user.")
    if user_roles and no_user_roles:
        raise click.UsageError("Give --user-role or --no-user-roles, not both.")
    given = cast("tuple[Role, ...]", roles)
    named = user_roles if user_roles or no_user_roles else None
    made = databases.run(
        lambda pool: ApiKeyService(pool).create(
            app, given, user_id=user, name=name, lifetime=lifetime, user_roles=named
        )
    )
    if as_json:
        output.write_json({**_fields(made.key), "key": made.text})
        return
    click.echo(made.text)
    click.echo("Store it now: it is not shown again.", err=True)


@command.command("list", epilog="Example:  hippocampus keys list --app shop")
@click.option("--app", callback=known_or_set_up_app, help="Only keys that can be used for this app.")
@page_options(100)
def list_(app: str | None, options: PageOptions) -> None:
    """List keys, the newest first, including revoked and expired ones."""

    async def work(pool: Pool) -> Paged[ApiKey]:
        pages = options.of("keys", app)
        found = await ApiKeyService(pool).list(app, limit=options.limit, after=pages.begin(tuple[datetime, str]))
        return pages.full(found, lambda key: (key.created_at, key.id))

    empty = "There are no keys yet: see `hippocampus keys create --help`."
    options.write(databases.run(work), _COLUMNS, _row, empty=empty, document_of=_fields)


@command.command(epilog="Example:  hippocampus keys show 3k9q0c7vw2ab")
@click.argument("key_id")
@json_option
def show(key_id: str, as_json: bool) -> None:
    """Show a key: its app, its user, its roles, when it was used. Its text is not stored."""
    found = databases.run(lambda pool: ApiKeyService(pool).get(key_id))
    output.write_record(_fields(found), as_json=as_json)


@command.command(epilog="Example:  hippocampus keys revoke 3k9q0c7vw2ab")
@click.argument("key_id")
@json_option
def revoke(key_id: str, as_json: bool) -> None:
    """Revoke a key for good. Every writer refuses it within a second."""
    revoked = databases.run(lambda pool: ApiKeyService(pool).revoke(key_id))
    if as_json:
        output.write_json(_fields(revoked))
    else:
        output.write_table(_COLUMNS, [_row(revoked)], empty="")


def _row(key: ApiKey) -> tuple[Any, ...]:
    return (
        key.id,
        key.app_name or "every app",
        key.user_id or "every user",
        ",".join(key.roles),
        _user_roles(key),
        key.name,
        _status(key),
        key.created_at,
        key.last_used_at,
        key.expires_at,
    )


def _user_roles(key: ApiKey) -> str:
    if key.user_roles is None:
        return "any" if key.user_id is None else "none"
    return ",".join(key.user_roles) or "none"


def _fields(key: ApiKey) -> dict[str, Any]:
    return {**output.plain(key), "status": _status(key)}


def _status(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_expired = key.expires_at is not None and key.expires_at <= datetime.now(UTC)
    return "expired" if is_expired else "good"
