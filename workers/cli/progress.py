"""Progress bars in a terminal; a pipe gets none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from workers.intake.source import Source

Advance = Callable[[int], None]

BAR_CELLS = 50


def make(screen: Console, *, hidden: bool = False) -> Progress:
    """Return bars with a name, a count, a total and the elapsed time."""
    return Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=BAR_CELLS),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=screen,
        disable=hidden or not screen.is_terminal,
    )


@contextlib.contextmanager
def bar(name: str, total: int, *, hidden: bool = False) -> Iterator[Advance]:
    """Show one bar on standard error, and yield the function that advances it."""
    with make(Console(stderr=True), hidden=hidden) as progress:
        task = progress.add_task(name, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextlib.contextmanager
def file_bar(name: str, source: Source, *, hidden: bool = False) -> Iterator[Advance]:
    """Show on standard error how much of a file is read, the events per second, and the time left."""
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=BAR_CELLS // 2),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[events]:,} events"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    screen = Console(stderr=True)
    began = time.monotonic()
    with Progress(*columns, console=screen, disable=hidden or not screen.is_terminal) as progress:
        task = progress.add_task(name, total=max(source.size_bytes, 1), events=0, rate=0.0)
        events = 0

        def advance(steps: int) -> None:
            nonlocal events
            events += steps
            rate = events / max(time.monotonic() - began, 1e-3)
            progress.update(task, completed=source.read_bytes, events=events, rate=rate)

        yield advance
        progress.update(task, completed=source.size_bytes)
