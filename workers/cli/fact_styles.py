"""Which keys of an app hold one value, and which hold several: `hippocampus facts styles`."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from hippocampus.facts.keys import FactStyle
from hippocampus.facts.ledger import FactLedger, KeyStyle
from hippocampus.records import FactType
from pulse.names import EVERY_APP
from workers.cli import databases, output
from workers.cli.options import json_option, known_or_set_up_app
from workers.cli.paging import Paged, PageOptions, page_options

if TYPE_CHECKING:
    from pulse.database import Pool

_COLUMNS = ("app", "type", "key", "style")
_app_option = click.option(
    "--app", default=EVERY_APP, show_default=True, help="The app; '*' stands for all without a style of their own."
)


@click.command("styles", epilog="Example:  hippocampus facts styles --app shop")
@click.option("--app", callback=known_or_set_up_app, help="Only of this app and of '*'; by default of every app.")
@page_options(100)
def styles(app: str | None, options: PageOptions) -> None:
    """List the keys with a style of their own: one value (profile) or several (collection)."""

    async def work(pool: Pool) -> Paged[KeyStyle]:
        pages = options.of("styles", app)
        found = await FactLedger(pool).list_styles(app, limit=options.limit, after=pages.begin(tuple[str, str, str]))
        return pages.full(found, lambda each: (each.app_name, each.fact_type, each.normal_key))

    options.write(databases.run(work), _COLUMNS, _row, empty="Every key follows the program's own list.")


@click.command("set-style", epilog="Example:  hippocampus facts set-style preference food collection --app shop")
@click.argument("fact_type", type=click.Choice(get_args(FactType)))
@click.argument("key")
@click.argument("style", type=click.Choice(get_args(FactStyle)))
@_app_option
@json_option
def set_style(fact_type: FactType, key: str, style: FactStyle, app: str, as_json: bool) -> None:
    """Make a key hold one value (profile) or several (collection), from the next statement on."""
    made = databases.run(lambda pool: FactLedger(pool).set_style(app, fact_type, key, style))
    if as_json:
        output.write_json(made)
    else:
        output.write_table(_COLUMNS, [_row(made)], empty="")


@click.command("reset-style", epilog="Example:  hippocampus facts reset-style preference food --app shop")
@click.argument("fact_type", type=click.Choice(get_args(FactType)))
@click.argument("key")
@_app_option
@json_option
def reset_style(fact_type: FactType, key: str, app: str, as_json: bool) -> None:
    """Make a key follow the style of '*', or the program's own list, again."""
    changed = databases.run(lambda pool: FactLedger(pool).reset_style(app, fact_type, key))
    output.write_change(changed, as_json=as_json, done="Reset.", unchanged="It had no style of its own.")


def _row(style: KeyStyle) -> tuple[str, ...]:
    return (style.app_name, style.fact_type, style.normal_key, style.style)
