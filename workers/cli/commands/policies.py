"""`hippocampus policies`: list, show, set, reset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import click

from hippocampus.retention import policies
from hippocampus.retention.policies import PRESETS, AppPolicy
from pulse.errors import InvalidInputError
from pulse.names import EVERY_APP
from workers.cli import databases, output, rows
from workers.cli.groups import Listing
from workers.cli.options import json_option
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool

_FIELDS = ("app_name", "consolidate", "fast_events", "retention_curve", "decay_rate", "cleanup_threshold")


@click.group(
    cls=Listing,
    epilog="Examples:  hippocampus policies show shop;  hippocampus policies set shop fast_events=10 decay_rate=0.05",
)
def command() -> None:
    """List, show and change apps' policies: when to consolidate, how fast memories fade, size limits.

    The policy '*' applies to every app without its own.
    """


@command.command("list", epilog="Example:  hippocampus policies list")
@page_options(100)
def list_(options: PageOptions) -> None:
    """List the apps that have a policy of their own, and '*'."""

    async def work(pool: Pool) -> Paged[AppPolicy]:
        pages = options.of("policies")
        found = await rows.policies(pool, limit=options.limit, after=pages.begin(str))
        return pages.full(found, lambda each: each.app_name)

    columns = [name.replace("_", " ") for name in _FIELDS]
    options.write(databases.run(work), columns, _row, empty="There are no policies.")


@command.command("show", epilog="Example:  hippocampus policies show shop")
@click.argument("app", default=EVERY_APP)
@json_option
def show(app: str, as_json: bool) -> None:
    """Show the policy that applies to an app: its own, or '*'."""
    output.write_record(databases.run(lambda pool: policies.get_policy(pool, app)), as_json=as_json)


@command.command("set", epilog="Example:  hippocampus policies set shop --preset knowledge fast_events=10")
@click.argument("app")
@click.argument("fields", metavar="FIELD=VALUE…", nargs=-1)
@click.option("--preset", type=click.Choice(sorted(PRESETS)), help="Decay rate and threshold of a kind of app.")
@json_option
def set_(app: str, fields: tuple[str, ...], preset: str | None, as_json: bool) -> None:
    """Change fields of an app's policy; `hippocampus policies show` names them."""
    changes = dict(_read(each) for each in fields)
    chosen = cast("policies.Preset | None", preset)
    changed = databases.run(lambda pool: policies.set_policy(pool, app, preset=chosen, **changes))
    output.write_record(changed, as_json=as_json)


@command.command("reset", epilog="Example:  hippocampus policies reset shop")
@click.argument("app")
@json_option
def reset(app: str, as_json: bool) -> None:
    """Remove an app's own policy: '*' applies to it again."""
    changed = databases.run(lambda pool: policies.reset_policy(pool, app))
    output.write_change(changed, as_json=as_json, done="Reset.", unchanged="It had no policy of its own.")


def _row(policy: AppPolicy) -> tuple[Any, ...]:
    return tuple(getattr(policy, name) for name in _FIELDS)


def _read(text: str) -> tuple[str, Any]:
    """Parse FIELD=VALUE: a JSON value, or else a word."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InvalidInputError(f"{text!r:.80} is not a FIELD=VALUE, such as fast_events=10.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
