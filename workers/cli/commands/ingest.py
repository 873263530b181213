"""`hippocampus ingest FILE…`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hippocampus.transfer.given_memories import GivenMemories
from pulse.names import check_owner
from pulse.session_service import OpenSessionService
from workers.cli import databases, exit_codes, output, progress
from workers.cli.options import bundled, json_option
from workers.failures import DATABASE_FAULTS
from workers.intake import files, formats, reader
from workers.intake.files import InputFile, Rejects
from workers.intake.ingest import Ingest, Ingested
from workers.intake.records import FileFormatError, Given, LeftOut, Rejected, SessionHead, Turn
from workers.telemetry import overview
from workers.telemetry.discovery import SEEN_SECONDS_MAX

if TYPE_CHECKING:
    from pulse.database import Pool

#: How many rejected records are shown; the file has all of them.
REJECTS_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class HowToRead:
    """The options that say how files are read."""

    user: str | None
    day_first: bool | None
    file_format: str | None


#: Adds the options to a command, which receives `how`.
reading_options = bundled(
    "how",
    HowToRead,
    click.option("--user", help="The user that they belong to; by default the file names it, or is its name."),
    click.option(
        "--day-first/--month-first",
        default=None,
        help="Read 5/8/2023 as 5 August, or as May 8; by default as the file's other dates show.",
    ),
    click.option(
        "--format",
        "file_format",
        type=click.Choice(formats.NAMES),
        help="The files' format; found by default.",
    ),
)


@dataclass(slots=True)
class _Report:
    """The outcome for all files."""

    done: Ingested = field(default_factory=Ingested)
    formats: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)
    rejects_file: str | None = None
    has_workers: bool = False  # that run the jobs
    rejects_shown: int = 0

    @property
    def is_complete(self) -> bool:
        return not self.done.rejected and not self.unread


@dataclass(frozen=True, slots=True)
class _Request:
    """The values of the command's options."""

    inputs: list[InputFile]
    app: str
    how: HowToRead
    finalize: bool
    quiet: bool


@click.command(
    epilog="Examples:  hippocampus ingest chats.jsonl --app shop --user ann --finalize;  hippocampus ingest archive/"
    " --dry-run. Exit code 1: something was rejected; the rest was stored.",
)
@click.argument("paths", metavar="FILE…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--app", default="default", show_default=True, help="The app that the sessions belong to.")
@reading_options
@click.option("--finalize", is_flag=True, help="End each session, so that it is consolidated at once.")
@click.option("--dry-run", is_flag=True, help="Read everything and show what would be stored; no database is used.")
@click.option(
    "--rejects",
    "rejects_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file for records that cannot be read.  [default: FILE.rejects.jsonl in this folder]",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    paths: tuple[Path, ...],
    app: str,
    how: HowToRead,
    finalize: bool,
    dry_run: bool,
    rejects_path: Path | None,
    as_json: bool,
) -> None:
    """Append the conversations of files, or of the files in folders, to sessions.

    It reads chat JSON and JSONL, exports of ChatGPT, Claude, WhatsApp, mem0, Zep, Letta and OpenAI, rows of a LangGraph
    store, ADK sessions, LangChain messages, LoCoMo JSON, and transcripts of lines such as 'Ann: Hello.', also
    compressed with gzip. Memories of other programs become memories. Events keep their own times. Running the command
    again stores nothing twice, and completes an interrupted run.
    """
    if rejects_path is not None and not rejects_path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {rejects_path.parent}.", param_hint="--rejects")
    # Once here, instead of for each record.
    check_owner(app, how.user or "anybody")
    request = _Request(files.find(paths), app, how, finalize, as_json)
    first = request.inputs[0].name.replace("/", "-")
    report = _Report()
    if others := files.count_others(paths):
        report.done = Ingested(left_out={"files with other endings": others})
    with Rejects(rejects_path or Path(f"{first}{files.REJECTS_ENDING}")) as rejects:
        if dry_run:
            _read_only(request, report, rejects)
        else:
            _ingest(request, report, rejects)
        report.rejects_file = str(rejects.path) if report.done.rejected else None
    _write(report, request, is_dry_run=dry_run)
    if not report.is_complete:
        context.exit(exit_codes.FAILED)


