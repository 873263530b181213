"""What people write: `hippocampus memory remember` and `facts remember`; correct, retire and confirm of both nouns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

import click

from hippocampus.by_hand import Edit, GivenFact, MemoryEditor
from hippocampus.records import FactType, Importance
from hippocampus.transfer.given_memories import GivenMemory
from workers.cli import output
from workers.cli.moments import MOMENT
from workers.cli.options import json_option
from workers.cli.owners import Whose, new_owner_options, owner_options

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.cli.rows import Owner

_by_option = click.option("--by", help="Who writes it; kept with it.")


@click.command("remember", epilog='Example:  hippocampus memory remember "She signs as Ann B." --by support')
@click.argument("text")
@click.option("--name", help="Writing the same name again replaces the memory.")
@click.option("--importance", type=click.Choice(get_args(Importance)), default="high", show_default=True)
@_by_option
@new_owner_options
@json_option
def remember_memory(
    text: str, name: str | None, importance: Importance, by: str | None, whose: Whose, as_json: bool
) -> None:
    """Write a memory by hand."""
    given = GivenMemory(content=text, name=name, importance=importance)
    _write(whose, as_json, lambda editor, who: editor.remember(who.app, who.user, given, by=by), "Remembered")


@click.command("remember", epilog="Example:  hippocampus facts remember home_city Lyon --since 2024-05-01 --by support")
@click.argument("key")
@click.argument("value")
@click.option("--type", "fact_type", type=click.Choice(get_args(FactType)), default="profile", show_default=True)
@click.option("--since", type=MOMENT, help="Since when it is true, such as 2024-05-01; from now on by default.")
@click.option("--json-value", is_flag=True, help='VALUE is JSON, such as \'["nuts", "pollen"]\'.')
@_by_option
@new_owner_options
@json_option
def remember_fact(
    key: str,
    value: str,
    fact_type: FactType,
    since: datetime | None,
    json_value: bool,
    by: str | None,
    whose: Whose,
    as_json: bool,
) -> None:
    """Write a fact by hand: it replaces what held under its key, whose history stays."""
    given = GivenFact(key=key, value=_value(value, as_json=json_value), fact_type=fact_type, since=since)
    _write(whose, as_json, lambda editor, who: editor.remember(who.app, who.user, given, by=by), "Remembered")


@click.command(
    "correct",
    epilog="Examples:  hippocampus facts correct 0199… Nice --by ann;  hippocampus memory correct 0199… 'She moved.'",
)
@click.argument("target", metavar="ID", type=click.UUID)
@click.argument("value")
@click.option("--json-value", is_flag=True, help="VALUE is JSON.")
@_by_option
@owner_options
@json_option
def correct(target: UUID, value: str, json_value: bool, by: str | None, whose: Whose, as_json: bool) -> None:
    """Replace what a memory says, or the value of a fact from now on. The former stays in the history."""
    new = _value(value, as_json=json_value)
    _write(whose, as_json, lambda editor, who: editor.correct(who.app, who.user, target, new, by=by), "Corrected")


@click.command("retire", epilog="Examples:  hippocampus facts retire 0199… --by ann;  hippocampus memory retire 0199…")
@click.argument("target", metavar="ID", type=click.UUID)
@_by_option
@owner_options
@json_option
def retire(target: UUID, by: str | None, whose: Whose, as_json: bool) -> None:
    """Let a memory no longer be found, or a fact no longer hold. Its history stays."""
    _write(whose, as_json, lambda editor, who: editor.retire(who.app, who.user, target, by=by), "Retired")


@click.command(
    "confirm", epilog="Examples:  hippocampus facts confirm 0199… --by ann;  hippocampus memory confirm 0199…"
)
@click.argument("target", metavar="ID", type=click.UUID)
@_by_option
@owner_options
@json_option
def confirm(target: UUID, by: str | None, whose: Whose, as_json: bool) -> None:
    """Confirm a memory or a fact: a fact is certain from now on, a memory as strong as if it had been used now."""
    _write(whose, as_json, lambda editor, who: editor.confirm(who.app, who.user, target, by=by), "Confirmed")


def _write(whose: Whose, as_json: bool, work: Callable[[MemoryEditor, Owner], Awaitable[Edit]], done: str) -> None:
    async def run(pool: Pool, owner: Owner) -> Edit:
        return await work(MemoryEditor(pool), owner)

    edit = whose.run(run)
    if as_json:
        output.write_json(edit)
        return
    ids = ", ".join(map(str, edit.ids))
    click.echo(f"{done}: {edit.kind} {ids}." if edit.changed else f"Unchanged: {edit.kind} {ids} was so already.")


def _value(text: str, *, as_json: bool) -> Any:
    if not as_json:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint="VALUE") from None
