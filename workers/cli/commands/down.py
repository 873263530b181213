"""`hippocampus down`."""

from __future__ import annotations

import time

import click

from workers import settings
from workers.cli.installation import Installation

#: Beyond the grace of the roles: the embedded server's own end, or the part of a start that cannot be interrupted.
STOP_SECONDS_MAX = 60.0


@click.command(epilog="Example:  hippocampus down")
def command() -> None:
    """Stop what `hippocampus up` runs below HIPPOCAMPUS_HOME, detached or not, and wait for its end.

    The roles stop first, then the embedded PostgreSQL, unless another program uses it. A PostgreSQL that DATABASE_URL
    names is not touched.
    """
    installation = Installation(settings.load().home)
    began = time.monotonic()
    state = installation.stop()
    if state is None:
        click.echo(f"Nothing runs below {installation.home}.")
        return
    if not installation.has_stopped(state, timeout_seconds=state.grace_seconds + STOP_SECONDS_MAX):
        raise click.ClickException(
            f"Process {state.pid} has not stopped after {time.monotonic() - began:.0f} s: see"
            f" {state.log or 'its output'}, or run `hippocampus down` again, which kills roles that still run."
        )
    click.echo(f"Stopped in {time.monotonic() - began:.1f} s.")
