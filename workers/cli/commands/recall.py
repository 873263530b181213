"""`hippocampus recall QUERY`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hippocampus.context_assembler import RECALL_TOKENS, ContextAssembler
from workers import settings
from workers.cli import output
from workers.cli.commands.context import language_option, template_option
from workers.cli.embedder import open_embedder, reranking
from workers.cli.moments import asked_at_option, time_zone_option
from workers.cli.options import COUNT_MAX, json_option
from workers.cli.owners import Whose, owner_options

if TYPE_CHECKING:
    from datetime import datetime

    from hippocampus.context.templates import TemplateName
    from hippocampus.context.window import ContextWindow
    from hippocampus.text.languages import Language
    from pulse.database import Pool
    from workers.cli.rows import Owner
    from workers.settings import Settings


@click.command(epilog="Example:  hippocampus recall 'where does she live' --tokens 500")
@click.argument("query")
@owner_options
@click.option(
    "--tokens", default=RECALL_TOKENS, show_default=True, type=click.IntRange(1, COUNT_MAX), help="The budget."
)
@language_option
@template_option
@asked_at_option
@time_zone_option
@json_option
def command(
    query: str,
    whose: Whose,
    tokens: int,
    language: Language | None,
    template: TemplateName,
    asked_at: datetime | None,
    time_zone: str | None,
    as_json: bool,
) -> None:
    """Print what is known, for an agent: facts, then passages with their dates, within a token budget."""
    window = whose.run(
        lambda pool, owner: recall(
            settings.load(),
            pool,
            owner,
            query,
            tokens=tokens,
            language=language,
            template=template,
            asked_at=asked_at,
            time_zone=time_zone,
        )
    )
    if as_json:
        output.write_json(
            {
                "text": window.text,
                "total_tokens": window.total_tokens,
                "language": window.language,
                "degraded": window.degraded,
                "reranked": window.reranked,
                "rerank_failure": window.rerank_failure,
            }
        )
        return
    for note in filter(None, (window.degraded, window.rerank_failure)):
        click.echo(f"Note: {note}.", err=True)
    if window.text:
        click.echo(window.text)
    else:
        click.echo("Nothing is known.", err=True)


async def recall(
    config: Settings,
    pool: Pool,
    owner: Owner,
    query: str,
    *,
    tokens: int,
    language: Language | None,
    template: TemplateName,
    asked_at: datetime | None = None,
    time_zone: str | None = None,
) -> ContextWindow:
    """Recall with the embedder and the reranker that the settings name."""
    embedder = open_embedder(config, pool)
    try:
        async with reranking(config, pool) as reranked:
            assembler = ContextAssembler(pool, embedder, language=language, template=template, **reranked)
            return await assembler.recall(
                app_name=owner.app,
                user_id=owner.user,
                query=query,
                max_tokens=tokens,
                asked_at=asked_at,
                time_zone=time_zone,
            )
    finally:
        await embedder.close()
