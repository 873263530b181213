"""`hippocampus context QUERY`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hippocampus.context_assembler import ContextAssembler, ContextWindow
from workers.cli import databases, output
from workers.cli.embedder import open_embedder
from workers.cli.owners import COUNT_MAX, find_owner, json_option, owner_options

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@click.command(epilog="Example:  hippocampus context 'what shall we cook' --session mei-session-8 --tokens 1000")
@click.argument("query")
@owner_options
@click.option("--session", help="The session whose newest turns are the history.")
@click.option("--tokens", default=8000, show_default=True, type=click.IntRange(1, COUNT_MAX), help="The budget.")
@click.option("--system", "system_prompt", help="A system prompt, taken whole.")
@json_option
def command(
    query: str,
    app: str | None,
    user: str | None,
    session: str | None,
    tokens: int,
    system_prompt: str | None,
    as_json: bool,
) -> None:
    """Pack system prompt, facts, memories and history into a token budget that is never exceeded."""

    async def work(config: Settings, pool: Pool) -> tuple[ContextWindow, str]:
        owner = await find_owner(pool, app, user)
        return await assemble(
            config, pool, owner.app, owner.user, query, session_id=session, tokens=tokens, system_prompt=system_prompt
        )

    window, text = databases.run(work)
    if as_json:
        output.write_json({**output.plain(window), "text": text})
        return
    click.echo(text)
    click.echo(err=True)
    click.echo("\n".join(account(window)), err=True)


async def assemble(
    config: Settings,
    pool: Pool,
    app: str,
    user: str,
    query: str,
    *,
    session_id: str | None,
    tokens: int,
    system_prompt: str | None = None,
) -> tuple[ContextWindow, str]:
    """Assemble a window with the embedder that the settings name; return it and its text."""
    embedder = open_embedder(config, pool)
    try:
        assembler = ContextAssembler(pool, embedder, max_tokens=tokens, language="en")
        window = await assembler.assemble(
            app_name=app, user_id=user, session_id=session_id, query=query, system_prompt=system_prompt
        )
        return window, assembler.format_context(window)
    finally:
        await embedder.close()


def account(window: ContextWindow) -> list[str]:
    """Say what the budget was spent on, as lines."""
    lines = [f"tokens   {window.total_tokens} of {window.max_tokens} ({window.budget_used:.0%})"]
    if window.account:
        lines.append("         of it, each item rounded up; what a section leaves of its share is lent to others:")
    for part in window.account:
        left_out = f", {part.left_out} left out" if part.left_out else ""
        lines.append(f"{part.context_type:<8} {part.used} (share {part.share}): {part.items} items{left_out}")
    return lines
