"""`hippocampus pulse`: the autonomic layer: its role, its rules, and what it sensed, decided and did."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulse.autonomic import record
from pulse.autonomic.releases import Release, ReleaseService, read_rules
from pulse.autonomic.tasks import TaskService
from pulse.autonomic.tick import SHADOW_TICKS
from pulse.autonomic.types import Snapshot
from pulse.errors import InvalidInputError
from pulse.process.extras import install_command
from workers import settings
from workers.cli import databases, output
from workers.cli.groups import Verbs
from workers.cli.options import json_option

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.autonomic.gate import Verdict

TEMPLATE = '''"""A rule of this installation: reports a queue whose oldest job has waited for an hour."""

from typing import Any

HOUR = 3600


async def rule(prev: dict[str, Any], curr: dict[str, Any], inner: Inner) -> Outcome:
    effects, tick_ms = await inner(prev, curr)
    for sample in curr["senses"].get("queue", [])[-1:]:
        for queue, seconds in sorted(sample["data"]["oldest_seconds"].items()):
            if seconds >= HOUR:
                params = {"code": "queue_waits", "queue": queue, "seconds": seconds}
                effects.append({"kind": "notify", "key": "queue:" + queue, "params": params})
    return effects, tick_ms
'''
POLL_SECONDS = 0.5
DEFAULT_FOLDER = "autonomic"
#: Decisions and ticks that `status` shows.
SHOWN_MAX = 10

NOBODY_TICKS = (
    "no process ticks in this scope. Start one with `hippocampus worker pulse`, or set HIPPOCAMPUS_PULSE_ENABLED=true"
    " for `hippocampus up`."
)

_SCOPE = re.compile(r"[a-z0-9_-]{1,64}")


def _read_scope(_context: click.Context, _option: click.Parameter, given: str) -> str:
    if not _SCOPE.fullmatch(given):
        raise click.BadParameter(f"a scope must have 1 to 64 of a-z, 0-9, '-' and '_', not {given!r:.80}.")
    return given


def _read_folder(_context: click.Context, _option: click.Parameter, given: str) -> Path:
    return Path(given)


scope_option = click.option(
    "--scope",
    default=lambda: settings.load().pulse_scope,
    show_default="HIPPOCAMPUS_PULSE_SCOPE",
    callback=_read_scope,
    help="The instance.",
)
folder_option = click.option(
    "--folder",
    default=DEFAULT_FOLDER,
    show_default=True,
    callback=_read_folder,
    help="The folder that has rules/*.py: any, such as a git worktree.",
)
release_argument = click.argument("release", type=click.IntRange(1, 2**62))


@click.group(cls=Verbs, epilog="Example:  hippocampus pulse status")
def command() -> None:
    """Keep the installation alive by rules, without a model.

    The package's own rules restart processes, free disks and report errors. Yours are files of one rule each: staged,
    checked, run beside those in force, then promoted.
    """


@command.command(epilog="Example:  hippocampus pulse start")
@click.option("--with-parent", is_flag=True, hidden=True)
def start(with_parent: bool) -> int:
    """Run the role: sense, tick, execute. Run one on each machine; one of them leads."""
    from workers.autonomic.role import main_pulse
    from workers.process import parent

    if with_parent:
        parent.end_with_parent()
    return main_pulse()


@command.group(hidden=True, cls=Verbs, epilog="Example:  hippocampus pulse daemon start")
def daemon() -> None:
    """`daemon start` is `start`."""


daemon.add_command(start)


@command.command(epilog="Example:  hippocampus pulse init --folder autonomic")
@folder_option
@scope_option
@json_option
def init(folder: Path, scope: str, as_json: bool) -> None:
    """Create the scope, and a folder with a first rule unless it has some."""
    rules = folder / "rules"

    async def work(pool: Pool) -> tuple[bool, bool]:
        is_empty = not any(rules.glob("*.py"))
        if is_empty:
            rules.mkdir(parents=True, exist_ok=True)
            (rules / "first.py").write_text(TEMPLATE, encoding="utf-8")
        return await ReleaseService(pool, scope).make_scope(), is_empty

    is_new, is_written = databases.run(work)
    if as_json:
        output.write_json({"scope": scope, "created": is_new, "wrote": str(rules / "first.py") if is_written else None})
        return
    click.echo(f"Scope {scope} {'created' if is_new else 'exists'}.")
    if is_written:
        click.echo(f"Wrote {rules / 'first.py'}.")
    named = "" if folder == Path(DEFAULT_FOLDER) else f" --folder {shlex.quote(str(folder))}"
    click.echo(f"Check changes with `hippocampus pulse dev{named}`; put them in force with `pulse deploy{named}`.")


@command.command(epilog="Example:  hippocampus pulse stage --folder autonomic")
@folder_option
@scope_option
@json_option
def stage(folder: Path, scope: str, as_json: bool) -> None:
    """Store the rules of a folder as a new release."""

    async def work(pool: Pool) -> dict[str, Any]:
        rules = read_rules(folder)
        return {"release": await ReleaseService(pool, scope).stage(rules), "scope": scope, "files": len(rules)}

    output.write_record(databases.run(work), as_json=as_json)


@command.command(epilog="Example:  hippocampus pulse gate 4")
@release_argument
@scope_option
@json_option
@click.pass_context
def gate(context: click.Context, release: int, scope: str, as_json: bool) -> None:
    """Check a staged release, and begin its shadow run if it passes.

    Its syntax, its types, and what its rules return, twice, on recorded and on extreme snapshots. Then the leader runs
    it beside the rules in force for some ticks; what it decides is only counted.
    """

    async def work(pool: Pool) -> Verdict:
        return await _gate(ReleaseService(pool, scope), pool, scope, release, SHADOW_TICKS)

    verdict = databases.run(work)
    output.write_record({"release": release, "passed": verdict.passed, **verdict.checks}, as_json=as_json)
    context.exit(0 if verdict.passed else 1)


@command.command(epilog="Example:  hippocampus pulse promote 4")
@release_argument
@scope_option
@click.option(
    "--version", "expected", type=click.IntRange(1, 2**62), help="The version that you saw; by default the present one."
)
@json_option
def promote(release: int, scope: str, expected: int | None, as_json: bool) -> None:
    """Put a release in force whose shadow run passed."""

    async def work(pool: Pool) -> int:
        releases = ReleaseService(pool, scope)
        version = (await releases.state()).version if expected is None else expected
        return await releases.promote(release, expected_version=version)

    output.write_record({"release": release, "version": databases.run(work)}, as_json=as_json)


@command.command(epilog="Example:  hippocampus pulse rollback")
@scope_option
@json_option
def rollback(scope: str, as_json: bool) -> None:
    """Return to the newest earlier release that was in force for ten minutes, or to none."""
    done = databases.run(lambda pool: ReleaseService(pool, scope).rollback("by hand"))
    output.write_record({"release": done.release_id, "rolled_back": done.is_done}, as_json=as_json)


@command.command(epilog="Example:  hippocampus pulse deploy --folder autonomic")
@folder_option
@scope_option
@click.option(
    "--ticks", type=click.IntRange(1, 1000), default=SHADOW_TICKS, show_default=True, help="Of the shadow run."
)
@json_option
def deploy(folder: Path, scope: str, ticks: int, as_json: bool) -> None:
    """Stage, check, run as a shadow and promote, and stop at the first step that fails."""

    async def work(pool: Pool) -> dict[str, Any]:
        releases = ReleaseService(pool, scope)
        version = (await releases.state()).version
        release = await releases.stage(read_rules(folder))
        verdict = await _gate(releases, pool, scope, release, ticks)
        if not verdict.passed:
            raise click.ClickException(f"Release {release} was refused: {verdict.checks}")
        click.echo(f"Release {release} runs as a shadow for {ticks} ticks.", err=True)
        if not (await record.read_status(pool, scope, 1))["scope"]["is_ticking"]:
            click.echo(f"It waits: {NOBODY_TICKS}", err=True)
        found = await _until_shadow_ends(releases, release)
        if found.status != "shadow":
            raise click.ClickException(f"Release {release} is {found.status}: {dict(found.checks)}")
        return {"release": release, "version": await releases.promote(release, expected_version=version)}

    output.write_record(databases.run(work), as_json=as_json)


@command.command(epilog="Example:  hippocampus pulse dev --folder autonomic")
@folder_option
@scope_option
def dev(folder: Path, scope: str) -> None:
    """Check the rules of a folder each time that a file changes, until Ctrl-C. Nothing is stored or promoted."""

    async def work(pool: Pool) -> None:
        from workers.autonomic import gate as gates
        from workers.autonomic.sandbox import Sandbox

        read_rules(folder)  # A wrong folder is an error, a wrong file is not: it may be saved again.
        seen: Mapping[str, str] | None = None
        async with Sandbox() as sandbox:
            while True:
                try:
                    rules = read_rules(folder)
                    if rules != seen:
                        verdict = await gates.check(sandbox, rules, await _recorded(pool, scope))
                        click.echo(f"{'passed' if verdict.passed else 'REFUSED'}: {verdict.checks}")
                    seen = rules
                except FileNotFoundError:
                    pass  # It was removed or replaced while the folder was read: the next look sees what is there.
                except InvalidInputError as error:
                    if seen != {}:
                        click.echo(f"REFUSED: {error}")
                    seen = {}
                await asyncio.sleep(POLL_SECONDS)

    _require_sandbox()
    databases.run(work)


@command.command(epilog="Example:  hippocampus pulse releases")
@scope_option
@json_option
def releases(scope: str, as_json: bool) -> None:
    """List releases, the newest first."""
    found = databases.run(lambda pool: ReleaseService(pool, scope).list())
    columns = ("id", "status", "created", "promoted", "checks")
    _write(found, columns, _release_row, as_json, "There are no releases: see `hippocampus pulse stage --help`.")


@command.command(epilog="Example:  hippocampus pulse status")
@scope_option
@json_option
def status(scope: str, as_json: bool) -> None:
    """Show who leads, the vitals, and the last decisions: which rule, what, why, and how it ended."""

    found = databases.run(lambda pool: record.read_status(pool, scope, SHOWN_MAX))
    if as_json:
        output.write_json(found)
        return
    for name, value in found["scope"].items():
        click.echo(f"{name:<14} {value}")
    if not found["scope"]["is_ticking"]:
        click.echo(f"{NOBODY_TICKS[0].upper()}{NOBODY_TICKS[1:]}")
    for each in found["vitals"]:
        click.echo(f"{each['sense']:<16} {each['machine']:<16} {_short(each['data'])}")
    for each in found["decisions"]:
        end = f"{each['end']}: {each['code']}" if each["code"] else each["end"]
        click.echo(f"{_time(each['at'])}  {each['rule']}: {each['effect']}, {end}  {_short(each['why'])}")
    for each in found["ticks"]:
        decided = f"decided {len(each['decided'])}, {each['errors']} errors"
        click.echo(f"{_time(each['at'])}  tick {each['ticks']} of {each['holder']}: {decided}, {each['ms']} ms")


@command.command(epilog="Example:  hippocampus pulse events --kind effect-failed")
@scope_option
@click.option("--kind", help="Only events of this kind.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def events(scope: str, kind: str | None, limit: int, as_json: bool) -> None:
    """List the record, the newest first."""

    async def work(pool: Pool) -> list[Any]:
        await ReleaseService(pool, scope).state()
        return await record.list_events(pool, scope, kind, limit)

    def row(event: Mapping[str, Any]) -> tuple[str, ...]:
        when = f"{event['occurred_at']:%Y-%m-%d %H:%M:%S}"
        return str(event["id"]), when, event["kind"], event["key"], str(event["ref"] or ""), _short(event["meta"])

    columns = ("id", "at", "kind", "key", "of", "meta")
    empty = "There are no events." if kind is None else f"There are no events of the kind {kind!r:.80}."
    _write(databases.run(work), columns, row, as_json, empty)


@command.command(epilog="Example:  hippocampus pulse tasks --all")
@scope_option
@click.option("--all", "include_over", is_flag=True, help="Also those that were closed or given up.")
@json_option
def tasks(scope: str, include_over: bool, as_json: bool) -> None:
    """List tasks, the most urgent first."""
    found = databases.run(lambda pool: TaskService(pool, scope).list(include_over=include_over))

    def row(task: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(task[name] or "") for name in columns)

    columns = ("id", "project", "priority", "status", "agent", "result")
    _write(found, columns, row, as_json, "There are no tasks.")


@command.command(epilog="Example:  hippocampus pulse archive --to /mnt/archive")
@click.option("--months", type=click.IntRange(1, 1200), help="First move whole months that are older to the archive.")
@click.option(
    "--to",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Move the archive's tables into files of a folder.",
)
@json_option
def archive(months: int | None, folder: Path | None, as_json: bool) -> None:
    """List the archive of the record, or move it: months into the archive, the archive into files.

    A file has a JSON object per line, compressed. Its table is dropped only after the file was read back, and the
    record keeps the file's name and SHA-256. Run it as the owner of the tables.
    """
    from workers.autonomic import archive as archives

    async def work(pool: Pool) -> list[Any]:
        if months is not None:
            await archives.move_months(pool, months)
        if folder is None:
            return [each._asdict() for each in await archives.list_archive(pool)]
        return [{**each._asdict(), "file": str(each.file)} for each in await archives.move_to_files(pool, folder)]

    columns = ("name", "events", "bytes") if folder is None else ("file", "events", "sha256")

    def row(each: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(each[name]) for name in columns)

    _write(databases.run(work), columns, row, as_json, "The archive is empty: no month of the record is old enough.")


def _write(
    found: list[Any], columns: tuple[str, ...], row: Callable[[Any], tuple[str, ...]], as_json: bool, empty: str
) -> None:
    if as_json:
        output.write_json(found)
    else:
        output.write_table(columns, [row(each) for each in found], empty=empty)


def _release_row(release: Release) -> tuple[str, ...]:
    promoted = f"{release.promoted_at:%Y-%m-%d %H:%M:%S}" if release.promoted_at else ""
    created = f"{release.created_at:%Y-%m-%d %H:%M:%S}"
    return str(release.id), release.status, created, promoted, _short(dict(release.checks))


def _time(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%H:%M:%S}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 160 else f"{text[:159]}…"


def _require_sandbox() -> None:
    try:
        import pydantic_monty  # noqa: F401 - asked whether it is there
    except ImportError:
        raise click.ClickException(
            f"Releases of rules need pydantic-monty, which is not installed: {install_command('pulse')}"
        ) from None


async def _gate(releases: ReleaseService, pool: Pool, scope: str, release: int, ticks: int) -> Verdict:
    _require_sandbox()
    from workers.autonomic import gate as gates
    from workers.autonomic.sandbox import Sandbox

    async with Sandbox() as sandbox:
        verdict = await gates.check(sandbox, await releases.rules(release), await _recorded(pool, scope))
    if not verdict.passed:
        await releases.check(release, "refused", verdict.checks)
        return verdict
    await releases.check(release, "checked", verdict.checks)
    begun = {"ticks": 0, "wanted": ticks, "errors": {}, "effects": 0, "passed": False}
    await releases.check(release, "shadow", {"shadow": begun})
    return verdict


async def _recorded(pool: Pool, scope: str) -> list[Snapshot]:
    from workers.autonomic.gate import RECORDED_MAX

    return await record.recorded_snapshots(pool, scope, RECORDED_MAX)


async def _until_shadow_ends(releases: ReleaseService, release: int) -> Release:
    while True:
        found = await releases.get(release)
        if found.status != "shadow" or found.checks["shadow"]["passed"]:
            return found
        await asyncio.sleep(POLL_SECONDS)
