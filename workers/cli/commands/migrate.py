"""`hippocampus migrate`."""

from __future__ import annotations

import asyncio

import click

from workers import migrate, settings
from workers.cli import databases, output
from workers.cli.options import json_option


@click.command(epilog="Example:  DATABASE_URL=postgresql://me@db/app hippocampus migrate")
@json_option
def command(as_json: bool) -> None:
    """Bring the database to this program's schema.

    It prints what it applied. It can be run at any time, several times at once and while older programs run. A database
    that a newer release has migrated is left unchanged.
    """
    config = settings.load()
    with databases.opened(config, create=True) as ready:
        applied = asyncio.run(databases.migrated(ready))
        ahead = asyncio.run(migrate.version_ahead(ready.direct_dsn or "", schema=ready.schema_name))
    where = databases.name_of(config)
    if as_json:
        output.write_json({"database": where, "schema": config.schema_name, "applied": applied, "ahead": ahead})
        return
    if applied:
        click.echo("\n".join(f"applied {name}" for name in applied))
    if ahead is not None:
        click.echo(
            f"The schema {config.schema_name} of {where} is ahead of this program: release {ahead} migrated it."
            " This program works with it as it is."
        )
        return
    click.echo(f"The schema {config.schema_name} of {where} is current.")
