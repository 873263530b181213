"""Pages of a list: where one begins, and the command that shows the next one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click
from rich.console import Console
from rich.text import Text

from pulse.postgres import cursors

Row = TypeVar("Row")
Place = TypeVar("Place")
Function = TypeVar("Function", bound=Callable[..., Any])

LIMIT_MAX = 1000


def page_options(limit: int) -> Callable[[Function], Function]:
    """Add --limit and --cursor to a command that lists."""

    def decorate(function: Function) -> Function:
        function = click.option("--cursor", help="Where to go on: as the page before says it.")(function)
        size = click.IntRange(1, LIMIT_MAX)
        return click.option("--limit", default=limit, show_default=True, type=size, help="How many at most.")(function)

    return decorate


@dataclass(frozen=True, slots=True)
class Paged(Generic[Row]):
    """One page, and the cursor of the next; None after the last."""

    rows: list[Row]
    next_cursor: str | None
    is_first: bool

    def empty(self, text: str) -> str:
        """Return what an empty page says: of the first, that there is nothing at all."""
        return text if self.is_first else "That was all."


class Pages:
    """The pages of one list: a cursor of another one, of another user, or of other filters is refused."""

    def __init__(self, cursor: str | None, limit: int, *asked: Any) -> None:
        """Take what the list is asked for as JSON values: its name, the app, the user, the filters."""
        self._cursor = cursor
        self._limit = limit
        self._scope = cursors.scope_of(*asked)

    def begin(self, shape: type[Place]) -> Place | None:
        """Return the place after which this page begins; None for the first.

        Raises:
            click.BadParameter: the cursor is not one of this list.
        """
        if self._cursor is None:
            return None
        try:
            return cursors.read(self._scope, self._cursor, shape)
        except cursors.CursorError as error:
            raise click.BadParameter(str(error), param_hint="--cursor") from None

    def page(self, rows: Sequence[Row], following: Any) -> Paged[Row]:
        """Return the page; `following` is the place of its last row, None where nothing follows."""
        cursor = None if following is None else cursors.write(self._scope, following)
        return Paged(list(rows), cursor, self._cursor is None)

    def full(self, rows: Sequence[Row], place_of: Callable[[Row], Any]) -> Paged[Row]:
        """Return the page; where it is full, there may be a next one after its last row's place."""
        return self.page(rows, place_of(rows[-1]) if len(rows) == self._limit else None)


def tell_more(page: Paged[Any]) -> None:
    """Name the next page's command, where there may be one."""
    if page.next_cursor is not None:
        tell_next("--cursor", page.next_cursor)


def tell_next(option: str, value: str) -> None:
    """Name the next page's command, on standard error: what is listed stays clean."""
    Console(stderr=True).print(Text(f"Next page:  {again(option, value)}"), style="dim", soft_wrap=True)


def again(option: str, value: str) -> str:
    """Return the command that runs, with an option of it set to something else."""
    given: Sequence[str] = click.get_current_context().find_root().obj or ()
    words: list[str] = []
    skip = False
    for word in given:
        if not skip and word != option and not word.startswith(f"{option}="):
            words.append(word)
        skip = not skip and word == option
    end = words.index("--") if "--" in words else len(words)
    return shlex.join(["hippocampus", *words[:end], option, value, *words[end:]])
