"""Processes with the least privileges: each connects with a login of its role, as `grant_roles` makes them.

So do the processes of every system test and, with ``--as-roles``, those of all tests, on databases that are cloned from
the template. A test's own connections are the owner's, who makes what the processes find.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote, urlsplit

import psycopg

#: Of a process: the HTTP API and agents' hosts, or the workers of all pools.
Role = Literal["writer", "worker"]

#: A login of each role, on each server of the tests.
LOGINS: dict[Role, str] = {"writer": "writer_of_tests", "worker": "worker_of_tests"}
_is_on = False
_granted = set[str]()


def switch(*, on: bool) -> None:
    """Have processes that are started from now on connect as their roles, or as the owner."""
    global _is_on  # noqa: PLW0603 - it is of the test that runs
    _is_on = on


def is_on() -> bool:
    """Whether processes that are started now connect as their roles."""
    return _is_on


def grant(dsn: str) -> None:
    """Make the roles and their logins, and give the roles their rights on a database and on its clones."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("SELECT grant_roles()")
        for role, login in LOGINS.items():
            if not owner.execute("SELECT FROM pg_roles WHERE rolname = %s", [login]).fetchone():
                owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{login}'")
            owner.execute(f"GRANT hippocampus_{role} TO {login}")


def note_granted(database: str) -> None:
    """Have processes connect as their roles to the database of this name, which has been granted to them."""
    _granted.add(database)


def address_of(dsn: str, role: Role) -> str:
    """The address of a database for a process of a role; the given one where roles have no rights."""
    is_granted = urlsplit(dsn).path.removeprefix("/") in _granted
    return as_login(dsn, LOGINS[role]) if _is_on and is_granted else dsn


def as_login(dsn: str, name: str) -> str:
    """The address of a database for another login, whose password is its name."""
    return re.sub(r"//[^@]*@", f"//{quote(name)}:{quote(name)}@", dsn)
