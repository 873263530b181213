"""Packs memories, facts and a session's newest turns into a context window that never exceeds its budget.

Two round trips at most: one for all candidates, one to count the memories that were used.
`hippocampus.context.candidates` reads the rows, `hippocampus.context.packing` packs what they say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from hippocampus.context.candidates import (
    CHARACTERS_MAX,
    Candidates,
    in_order,
    language_of_rows,
    limits_of,
    matched,
    read_candidates,
    read_item,
)
from hippocampus.context.documents import DOCUMENT_TOKENS, DOCUMENTS_MAX, DOCUMENTS_MIN, DocumentPart
from hippocampus.context.languages import HEADERS, fact_kind
from hippocampus.context.packing import pack, pack_stable
from hippocampus.context.templates import MARKDOWN, Template, TemplateName
from hippocampus.context.window import ContextItem, ContextType, ContextWindow
from hippocampus.errors import BY_SQLSTATE, ContextBudgetError, ProviderError
from hippocampus.names import check_names, moment_asked
from hippocampus.profile import PROFILE_TOKENS, PROFILE_TOKENS_MIN, ProfileLine, read_profile
from hippocampus.rerank import RERANK_SECONDS, Reranker, Reranking
from hippocampus.search import MemorySearch, QueryVector, clean_query, cue_arguments, is_blank
from hippocampus.text.languages import Language
from hippocampus.text.tokens import TokenCounter, WindowCounter, count_tokens
from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.postgres.statements import Statements, without_secrets
from pulse.process import gc_pause
from pulse.tracing.manager import spanned

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool
    from pulse.postgres.replica import ReplicaReads

__all__ = ["ContextAssembler", "ContextItem", "ContextWindow"]

#: A stable window takes one turn of other sessions per this many tokens of its budget, and at most this many.
EARLIER_TOKENS, EARLIER_MAX = 10, 2000
#: Calls of a window counter for one window.
RECOUNTS_MAX = 4

RECALL_TOKENS = 1000

_STATEMENTS = Statements("hippocampus", "search.sql", errors=BY_SQLSTATE)
_EARLIER = Statements("hippocampus.context", "earlier.sql", errors=BY_SQLSTATE)
_log = structlog.get_logger(__name__)


class ContextAssembler:
    """Assembles context windows.

    Args:
        pool: made by `pulse.database.create_pool`.
        embedder: turns queries into vectors; without one, and without a given vector, text alone is searched.
        max_tokens: the default budget; each call may give its own.
        system_ratio, memory_ratio, history_ratio, fact_ratio: shares of the budget, not negative, in sum at most 1.
            Other sections use what a section leaves unspent. Where turns match the query, they come before all but
            the newest turns of the session and what memories and facts earn: see `hippocampus.context.packing`.
        counter: counts tokens; the default is `hippocampus.text.tokens.count_tokens`.
        window_counter: asks the model to count the written window; if that is over the budget, the window is packed
            again, smaller. If the model does not answer, the first count holds.
        language: of headers and labels; None: that of the conversation. Each call may give its own.
        template: how windows are written, or its name: plain, markdown, xml, messages. Each call may give its own.
        on_degraded, reads: as in `hippocampus.search.MemorySearch`.
        reranker, rerank_seconds: as there. The first 50 turns, memories and facts that match are reordered before a
            window is packed from them.
    """

    def __init__(
        self,
        pool: Pool,
        embedder: Embedder | None = None,
        max_tokens: int = 8000,
        system_ratio: float = 0.1,
        memory_ratio: float = 0.3,
        history_ratio: float = 0.4,
        fact_ratio: float = 0.2,
        *,
        counter: TokenCounter = count_tokens,
        window_counter: WindowCounter | None = None,
        language: Language | None = None,
        template: Template | TemplateName = MARKDOWN,
        on_degraded: Callable[[str], None] | None = None,
        reads: ReplicaReads | None = None,
        reranker: Reranker | None = None,
        rerank_seconds: float = RERANK_SECONDS,
    ) -> None:
        self._ratios: dict[ContextType, float] = {
            "system": system_ratio,
            "memory": memory_ratio,
            "history": history_ratio,
            "fact": fact_ratio,
        }
        _check_ratios(self._ratios)
        self._language = _checked_language(language)
        self._template = _checked_template(template)
        self._max_tokens = _checked_budget(max_tokens)
        self._pool = pool
        self._reads: Any = reads or pool
        self._search = MemorySearch(pool, embedder, on_degraded=on_degraded)
        self._reranking = Reranking(reranker, rerank_seconds)
        self._model = embedder.model if embedder else None
        self._counter = counter
        self._window_counter = window_counter

    @spanned("assemble context")
    async def assemble(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str | None,
        query: str,
        query_embedding: Sequence[float] | None = None,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        embedding_model: str | None = None,
        language: Language | None = None,
        template: Template | TemplateName | None = None,
        profile: bool = False,
        stable: bool = False,
        record_access: bool = True,
        documents: DocumentPart | None = None,
        asked_at: datetime | None = None,
        time_zone: str | None = None,
        may_be_new: bool = False,
    ) -> ContextWindow:
        """Assemble the window for the next turn of a session.

        Args:
            session_id: whose newest turns are the history; None: no history.
            may_be_new: a session that does not exist has no turns yet; otherwise it is an error.
            query: what is searched for, usually the user's last message. Blank: nothing is searched, the window holds
                the facts of highest confidence, the newest summaries and the history.
            query_embedding: the query's vector, by the model that `embedding_model` names; None: the embedder makes it.
            system_prompt: taken whole, whatever its share; the app's instructions that are in force follow it, except
                those whose metadata have ``"context": false``.
            max_tokens: this call's budget.
            language: of headers and labels; None: the assembler's, or else that of the session's newest turns and the
                query, or else of what was found.
            template: None: the assembler's.
            profile: begin the facts with the user's profile (`hippocampus.profile`), within the share of the facts; it
                does not depend on the query. It takes another statement, and room from what matches.
            stable: for a provider's prompt cache: the profile, earlier conversations and the session's turns come
                first, cut so that they stay equal for many turns; behind them, in an eighth of the budget, what the
                query picks. It holds less of what the query asks for, and takes two more statements.
            record_access: count the memories of the window as used.
            documents: from `hippocampus.knowledge.KnowledgeService.part`: parts of documents that match the query and
                that the user may read, within their share; the other shares divide the rest. It takes another
                statement. None: no documents.
            asked_at, time_zone: when the query is asked, and whose days its times mean; see `MemorySearch.search`. The
                dates of the window are days of that zone.

        Raises:
            InvalidInputError: an argument is out of its bounds.
            CorpusNotFoundError: `documents` names a corpus that is not there for the user.
            ContextBudgetError: the system prompt alone is over the budget.
            EmbeddingDimensionError: the vector has other dimensions than the stored ones of its model, or too many.
            SessionNotFoundError: no such session for this app and user, and it may not be new.
        """
        candidates, instructions, found = await self._find(
            app_name,
            user_id,
            session_id,
            query,
            query_embedding,
            embedding_model,
            max_tokens,
            language,
            moment_asked(asked_at, time_zone),
            may_be_new=may_be_new,
        )
        if profile or stable:
            candidates = await self._with_profile(candidates, found, app_name, user_id)
        earlier = await self._earlier(found, session_id) if stable else None
        system_prompt = "\n\n".join(part for part in (system_prompt, *instructions) if part) or None
        if documents is not None:
            candidates = {**candidates, "document": await self._documents(found, documents)}
        ratio = None if documents is None else documents.ratio
        return await self._finished(
            candidates, found, system_prompt, template, earlier, document_ratio=ratio, record_access=record_access
        )

    async def recall(
        self,
        *,
        app_name: str,
        user_id: str,
        query: str,
        query_embedding: Sequence[float] | None = None,
        max_tokens: int | None = None,
        embedding_model: str | None = None,
        language: Language | None = None,
        template: Template | TemplateName | None = None,
        asked_at: datetime | None = None,
        time_zone: str | None = None,
    ) -> ContextWindow:
        """Assemble what is known for a query, without a session, a system prompt or the app's instructions.

        Facts come first, then memories and the turns that match, in passages with their dates; `ContextWindow.text` is
        the answer. Empty if nothing is known of the user. Arguments, and errors, as for `assemble`.

        Args:
            max_tokens: None: `RECALL_TOKENS`.
        """
        budget = RECALL_TOKENS if max_tokens is None else max_tokens
        candidates, _, found = await self._find(
            app_name,
            user_id,
            None,
            query,
            query_embedding,
            embedding_model,
            budget,
            language,
            moment_asked(asked_at, time_zone),
        )
        return await self._finished(candidates, found, None, template)

    def format_context(self, window: ContextWindow) -> str:
        """Return `ContextWindow.text`."""
        return window.text

    async def _find(
        self,
        app_name: str,
        user_id: str,
        session_id: str | None,
        query: str,
        query_embedding: Sequence[float] | None,
        embedding_model: str | None,
        max_tokens: int | None,
        language: Language | None,
        asked: datetime,
        *,
        may_be_new: bool = False,
    ) -> tuple[Candidates, list[str], _Found]:
        """Check the arguments and fetch the candidates, in one statement."""
        budget = self._max_tokens if max_tokens is None else _checked_budget(max_tokens)
        language = self._language if language is None else _checked_language(language)
        check_names(app_name=app_name, user_id=user_id, session_id=session_id, embedding_model=embedding_model)
        model = embedding_model or self._model
        if query_embedding is not None and model is None:
            raise InvalidInputError("a query_embedding needs embedding_model: two models are never mixed in one search")
        text = clean_query(query) if not is_blank(query) else ""
        vector, degraded = QueryVector()
        if text:
            vector, degraded = await self._search.embed_query(text, query_embedding, app_name=app_name)
        limits = limits_of(budget)
        asks = (
            text,
            vector,
            model,
            *limits._replace(passages=self._reranking.depth(limits.passages)),
            *cue_arguments(text, asked),
        )
        try:
            rows = await self._candidate_rows(app_name, user_id, session_id, *asks)
        except SessionNotFoundError:
            if not may_be_new:
                raise
            rows = await self._candidate_rows(app_name, user_id, None, *asks)
        if language is None:
            language = language_of_rows(rows, text)
        with gc_pause.paused():
            rows = in_order(rows, text)
        ranked = await self._reranking.order(
            self._pool, app_name, text, matched(rows), lambda row: str(row["content"])[:CHARACTERS_MAX]
        )
        found = _Found(
            budget,
            text,
            language,
            degraded,
            app_name,
            user_id,
            vector,
            None if vector is None else model,
            ranked.is_reranked,
            ranked.failure,
            asked.tzinfo,
        )
        with gc_pause.paused():
            found_rows = [*(ranked.results if ranked.is_reranked else ()), *rows]
            candidates = read_candidates(found_rows, language, found.zone)
        return candidates, rows[0]["instructions"] or [], found

    async def _candidate_rows(self, *arguments: Any) -> list[Any]:
        return await _STATEMENTS.fetch(self._reads, "context_candidates", *arguments)

    async def without_secrets(self, app_name: str, texts: Sequence[str]) -> list[str]:
        """Return what may be sent to a model of texts; see `pulse.postgres.statements.without_secrets`."""
        return await without_secrets(self._pool, app_name, texts)

    async def _with_profile(
        self, candidates: Candidates, found: _Found, app_name: str, user_id: str
    ) -> dict[ContextType, Sequence[ContextItem]]:
        """Return the candidates with the lines of the profile as the first facts, and without what the lines say."""
        tokens = min(max(int(found.budget * self._ratios["fact"]), PROFILE_TOKENS_MIN), PROFILE_TOKENS)
        page = await read_profile(
            self._reads, app_name=app_name, user_id=user_id, max_tokens=tokens, language=found.language
        )
        said = {each for line in page.lines for each in line.ids}
        lines = [_profile_item(place, line, found.language) for place, line in enumerate(page.lines)]
        facts = [item for item in candidates["fact"] if item.metadata.get("fact_id") not in said]
        memories = [item for item in candidates["memory"] if item.metadata.get("memory_id") not in said]
        return {**candidates, "fact": [*lines, *facts], "memory": memories}

    async def _earlier(self, found: _Found, session_id: str | None) -> list[ContextItem]:
        """Return the newest turns that were said in other sessions before this one began, the newest first."""
        limit = min(max(found.budget // EARLIER_TOKENS, 1), EARLIER_MAX)
        rows = await _EARLIER.fetch(self._reads, "earlier_turns", found.app_name, found.user_id, session_id, limit)
        return [read_item(row, found.language, found.zone) for row in rows]

    async def _documents(self, found: _Found, part: DocumentPart) -> Sequence[ContextItem]:
        """Return the parts of documents that match, the best first; none for a blank query."""
        if not found.query:
            return ()
        limit = min(max(int(found.budget * part.ratio) // DOCUMENT_TOKENS, DOCUMENTS_MIN), DOCUMENTS_MAX)
        return await part.search(
            found.query,
            app_name=found.app_name,
            user_id=found.user_id,
            limit=limit,
            vector=found.vector,
            model=found.model,
        )

    async def _finished(
        self,
        candidates: Candidates,
        found: _Found,
        system_prompt: str | None,
        template: Template | TemplateName | None,
        earlier: Sequence[ContextItem] | None = None,
        *,
        document_ratio: float | None = None,
        record_access: bool = True,
    ) -> ContextWindow:
        """Pack candidates and record which memories were used.

        Args:
            earlier: for a stable window, turns of other sessions.
            document_ratio: the share of documents, which the others give; None: there are none.
        """
        ratios = self._ratios
        if document_ratio is not None:
            ratios = {kind: ratio * (1 - document_ratio) for kind, ratio in ratios.items()}
            ratios["document"] = document_ratio
        form = self._template if template is None else _checked_template(template)
        packer = pack if earlier is None else partial(pack_stable, earlier=earlier)

        def packed(tokens: int) -> ContextWindow:
            with gc_pause.paused():
                return packer(
                    candidates,
                    max_tokens=tokens,
                    ratios=ratios,
                    system_prompt=system_prompt,
                    language=found.language,
                    counter=self._counter,
                    template=form,
                    query=found.query,
                )

        window = packed(found.budget)
        if self._window_counter is not None:
            window = await _recounted(window, found.budget, packed, self._window_counter)
        if record_access:
            await self._search.record_access(
                (i.metadata["memory_id"] for i in window.items if "memory_id" in i.metadata),
                app_name=found.app_name,
                user_id=found.user_id,
            )
        return replace(window, degraded=found.degraded, reranked=found.is_reranked, rerank_failure=found.rerank_failure)


class _Found(NamedTuple):
    """What a window is packed with, beside its candidates."""

    budget: int
    query: str
    language: Language
    degraded: str | None
    app_name: str
    user_id: str
    vector: Any
    model: str | None
    is_reranked: bool
    rerank_failure: str | None
    zone: tzinfo | None


async def _recounted(
    window: ContextWindow, budget: int, packed: Callable[[int], ContextWindow], counter: WindowCounter
) -> ContextWindow:
    """Return the window as a model counts it, packed smaller until it fits; unchanged if the model does not answer."""
    allowed = budget
    for _ in range(RECOUNTS_MAX):
        try:
            total = await counter.count(window.text)
        except ProviderError as error:
            _log.warning("window_count_failed", error=type(error).__name__, code=error.code)
            return replace(window, max_tokens=budget, budget_used=window.total_tokens / budget)
        if total <= budget:
            return replace(
                window, total_tokens=total, max_tokens=budget, budget_used=total / budget, counted_by=counter.model
            )
        allowed = min(allowed - 1, allowed * budget // total)
        if allowed < 1:
            break
        window = packed(allowed)
    raise ContextBudgetError(
        f"{counter.model} counts more than {budget} tokens, however little is packed: raise max_tokens"
    )


def _profile_item(place: int, line: ProfileLine, language: Language) -> ContextItem:
    # Without memory_id: what stands in every prompt is not used by it, or the strongest would stay the strongest.
    metadata = {
        "source": "profile",
        "kind": line.kind,
        "ids": line.ids,
        "occurred_at": None,
        "is_standing": True,
        "profile_place": place,
    }
    content = f"[{fact_kind(line.kind, language)}] {line.text}"
    return ContextItem(context_type="fact", content=content, metadata=metadata)


def _checked_language(language: Language | None) -> Language | None:
    if language is not None and language not in HEADERS:
        raise InvalidInputError(f"language must be one of {', '.join(HEADERS)}, not {language!r}")
    return language


def _checked_template(template: Template | TemplateName) -> Template:
    return template if isinstance(template, Template) else Template.named(template)


def _check_ratios(ratios: dict[ContextType, float]) -> None:
    total = sum(ratios.values())
    if any(not 0 <= ratio <= 1 for ratio in ratios.values()) or not total <= 1 + 1e-9 or math.isnan(total):
        raise InvalidInputError(f"the ratios must be from 0 to 1, and at most 1 in sum, not {ratios}")


def _checked_budget(max_tokens: int) -> int:
    if max_tokens < 1:
        raise InvalidInputError(f"max_tokens must be at least 1, not {max_tokens}")
    return max_tokens
