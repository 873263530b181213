"""`hippocampus ingest FILE…`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulse.session_service import OpenSessionService, check_names
from workers.cli import databases, output, progress
from workers.cli.owners import QUERIES, json_option
from workers.failures import DATABASE_FAULTS
from workers.intake import files, reader
from workers.intake.files import InputFile, Rejects
from workers.intake.ingest import Ingest, Ingested
from workers.intake.records import FileFormatError, Rejected, SessionHead, Turn
from workers.telemetry.discovery import SEEN_SECONDS_MAX

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

#: Of what is rejected, on the screen; the file has all of it.
REJECTS_SHOWN_MAX = 5


@dataclass(slots=True)
class _Report:
    """What became of all files."""

    done: Ingested = field(default_factory=Ingested)
    formats: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)
    rejects_file: str | None = None
    is_worked_off: bool = False  # somebody is there who takes the jobs
    told: int = 0  # of the rejected, on the screen

    @property
    def is_whole(self) -> bool:
        return not self.done.rejected and not self.unread


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the command was asked for."""

    inputs: list[InputFile]
    app: str
    user: str | None
    finalize: bool
    day_first: bool
    quiet: bool


@click.command(
    epilog="Examples:  hippocampus ingest chats.jsonl --app shop --user ann --finalize;  hippocampus ingest archive/"
    " --dry-run. Exit code 1: something was rejected; the rest went in.",
)
@click.argument("paths", metavar="FILE…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--app", default="default", show_default=True, help="The app that the sessions belong to.")
@click.option("--user", help="The user that they belong to; by default whom a file names, else the file's name.")
@click.option("--finalize", is_flag=True, help="End each session, so that all of it is consolidated at once.")
@click.option("--day-first", is_flag=True, help="Read 5/8/2023 as 5 August, not as May 8.")
@click.option("--dry-run", is_flag=True, help="Read everything and say what would go in; no database is touched.")
@click.option(
    "--rejects",
    "rejects_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where records go that can't be read.  [default: FILE.rejects.jsonl in this folder]",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    paths: tuple[Path, ...],
    app: str,
    user: str | None,
    finalize: bool,
    day_first: bool,
    dry_run: bool,
    rejects_path: Path | None,
    as_json: bool,
) -> None:
    """Append the conversations of files, or of the files in folders, to sessions.

    Recognised are LoCoMo JSON, OpenAI-style chat JSON and JSONL, an exported conversations.json, ADK session JSON,
    LangChain messages, and transcripts of lines such as 'Ann: Hello.', each also packed with gzip. Events keep their
    own times. A second run appends nothing twice, and a run that was interrupted is completed by the next.
    """
    if rejects_path is not None and not rejects_path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {rejects_path.parent}.", param_hint="--rejects")
    # Here once, and not with every record.
    check_names(app, user or "anybody", "any")
    wish = _Wish(files.find(paths), app, user, finalize, day_first, as_json)
    first = wish.inputs[0].name.replace("/", "-")
    report = _Report()
    with Rejects(rejects_path or Path(f"{first}{files.REJECTS_ENDING}")) as rejects:
        if dry_run:
            _read_only(wish, report, rejects)
        else:
            _ingest(wish, report, rejects)
        report.rejects_file = str(rejects.path) if report.done.rejected else None
    _write(report, wish, is_dry_run=dry_run)
    if not report.is_whole:
        context.exit(1)


def _ingest(wish: _Wish, report: _Report, rejects: Rejects) -> None:
    async def work(_config: Settings, pool: Pool) -> None:
        service = OpenSessionService(pool)
        try:
            for each, reading, bar in _readings(wish, report):
                one = Ingest(
                    service,
                    app_name=wish.app,
                    user_id=wish.user or each.name,
                    is_user_fixed=wish.user is not None,
                    file_format=reading.file_format,
                    on_progress=bar,
                    on_rejected=functools.partial(_tell, rejects, report, each.path),
                )
                try:
                    await one.run(reading.items, finalize=wish.finalize)
                except DATABASE_FAULTS as error:
                    so_far = report.done.plus(one.done).events_new
                    raise click.ClickException(
                        f"The database went away ({type(error).__name__}) after {so_far} new events of this run:"
                        " run the same command again, it goes on from there."
                    ) from error
                finally:
                    report.done = report.done.plus(one.done)
        finally:
            await service.close()
        processes = await pool.fetch(QUERIES["live_processes"], SEEN_SECONDS_MAX)
        report.is_worked_off = any(row["role"] in ("fast_replay", "deep_reflection") for row in processes)

    databases.run(work, create=True)


def _read_only(wish: _Wish, report: _Report, rejects: Rejects) -> None:
    for each, reading, bar in _readings(wish, report):
        sessions: set[str] = set()
        events = rejected = 0
        for item in reading.items:
            match item:
                case SessionHead():
                    sessions.add(item.session_id)
                case Turn():
                    events += 1
                    bar(1)
                case Rejected():
                    rejected += 1
                    _tell(rejects, report, each.path, item)
        report.done = report.done.plus(Ingested(sessions=len(sessions), events_new=events, rejected=rejected))


def _readings(wish: _Wish, report: _Report) -> Iterator[tuple[InputFile, reader.Reading, Callable[[int], None]]]:
    """Open each file that can be read, say what it is, and show how far it is."""
    for each in wish.inputs:
        try:
            reading = reader.read(each.path, name=each.name, day_first=wish.day_first)
        except FileFormatError as error:
            if len(wish.inputs) == 1:
                raise
            report.unread.append(str(error))
            click.echo(f"Left out: {error}", err=True)
            continue
        report.formats[reading.file_format] += 1
        if len(wish.inputs) <= REJECTS_SHOWN_MAX:
            click.echo(f"{each.path} is {reading.file_format}.", err=wish.quiet)
        with progress.file_bar(each.path.name, reading.source, hidden=wish.quiet) as bar:
            yield each, reading, bar


def _tell(rejects: Rejects, report: _Report, path: Path, rejected: Rejected) -> None:
    rejects.add(path, rejected)
    if report.told < REJECTS_SHOWN_MAX:
        report.told += 1
        click.echo(f"{path}, line {rejected.line}: {rejected.error}", err=True)


def _write(report: _Report, wish: _Wish, *, is_dry_run: bool) -> None:
    done = report.done
    if wish.quiet:
        facts = {"app": wish.app, "formats": dict(report.formats), "dry_run": is_dry_run, "unread": report.unread}
        output.write_json({**facts, "rejects_file": report.rejects_file, **output.plain(done)})
        return
    if is_dry_run:
        click.echo(f"{done.events_new} events of {done.sessions} sessions would go in.")
    else:
        known = f" {done.events_known} were there already." if done.events_known else ""
        click.echo(f"Appended {done.events_new} events to {done.sessions} sessions.{known}")
    if done.rejected:
        click.echo(
            f"Rejected {done.rejected} records: they are in {report.rejects_file}, each with its reason.", err=True
        )
    if report.unread:
        click.echo(f"Left out {len(report.unread)} files.", err=True)
    if wish.finalize and not is_dry_run:
        click.echo(f"Enqueued {done.jobs_enqueued} jobs.")
    if not report.is_worked_off and not is_dry_run:
        click.echo("No worker runs now: `hippocampus up` starts them, and they take up what waits.")
