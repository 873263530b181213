"""A user of a managed server, from whom the server keeps which one it is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import psycopg
from psycopg import sql


@contextlib.contextmanager
def without_identity(dsn: str) -> Iterator[str]:
    """Yield the address of a user who may do everything in the database but call pg_control_system."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = f"plain_{connection.info.dbname}"
        role = sql.Identifier(name)
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'long enough'").format(role))
        try:
            connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
            connection.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(role))
            connection.execute(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA public TO {}").format(role))
            yield re.sub("//[^@]*@", f"//{name}:long%20enough@", dsn)
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))
