"""`hippocampus context QUERY`."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from hippocampus.context.templates import TemplateName
from hippocampus.context_assembler import ContextAssembler, ContextWindow
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.text.languages import Language
from workers import settings
from workers.cli import output
from workers.cli.embedder import open_embedder, reranking
from workers.cli.moments import asked_at_option, time_zone_option
from workers.cli.options import COUNT_MAX, json_option
from workers.cli.owners import Whose, owner_options

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from pulse.database import Pool
    from workers.cli.rows import Owner
    from workers.settings import Settings


language_option = click.option(
    "--language", type=click.Choice(get_args(Language)), help="Of headers and labels; by default the conversation's."
)
template_option = click.option(
    "--template",
    type=click.Choice(get_args(TemplateName)),
    default="markdown",
    show_default=True,
    help="How the text is written.",
)


@click.command(epilog="Example:  hippocampus context 'what shall we cook' --session mei-session-8 --tokens 1000")
@click.argument("query")
@owner_options
@click.option("--session", help="The session whose newest turns are the history.")
@click.option("--tokens", default=8000, show_default=True, type=click.IntRange(1, COUNT_MAX), help="The budget.")
@click.option("--system", "system_prompt", help="A system prompt, which is never cut.")
@click.option("--profile", is_flag=True, help="Begin the facts with the user's profile.")
@click.option("--stable", is_flag=True, help="Begin with what does not depend on the query, for a prompt cache.")
@click.option(
    "--documents", default=0.0, type=click.FloatRange(0, 1), help="The share of the budget for documents that match."
)
@click.option("--corpus", "corpora", multiple=True, help="Of these documents; by default all that the user may read.")
@click.option("--role", "roles", multiple=True, help="A role of the user, for the access to corpora.")
@language_option
@template_option
@asked_at_option
@time_zone_option
@json_option
def command(
    query: str,
    whose: Whose,
    session: str | None,
    tokens: int,
    system_prompt: str | None,
    language: Language | None,
    template: TemplateName,
    profile: bool,
    stable: bool,
    documents: float,
    corpora: tuple[str, ...],
    roles: tuple[str, ...],
    asked_at: datetime | None,
    time_zone: str | None,
    as_json: bool,
) -> None:
    """Pack system prompt, facts, memories and history into a token budget that is never exceeded."""
    window, text = whose.run(
        lambda pool, owner: assemble(
            settings.load(),
            pool,
            owner,
            query,
            session_id=session,
            tokens=tokens,
            system_prompt=system_prompt,
            language=language,
            template=template,
            profile=profile,
            stable=stable,
            documents=documents,
            corpora=corpora,
            roles=roles,
            asked_at=asked_at,
            time_zone=time_zone,
        )
    )
    if as_json:
        messages = window.messages if window.template.as_messages else []
        named = {"template": window.template.name, "text": text, "messages": messages}
        output.write_json({**output.plain(window), **named})
        return
    click.echo(text)
    click.echo(err=True)
    click.echo("\n".join(account(window)), err=True)


async def assemble(
    config: Settings,
    pool: Pool,
    owner: Owner,
    query: str,
    *,
    session_id: str | None,
    tokens: int,
    system_prompt: str | None = None,
    language: Language | None = None,
    template: TemplateName = "markdown",
    profile: bool = False,
    stable: bool = False,
    documents: float = 0,
    corpora: Collection[str] = (),
    roles: Collection[str] = (),
    asked_at: datetime | None = None,
    time_zone: str | None = None,
) -> tuple[ContextWindow, str]:
    """Assemble a window with the embedder and the reranker that the settings name; return it and its text."""
    embedder = open_embedder(config, pool)
    try:
        async with reranking(config, pool) as reranked:
            assembler = ContextAssembler(
                pool, embedder, max_tokens=tokens, language=language, template=template, **reranked
            )
            part = None
            if documents:
                service = KnowledgeService(pool, owner.app, **reranked)
                part = service.part(documents, corpora=corpora or None, roles=roles)
            window = await assembler.assemble(
                app_name=owner.app,
                user_id=owner.user,
                session_id=session_id,
                query=query,
                system_prompt=system_prompt,
                profile=profile,
                stable=stable,
                documents=part,
                asked_at=asked_at,
                time_zone=time_zone,
            )
            return window, assembler.format_context(window)
    finally:
        await embedder.close()


def account(window: ContextWindow) -> list[str]:
    """Return how the budget was spent, as lines."""
    lines = [f"tokens   {window.total_tokens} of {window.max_tokens} ({window.budget_used:.0%})"]
    if window.account:
        lines.append("         by section, each item rounded up; what a section leaves of its share goes to others:")
    for section in window.account:
        left_out = f", {section.left_out} left out" if section.left_out else ""
        lines.append(
            f"{section.context_type:<8} {section.used} (share {section.share}): {section.items} items{left_out}"
        )
    return lines
