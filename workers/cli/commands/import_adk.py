"""`hippocampus import-adk URL`."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import click

from workers.cli import databases, output, progress
from workers.cli.owners import json_option
from workers.settings import SettingsError

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.adk.importing import Copied
    from workers.settings import Settings


@click.command(
    "import-adk",
    epilog="Example:  hippocampus import-adk sqlite+aiosqlite:///sessions.db",
)
@click.argument("url")
@click.option("--overwrite-state", is_flag=True, help="ADK's app and user states win over keys that are here already.")
@json_option
def command(url: str, overwrite_state: bool, as_json: bool) -> int:
    """Copy sessions, events and states of Google ADK's DatabaseSessionService.

    URL is what that service is given: version 1 of its schema, of google-adk 2.x. Interrupted, or run again, it goes on
    and stores nothing twice. Run it before agents use the copied sessions. Exit code 1: not all of it is here.
    """

    async def work(_config: Settings, pool: Pool) -> Copied:
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
    return 0 if copied.is_complete else 1


def _load() -> tuple[ModuleType, ModuleType]:
    """Import what needs ADK, which takes seconds, and which an installation may lack."""
    try:
        from workers.adk import importing, source
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"Copying ADK's sessions needs the package {error.name}: run pip install 'hippocampus[adk]'."
        ) from error
    return importing, source


def _write(copied: Copied) -> None:
    rows = [(table, copied.source[table], here, copied.new.get(table, "")) for table, here in copied.here.items()]
    output.write_table(("table", "in ADK's", "here", "new"), rows, empty="")
    if copied.moved_sessions:
        click.echo(f"{copied.moved_sessions} sessions went on here since an earlier import, and keep their state.")
    if copied.kept_keys:
        click.echo(f"{copied.kept_keys} keys of shared states differ here and stay; --overwrite-state replaces them.")
    if copied.erased["sessions"] or copied.erased_keys:
        left_out = f"{copied.erased['sessions']} sessions and {copied.erased_keys} keys of shared states"
        click.echo(f"{left_out} were forgotten here, and stay so.")
    for app, user, session_id in copied.taken_sessions[:10]:
        click.echo(f"Not copied: session {session_id!r} of {user!r} in {app!r} exists here, and no import made it.")
    for refused in copied.refused[:10]:
        what = f"the {'app' if refused.user_id is None else 'user'} state" if refused.session_id is None else "session"
        names = ", ".join(
            repr(name)[:80] for name in (refused.session_id, refused.user_id, refused.app_name) if name is not None
        )
        click.echo(f"Not copied whole: {what} {names}: {refused.reason}")
    if len(copied.refused) > 10:
        click.echo(f"… and {len(copied.refused) - 10} more; --json names them all.")
    click.echo("All of it is here." if copied.is_complete else "Not all of it is here.")
