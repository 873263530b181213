"""`hippocampus instructions`: the instructions of an app's agents, and the changes that users' feedback proposes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar
from uuid import UUID

import click

from hippocampus.instructions import PROPOSAL_STATUSES, InstructionStore
from hippocampus.records import Instruction, InstructionProposal
from pulse.errors import InvalidInputError
from workers.cli import databases, output
from workers.cli.groups import Listing
from workers.cli.options import COUNT_MAX, json_option, known_or_set_up_app
from workers.cli.page import Item, write_rows
from workers.cli.paging import Paged, PageOptions, page_options

Result = TypeVar("Result")
_COLUMNS = ("version", "key", "content", "since")
_PROPOSAL_COLUMNS = ("status", "key", "content", "user", "proposed", "id")
_app_option = click.option("--app", required=True, help="The app.")
_read_app_option = click.option("--app", required=True, callback=known_or_set_up_app, help="The app.")
_version_option = click.option(
    "--expect",
    "expected",
    type=click.IntRange(0, COUNT_MAX),
    help="Refuse unless this is the newest version; 0: there is none.",
)
_by_option = click.option("--by", help="Who decides, for the record.")


@click.group(cls=Listing, epilog="Example:  hippocampus instructions proposals --app shop")
def command() -> None:
    """Show and change the instructions of an app's agents, and decide on proposed changes."""


@command.command("list", epilog="Example:  hippocampus instructions list --app shop")
@_read_app_option
@page_options(100)
def list_active(app: str, options: PageOptions) -> None:
    """List the instructions in force, by key."""
    pages = options.of("instructions", app)

    async def work(store: InstructionStore) -> Paged[Instruction]:
        found = await store.active(app, limit=options.limit, after=pages.begin(str))
        return pages.full(found, lambda each: each.key)

    options.write(_run(work), _COLUMNS, _item, empty="There are no instructions.")


@command.command(epilog="Example:  hippocampus instructions show tone --app shop")
@click.argument("key")
@_read_app_option
@json_option
def show(key: str, app: str, as_json: bool) -> None:
    """Show the newest version of an instruction. An empty one is no longer in force."""
    (newest,) = _run(lambda store: store.history(app, key, limit=1)) or _unknown(key)
    output.write_record(newest, as_json=as_json)


@command.command(epilog="Example:  hippocampus instructions history tone --app shop")
@click.argument("key")
@_read_app_option
@page_options(100)
def history(key: str, app: str, options: PageOptions) -> None:
    """List the versions of an instruction, the newest first."""
    pages = options.of("versions", app, key)

    async def work(store: InstructionStore) -> Paged[Instruction]:
        found = await store.history(app, key, limit=options.limit, before=pages.begin(int))
        return pages.full(found, lambda each: each.version)

    page = _run(work)
    if not page.rows and page.is_first:
        _unknown(key)
    options.write(page, _COLUMNS, _item, empty="")


@command.command(epilog="Example:  hippocampus instructions put tone 'Be brief.' --app shop")
@click.argument("key")
@click.argument("content")
@_app_option
@_version_option
@json_option
def put(key: str, content: str, app: str, expected: int | None, as_json: bool) -> None:
    """Put a text in force, as the next version of an instruction."""
    _write(_run(lambda store: store.put(app, key, content, expected_version=expected)), as_json)


@command.command(epilog="Example:  hippocampus instructions rollback tone 1 --app shop")
@click.argument("key")
@click.argument("version", type=click.IntRange(1, COUNT_MAX))
@_read_app_option
@_version_option
@json_option
def rollback(key: str, version: int, app: str, expected: int | None, as_json: bool) -> None:
    """Put an old version in force again, as the next one."""

    async def work(store: InstructionStore) -> Instruction:
        try:
            return await store.rollback(app, key, version, expected_version=expected)
        except LookupError as error:
            raise InvalidInputError(str(error)) from None

    _write(_run(work), as_json)


@command.command(epilog="Example:  hippocampus instructions proposals --app shop")
@_read_app_option
@click.option("--status", type=click.Choice(PROPOSAL_STATUSES), default="proposed", show_default=True)
@page_options(50)
def proposals(app: str, status: str, options: PageOptions) -> None:
    """List the changes that users' feedback proposes, the newest first."""
    pages = options.of("proposals", app, status)

    async def work(store: InstructionStore) -> Paged[InstructionProposal]:
        found = await store.list_proposals(app, status=status, limit=options.limit, before=pages.begin(UUID))
        return pages.full(found, lambda each: each.id)

    options.write(_run(work), _PROPOSAL_COLUMNS, _proposal, empty="There are no proposals.")


@command.command(epilog="Example:  hippocampus instructions approve ID --app shop --by ann")
@click.argument("proposal", type=click.UUID)
@_read_app_option
@_by_option
@click.option("--force", is_flag=True, help="Also if the instruction has changed since.")
@json_option
def approve(proposal: UUID, app: str, by: str | None, force: bool, as_json: bool) -> None:
    """Put a proposal in force."""
    _write_proposal(_run(lambda store: store.approve(app, proposal, decided_by=by, force=force)), as_json)


@command.command(epilog="Example:  hippocampus instructions reject ID --app shop")
@click.argument("proposal", type=click.UUID)
@_read_app_option
@_by_option
@json_option
def reject(proposal: UUID, app: str, by: str | None, as_json: bool) -> None:
    """Reject a proposal."""
    _write_proposal(_run(lambda store: store.reject(app, proposal, decided_by=by)), as_json)


def _run(work: Callable[[InstructionStore], Awaitable[Result]]) -> Result:
    return databases.run(lambda pool: work(InstructionStore(pool)))


def _unknown(key: str) -> NoReturn:
    raise InvalidInputError(f"There is no instruction {key!r:.80}: see `hippocampus instructions list`.")


def _write(changed: Instruction, as_json: bool) -> None:
    if as_json:
        output.write_json([changed])
    else:
        write_rows(_COLUMNS, [_item(changed)], empty="")


def _write_proposal(decided: InstructionProposal, as_json: bool) -> None:
    if as_json:
        output.write_json([decided])
    else:
        write_rows(_PROPOSAL_COLUMNS, [_proposal(decided)], empty="")


def _item(each: Instruction) -> Item:
    return Item(
        (each.version, each.key, each.content, each.created_at),
        f"v{each.version}",
        each.content or "(no longer in force)",
        (f"{each.key}, {output.show_time(each.created_at)}",),
    )


def _proposal(each: InstructionProposal) -> Item:
    return Item(
        (each.status, each.key, each.content, each.user_id, each.proposed_at, str(each.id)),
        each.status,
        each.content,
        (f"{each.key}; proposed by {each.user_id}, {output.show_time(each.proposed_at)}", str(each.id)),
    )
