"""`hippocampus up`: every role, until Ctrl-C."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click
from rich.text import Text

from workers import settings
from workers.cli import databases, interrupts, output, running
from workers.process.roles import ROLES, RoleFailedError

if TYPE_CHECKING:
    from rich.console import Console

    from workers.cli.interrupts import Interrupts
    from workers.settings import Settings

_COLOURS = ("cyan", "green", "magenta", "yellow")
_WIDTH = max(len(role.name) for role in ROLES)


@click.command(epilog="Example:  HIPPOCAMPUS_API_PORT=8080 hippocampus up")
def command() -> None:
    """Start every role as a process, and stay until Ctrl-C stops everything.

    Without DATABASE_URL it starts an embedded PostgreSQL below HIPPOCAMPUS_HOME, and stops it at the end; a terminal
    is shown its DATABASE_URL, for psql and for programs of yours.
    The schema is migrated first. A role that dies is started again.
    """
    screen = output.console()
    config = settings.load()
    asked = interrupts.Interrupts()
    try:
        with databases.opened(config, create=True, keep_seconds=running.grace_of(config)) as ready:
            # With its password: for whoever sits before it, not for a log.
            is_shown = config.dsn is None and screen.is_terminal
            where = f"DATABASE_URL='{ready.dsn}'" if is_shown else databases.name_of(config)
            asyncio.run(_stay(screen, ready, where, asked))
    except asyncio.CancelledError:
        pass  # The regular end.
    except RoleFailedError as error:
        raise settings.SettingsError(str(error)) from error
    if asked.came_at is not None:
        screen.print(f"Stopped in {time.monotonic() - asked.came_at:.1f} s.", style="dim")


async def _stay(screen: Console, config: Settings, where: str, asked: Interrupts) -> None:
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
            ) as all_roles,
        ):
            asked.on_second = all_roles.supervisor.kill
            screen.print(_addresses(all_roles, where), soft_wrap=True)
            try:
                await all_roles.supervisor.wait()
            finally:
                screen.print("Stopping…", style="dim")


class _LineWriter:
    """Writes what roles say, each line behind its role's name."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._styles = {role.name: colour for role, colour in zip(ROLES, _COLOURS, strict=True)}

    def write(self, role: str, line: str) -> None:
        """Write one line."""
        prefix = Text(f"{role:<{_WIDTH}} | ", style=self._styles[role])
        self._screen.print(prefix + Text.from_ansi(line), soft_wrap=True)


def _addresses(all_roles: running.Running, where: str) -> Text:
    lines = [
        ("Everything runs. Ctrl-C stops it.", ""),
        ("  API       ", all_roles.api_url),
        ("  routes    ", f"{all_roles.api_url}/docs"),
        ("  page      ", f"{all_roles.api_url}/"),
        *(("  metrics   ", f"{url}  ({role})") for role, url in all_roles.metrics_urls.items()),
        ("  database  ", where),
    ]
    text = Text()
    for label, value in lines:
        text.append(label, style="bold")
        text.append(f"{value}\n")
    text.rstrip()
    return text
