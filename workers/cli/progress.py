"""Progress bars for people; a pipe gets nothing while work goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[int], None]


def make(screen: Console, *, hidden: bool = False) -> Progress:
    """Return bars with a name, how many of how many, and the time."""
    return Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=screen,
        expand=True,
        disable=hidden or not screen.is_terminal,
    )


@contextlib.contextmanager
def bar(name: str, total: int, *, hidden: bool = False) -> Iterator[Advance]:
    """Show one bar on standard error, and yield what moves it."""
    with make(Console(stderr=True), hidden=hidden) as progress:
        task = progress.add_task(name, total=total)
        yield lambda steps: progress.advance(task, steps)
