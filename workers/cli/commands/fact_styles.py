"""Which keys of an app hold one value, and which hold many side by side: `hippocampus facts styles`."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from hippocampus.facts.keys import FactStyle
from hippocampus.facts.ledger import FactLedger, KeyStyle
from hippocampus.records import FactType
from hippocampus.retention.policies import EVERY_APP
from workers.cli import databases, output
from workers.cli.owners import json_option
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

_COLUMNS = ("app", "type", "key", "style")
_app_option = click.option(
    "--app", default=EVERY_APP, show_default=True, help="Of this app; '*' is for all that say nothing else."
)


@click.command("styles", epilog="Example:  hippocampus facts styles --app shop")
@click.option("--app", help="Only of this app, and what stands for all; by default every app's.")
@page_options(100)
@json_option
def styles(app: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List which keys hold one value (profile) or many side by side (collection), where somebody said so."""

    async def work(_config: Settings, pool: Pool) -> Paged[KeyStyle]:
        pages = Pages(cursor, limit, "styles", app)
        after = pages.begin(tuple[str, str, str])
        found = await FactLedger(pool).list_styles(app, limit=limit, after=after)
        return pages.full(found, lambda each: (each.app_name, each.fact_type, each.normal_key))

    page = databases.run(work)
    if as_json:
        output.write_json(page.rows)
    else:
        rows = [(each.app_name, each.fact_type, each.normal_key, each.style) for each in page.rows]
        output.write_table(_COLUMNS, rows, empty=page.empty("Every key goes by the program's own list."))
    tell_more(page)


@click.command("set-style", epilog="Example:  hippocampus facts set-style preference food collection --app shop")
@click.argument("fact_type", type=click.Choice(get_args(FactType)))
@click.argument("key")
@click.argument("style", type=click.Choice(get_args(FactStyle)))
@_app_option
@json_option
def set_style(fact_type: FactType, key: str, style: FactStyle, app: str, as_json: bool) -> None:
    """Let a key hold one value (profile) or many side by side (collection), from the next statement on."""

    async def work(_config: Settings, pool: Pool) -> KeyStyle:
        return await FactLedger(pool).set_style(app, fact_type, key, style)

    made = databases.run(work)
    if as_json:
        output.write_json(made)
    else:
        output.write_table(_COLUMNS, [(made.app_name, made.fact_type, made.normal_key, made.style)], empty="")


@click.command("reset-style", epilog="Example:  hippocampus facts reset-style preference food --app shop")
@click.argument("fact_type", type=click.Choice(get_args(FactType)))
@click.argument("key")
@_app_option
@json_option
def reset_style(fact_type: FactType, key: str, app: str, as_json: bool) -> None:
    """Let a key go by what stands for all apps, or by the program's own list, again."""

    async def work(_config: Settings, pool: Pool) -> bool:
        return await FactLedger(pool).reset_style(app, fact_type, key)

    changed = databases.run(work)
    if as_json:
        output.write_json({"changed": changed})
    else:
        click.echo("Reset." if changed else "Nothing was said of it.")
