"""Commands of the command line, run in the test's own process."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import asyncpg

Run = Callable[..., tuple[int, str, str]]


async def execute(dsn: str, statement: str, *arguments: object) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement, *arguments)
    await connection.close()


async def fetch(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    value: object = await connection.fetchval(statement)
    await connection.close()
    return value


def pages(run_: Run, *words: str) -> list[Any]:
    """Every page, each fetched with the command that the previous page named."""
    found = []
    command: tuple[str, ...] = (*words, "--json")
    while command:
        code, out, err = run_(*command)
        assert code == 0, err
        found.append(json.loads(out))
        following = re.search(r"^Next page:  hippocampus (.*)$", err, re.MULTILINE)
        command = tuple(shlex.split(following[1])) if following else ()
    return found
