"""`hippocampus doctor`."""

from __future__ import annotations

import asyncio

import click

from workers import settings
from workers.cli import databases, exit_codes, output
from workers.cli.options import json_option
from workers.cli.page import Page
from workers.doctor import Finding, Verdict, examine
from workers.settings import Settings

_STYLES: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command(epilog="Example:  hippocampus doctor. Exit code 1: there is a problem; with warnings alone it is 0.")
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Check the installation, and name the fix for each problem.

    It checks the models and the sandbox, the database's connection, versions, settings and permissions, the pools
    against its connection limit, clocks, disk, which roles run, which jobs wait and which failed.
    """
    with databases.opened(settings.load()) as config:
        found = asyncio.run(_examine(config))
    if as_json:
        output.write_json(found)
    else:
        _write(found)
    if any(each.verdict == "problem" for each in found):
        context.exit(exit_codes.FAILED)


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
    page.note("No problems found." if not count else f"{count} of {len(found)} checks found something.")
