"""`hippocampus grant-roles`: roles with the least that each process needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from pulse.postgres.statements import Statements
from workers.cli import databases

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("workers.cli", "roles.sql")


@click.command(epilog="Example:  hippocampus grant-roles --reader shop_reader --app shop")
@click.option("--reader", help="Also bind this login, so that it reads one app, or one user of it, and nothing else.")
@click.option("--app", help="The app that the login reads.")
@click.option("--user", help="The only user that the login reads; by default one at a time, by hippocampus.user_id.")
def command(reader: str | None, app: str | None, user: str | None) -> None:
    """Create or renew the roles hippocampus_writer, hippocampus_worker and hippocampus_reader.

    Run it as the owner of the tables, and again after each `hippocampus migrate`. Then make a login for each process:
    CREATE ROLE … LOGIN PASSWORD '…' IN ROLE hippocampus_writer.
    """
    if (reader is None) != (app is None) or (user is not None and app is None):
        raise click.UsageError("Name the login with --reader and its app with --app, or neither.")

    async def work(pool: Pool) -> int:
        count = cast("int", await _STATEMENTS.fetchval(pool, "grant_roles"))
        if reader is not None:
            await _STATEMENTS.execute(pool, "bind_reader", reader, app, user)
        return count

    count = databases.run(work)
    click.echo(f"The roles are up to date; {count} tables have policies.", err=True)
