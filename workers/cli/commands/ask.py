"""`hippocampus ask QUESTION`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hippocampus import answers
from hippocampus.answers import Answer, AnswerService
from hippocampus.context_assembler import ContextAssembler
from workers import settings
from workers.cli import output
from workers.cli.commands.context import language_option
from workers.cli.embedder import open_embedder, open_generator, reranking
from workers.cli.moments import asked_at_option, time_zone_option
from workers.cli.options import json_option
from workers.cli.owners import Whose, owner_options
from workers.cli.page import clip

if TYPE_CHECKING:
    from datetime import datetime

    from hippocampus.text.languages import Language
    from pulse.database import Pool
    from workers.cli.rows import Owner
    from workers.settings import Settings

_QUOTE_CELLS_MAX = 100


@click.command(epilog="Example:  hippocampus ask 'where does she live?'")
@click.argument("question")
@owner_options
@click.option(
    "--tokens",
    default=answers.WINDOW_TOKENS,
    show_default=True,
    type=click.IntRange(answers.WINDOW_TOKENS_MIN, answers.WINDOW_TOKENS_MAX),
    help="The budget of what the model reads.",
)
@click.option(
    "--answer-tokens",
    default=answers.ANSWER_TOKENS,
    show_default=True,
    type=click.IntRange(answers.ANSWER_TOKENS_MIN, answers.ANSWER_TOKENS_MAX),
    help="The budget of the answer.",
)
@click.option(
    "--seconds",
    default=answers.ANSWER_SECONDS,
    show_default=True,
    type=click.FloatRange(answers.ANSWER_SECONDS_MIN, answers.ANSWER_SECONDS_MAX),
    help="The time for everything.",
)
@language_option
@asked_at_option
@time_zone_option
@json_option
def command(
    question: str,
    whose: Whose,
    tokens: int,
    answer_tokens: int,
    seconds: float,
    language: Language | None,
    asked_at: datetime | None,
    time_zone: str | None,
    as_json: bool,
) -> None:
    """Answer a question from what is remembered of a user, with citations.

    HIPPOCAMPUS_GENERATOR writes the answer. Without a model, it consists of the passages that match best.
    """
    answer = whose.run(
        lambda pool, owner: ask(
            settings.load(),
            pool,
            owner,
            question,
            language=language,
            tokens=tokens,
            answer_tokens=answer_tokens,
            seconds=seconds,
            asked_at=asked_at,
            time_zone=time_zone,
        )
    )
    if as_json:
        output.write_json(answer)
        return
    click.echo(answer.text)
    for line in _notes(answer):
        click.echo(line, err=True)


async def ask(
    config: Settings,
    pool: Pool,
    owner: Owner,
    question: str,
    *,
    language: Language | None,
    tokens: int,
    answer_tokens: int,
    seconds: float,
    asked_at: datetime | None = None,
    time_zone: str | None = None,
) -> Answer:
    """Ask with the generator, the embedder and the reranker that the settings name."""
    embedder, generator = open_embedder(config, pool), open_generator(config, pool)
    try:
        async with reranking(config, pool) as reranked:
            return await AnswerService(ContextAssembler(pool, embedder, **reranked), generator).ask(
                app_name=owner.app,
                user_id=owner.user,
                question=question,
                language=language,
                max_tokens=tokens,
                max_answer_tokens=answer_tokens,
                max_seconds=seconds,
                asked_at=asked_at,
                time_zone=time_zone,
            )
    finally:
        await embedder.close()
        await generator.close()


def _notes(answer: Answer) -> list[str]:
    """Return what the answer rests on, as lines."""
    notes = [f"Note: {answer.degraded}."] if answer.degraded else []
    if answer.answered_by == "passages" and answer.is_known:
        notes.append("No model is set (HIPPOCAMPUS_GENERATOR): these are the passages that match best.")
    for each in answer.citations:
        said = "" if each.session_id is None else f" {each.session_id} {', '.join(map(str, each.sequence_nums))}"
        notes.append(f"[{each.source} {each.id}]{said}: {clip(' '.join(each.text.split()), _QUOTE_CELLS_MAX)}")
    return notes
