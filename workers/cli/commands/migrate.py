"""`hippocampus migrate`."""

from __future__ import annotations

import asyncio

import click

from workers import settings
from workers.cli import databases, output
from workers.cli.options import json_option


@click.command(epilog="Example:  DATABASE_URL=postgresql://me@db/app hippocampus migrate")
@json_option
def command(as_json: bool) -> None:
    """Bring the database to this program's schema. It may run at any time, also several times at once."""
    config = settings.load()
    with databases.opened(config, create=True) as ready:
        applied = asyncio.run(databases.migrated(ready))
    where = databases.name_of(config)
    if as_json:
        output.write_json({"database": where, "schema": config.schema_name, "applied": applied})
        return
    if applied:
        click.echo("\n".join(f"applied {name}" for name in applied))
    click.echo(f"The schema {config.schema_name} of {where} is current.")
