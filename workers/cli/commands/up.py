"""`hippocampus up`: every role, until Ctrl-C; with --detach in the background, until `hippocampus down`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from workers import settings
from workers.cli import databases, exit_codes, interrupts, output, running
from workers.cli.installation import Installation, State
from workers.cli.options import agents_option
from workers.models import reach
from workers.process.roles import ROLES, RoleFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from workers.cli.interrupts import Interrupts
    from workers.process.forking import ForkServer
    from workers.settings import Settings

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue")
_WIDTH = max(len(role.name) for role in ROLES)
#: From when every role is ready: a check, begun earlier, with what it imports.
_ASKED_SECONDS_MAX = reach.CHECK_SECONDS_MAX + 1.0


@click.command(
    epilog='Examples:  hippocampus up;  eval "$(hippocampus up --detach)";  HIPPOCAMPUS_API_PORT=8080 hippocampus up'
)
@click.option(
    "--detach",
    is_flag=True,
    help="Return once every role is ready, and print the line that sets DATABASE_URL in a shell.",
)
@agents_option
@click.option("--claimed", type=int, hidden=True, help="The inherited lock of a detached installation.")
@click.pass_context
def command(context: click.Context, detach: bool, agents: tuple[str, ...], claimed: int | None) -> None:
    """Start every role as a process, and stay until Ctrl-C stops everything.

    Without DATABASE_URL it starts an embedded PostgreSQL below HIPPOCAMPUS_HOME, and stops it at the end; it prints
    the line that sets DATABASE_URL in a shell, for psql and for your own programs. The schema is migrated first. A
    role that dies is started again, and so is the embedded PostgreSQL.

    With --detach it runs in the background until `hippocampus down`, and logs to up.log below HIPPOCAMPUS_HOME. One
    installation runs below a home: if it runs already, the same line is printed again.
    """
    settings.use_agents(agents)
    config = settings.load()
    installation = Installation(config.home)
    if detach:
        click.echo(_detach(config, installation, agents).export)
        return
    descriptor = installation.claim() if claimed is None else claimed
    if descriptor is not None:
        os.set_inheritable(descriptor, False)
        _run(config, installation, descriptor, is_detached=claimed is not None)
        return
    state = installation.wait_until_ready()
    if state is not None:
        click.echo(state.export)
    click.echo(_already_running(installation, state or State()), err=True)
    context.exit(exit_codes.FAILED)


def _run(config: Settings, installation: Installation, descriptor: int, *, is_detached: bool) -> None:
    screen = output.console()
    asked = interrupts.Interrupts()
    state = State(
        pid=os.getpid(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        grace_seconds=running.grace_of(config),
        log=str(installation.log_path) if is_detached else None,
        models=reach.called_by(config),
    )
    installation.record(descriptor, state)
    interrupts.raise_on_all()
    try:
        with (
            running.fork_server() as forks,
            databases.opened(config, create=True, keep_seconds=state.grace_seconds) as ready,
        ):

            def note_ready(all_roles: running.Running) -> None:
                reached = replace(state, database_url=ready.dsn, api_url=all_roles.api_url)
                installation.record(descriptor, reached)
                where = databases.name_of(config)
                screen.print(_addresses(all_roles, where, is_detached=is_detached), soft_wrap=True)
                # The address holds the password: `up --detach` prints it to its caller, not to the log.
                if databases.is_embedded(config) and not is_detached:
                    screen.print(Text(reached.export), soft_wrap=True)

            asyncio.run(_stay(screen, ready, asked, note_ready, forks))
    except asyncio.CancelledError:
        pass  # The regular end.
    except RoleFailedError as error:
        raise settings.SettingsError(str(error)) from error
    if asked.came_at is not None:
        screen.print(f"Stopped in {time.monotonic() - asked.came_at:.1f} s.", style="dim")


async def _stay(
    screen: Console,
    config: Settings,
    asked: Interrupts,
    note_ready: Callable[[running.Running], None],
    forks: ForkServer,
) -> None:
    writer = _LineWriter(screen)
    with asked.cancelling():
        await databases.migrated(config)
        async with (
            databases.pool_of(config) as pool,
            running.running(
                config,
                pool,
                free_port=False,
                on_line=writer.write,
                on_change=lambda role, change: writer.write(role, f"-- {change}"),
                log_format="console" if screen.is_terminal else None,
                forks=forks,
            ) as all_roles,
        ):
            asked.on_second = all_roles.supervisor.kill
            note_ready(all_roles)
            try:
                await all_roles.supervisor.wait()
            finally:
                screen.print("Stopping…", style="dim")


def _detach(config: Settings, installation: Installation, agents: tuple[str, ...]) -> State:
    """Return the installation that runs in the background, started if there is none, once it is ready.

    Raises:
        click.ClickException: one runs already, on another database or without these agents.
    """
    while True:
        descriptor = installation.claim()
        if descriptor is not None:
            return _start(config, installation, descriptor)
        state = installation.wait_until_ready()
        if state is not None:
            if config.dsn is not None and not databases.is_same(config, state.database_url or ""):
                raise click.ClickException(
                    f"{_already_running(installation, state)} It works on another database than DATABASE_URL names:"
                    " stop it first, or set HIPPOCAMPUS_HOME to another folder."
                )
            if agents:
                raise click.ClickException(
                    f"{_already_running(installation, state)} It was started before this --agent was named: stop it"
                    " first, and run the same command again."
                )
            click.echo(_already_running(installation, state), err=True)
            _report_unreachable(_asked(config, state.models))
            return state


def _start(config: Settings, installation: Installation, descriptor: int) -> State:
    """Start the installation as a process of its own session, and wait until it is ready.

    Raises:
        click.ClickException: it ended before that, and left nothing running.
    """
    interrupts.raise_on_all()
    click.echo(f"Starting every role. Log: {installation.log_path}", err=True)
    log = installation.open_log()
    state: State | None = None
    try:
        with interrupts.postponed():
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", "workers", "up", "--claimed", str(descriptor)],
                env=settings.child_environment(PYTHONPATH=settings.import_path()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(descriptor,),
                start_new_session=True,
            )
            os.close(log)
            # The lock is the new process's alone from here on.
            os.close(descriptor)
        # Meanwhile: models that answer do not lengthen the start.
        asked = _asked(config)
        state = installation.wait_until_ready()
        if state is not None:
            click.echo(f"Everything runs ({state.describe()}). Stop it with `hippocampus down`.", err=True)
            _report_unreachable(asked)
    except KeyboardInterrupt:
        if state is None:
            with interrupts.postponed():
                process.terminate()
                process.wait()
            raise
        # It is ready, and stays.
    if state is None:
        failure = settings.SettingsError if process.wait() == exit_codes.USAGE else click.ClickException
        last = _last_line(installation.log_path)
        raise failure(f"{last} Nothing is left running. Log: {installation.log_path}")
    return state


def _asked(config: Settings, used: dict[str, str] | None = None) -> Future[list[reach.Reach]]:
    """Ask the models in a thread that ends with this process, whatever it waits for; see `reach.survey`."""
    found: Future[list[reach.Reach]] = Future()

    def ask() -> None:
        try:
            found.set_result(asyncio.run(reach.survey(config, used)))
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            found.set_exception(error)

    threading.Thread(target=ask, name="models", daemon=True).start()
    return found


def _report_unreachable(asked: Future[list[reach.Reach]]) -> None:
    """Say which models are not reached, or not the running installation's; the roles log the former, each minute."""
    try:
        found = asked.result(_ASKED_SECONDS_MAX)
    except (TimeoutError, KeyboardInterrupt):
        # An interrupt ends this wait alone: everything runs.
        click.echo("Whether the models answer is not known yet: `hippocampus status` says.", err=True)
        return
    for each in found:
        if each.state in ("not_reached", "other"):
            click.echo(f"The {each.kind} {each.said}", err=True)
    if any(each.state == "not_reached" for each in found):
        click.echo("`hippocampus status` says whether that is still so.", err=True)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix("hippocampus: ") if lines else "The program ended without a message."
    return last if last.endswith((".", "!", "?")) else f"{last}."


