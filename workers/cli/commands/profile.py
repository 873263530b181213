"""`hippocampus profile [USER]`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from hippocampus.profile import PROFILE_TOKENS, PROFILE_TOKENS_MAX, PROFILE_TOKENS_MIN, read_profile
from workers.cli import output
from workers.cli.commands.context import language_option
from workers.cli.moments import MOMENT
from workers.cli.options import json_option, known_user
from workers.cli.owners import Whose, owner_options

if TYPE_CHECKING:
    from datetime import datetime

    from hippocampus.text.languages import Language


@click.command(epilog="Example:  hippocampus profile ann --app shop")
@click.argument("name", metavar="[USER]", required=False, callback=known_user)
@owner_options
@click.option(
    "--tokens",
    default=PROFILE_TOKENS,
    show_default=True,
    type=click.IntRange(PROFILE_TOKENS_MIN, PROFILE_TOKENS_MAX),
    help="The budget of the page.",
)
@click.option("--as-of", type=MOMENT, help="What was true then; now by default.")
@language_option
@json_option
def command(
    name: str | None, whose: Whose, tokens: int, as_of: datetime | None, language: Language | None, as_json: bool
) -> None:
    """Print what is known of a user on one page: instructions, rules, facts and the strongest insights."""
    if name and whose.user:
        raise click.UsageError("Name the user once: as USER, or by --user.")
    page = replace(whose, user=name or whose.user).run(
        lambda pool, owner: read_profile(
            pool, app_name=owner.app, user_id=owner.user, max_tokens=tokens, language=language, as_of=as_of
        )
    )
    if as_json:
        output.write_json({"text": page.text, **output.plain(page)})
        return
    if page.text:
        click.echo(page.text)
    else:
        click.echo("Nothing is known.", err=True)
    if page.left_out:
        click.echo(f"{page.left_out} more facts hold: raise --tokens, or run `hippocampus facts`.", err=True)
