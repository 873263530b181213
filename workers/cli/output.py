"""What a command prints: tables for people, tab-separated lines for pipes, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: The length of a text in a table for people; pipes and JSON get the whole text.
CELL_CHARS_MAX = 200


def console() -> Console:
    """Return the standard output: without colours in a pipe or under NO_COLOR."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=False)


def write_json(value: Any) -> None:
    """Print records, or collections of them, as JSON."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, indent=2) + "\n")


def plain(value: Any) -> Any:
    """Convert records to JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Sequence | set | frozenset):
        return [plain(each) for each in value]
    return str(value)


def write_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str, screen: Console | None = None
) -> None:
    """Print rows. Without any, print the sentence `empty`, to standard error in a pipe."""
    screen = screen or console()
    if not rows:
        (screen.print if screen.is_terminal else Console(stderr=True).print)(Text(empty), style="dim")
        return
    if not screen.is_terminal:
        for row in (columns, *rows):
            sys.stdout.write("\t".join(_one_line(show(cell)) for cell in row) + "\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", collapse_padding=True)
    for column, name in enumerate(columns):
        numeric = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(
            name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric or _is_short(rows, column)
        )
    for row in rows:
        table.add_row(*(Text(_clip(show(cell), CELL_CHARS_MAX)) for cell in row))
    screen.print(table)


def write_record(record: Any, *, as_json: bool) -> None:
    """Print a record as JSON, or as fields."""
    if as_json:
        write_json(record)
    else:
        write_fields(record)


def write_change(changed: bool, *, as_json: bool, done: str, unchanged: str) -> None:
    """Print whether a command changed anything, as JSON or as one of two sentences."""
    if as_json:
        write_json({"changed": changed})
    else:
        sys.stdout.write(f"{done if changed else unchanged}\n")


def write_fields(record: Any) -> None:
    """Print a record, one line for each field that has a value."""
    screen = console()
    fields = {name: value for name, value in plain(record).items() if value is not None and value not in ({}, [])}
    width = max((len(name) for name in fields), default=0) + 2
    for name, value in fields.items():
        screen.print(f"{name:<{width}}{show(value)}", markup=False, soft_wrap=True)


def show(cell: Any) -> str:
    """Return a value as text for people."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.2f}"
    if isinstance(cell, datetime):
        return show_time(cell)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return cell if isinstance(cell, str) else json.dumps(plain(cell), ensure_ascii=False)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, given in the singular: '1 event', '3 memories'."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("ory") else f"{count} {noun}s"


def show_time(moment: datetime | None) -> str:
    """Return a moment in UTC, to the minute."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def show_age(seconds: float | None) -> str:
    """Return a duration in its largest unit."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def show_fact(value: Any) -> str:
    """Return a fact's value: its subject and its text."""
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        subject = value.get("subject")
        return f"{subject}: {value['text']}" if subject else str(value["text"])
    return show(value)


def _is_short(rows: Sequence[Sequence[Any]], column: int) -> bool:
    return max(len(show(row[column])) for row in rows) <= 16


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else _one_line(text)[: limit - 1] + "…"
