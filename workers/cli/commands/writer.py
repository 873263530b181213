"""`hippocampus writer`: the HTTP API as a process."""

from __future__ import annotations

import click

from pulse.process import gc_pause
from pulse.process.extras import install_command
from workers import settings
from workers.cli.options import agents_option
from workers.process import logs, parent


@click.command(epilog="Example:  DATABASE_URL=postgresql://me@db/app hippocampus writer")
@agents_option
@click.option("--with-parent", is_flag=True, hidden=True)
def command(agents: tuple[str, ...], with_parent: bool) -> int:
    """Run the session writer: the HTTP API on HIPPOCAMPUS_API_HOST and HIPPOCAMPUS_API_PORT.

    It needs DATABASE_URL and a migrated database. After SIGTERM or Ctrl-C it stops within
    HIPPOCAMPUS_SHUTDOWN_GRACE_SECONDS.
    """
    if with_parent:
        parent.end_with_parent()
    settings.use_agents(agents)
    config = settings.load()
    logs.configure(config.log_level, config.log_format)
    try:
        with gc_pause.paused():
            from workers.writer import main_writer
    except ModuleNotFoundError as error:
        raise click.UsageError(f"The API needs {error.name}: run {install_command('http')}.") from error
    return main_writer(config)
