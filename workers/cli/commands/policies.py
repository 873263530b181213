"""`hippocampus policies`: list, show, set, reset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import click

from hippocampus.retention import policies
from hippocampus.retention.policies import EVERY_APP, PRESETS, AppPolicy
from pulse.errors import InvalidInputError
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.owners import QUERIES, json_option
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

_COLUMNS = ("app_name", "consolidate", "fast_events", "retention_curve", "decay_rate", "cleanup_threshold")


@click.group(
    cls=Listing,
    epilog="Examples:  hippocampus policies show shop;  hippocampus policies set shop fast_events=10 decay_rate=0.05",
)
def command() -> None:
    """List the apps' policies, show one, change it: when to consolidate, how fast to forget, how large things may be.

    The policy '*' stands for every app without one.
    """


@command.command("list", epilog="Example:  hippocampus policies list")
@page_options(100)
@json_option
def list_(limit: int, cursor: str | None, as_json: bool) -> None:
    """List the apps that have a policy of their own, and '*'."""

    async def work(_config: Settings, pool: Pool) -> Paged[AppPolicy]:
        pages = Pages(cursor, limit, "policies")
        rows = await pool.fetch(QUERIES["policies"], limit, pages.begin(str))
        return pages.full([AppPolicy(**row) for row in rows], lambda each: each.app_name)

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        rows = [tuple(getattr(each, name) for name in _COLUMNS) for each in page.rows]
        columns = [name.replace("_", " ") for name in _COLUMNS]
        output.write_table(columns, rows, empty=page.empty("There is no policy."))
    tell_more(page)


@command.command("show", epilog="Example:  hippocampus policies show shop")
@click.argument("app", default=EVERY_APP)
@json_option
def show(app: str, as_json: bool) -> None:
    """Show what stands for an app: its own policy, or that of '*'."""

    async def work(_config: Settings, pool: Pool) -> AppPolicy:
        return await policies.get_policy(pool, app)

    _write(databases.run(work), as_json=as_json)


@command.command("set", epilog="Example:  hippocampus policies set shop --preset knowledge fast_events=10")
@click.argument("app")
@click.argument("fields", metavar="FIELD=VALUE…", nargs=-1)
@click.option("--preset", type=click.Choice(sorted(PRESETS)), help="Rate and threshold of a kind of apps.")
@json_option
def set_(app: str, fields: tuple[str, ...], preset: str | None, as_json: bool) -> None:
    """Change fields of an app's policy; `hippocampus policies show` names them."""
    changes = dict(_read(each) for each in fields)

    async def work(_config: Settings, pool: Pool) -> AppPolicy:
        return await policies.set_policy(pool, app, preset=cast("policies.Preset | None", preset), **changes)

    _write(databases.run(work), as_json=as_json)


@command.command("reset", epilog="Example:  hippocampus policies reset shop")
@click.argument("app")
@json_option
def reset(app: str, as_json: bool) -> None:
    """Take an app's own policy back: it lives under that of '*' again."""

    async def work(_config: Settings, pool: Pool) -> bool:
        return await policies.reset_policy(pool, app)

    changed = databases.run(work)
    if as_json:
        output.write_json({"changed": changed})
    else:
        click.echo("Reset." if changed else "It had none of its own.")


def _read(text: str) -> tuple[str, Any]:
    """Read one FIELD=VALUE: numbers, true and false as such, all else as a word."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InvalidInputError(f"{text!r:.80} is no FIELD=VALUE, such as fast_events=10.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _write(policy: AppPolicy, *, as_json: bool) -> None:
    if as_json:
        output.write_json(policy)
    else:
        output.write_fields(policy)
