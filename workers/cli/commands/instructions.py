"""`hippocampus instructions`: what an app's agents are told, and what users' feedback proposes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar
from uuid import UUID

import click

from hippocampus.instructions import PROPOSAL_STATUSES, InstructionStore
from hippocampus.records import Instruction, InstructionProposal
from pulse.errors import InvalidInputError
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.owners import COUNT_MAX, json_option
from workers.cli.page import Item, write_items
from workers.cli.paging import Paged, Pages, page_options, tell_more

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

Result = TypeVar("Result")
_app_option = click.option("--app", required=True, help="Of which app.")
_version_option = click.option(
    "--expect",
    "expected",
    type=click.IntRange(0, COUNT_MAX),
    help="Refuse where the newest version is another; 0: there is none.",
)


@click.group(cls=Listing, epilog="Example:  hippocampus instructions proposals --app shop")
def command() -> None:
    """Show and change what an app's agents are told, and decide on what users' feedback proposes."""


@command.command("list", epilog="Example:  hippocampus instructions list --app shop")
@_app_option
@page_options(100)
@json_option
def list_active(app: str, limit: int, cursor: str | None, as_json: bool) -> None:
    """List what is in force, by key."""
    pages = Pages(cursor, limit, "instructions", app)

    async def work(store: InstructionStore) -> Paged[Instruction]:
        return pages.full(await store.active(app, limit=limit, after=pages.begin(str)), lambda each: each.key)

    page = _run(work)
    _write(page.rows, as_json, empty=page.empty("There are no instructions."))
    tell_more(page)


@command.command(epilog="Example:  hippocampus instructions show tone --app shop")
@click.argument("key")
@_app_option
@json_option
def show(key: str, app: str, as_json: bool) -> None:
    """Show the newest version of an instruction; an empty one is in force no more."""
    (newest,) = _run(lambda store: store.history(app, key, limit=1)) or _unknown(key)
    if as_json:
        output.write_json(newest)
    else:
        output.write_fields(newest)


@command.command(epilog="Example:  hippocampus instructions history tone --app shop")
@click.argument("key")
@_app_option
@page_options(100)
@json_option
def history(key: str, app: str, limit: int, cursor: str | None, as_json: bool) -> None:
    """List the versions of an instruction, the newest first."""
    pages = Pages(cursor, limit, "versions", app, key)

    async def work(store: InstructionStore) -> Paged[Instruction]:
        found = await store.history(app, key, limit=limit, before=pages.begin(int))
        return pages.full(found, lambda each: each.version)

    page = _run(work)
    if not page.rows and page.is_first:
        _unknown(key)
    _write(page.rows, as_json, empty=page.empty(""))
    tell_more(page)


@command.command(epilog="Example:  hippocampus instructions put tone 'Be brief.' --app shop")
@click.argument("key")
@click.argument("content")
@_app_option
@_version_option
@json_option
def put(key: str, content: str, app: str, expected: int | None, as_json: bool) -> None:
    """Put a text in force, as the next version of an instruction."""
    _write([_run(lambda store: store.put(app, key, content, expected_version=expected))], as_json)


@command.command(epilog="Example:  hippocampus instructions rollback tone 1 --app shop")
@click.argument("key")
@click.argument("version", type=click.IntRange(1, COUNT_MAX))
@_app_option
@_version_option
@json_option
def rollback(key: str, version: int, app: str, expected: int | None, as_json: bool) -> None:
    """Put an old version in force again, as the next one."""

    async def work(store: InstructionStore) -> Instruction:
        try:
            return await store.rollback(app, key, version, expected_version=expected)
        except LookupError as error:
            raise InvalidInputError(str(error)) from None

    _write([_run(work)], as_json)


@command.command(epilog="Example:  hippocampus instructions proposals --app shop")
@_app_option
@click.option("--status", type=click.Choice(PROPOSAL_STATUSES), default="proposed", show_default=True)
@page_options(50)
@json_option
def proposals(app: str, status: str, limit: int, cursor: str | None, as_json: bool) -> None:
    """List what users' feedback asks for, the newest first."""
    pages = Pages(cursor, limit, "proposals", app, status)

    async def work(store: InstructionStore) -> Paged[InstructionProposal]:
        found = await store.list_proposals(app, status=status, limit=limit, before=pages.begin(UUID))
        return pages.full(found, lambda each: each.id)

    page = _run(work)
    _write_proposals(page.rows, as_json, empty=page.empty("Nothing is proposed."))
    tell_more(page)


@command.command(epilog="Example:  hippocampus instructions approve ID --app shop --by ann")
@click.argument("proposal", type=click.UUID)
@_app_option
@click.option("--by", help="Who decides, for the record.")
@click.option("--force", is_flag=True, help="Also where the instruction was changed since.")
@json_option
def approve(proposal: UUID, app: str, by: str | None, force: bool, as_json: bool) -> None:
    """Put a proposal in force."""
    _write_proposals([_run(lambda store: store.approve(app, proposal, decided_by=by, force=force))], as_json)


@command.command(epilog="Example:  hippocampus instructions reject ID --app shop")
@click.argument("proposal", type=click.UUID)
@_app_option
@click.option("--by", help="Who decides, for the record.")
@json_option
def reject(proposal: UUID, app: str, by: str | None, as_json: bool) -> None:
    """Turn a proposal down."""
    _write_proposals([_run(lambda store: store.reject(app, proposal, decided_by=by))], as_json)


def _run(ask: Callable[[InstructionStore], Awaitable[Result]]) -> Result:
    async def work(_config: Settings, pool: Pool) -> Result:
        return await ask(InstructionStore(pool))

    return databases.run(work)


def _unknown(key: str) -> NoReturn:
    raise InvalidInputError(f"There is no instruction {key!r:.80}: see `hippocampus instructions list`.")


def _write(found: list[Instruction], as_json: bool, *, empty: str = "") -> None:
    if as_json:
        output.write_json(found)
        return
    items = [
        Item(
            (each.version, each.key, each.content, each.created_at),
            f"v{each.version}",
            each.content or "(in force no more)",
            (f"{each.key}, {output.show_time(each.created_at)}",),
        )
        for each in found
    ]
    write_items(("version", "key", "content", "since"), items, empty=empty)


def _write_proposals(found: list[InstructionProposal], as_json: bool, *, empty: str = "") -> None:
    if as_json:
        output.write_json(found)
        return
    items = [
        Item(
            (each.status, each.key, each.content, each.user_id, each.proposed_at, str(each.id)),
            each.status,
            each.content,
            (f"{each.key}; asked for by {each.user_id}, {output.show_time(each.proposed_at)}", str(each.id)),
        )
        for each in found
    ]
    write_items(("status", "key", "content", "user", "proposed", "id"), items, empty=empty)
