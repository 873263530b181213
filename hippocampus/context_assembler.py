"""Packs memories, facts and a session's newest turns into a context window that never exceeds its budget.

Two round trips at most: one for all candidates, one to count the memories that were used. `hippocampus.context.window`
packs the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from hippocampus.context.window import (
    CUT_MARK,
    HEADERS,
    ContextItem,
    ContextType,
    ContextWindow,
    Language,
    pack,
)
from hippocampus.errors import BY_SQLSTATE, ContextBudgetError, ProviderError
from hippocampus.names import check_names
from hippocampus.search import MemorySearch, QueryVector, clean_query, is_blank
from hippocampus.text.tokens import TokenCounter, WindowCounter, count_tokens
from pulse.errors import InvalidInputError
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    import asyncpg

    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool

__all__ = ["ContextAssembler", "ContextItem", "ContextWindow"]

MEMORIES_MAX = 20
FACTS_MAX = 20
TURNS_MAX = 30
#: Of one candidate that are packed; what is beyond is cut off, with the mark of a cut.
CHARACTERS_MAX = 500_000

#: Calls of a window counter for one window.
RECOUNTS_MAX = 4

Candidates: TypeAlias = Mapping[ContextType, Sequence[ContextItem]]

_STATEMENTS = Statements("hippocampus", "search.sql", errors=BY_SQLSTATE)
_log = structlog.get_logger(__name__)


class ContextAssembler:
    """Assembles context windows.

    Args:
        pool: of `pulse.database.create_pool`.
        embedder: turns queries into vectors; without one, and without a given vector, text alone is searched.
        max_tokens: the default budget; each call may give its own.
        system_ratio, memory_ratio, history_ratio, fact_ratio: shares of the budget, not negative, in sum at most 1.
            Other sections use what a section leaves unspent.
        counter: of tokens; the default is `hippocampus.text.tokens.count_tokens`.
        window_counter: asks the model to count the written window; if that is over the budget, the window is packed
            again, smaller. If the model does not answer, the first count holds.
        language: of the headers.
        on_degraded: as in `hippocampus.search.MemorySearch`.
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
        language: Language = "zh",
        on_degraded: Callable[[str], None] | None = None,
    ) -> None:
        self._ratios: dict[ContextType, float] = {
            "system": system_ratio,
            "memory": memory_ratio,
            "history": history_ratio,
            "fact": fact_ratio,
        }
        _check_ratios(self._ratios)
        if language not in HEADERS:
            raise InvalidInputError(f"language is one of {', '.join(HEADERS)}, not {language!r}")
        self._max_tokens = _checked_budget(max_tokens)
        self._pool = pool
        self._search = MemorySearch(pool, embedder, on_degraded=on_degraded)
        self._model = embedder.model if embedder else None
        self._counter = counter
        self._window_counter = window_counter
        self._language = language

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
    ) -> ContextWindow:
        """Assemble the window for the next turn of a session.

        Args:
            session_id: whose newest turns are the history; None: no history.
            query: what is searched for, usually the user's last message. Blank: nothing is searched, the window holds
                the facts of highest confidence, the newest summaries and the history.
            query_embedding: of the query, by the model that `embedding_model` names; None: the embedder makes it.
            system_prompt: taken whole, whatever its share; the app's instructions that are in force follow it, except
                those whose metadata have ``"context": false``.
            max_tokens: this call's budget.

        Raises:
            InvalidInputError: an argument is out of its bounds.
            ContextBudgetError: the system prompt alone is over the budget.
            EmbeddingDimensionError: the given vector has another number of dimensions than the columns.
            SessionNotFoundError: no such session for this app and user.
        """
        budget = self._max_tokens if max_tokens is None else _checked_budget(max_tokens)
        check_names(app_name=app_name, user_id=user_id, session_id=session_id, embedding_model=embedding_model)
        model = embedding_model or self._model
        if query_embedding is not None and model is None:
            raise InvalidInputError("a query_embedding needs embedding_model: two models are never mixed in one search")
        text = clean_query(query) if not is_blank(query) else ""
        vector, degraded = await self._search.embed_query(text, query_embedding) if text else QueryVector()
        candidates, instructions = await self._candidates(app_name, user_id, session_id, text, vector, model)
        system_prompt = "\n\n".join(part for part in (system_prompt, *instructions) if part) or None
        window = await self._packed(candidates, budget, system_prompt)
        await self._search.record_access(i.metadata["memory_id"] for i in window.items if "memory_id" in i.metadata)
        return replace(window, degraded=degraded)

    async def _packed(self, candidates: Candidates, budget: int, system_prompt: str | None) -> ContextWindow:
        def packed(tokens: int) -> ContextWindow:
            return pack(
                candidates,
                max_tokens=tokens,
                ratios=self._ratios,
                system_prompt=system_prompt,
                language=self._language,
                counter=self._counter,
            )

        window = packed(budget)
        if self._window_counter is None:
            return window
        return await _recounted(window, budget, packed, self._window_counter)

    def format_context(self, window: ContextWindow) -> str:
        """Return `ContextWindow.text`."""
        return window.text

    async def _candidates(self, *arguments: Any) -> tuple[dict[ContextType, list[ContextItem]], list[str]]:
        rows = await _STATEMENTS.fetch(self._pool, "context_candidates", *arguments, MEMORIES_MAX, FACTS_MAX, TURNS_MAX)
        candidates: dict[ContextType, list[ContextItem]] = {"fact": [], "memory": [], "history": []}
        seen = set()
        for row in rows:
            if row["context_type"] is not None and (row["context_type"], row["id"]) not in seen:
                seen.add((row["context_type"], row["id"]))
                candidates[row["context_type"]].append(_item(row))
        return candidates, rows[0]["instructions"] or []


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


def _item(row: asyncpg.Record) -> ContextItem:
    names = {"memory": "memory_id", "fact": "fact_id", "message": "message_id"}
    content = row["content"]
    if len(content) > CHARACTERS_MAX:
        content = content[:CHARACTERS_MAX] + CUT_MARK
    if row["context_type"] == "history":
        content = f"[{row['author']}]: {content}"
    elif row["context_type"] == "fact":
        content = f"[{row['kind']}] {content}"
    return ContextItem(
        context_type=row["context_type"],
        content=content,
        relevance_score=row["relevance"],
        metadata={
            names[row["source"]]: row["id"],
            "source": row["source"],
            "kind": row["kind"],
            "thread_id": row["thread_id"],
            "from_seq": row["from_seq"],
            "upto_seq": row["upto_seq"],
        },
    )


def _check_ratios(ratios: dict[ContextType, float]) -> None:
    total = sum(ratios.values())
    if any(not 0 <= ratio <= 1 for ratio in ratios.values()) or not total <= 1 + 1e-9 or math.isnan(total):
        raise InvalidInputError(f"the ratios are shares of the budget, 0 to 1, in sum at most 1, not {ratios}")


def _checked_budget(max_tokens: int) -> int:
    if max_tokens < 1:
        raise InvalidInputError(f"max_tokens is at least 1, not {max_tokens}")
    return max_tokens
