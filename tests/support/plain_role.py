"""A user of a managed server, from whom the server may keep which one it is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import psycopg
from psycopg import sql


def keep_identity(dsn: str) -> None:
    """Refuse every other user the function that says which server it is."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")


@contextlib.contextmanager
def plain_user(dsn: str) -> Iterator[str]:
    """Yield the address of a user who may do everything in the database, and nothing with the server."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = f"plain_{connection.info.dbname}"
        role = sql.Identifier(name)
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'long enough'").format(role))
        try:
            connection.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(role))
            connection.execute(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA public TO {}").format(role))
            yield re.sub("//[^@]*@", f"//{name}:long%20enough@", dsn)
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


@contextlib.contextmanager
def without_identity(dsn: str) -> Iterator[str]:
    """Yield the address of such a user, from whom the server keeps which one it is."""
    with plain_user(dsn) as theirs:
        keep_identity(dsn)
        yield theirs
