"""Statements by name, from ``queries.sql`` files that can be read, counted and explained as a whole.

A statement starts at a line ``-- name: list_sessions`` and ends at the next such line. The lines of comment below the
name say what it takes and gives.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

_HEADER = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)$", re.MULTILINE)


@functools.cache
def load_queries(package: str, filename: str = "queries.sql") -> Mapping[str, str]:
    """Return the statements of a package's query file, by name.

    Raises:
        ValueError: a name stands twice, or a statement is empty.
    """
    text = resources.files(package).joinpath(filename).read_text(encoding="utf-8")
    _, *parts = _HEADER.split(text)
    queries: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        statement = body.strip()
        if name in queries or not statement:
            raise ValueError(f"{package}/{filename}: the statement {name!r} is empty or stands twice")
        queries[name] = statement
    return MappingProxyType(queries)
