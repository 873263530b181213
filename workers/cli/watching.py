"""`--watch`: the same again and again, until Ctrl-C, which is its regular end."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from workers.cli import databases, interrupts, output
from workers.cli.moments import Seconds
from workers.failures import DATABASE_FAULTS

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

Found = TypeVar("Found")
Function = TypeVar("Function", bound=Callable[..., Any])

EVERY_SECONDS = 2.0
EVERY_SECONDS_MIN, EVERY_SECONDS_MAX = 0.1, 3600.0


def watch_options(function: Function) -> Function:
    """Add --watch and --every to a command."""
    function = click.option(
        "--every",
        "every_seconds",
        default=EVERY_SECONDS,
        show_default=True,
        type=Seconds(EVERY_SECONDS_MIN, EVERY_SECONDS_MAX),
        help="Seconds between two looks.",
    )(function)
    return click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")(function)


def watch(
    read: Callable[[Settings, Pool], Awaitable[Found]],
    write: Callable[[Found, Console], None],
    *,
    every_seconds: float,
    document_of: Callable[[Found], Any] | None,
) -> None:
    """Show what `read` finds, drawn anew in a terminal, one block after the other in a pipe, and return at Ctrl-C.

    A database that goes away is waited for.

    Args:
        write: writes what was found to a console.
        document_of: for JSON, of which each look is a document of its own: what to write of what was found.
    """
    interrupts.raise_on_all()
    screen = output.console()

    async def look_on(config: Settings, pool: Pool) -> None:
        if document_of is not None or not screen.is_terminal:
            await _repeat(config, pool, lambda found: _block(found, write, screen, document_of))
        else:
            with Live(console=screen, screen=True, auto_refresh=False) as live:
                await _repeat(config, pool, lambda found: live.update(_drawn(found, write, screen), refresh=True))

    async def _repeat(config: Settings, pool: Pool, show: Callable[[Found | str], None]) -> None:
        while True:
            try:
                found: Found | str = await read(config, pool)
            except DATABASE_FAULTS as error:
                reason = str(error) or type(error).__name__
                found = f"The database does not answer ({reason}): trying again every {every_seconds:g} s."
            show(found)
            await asyncio.sleep(every_seconds)

    try:
        databases.run(look_on)
    except KeyboardInterrupt:
        return


def _block(
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


def _drawn(found: Any, write: Callable[[Any, Console], None], screen: Console) -> Text:
    """Return what would be written, cut to the terminal's height: a redrawn screen does not scroll."""
    if isinstance(found, str):
        return Text(found, style="red")
    # Not captured from `screen` itself: that would draw what is shown already once more.
    sheet = Console(
        file=io.StringIO(),
        width=screen.width,
        force_terminal=True,
        color_system="auto" if screen.color_system else None,
        no_color=screen.no_color,
        highlight=False,
    )
    with sheet.capture() as caught:
        write(found, sheet)
    lines = caught.get().rstrip("\n").split("\n")
    if len(lines) > screen.height:
        lines = [*lines[: screen.height - 1], f"… {len(lines) - screen.height + 1} more lines"]
    return Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
