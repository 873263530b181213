"""`hippocampus search QUERY`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import click

from hippocampus.records import MemoryType
from hippocampus.search import (
    MatchScores,
    MemorySearch,
    MessageScope,
    SearchFilter,
    SearchMemoryResponse,
    SearchMemoryResult,
)
from workers import settings
from workers.cli import output
from workers.cli.embedder import open_embedder, reranking
from workers.cli.moments import asked_at_option, time_zone_option
from workers.cli.options import json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import Item, passage, write_rows
from workers.cli.paging import limit_option

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.database import Pool
    from workers.cli.rows import Owner
    from workers.settings import Settings

TERMS_SHOWN_MAX = 6
HIT_CELLS_MAX = 400


@click.command(epilog="Example:  hippocampus search 'where does she live' --limit 3")
@click.argument("query")
@owner_options
@limit_option(10)
@click.option("--type", "memory_type", type=click.Choice(get_args(MemoryType)), help="Only memories of this type.")
@click.option("--session", help="Only what was said in this session, or derived from it.")
@click.option(
    "--messages",
    type=click.Choice(get_args(MessageScope)),
    default="all",
    help="Which turns; recent: not consolidated.",
)
@asked_at_option
@time_zone_option
@json_option
def command(
    query: str,
    whose: Whose,
    limit: int,
    memory_type: MemoryType | None,
    session: str | None,
    messages: MessageScope,
    asked_at: datetime | None,
    time_zone: str | None,
    as_json: bool,
) -> None:
    """Search memories, facts and turns, and show why each matches."""
    narrow = SearchFilter(
        memory_types=None if memory_type is None else (memory_type,), session_id=session, messages=messages
    )
    response = whose.run(
        lambda pool, owner: search(
            settings.load(), pool, owner, query, limit=limit, narrow=narrow, asked_at=asked_at, time_zone=time_zone
        )
    )
    if as_json:
        output.write_json(response)
        return
    for note in filter(None, (response.degraded, response.rerank_failure)):
        click.echo(f"Note: {note}.", err=True)
    items = [
        Item(
            (hit.score, kind_of(hit), hit.content, why(hit.why)),
            f"{hit.score:.2f}",
            passage(hit.content, whole_terms(hit.why.matched_terms), HIT_CELLS_MAX),
            (f"{kind_of(hit)}; why: {why(hit.why)}",),
        )
        for hit in response.memories
    ]
    write_rows(("score", "what", "content", "why"), items, empty="Nothing matches.")


async def search(
    config: Settings,
    pool: Pool,
    owner: Owner,
    query: str,
    *,
    limit: int,
    narrow: SearchFilter,
    asked_at: datetime | None = None,
    time_zone: str | None = None,
) -> SearchMemoryResponse:
    """Search with the embedder and the reranker that the settings name."""
    embedder = open_embedder(config, pool)
    try:
        async with reranking(config, pool) as reranked:
            return await MemorySearch(pool, embedder, **reranked).search(
                app_name=owner.app,
                user_id=owner.user,
                query=query,
                limit=limit,
                narrow=narrow,
                asked_at=asked_at,
                time_zone=time_zone,
            )
    finally:
        await embedder.close()


def kind_of(hit: SearchMemoryResult) -> str:
    """Return what was found: summary, episodic, semantic, a kind of fact, or a turn."""
    return {"memory": hit.memory_type, "fact": f"fact ({hit.memory_type})", "message": "turn"}[hit.source]


def why(scores: MatchScores) -> str:
    """Return in a few words why a row matched."""
    reasons = []
    terms = whole_terms(scores.matched_terms)
    if terms:
        reasons.append(f"words {', '.join(terms[:TERMS_SHOWN_MAX])} (text rank {scores.text_rank})")
    if scores.similarity is not None and scores.vector_rank is not None:
        reasons.append(f"similarity {scores.similarity:.2f} (vector rank {scores.vector_rank})")
    if not terms and scores.context_bm25 > 0:
        reasons.append("words of the turns around it")
    if scores.author_match:
        reasons.append("said by the person in the query")
    return ", ".join(reasons) or "recent"


def whole_terms(terms: Sequence[str]) -> list[str]:
    """Return the most telling terms: no punctuation, no part of a longer term, no single characters beside words."""
    words = [term for term in terms if any(character.isalnum() for character in term)]
    words = [term for term in words if len(term) > 1] or words
    return [term for term in words if not any(term != other and term in other for other in words)]
