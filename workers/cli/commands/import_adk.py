"""`hippocampus import-adk URL`."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import click

from pulse.process.extras import install_command
from workers.cli import databases, exit_codes, output, progress
from workers.cli.options import json_option
from workers.settings import SettingsError

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.adk.importing import Copied

PROBLEMS_SHOWN_MAX = 10


@click.command(
    "import-adk",
    epilog="Example:  hippocampus import-adk sqlite+aiosqlite:///sessions.db",
)
@click.argument("url")
@click.option("--overwrite-state", is_flag=True, help="Replace app and user state that exists here by ADK's.")
@json_option
def command(url: str, overwrite_state: bool, as_json: bool) -> int:
    """Copy sessions, events and states of Google ADK's DatabaseSessionService.

    URL is the one that the service is given, of a database with version 1 of its schema (google-adk 2.x). Running the
    command again completes an interrupted copy, and stores nothing twice. Run it before agents use the copied
    sessions. Exit code 1: the copy is not complete.
    """

    async def work(pool: Pool) -> Copied:
        importing, source = _load()
        async with source.opened(url) as opened:
            counts = await opened.counts()
            with progress.bar("events", counts["events"], hidden=as_json) as advance:
                run = importing.AdkImport(opened, pool, overwrite_state=overwrite_state, on_progress=advance)
                copied: Copied = await run.run()
        return copied

    copied = databases.run(work, create=True)
    if as_json:
        output.write_json({**output.plain(copied), "is_complete": copied.is_complete})
    else:
        _write(copied)
    return 0 if copied.is_complete else exit_codes.FAILED


def _load() -> tuple[ModuleType, ModuleType]:
    """Import the modules that need ADK: it takes seconds to import, and is optional."""
    try:
        from workers.adk import importing, source
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"Copying ADK's sessions needs the package {error.name}: run {install_command('adk')}."
        ) from error
    return importing, source


def _write(copied: Copied) -> None:
    rows = [(table, copied.source[table], here, copied.new.get(table, "")) for table, here in copied.here.items()]
    output.write_table(("table", "in ADK's", "here", "new"), rows, empty="")
    if copied.moved_sessions:
        click.echo(
            f"{copied.moved_sessions} sessions were continued here after an earlier import, and keep their state."
        )
    if copied.kept_keys:
        click.echo(
            f"{copied.kept_keys} keys of shared state differ here and were kept; --overwrite-state replaces them."
        )
    if copied.erased["sessions"] or copied.erased_keys:
        erased = f"{copied.erased['sessions']} sessions and {copied.erased_keys} keys of shared state"
        click.echo(f"{erased} were erased here, and were not copied again.")
    for app, user, session_id in copied.taken_sessions[:PROBLEMS_SHOWN_MAX]:
        click.echo(f"Not copied: session {session_id!r} of {user!r} in {app!r} exists here, and was not imported.")
    for refused in copied.refused[:PROBLEMS_SHOWN_MAX]:
        what = f"the {'app' if refused.user_id is None else 'user'} state" if refused.session_id is None else "session"
        names = ", ".join(
            repr(name)[:80] for name in (refused.session_id, refused.user_id, refused.app_name) if name is not None
        )
        click.echo(f"Not copied completely: {what} {names}: {refused.reason}")
    if len(copied.refused) > PROBLEMS_SHOWN_MAX:
        click.echo(f"… and {len(copied.refused) - PROBLEMS_SHOWN_MAX} more; --json lists all.")
    click.echo("The copy is complete." if copied.is_complete else "The copy is not complete.")