def _already_running(installation: Installation, state: State) -> str:
    return f"Hippocampus already runs below {installation.home} ({state.describe()}). Stop it with `hippocampus down`."


class _LineWriter:
    """Writes the roles' output, each line after its role's name."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._styles = {role.name: colour for role, colour in zip(ROLES, _COLOURS, strict=True)}
        self._styles[running.DATABASE] = "red"

    def write(self, role: str, line: str) -> None:
        """Write one line."""
        prefix = Text(f"{role:<{_WIDTH}} | ", style=self._styles[role])
        self._screen.print(prefix + Text.from_ansi(line), soft_wrap=True)


def _addresses(all_roles: running.Running, where: str, *, is_detached: bool) -> Text:
    end = "`hippocampus down`" if is_detached else "Ctrl-C"
    lines = [
        (f"Everything runs. {end} stops it.", ""),
        ("  API       ", all_roles.api_url),
        ("  routes    ", f"{all_roles.api_url}/docs"),
        ("  console   ", f"{all_roles.api_url}/"),
        *(("  metrics   ", f"{url}  ({role})") for role, url in all_roles.metrics_urls.items()),
        ("  database  ", where),
    ]
    text = Text()
    for label, value in lines:
        text.append(label, style="bold")
        text.append(f"{value}\n")
    text.rstrip()
    return text
