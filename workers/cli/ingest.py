"""`hippocampus ingest FILE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulse.session_service import OpenSessionService
from workers import conversations
from workers.cli import databases, output, progress
from workers.cli.owners import QUERIES, json_option
from workers.discovery import SEEN_SECONDS_MAX
from workers.ingest import Ingested, ingest

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@dataclass(frozen=True, slots=True)
class _Outcome:
    ingested: Ingested
    is_worked_off: bool  # somebody is there who takes the jobs


@click.command(
    epilog="Example:  hippocampus ingest chats.jsonl --app shop --user ann --finalize",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--app", default="default", show_default=True, help="The app that the sessions belong to.")
@click.option("--user", help="The user that they belong to; by default whom the file names, else the file's name.")
@click.option("--finalize", is_flag=True, help="End each session, so that all of it is consolidated at once.")
@json_option
def command(file: Path, app: str, user: str | None, finalize: bool, as_json: bool) -> None:
    """Append the conversations of FILE: LoCoMo JSON, or OpenAI-style chat JSONL.

    Each session of the file becomes a session; events keep their own times. A second run of the same file appends
    nothing twice.
    """
    read = conversations.read(file)
    click.echo(f"{file} is {read.file_format}: {len(read.sessions)} sessions, {read.event_count} events.", err=as_json)

    async def work(_config: Settings, pool: Pool) -> _Outcome:
        service = OpenSessionService(pool)
        try:
            with progress.bar("events", read.event_count, hidden=as_json) as advance:
                done = await ingest(service, read, app_name=app, user_id=user, finalize=finalize, on_progress=advance)
        finally:
            await service.close()
        processes = await pool.fetch(QUERIES["live_processes"], SEEN_SECONDS_MAX)
        return _Outcome(done, any(row["role"] in ("fast_replay", "deep_reflection") for row in processes))

    outcome = databases.run(work, create=True)
    done = outcome.ingested
    if as_json:
        output.write_json({"format": read.file_format, "app": app, **output.plain(done)})
        return
    known = f" {done.events_known} were there already." if done.events_known else ""
    click.echo(f"Appended {done.events_new} events to {done.sessions} sessions.{known}")
    if finalize:
        click.echo(f"Enqueued {done.jobs_enqueued} jobs.")
    if not outcome.is_worked_off:
        click.echo("No worker runs now: `hippocampus up` starts them, and they take up what waits.")
