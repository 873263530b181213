"""Answers to questions from an app's documents, with citations that lead to the place.

As `hippocampus.answers` does from the memory: the passages are numbered, a number that is not one of theirs is dropped,
and without a citation there is no answer. Where nothing matches, no model is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hippocampus.answers import ANSWER_SECONDS, ANSWER_TOKENS, WINDOW_TOKENS, AnsweredBy, check_question, within
from hippocampus.knowledge.records import KnowledgeHit, KnowledgeResponse
from hippocampus.providers.protocols import Answerer
from hippocampus.providers.transcript import quoted
from hippocampus.records import Question, Usage
from hippocampus.text.languages import LANGUAGE_NAMES, Language
from hippocampus.text.tokens import count_tokens
from pulse.postgres.statements import without_secrets

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Generator
    from pulse.database import Pool

_PASSAGES_MAX = 20
#: Without a model: how many passages answer, and the least relevance of one.
_SHOWN_MAX = 3
_RELEVANT = 0.2
_NOT_KNOWN: Mapping[Language, str] = {"en": "Not known.", "zh": "不知道。"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeCitation:
    """A place that an answer rests on: characters `char_from` to `char_upto` of this version of the document."""

    id: UUID
    document_id: UUID
    corpus: str
    source_uri: str
    title: str
    version: int
    heading_path: tuple[str, ...]
    page: int | None
    char_from: int
    char_upto: int
    text: str

    @classmethod
    def of(cls, hit: KnowledgeHit) -> KnowledgeCitation:
        """Return the citation of a chunk."""
        return cls(
            id=hit.id,
            document_id=hit.document_id,
            corpus=hit.corpus,
            source_uri=hit.source_uri,
            title=hit.title,
            version=hit.version,
            heading_path=hit.heading_path,
            page=hit.page,
            char_from=hit.char_from,
            char_upto=hit.char_upto,
            text=hit.content,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeAnswer:
    """An answer from documents.

    Attributes:
        text: never empty; says that it is not known where `is_known` is false.
        answered_by: None: nothing matches, and no model was asked.
        citations: in the model's order. Empty if and only if it is not known.
        model: the version that the reply names; None if no model was asked.
        degraded: why text alone was searched; None if nothing failed.
    """

    text: str
    is_known: bool
    answered_by: AnsweredBy | None
    citations: tuple[KnowledgeCitation, ...] = ()
    language: Language = "en"
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    degraded: str | None = None


async def ask_documents(
    search: Callable[..., Awaitable[KnowledgeResponse]],
    pool: Pool,
    app_name: str,
    generator: Generator | Answerer | None,
    question: str,
    *,
    user_id: str | None = None,
    roles: Collection[str] = (),
    corpora: Collection[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    as_of: datetime | None = None,
    language: Language | None = None,
    max_tokens: int = WINDOW_TOKENS,
    max_answer_tokens: int = ANSWER_TOKENS,
    max_seconds: float = ANSWER_SECONDS,
) -> KnowledgeAnswer:
    """Answer a question from what `KnowledgeService.search` finds; see `KnowledgeService.ask`."""
    spoken = check_question(question, language, max_tokens, max_answer_tokens, max_seconds)
    async with within(max_seconds):
        found = await search(
            question, user_id=user_id, roles=roles, corpora=corpora, metadata=metadata, as_of=as_of,
            limit=_PASSAGES_MAX,
        )  # fmt: skip
        answer = KnowledgeAnswer(
            text=_NOT_KNOWN[spoken], is_known=False, answered_by=None, language=spoken, degraded=found.degraded
        )
        if not found.hits:
            return answer
        if not isinstance(generator, Answerer):
            return _by_passages(answer, found.hits, max_answer_tokens)
        shown, window = _window(found.hits, max_tokens)
        sent, known = await without_secrets(pool, app_name, [question.strip(), window])
        asked = Question(
            text=sent,
            passages=known,
            asked_at=datetime.now(UTC),
            tokens_max=max_answer_tokens,
            language=None if language is None else LANGUAGE_NAMES[language],
        )
        reply = await generator.answer(asked)
    answer = replace(answer, answered_by="model", model=reply.origin.model, usage=reply.usage)
    cited = [shown[number - 1] for number in dict.fromkeys(reply.citations) if 1 <= number <= len(shown)]
    if reply.text is None or not cited:
        return answer
    return replace(
        answer, text=reply.text, is_known=True, citations=tuple(KnowledgeCitation.of(each) for each in cited)
    )


def _window(hits: Sequence[KnowledgeHit], tokens_max: int) -> tuple[list[KnowledgeHit], str]:
    """Return the best chunks that fit, and their numbered lines; at least the beginning of the best one."""
    lines: list[str] = []
    shown: list[KnowledgeHit] = []
    left = tokens_max
    for hit in hits:
        line = _line(len(lines) + 1, hit, hit.content)
        cost = count_tokens(line) + 1
        if cost > left:
            continue
        left -= cost
        lines.append(line)
        shown.append(hit)
    if not lines:
        kept = hits[0].content
        while kept and count_tokens(_line(1, hits[0], kept)) > tokens_max:
            kept = kept[: len(kept) * 3 // 4]
        return [hits[0]], _line(1, hits[0], kept)
    return shown, "\n".join(lines)


def _line(number: int, hit: KnowledgeHit, content: str) -> str:
    where = " › ".join([hit.title, *hit.heading_path])
    page = "" if hit.page is None else f" page {hit.page}"
    return f"{number} document {quoted(where)}{page} {quoted(content)}"


def _by_passages(answer: KnowledgeAnswer, hits: Sequence[KnowledgeHit], tokens_max: int) -> KnowledgeAnswer:
    answer = replace(answer, answered_by="passages")
    chosen: list[KnowledgeHit] = []
    left = tokens_max
    for hit in hits:
        if hit.relevance_score < _RELEVANT or len(chosen) == _SHOWN_MAX:
            continue
        cost = count_tokens(hit.content) + 1
        if chosen and cost > left:
            continue
        left -= cost
        chosen.append(hit)
    if not chosen:
        return answer
    text = "\n\n".join(each.content for each in chosen)
    while count_tokens(text) > tokens_max:
        text = text[: len(text) * 3 // 4] + "…"
    return replace(answer, text=text, is_known=True, citations=tuple(map(KnowledgeCitation.of, chosen)))
