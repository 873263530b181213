"""`hippocampus doctor`."""

from __future__ import annotations

import asyncio

import click

from workers import settings
from workers.cli import databases, output
from workers.cli.owners import json_option
from workers.cli.page import Page
from workers.doctor import Finding, Verdict, examine
from workers.settings import Settings

_STYLES: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command(epilog="Example:  hippocampus doctor. Exit code 1: there is a problem; warnings alone are 0.")
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Check the installation, and say what to do about each fault.

    The connection, versions, settings and permissions of the database, the pools against its limit, clocks, disk,
    which roles run, what waits and what failed.
    """
    with databases.opened(settings.load()) as config:
        found = asyncio.run(_examine(config))
    if as_json:
        output.write_json(found)
    else:
        _write(found)
    if any(each.verdict == "problem" for each in found):
        context.exit(1)


async def _examine(config: Settings) -> list[Finding]:
    return [each async for each in examine(config)]


def _write(found: list[Finding]) -> None:
    screen = output.console()
    if not screen.is_terminal:
        rows = [(each.verdict, each.check, each.found, each.fix) for each in found]
        output.write_table(("verdict", "check", "found", "fix"), rows, empty="")
        return
    page = Page(screen)
    for each in found:
        page.finding(each.verdict, each.check, each.found, style=_STYLES[each.verdict])
        if each.fix:
            page.note(each.fix, style="", indent=24)
    count = sum(each.verdict != "ok" for each in found)
    page.note("All is well." if not count else f"{count} of {len(found)} checks have something to say.")
