"""Lists in pages: their options, where a page begins, how it is written, and the command that shows the next one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click
from rich.console import Console
from rich.text import Text

from pulse.postgres import cursors
from workers.cli import output
from workers.cli.options import bundled, json_option
from workers.cli.page import Item, write_rows

Row = TypeVar("Row")
Position = TypeVar("Position")

LIMIT_MAX = 1000


def limit_option(default: int) -> Callable[[Any], Any]:
    """Return --limit, the maximum number of rows."""
    size = click.IntRange(1, LIMIT_MAX)
    return click.option("--limit", default=default, show_default=True, type=size, help="Maximum number of rows.")


@dataclass(frozen=True, slots=True)
class Paged(Generic[Row]):
    """One page, and the cursor of the next; None after the last."""

    rows: list[Row]
    next_cursor: str | None
    is_first: bool

    def empty(self, text: str) -> str:
        """Return the sentence for an empty page: `text` if the whole list is empty."""
        return text if self.is_first else "There are no more rows."

    def name_next(self) -> None:
        """Name the command of the next page, if there may be one, on standard error."""
        if self.next_cursor is not None:
            command = again("--cursor", self.next_cursor)
            Console(stderr=True).print(Text(f"Next page:  {command}"), style="dim", soft_wrap=True)


class Pages:
    """The pages of one list. A cursor of another list, of another user or of other filters is refused."""

    def __init__(self, cursor: str | None, limit: int, *scope: Any) -> None:
        self._cursor = cursor
        self._limit = limit
        self._scope = cursors.scope_of(*scope)

    def begin(self, shape: type[Position]) -> Position | None:
        """Return the position after which this page begins; None for the first page.

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
        """Return the page; `following` is the position of its last row, None if no row follows."""
        cursor = None if following is None else cursors.write(self._scope, following)
        return Paged(list(rows), cursor, self._cursor is None)

    def full(self, rows: Sequence[Row], position_of: Callable[[Row], Any]) -> Paged[Row]:
        """Return the page. A full page may have a next one, which begins after its last row."""
        return self.page(rows, position_of(rows[-1]) if len(rows) == self._limit else None)


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The values of --limit, --cursor and --json."""

    limit: int
    cursor: str | None
    as_json: bool

    def of(self, *scope: Any) -> Pages:
        """Return the pages of a list: its name, the app, the user and the filters, as JSON values."""
        return Pages(self.cursor, self.limit, *scope)

    def write(
        self,
        page: Paged[Row],
        columns: Sequence[str],
        shape: Callable[[Row], Item | tuple[Any, ...]],
        *,
        empty: str,
        document_of: Callable[[Row], Any] = output.plain,
    ) -> None:
        """Write a page as JSON, a table or items, and name the command of the next one.

        Args:
            shape: returns a row's cells, or an item that has them.
            empty: the sentence for a list without rows.
            document_of: returns a row for JSON.
        """
        if self.as_json:
            output.write_json([document_of(each) for each in page.rows])
        else:
            write_rows(columns, [shape(each) for each in page.rows], empty=page.empty(empty))
        page.name_next()


def page_options(limit: int) -> Callable[[Any], Any]:
    """Add --limit, --cursor and --json to a command that lists, which receives `options`."""
    cursor = click.option("--cursor", help="Begin here: the cursor that the previous page names.")
    return bundled("options", PageOptions, limit_option(limit), cursor, json_option)


def again(option: str, value: str) -> str:
    """Return the running command with an option of it set to another value."""
    given: Sequence[str] = click.get_current_context().find_root().obj or ()
    words: list[str] = []
    skip = False
    for word in given:
        if not skip and word != option and not word.startswith(f"{option}="):
            words.append(word)
        skip = not skip and word == option
    end = words.index("--") if "--" in words else len(words)
    return shlex.join(["hippocampus", *words[:end], option, value, *words[end:]])
