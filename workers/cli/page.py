"""A page of text for people: titles, fields, items with notes; wrapped in a terminal, one line each in a pipe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from workers.cli import output

#: Wider lines are hard to read, however wide the terminal is.
LINE_CELLS_MAX = 110
_PIPE_CELLS = 1_000_000
_INDENT = 2
#: A character of a script without spaces (Chinese, Japanese) with the punctuation that may not begin a line; blanks; or
#: a word.
_PIECE = re.compile(
    r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60][，。！？、：；”’）」』》…]*|\s+|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]+"
)


class Page:
    """Writes to one console."""

    def __init__(self, screen: Console) -> None:
        self.screen = screen
        self._cells = min(screen.width, LINE_CELLS_MAX) if screen.is_terminal else _PIPE_CELLS

    def rule(self, text: str) -> None:
        """Write a line across the page."""
        self.screen.print(Rule(text, style="cyan"))

    def title(self, text: str) -> None:
        """Begin a section."""
        self.screen.print()
        self._write("", text, indent=0, style="bold cyan")

    def field(self, name: str, value: str) -> None:
        """Write a value with its name."""
        self._write(f"{name:<9}", value, mark_style="dim")

    def item(self, mark: str, text: str, *notes: str) -> None:
        """Write a line with a mark before it, and notes below it."""
        self._write(f"{mark:<4}", text, mark_style="green")
        for note in notes:
            self._write("", note, indent=_INDENT + max(len(mark), 4) + 2, style="dim")

    def finding(self, verdict: str, name: str, text: str, *, style: str) -> None:
        """Write an outcome with its name."""
        self._write(f"{verdict:<8}{name:<12}", text, mark_style=style)

    def note(self, text: str, *, style: str = "dim", indent: int = _INDENT) -> None:
        """Write a line of less importance, or in another style."""
        self._write("", text, style=style, indent=indent)

    def block(self, text: str) -> None:
        """Write a text unchanged, line by line."""
        for line in text.split("\n"):
            self._write("", line, style="dim")

    def _write(self, mark: str, text: str, *, indent: int = _INDENT, style: str = "", mark_style: str = "") -> None:
        margin = indent + (len(mark) + 2 if mark else 0)
        for number, line in enumerate(wrap(text, self._cells - margin)):
            head = f"{' ' * indent}{mark}  " if mark and number == 0 else " " * margin
            row = Text.assemble((head, mark_style), (line, style))
            self.screen.print(row, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Item:
    """A line for people with a mark before it and notes below it; and the same as a row of a table for pipes."""

    row: tuple[Any, ...]
    mark: str
    text: str
    notes: tuple[str, ...] = ()


def write_rows(columns: Sequence[str], rows: Sequence[Item | tuple[Any, ...]], *, empty: str) -> None:
    """Print rows as a table; in a terminal, print items: texts and keys need more room than a table has."""
    screen = output.console()
    items = [row for row in rows if isinstance(row, Item)]
    if not items or not screen.is_terminal:
        cells = [row.row if isinstance(row, Item) else row for row in rows]
        output.write_table(columns, cells, empty=empty, screen=screen)
        return
    page = Page(screen)
    for item in items:
        page.item(item.mark, item.text, *item.notes)


def wrap(text: str, cells: int) -> Iterator[str]:
    """Break a text into lines of at most this many cells, at blanks and between Chinese characters.

    A word that is longer than a line gets a line of its own: it is an address or a path to be copied.
    """
    line, used = "", 0
    for piece in _PIECE.findall(" ".join(text.split("\n"))):
        size = cell_len(piece)
        if line and used + cell_len(piece.rstrip()) > cells:
            yield line.rstrip()
            line, used = "", 0
        if line or piece.strip():
            line, used = line + piece, used + size
    yield line.rstrip()


def clip(text: str, cells: int) -> str:
    """Cut a text to this many cells of a terminal; a Chinese character takes two."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…"


def passage(text: str, terms: Sequence[str], cells: int) -> str:
    """Return the line of a text that has the most of the terms, and what follows it, cut to this many cells."""
    lines = [line for line in text.split("\n") if line.strip()]
    scores = [sum(term.casefold() in line.casefold() for term in terms) for line in lines]
    if len(lines) < 2 or not any(scores):
        return clip(" ".join(lines), cells)
    first = scores.index(max(scores))
    return ("… " if first else "") + clip(" ".join(lines[first:]), cells)