def _ingest(request: _Request, report: _Report, rejects: Rejects) -> None:
    async def work(pool: Pool) -> None:
        service = OpenSessionService(pool)
        try:
            for each, reading, bar in _readings(request, report):
                one = Ingest(
                    service,
                    GivenMemories(pool),
                    app_name=request.app,
                    user_id=request.how.user or reading.name,
                    is_user_fixed=request.how.user is not None,
                    file_format=reading.file_format,
                    on_progress=bar,
                    on_rejected=functools.partial(_reject, rejects, report, each.path),
                )
                try:
                    await one.run(reading.items, finalize=request.finalize)
                except DATABASE_FAULTS as error:
                    so_far = report.done.plus(one.done).events_new
                    raise click.ClickException(
                        f"The database went away ({type(error).__name__}) after {so_far} new events of this run:"
                        " run the same command again, it continues from there."
                    ) from error
                finally:
                    report.done = report.done.plus(one.done)
        finally:
            await service.close()
        report.has_workers = await overview.has_workers(pool, within_seconds=SEEN_SECONDS_MAX)

    databases.run(work, create=True)


def _read_only(request: _Request, report: _Report, rejects: Rejects) -> None:
    for each, reading, bar in _readings(request, report):
        sessions: set[str] = set()
        events = rejected = memories = 0
        left_out: Counter[str] = Counter()
        for item in reading.items:
            match item:
                case SessionHead():
                    sessions.add(item.session_id)
                case Turn():
                    events += 1
                    bar(1)
                case Given():
                    memories += 1
                case LeftOut(reason, count):
                    left_out[reason] += count
                case Rejected():
                    rejected += 1
                    _reject(rejects, report, each.path, item)
        counted = Ingested(
            sessions=len(sessions), events_new=events, rejected=rejected, memories=memories, left_out=left_out
        )
        report.done = report.done.plus(counted)


def _readings(request: _Request, report: _Report) -> Iterator[tuple[InputFile, reader.Reading, Callable[[int], None]]]:
    """Open each file that can be read, show its format, and a progress bar."""
    for each in request.inputs:
        try:
            how = request.how
            reading = reader.read(each.path, name=each.name, day_first=how.day_first, file_format=how.file_format)
        except FileFormatError as error:
            if len(request.inputs) == 1:
                raise
            report.unread.append(str(error))
            click.echo(f"Left out: {error}", err=True)
            continue
        report.formats[reading.file_format] += 1
        if len(request.inputs) <= REJECTS_SHOWN_MAX:
            click.echo(f"Reading {each.path} ({reading.file_format}).", err=request.quiet)
        with progress.file_bar(each.path.name, reading.source, hidden=request.quiet) as bar:
            yield each, reading, bar


def _reject(rejects: Rejects, report: _Report, path: Path, rejected: Rejected) -> None:
    rejects.add(path, rejected)
    if report.rejects_shown < REJECTS_SHOWN_MAX:
        report.rejects_shown += 1
        click.echo(f"{path}, line {rejected.line}: {rejected.error}", err=True)


def _write(report: _Report, request: _Request, *, is_dry_run: bool) -> None:
    done = report.done
    if request.quiet:
        facts = {"app": request.app, "formats": dict(report.formats), "dry_run": is_dry_run, "unread": report.unread}
        output.write_json({**facts, "rejects_file": report.rejects_file, **output.plain(done)})
        return
    events, sessions = output.counted(done.events_new, "event"), output.counted(done.sessions, "session")
    memories = output.counted(done.memories, "memory")
    if is_dry_run:
        click.echo(f"To be stored: {events} of {sessions}{f' and {memories}' if done.memories else ''}.")
    else:
        known = f" {done.events_known} were there already." if done.events_known else ""
        if done.sessions or not done.memories:
            click.echo(f"Appended {events} to {sessions}.{known}")
        if done.memories:
            click.echo(f"Stored {memories}.")
    for reason, count in done.left_out.items():
        click.echo(f"Left out: {count} {reason}.")
    if done.rejected:
        click.echo(
            f"Rejected {output.counted(done.rejected, 'record')}, kept in {report.rejects_file} with the reason.",
            err=True,
        )
    if report.unread:
        click.echo(f"Left out {output.counted(len(report.unread), 'file')}.", err=True)
    if not is_dry_run:
        _write_what_follows(report, request)


def _write_what_follows(report: _Report, request: _Request) -> None:
    """Write when the sessions are consolidated, and what it needs."""
    if request.finalize:
        click.echo(f"Enqueued {output.counted(report.done.jobs_enqueued, 'job')}.")
    elif report.done.sessions:
        click.echo("A session is consolidated once it has been idle, or at once by `ingest --finalize`.")
    if not report.has_workers:
        click.echo("No worker runs now: `hippocampus up` starts them.")
