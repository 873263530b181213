"""Answers to questions from a user's memory, with citations that lead to turns, memories and facts.

    ContextAssembler.recall      a window of what is known, one numbered line an item
    Answerer.answer              one call of a model, and one more if its reply has to be repaired
    the citations are checked    a number that is not in the window is dropped; no citation, no answer

Where nothing is remembered, no model is called. Without a model the passages that match best are the answer, and it
says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import UUID

from hippocampus.context.languages import fact_kind
from hippocampus.context.packing import CUT_MARK
from hippocampus.context.templates import MARKDOWN, Template, is_turn, write
from hippocampus.context.window import ContextItem
from hippocampus.errors import ContextBudgetError, TransientProviderError
from hippocampus.names import check_count, check_number, check_word, moment_asked
from hippocampus.providers.protocols import Answerer
from hippocampus.providers.transcript import quoted
from hippocampus.records import Question, Reply, Usage
from hippocampus.text.languages import LANGUAGE_NAMES, Language, language_of
from hippocampus.text.tokens import count_tokens
from pulse.errors import InvalidInputError

if TYPE_CHECKING:
    from hippocampus.context_assembler import ContextAssembler
    from hippocampus.providers.protocols import Generator

#: What a citation is; `hippocampus.erasure.provenance` traces each.
CitedSource: TypeAlias = Literal["memory", "fact", "turn"]
#: A model wrote the answer, or it consists of passages, since there is no model.
AnsweredBy: TypeAlias = Literal["model", "passages"]

QUESTION_LENGTH_MAX = 4_000
WINDOW_TOKENS, WINDOW_TOKENS_MIN, WINDOW_TOKENS_MAX = 4_000, 100, 200_000
ANSWER_TOKENS, ANSWER_TOKENS_MIN, ANSWER_TOKENS_MAX = 400, 50, 8_000
ANSWER_SECONDS, ANSWER_SECONDS_MIN, ANSWER_SECONDS_MAX = 60.0, 0.001, 600.0
#: How much a citation shows of its text.
_CITED_CHARACTERS_MAX = 2_000
#: Without a model: how many items answer, and the least relevance of one.
_PASSAGES_MAX = 5
_RELEVANT = 0.2
_NOT_KNOWN: dict[Language, str] = {"en": "Not known.", "zh": "不知道。"}
#: Stands for an item's number, and costs at least as many tokens. No stored text begins a line.
_PLACE = "000"
_PLACES = re.compile(rf"^{_PLACE}(?= )", re.MULTILINE)


def _inside_quotes(text: str) -> str:
    return quoted(text)[1:-1]


_NUMBERED = Template(
    name="numbered",
    section="{body}",
    fact=_PLACE + ' fact{when} "{text}"',
    memory=_PLACE + ' memory{when} "{text}"{changed}',
    passage="{iso}\n{body}",
    turn=_PLACE + ' {speaker} "{text}"{changed}',
    history="",
    when=" {iso}",
    changed=' note "{note}"',
    escape=_inside_quotes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What an answer rests on.

    Attributes:
        id: the id of the memory, the fact or the turn.
        text: as it stands in the memory; at most 2,000 characters.
        session_id, sequence_nums: the turns that it is, or was extracted from; None and empty for what was given.
        changed: what holds instead now; '' if it ended without a successor, None if nothing has changed.
    """

    source: CitedSource
    id: UUID
    text: str
    session_id: str | None
    sequence_nums: tuple[int, ...]
    occurred_at: datetime | None
    changed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to a question about a user.

    Attributes:
        text: never empty; says that it is not known where `is_known` is false.
        answered_by: None: nothing is remembered that could answer, and no model was asked.
        citations: in the model's order; of passages in the order of the text. Empty if and only if it is not known.
        model: the version that the reply names; None if no model was asked.
        usage: the tokens of all calls for it.
        degraded: why text alone was searched; None if nothing failed.
    """

    text: str
    is_known: bool
    answered_by: AnsweredBy | None
    citations: tuple[Citation, ...] = ()
    language: Language = "en"
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    window_tokens: int = 0
    degraded: str | None = None


class AnswerService:
    """Answers questions.

    Args:
        assembler: finds what is known.
        generator: that writes the answers, if it is a `hippocampus.providers.protocols.Answerer`. Another one, such as
            the provider `local`, and None have the passages shown that match best. It stays the caller's to close.
    """

    def __init__(self, assembler: ContextAssembler, generator: Generator | Answerer | None = None) -> None:
        self._assembler = assembler
        self._answerer = generator if isinstance(generator, Answerer) else None

    async def ask(
        self,
        *,
        app_name: str,
        user_id: str,
        question: str,
        language: Language | None = None,
        max_tokens: int = WINDOW_TOKENS,
        max_answer_tokens: int = ANSWER_TOKENS,
        max_seconds: float = ANSWER_SECONDS,
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> Answer:
        """Answer a question from what is remembered of a user.

        Args:
            question: 1 to 4,000 characters.
            language: of the answer; None: that of the question.
            max_tokens: the size of the window that the model reads.
            max_answer_tokens: the length of the answer's text. A model that thinks at length before it answers needs
                more.
            max_seconds: for everything: search, and all calls for one answer.
            asked_at: when the question is asked: 'yesterday' is the day before. None: now.
            time_zone: whose days it means, such as Asia/Tokyo. None: the zone of `asked_at`, or UTC.

        Raises:
            InvalidInputError: an argument is out of its bounds.
            ContextBudgetError: what is known does not fit the window.
            ProviderError: the model did not answer in time, or not in the requested form.
        """
        spoken = check_question(question, language, max_tokens, max_answer_tokens, max_seconds)
        asked_now = moment_asked(asked_at, time_zone)
        async with within(max_seconds):
            window = await self._assembler.recall(
                app_name=app_name,
                user_id=user_id,
                query=question,
                max_tokens=max_tokens,
                language=spoken,
                template=_NUMBERED,
                asked_at=asked_now,
            )
            answer = Answer(
                text=_NOT_KNOWN[spoken],
                is_known=False,
                answered_by=None,
                language=spoken,
                window_tokens=window.total_tokens,
                degraded=window.degraded,
            )
            if not window.items:
                if window.left_out:
                    raise ContextBudgetError(f"nothing that is known fits {max_tokens} tokens: raise max_tokens")
                return answer
            if self._answerer is None:
                return _by_passages(answer, window.items, max_answer_tokens)
            sent, known = await self._assembler.without_secrets(app_name, [question.strip(), window.text])
            asked = Question(
                text=sent,
                passages=_numbered(known),
                asked_at=asked_now,
                tokens_max=max_answer_tokens,
                language=None if language is None else LANGUAGE_NAMES[language],
            )
            return _by_model(answer, window.items, await self._answerer.answer(asked))


def check_question(
    question: str, language: Language | None, max_tokens: int, max_answer_tokens: int, max_seconds: float
) -> Language:
    """Return the language in which a question is answered.

    Raises:
        InvalidInputError: an argument is out of its bounds.
    """
    check_word("language", language, tuple(LANGUAGE_NAMES))
    check_count("max_tokens", max_tokens, WINDOW_TOKENS_MIN, WINDOW_TOKENS_MAX)
    check_count("max_answer_tokens", max_answer_tokens, ANSWER_TOKENS_MIN, ANSWER_TOKENS_MAX)
    check_number("max_seconds", max_seconds, ANSWER_SECONDS_MIN, ANSWER_SECONDS_MAX)
    if not isinstance(question, str) or not question.strip() or len(question) > QUESTION_LENGTH_MAX:
        raise InvalidInputError(f"a question must be a text of 1 to {QUESTION_LENGTH_MAX} characters")
    return language or language_of([question]) or "en"


@asynccontextmanager
async def within(max_seconds: float) -> AsyncIterator[None]:
    """Raise TransientProviderError when the block takes longer; a time-out of something within it is left as it is."""
    try:
        async with asyncio.timeout(max_seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TransientProviderError(
            f"there was no answer within {max_seconds:g} s: allow more time, or try again", code="timeout"
        ) from error


def _numbered(text: str) -> str:
    """Return a window whose items have their numbers, from 1."""
    numbers = count(1)
    return _PLACES.sub(lambda _: str(next(numbers)), text.replace("\n\n", "\n"))


def _by_model(answer: Answer, items: Sequence[ContextItem], reply: Reply) -> Answer:
    answer = replace(answer, answered_by="model", model=reply.origin.model, usage=reply.usage)
    cited = [items[number - 1] for number in reply.citations if 1 <= number <= len(items)]
    if reply.text is None or not cited:
        return answer
    return replace(answer, text=reply.text, is_known=True, citations=_citations(cited, answer.language))


def _by_passages(answer: Answer, items: Sequence[ContextItem], tokens_max: int) -> Answer:
    """Return the items that match best, as many as fit, in the order of the window."""
    language = answer.language
    matching = sorted(
        (place for place, item in enumerate(items) if item.relevance_score >= _RELEVANT),
        key=lambda place: -items[place].relevance_score,
    )
    answer = replace(answer, answered_by="passages")
    if not matching:
        return answer

    def fits(shown: Sequence[ContextItem]) -> bool:
        return count_tokens(write(shown, language, MARKDOWN)) <= tokens_max

    chosen: list[int] = []
    for place in matching:
        if len(chosen) < _PASSAGES_MAX and fits([items[each] for each in sorted([*chosen, place])]):
            chosen.append(place)
    shown = [items[place] for place in sorted(chosen)] or [items[matching[0]]]
    while not fits(shown) and (kept := len(shown[0].content) * 3 // 4):
        shown = [replace(shown[0], content=shown[0].content[:kept].removesuffix(CUT_MARK) + CUT_MARK)]
    text = write(shown, language, MARKDOWN)
    return replace(answer, text=text, is_known=True, citations=_citations(shown, language))


def _citations(items: Iterable[ContextItem], language: Language) -> tuple[Citation, ...]:
    return tuple(_citation(item, language) for item in items)


def _citation(item: ContextItem, language: Language) -> Citation:
    known = item.metadata
    source: CitedSource = "fact" if item.context_type == "fact" else "turn" if is_turn(item) else "memory"
    names = {"fact": "fact_id", "memory": "memory_id", "turn": "message_id"}
    text = item.content
    if source == "fact":
        text = text.removeprefix(f"[{fact_kind(known['kind'], language)}] ")
    return Citation(
        source=source,
        id=known[names[source]],
        text=text if len(text) <= _CITED_CHARACTERS_MAX else text[: _CITED_CHARACTERS_MAX - 1] + "…",
        session_id=known["session_id"],
        sequence_nums=tuple(known["source_seqs"]),
        occurred_at=known["occurred_at"],
        changed=known.get("changed"),
    )
