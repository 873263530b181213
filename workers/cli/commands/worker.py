"""`hippocampus worker POOL`: a worker as a process."""

from __future__ import annotations

import click

from workers.pools import get_pool
from workers.process import parent
from workers.worker import main_worker


@click.command(epilog="Example:  DATABASE_URL=postgresql://me@db/app hippocampus worker fast_replay")
@click.argument("pool")
@click.option("--with-parent", is_flag=True, hidden=True)
def command(pool: str, with_parent: bool) -> int:
    """Run a worker of POOL: fast_replay, deep_reflection, retention or pulse.

    It needs DATABASE_URL and a migrated database. Run as many of each as you like, on as many machines. After SIGTERM
    its jobs may run for HIPPOCAMPUS_SHUTDOWN_GRACE_SECONDS; those that are not done in this time go back to the queue.
    """
    get_pool(pool)
    if with_parent:
        parent.end_with_parent()
    if pool == "pulse":
        from workers.autonomic.role import main_pulse

        return main_pulse()
    return main_worker(pool)
