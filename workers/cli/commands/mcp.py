"""`hippocampus mcp`: a user's memory for a desktop client, over standard input and output."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Any, cast

import click

from pulse.api_keys import ROLES, Role
from pulse.process.background import in_background
from pulse.process.extras import install_command
from workers import settings
from workers.cli import databases, interrupts, running
from workers.cli.embedder import open_embedder, open_generator, reranking
from workers.models.reach import chosen_of, report_unreachable
from workers.process import logs

if TYPE_CHECKING:
    from workers.settings import Settings


@click.command(epilog="Example:  hippocampus mcp --app assistant --user ann")
@click.option("--app", help="The app of the user; HIPPOCAMPUS_APP by default.")
@click.option("--user", help="Whose memory to serve; HIPPOCAMPUS_USER by default.")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    default=("admin",),
    show_default=True,
    help="What the client may do, repeatable: read, append (store), admin (both, and forget).",
)
@click.option(
    "--user-role", "user_roles", multiple=True, help="A role of the user, for corpora and registered tools; repeatable."
)
def command(app: str | None, user: str | None, roles: tuple[str, ...], user_roles: tuple[str, ...]) -> None:
    """Serve a user's memory to an MCP client, such as Claude Code or Cursor, until it closes standard input.

    Without DATABASE_URL it uses the embedded PostgreSQL below HIPPOCAMPUS_HOME, which it creates if needed. Summaries
    and facts are extracted by workers: run `hippocampus up --detach` for them. A running writer serves the same over
    HTTP at /mcp.
    """
    config = settings.load()
    app, user = app or config.app, user or config.user
    if not app or not user:
        raise click.UsageError("Name the app and the user: --app and --user, or HIPPOCAMPUS_APP and HIPPOCAMPUS_USER.")
    logs.configure(config.log_level, config.log_format)
    if importlib.util.find_spec("mcp") is None:
        raise click.UsageError(f"The MCP server needs mcp: run {install_command('mcp')}.")
    asked = interrupts.Interrupts()
    try:
        with databases.opened(config, create=True, keep_seconds=running.grace_of(config)) as ready:
            served = {
                "app_name": app,
                "user_id": user,
                "roles": cast("tuple[Role, ...]", roles),
                "user_roles": user_roles,
            }
            asyncio.run(_serve(ready, asked, served, is_ours=databases.is_embedded(config)))
    except asyncio.CancelledError:
        pass  # SIGTERM is a regular end: clients stop their servers by it.


async def _serve(config: Settings, asked: interrupts.Interrupts, served: dict[str, Any], *, is_ours: bool) -> None:
    from workers.mcp import stdio
    from workers.sandboxes import make_sandbox

    with asked.cancelling():
        if is_ours:
            await databases.migrated(config)
        async with databases.pool_of(config) as pool:
            embedder, generator = open_embedder(config, pool, ready=False), open_generator(config, pool)
            try:
                sandbox = make_sandbox(config)
                async with reranking(config, pool, ready=False) as reranked:
                    models = chosen_of(config, generator, embedder, reranked["reranker"])
                    async with in_background(report_unreachable(models)):
                        await stdio.serve(pool, embedder, generator, **served, reranked=reranked, sandbox=sandbox)
            finally:
                await embedder.close()
                await generator.close()
