"""`--watch`: the same output again and again, until Ctrl-C, which is the regular end."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from workers.cli import databases, interrupts, output
from workers.cli.moments import Seconds
from workers.cli.options import bundled
from workers.failures import DATABASE_FAULTS

if TYPE_CHECKING:
    from pulse.database import Pool

Found = TypeVar("Found")

EVERY_SECONDS = 2.0
EVERY_SECONDS_MIN, EVERY_SECONDS_MAX = 0.1, 3600.0


@dataclass(frozen=True, slots=True)
class Watch:
    """The values of --watch and --every."""

    watch: bool
    every_seconds: float

    def run(
        self,
        read: Callable[[Pool], Awaitable[Found]],
        write: Callable[[Found, Console], None],
        *,
        document_of: Callable[[Found], Any] | None,
    ) -> Found | None:
        """Show the result of `read` once and return it; with --watch, show it until Ctrl-C and return None.

        Args:
            write: writes a result to a console.
            document_of: for JSON, returns the document of a result.
        """
        if self.watch:
            _repeat(read, write, every_seconds=self.every_seconds, document_of=document_of)
            return None
        found = databases.run(read)
        if document_of is not None:
            output.write_json(document_of(found))
        else:
            write(found, output.console())
        return found


#: Adds --watch and --every to a command, which receives `watch`.
watch_options = bundled(
    "watch",
    Watch,
    click.option("--watch", is_flag=True, help="Refresh until Ctrl-C."),
    click.option(
        "--every",
        "every_seconds",
        default=EVERY_SECONDS,
        show_default=True,
        type=Seconds(EVERY_SECONDS_MIN, EVERY_SECONDS_MAX),
        help="Seconds between two refreshes.",
    ),
)


def _repeat(
    read: Callable[[Pool], Awaitable[Found]],
    write: Callable[[Found, Console], None],
    *,
    every_seconds: float,
    document_of: Callable[[Found], Any] | None,
) -> None:
    """Show the result of `read` again and again: refreshed in a terminal, block after block in a pipe.

    While the database is unavailable, it reports that and keeps polling.
    """
    interrupts.raise_on_all()
    screen = output.console()

    async def watch(pool: Pool) -> None:
        if document_of is not None or not screen.is_terminal:
            await show_each(pool, lambda found: _write_block(found, write, screen, document_of))
        else:
            with Live(console=screen, screen=True, auto_refresh=False) as live:
                await show_each(pool, lambda found: live.update(_render(found, write, screen), refresh=True))

    async def show_each(pool: Pool, show: Callable[[Found | str], None]) -> None:
        while True:
            try:
                found: Found | str = await read(pool)
            except DATABASE_FAULTS as error:
                reason = str(error) or type(error).__name__
                found = f"The database does not answer ({reason}): trying again every {every_seconds:g} s."
            show(found)
            await asyncio.sleep(every_seconds)

    try:
        databases.run(watch)
    except KeyboardInterrupt:
        return


def _write_block(
    found: Any, write: Callable[[Any, Console], None], screen: Console, document_of: Callable[[Any], Any] | None
) -> None:
    if isinstance(found, str):
        sys.stderr.write(f"{found}\n")
    elif document_of is not None:
        output.write_json(document_of(found))
    else:
        write(found, screen)
        sys.stdout.write("\n")
    sys.stdout.flush()


def _render(found: Any, write: Callable[[Any, Console], None], screen: Console) -> Text:
    """Return what would be written, cut to the terminal's height: a refreshed screen does not scroll."""
    if isinstance(found, str):
        return Text(found, style="red")
    # A console of its own: capturing `screen` would print what it shows once more.
    sheet = Console(
        file=io.StringIO(),
        width=screen.width,
        force_terminal=True,
        color_system="auto" if screen.color_system else None,
        no_color=screen.no_color,
        highlight=False,
    )
    with sheet.capture() as captured:
        write(found, sheet)
    lines = captured.get().rstrip("\n").split("\n")
    if len(lines) > screen.height:
        lines = [*lines[: screen.height - 1], f"… {len(lines) - screen.height + 1} more lines"]
    return Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
