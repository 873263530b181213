"""What a context window holds, how it is written, and how candidates are packed into a budget: pure functions.

The budget is that of the written text: headers and blank lines count. A section first fills its own share; what any
section leaves unspent goes to the history, then to the memories, then to the facts. The history is taken backwards from
the newest turn and never skips a turn; if the newest turn exceeds the history's share, that share is reserved for its
beginning. A memory or fact is skipped if it is too big, or if it repeats what the window already says
(`hippocampus.text.repetition`). What was left out, and why, is part of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias

from hippocampus.errors import ContextBudgetError
from hippocampus.text.repetition import WindowStatements
from hippocampus.text.tokens import TokenCounter, count_tokens

ContextType: TypeAlias = Literal["system", "memory", "history", "fact"]
Language: TypeAlias = Literal["zh", "en"]
#: ``repeats``: the window already says it; ``too_big``: it would not fit an empty window beside the system prompt;
#: ``no_room``: better or newer items used the budget.
Reason: TypeAlias = Literal["repeats", "too_big", "no_room"]

#: In the order in which they are written.
CONTEXT_TYPES: tuple[ContextType, ...] = ("system", "fact", "memory", "history")

HEADERS: Mapping[Language, Mapping[ContextType, str]] = {
    "zh": {"fact": "## 用户偏好", "memory": "## 相关记忆", "history": "## 对话历史"},
    "en": {"fact": "## User preferences", "memory": "## Relevant memories", "history": "## Conversation history"},
}

#: The mark at the end of a turn that was cut, and the least that is kept of one.
CUT_MARK = " […]"
CUT_TOKENS_MIN = 16

#: Before each further line of an item. Without it a speaker could write a header, or the turn of another speaker.
_INDENT = "  "
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem:
    """One piece of a context window.

    Attributes:
        content: as it is written, without the section's header and without the prefixes of `format_items`.
        relevance_score: 0 to 1.
        token_estimate: of the content, by the assembler's counter.
        metadata: ``memory_id``, ``fact_id`` or ``message_id``, the ``source``, its turns; ``truncated`` where the end
            was cut off.
    """

    context_type: ContextType
    content: str
    relevance_score: float = 1.0
    token_estimate: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionAccount:
    """The share and the use of a section, in tokens with its header; and how many of its candidates were left out."""

    context_type: ContextType
    share: int
    used: int
    items: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A candidate that is not in the window, and why. Its `token_estimate` is that of its content."""

    item: ContextItem
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWindow:
    """What fits the budget, in the order in which it is written.

    Attributes:
        total_tokens: of the written text, as `counted_by` counts it; never over `max_tokens`.
        budget_used: total_tokens / max_tokens.
        account: per section, in the order in which they are written.
        left_out: every candidate that was not taken, section by section, the best or newest first.
        counted_by: ``estimate``, or the model that counted the whole.
        language: of the headers.
        degraded: why text alone was searched although there is an embedder; None if nothing failed.
    """

    items: tuple[ContextItem, ...]
    total_tokens: int
    budget_used: float
    max_tokens: int
    account: tuple[SectionAccount, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    counted_by: str = "estimate"
    language: Language = "zh"
    degraded: str | None = None

    @property
    def text(self) -> str:
        """The window as it is written, ready for a prompt; its tokens are `total_tokens`."""
        return format_items(self.items, self.language)


def format_items(items: Iterable[ContextItem], language: Language = "zh") -> str:
    """Write items: the system prompt, then each section under its header; blank lines between.

    Only the first line of an item begins at the margin: nothing in it can be taken for a header, for
    another turn or for another item.
    """
    by_type: dict[ContextType, list[str]] = {kind: [] for kind in CONTEXT_TYPES}
    for item in items:
        by_type[item.context_type].append(_written(item))
    parts = list(by_type["system"])
    for kind in CONTEXT_TYPES[1:]:
        if by_type[kind]:
            parts.append("\n".join([HEADERS[language][kind], *by_type[kind]]))
    return "\n\n".join(parts)


def _written(item: ContextItem) -> str:
    """Return an item's lines: the system prompt as it is; any other with its bullet, its continuations indented."""
    if item.context_type == "system":
        return item.content
    bullet = "" if item.context_type == "history" else "- "
    return bullet + _LINE_BREAK.sub("\n" + _INDENT, item.content)


def pack(
    candidates: Mapping[ContextType, Sequence[ContextItem]],
    *,
    max_tokens: int,
    ratios: Mapping[ContextType, float],
    system_prompt: str | None = None,
    language: Language = "zh",
    counter: TokenCounter = count_tokens,
) -> ContextWindow:
    """Pack candidates into a budget.

    Args:
        candidates: of memory and fact, the best first; of history, the newest turn first.
        ratios: each section's share of `max_tokens`.
        system_prompt: taken whole; if it exceeds its share, the others get less.

    Raises:
        ContextBudgetError: the system prompt alone is over the budget.
    """
    packing = _Packing(max_tokens, ratios, language, counter)
    packing.take_system(system_prompt)
    order: tuple[ContextType, ...] = ("history", "memory", "fact")
    packing.take_turns(candidates.get("history", ()), within_share=True)
    for kind in order[1:]:
        packing.take_best(kind, candidates.get(kind, ()), within_share=True)
    packing.take_turns(candidates.get("history", ()), within_share=False)
    for kind in order[1:]:
        packing.take_best(kind, candidates.get(kind, ()), within_share=False)
    return packing.window(candidates)


class _Packing:
    """The state of one `pack`: the items that were taken, and their cost."""

    def __init__(
        self, max_tokens: int, ratios: Mapping[ContextType, float], language: Language, counter: TokenCounter
    ) -> None:
        self._max = max_tokens
        self._language = language
        self._count = cache(counter)  # the same text is measured in each round
        self._shares = {kind: int(max_tokens * ratios[kind]) for kind in CONTEXT_TYPES}
        self._used: dict[ContextType, int] = dict.fromkeys(CONTEXT_TYPES, 0)
        self._reserved = 0  # for the newest turn, until it is cut
        self._taken: dict[ContextType, list[ContextItem]] = {kind: [] for kind in CONTEXT_TYPES}
        self._positions: dict[ContextType, list[int]] = {kind: [] for kind in CONTEXT_TYPES}  # among the candidates
        self._repeats: set[tuple[ContextType, int]] = set()
        self._stated = WindowStatements()

    def take_system(self, prompt: str | None) -> None:
        if not prompt:
            return
        cost = self._count(prompt)
        if cost > self._max:
            raise ContextBudgetError(
                f"the system prompt is {cost} tokens, over the budget of {self._max}: shorten it or raise max_tokens"
            )
        self._used["system"] = cost
        self._taken["system"] = [ContextItem(context_type="system", content=prompt, token_estimate=cost)]

    def take_turns(self, turns: Sequence[ContextItem], *, within_share: bool) -> None:
        """Take turns from the newest backwards until one does not fit; with the whole rest, cut that one."""
        self._reserved = 0
        for position, turn in enumerate(turns):
            if position < len(self._taken["history"]):
                continue
            free = self._free("history", within_share=within_share)
            if self._cost(turn) <= free:
                self._add(turn, position)
                continue
            if not within_share:
                cut = self._cut(turn, free)
                if cut is not None:
                    self._add(cut, position)
            elif not self._taken["history"]:
                self._reserved = max(free, CUT_TOKENS_MIN)
            return

    def take_best(self, kind: ContextType, items: Sequence[ContextItem], *, within_share: bool) -> None:
        """Take items in their order; skip those that do not fit or that repeat what the window says."""
        oldest = self._oldest_turn()
        for position, item in enumerate(items):
            if position in self._positions[kind] or self._cost(item) > self._free(kind, within_share=within_share):
                continue
            if self._is_stated(item, oldest):
                self._repeats.add((kind, position))
            else:
                self._add(item, position)

    def window(self, candidates: Mapping[ContextType, Sequence[ContextItem]]) -> ContextWindow:
        """Return the window: measure the text as a whole, and drop items if the counter is not additive."""
        total = self._count(self._text())
        while total > self._max:
            self._drop_one()
            total = self._count(self._text())
        left_out = tuple(self._left_out(candidates))
        account = tuple(
            SectionAccount(
                context_type=kind,
                share=self._shares[kind],
                used=self._used[kind],
                items=len(self._taken[kind]),
                left_out=sum(item.item.context_type == kind for item in left_out),
            )
            for kind in CONTEXT_TYPES
        )
        return ContextWindow(
            items=tuple(self._items_in_order()),
            total_tokens=total,
            budget_used=total / self._max if self._max else 0.0,
            max_tokens=self._max,
            account=account,
            left_out=left_out,
            language=self._language,
        )

    def _left_out(self, candidates: Mapping[ContextType, Sequence[ContextItem]]) -> Iterator[LeftOut]:
        whole = self._max - self._used["system"]
        for kind in CONTEXT_TYPES[1:]:
            for position, item in enumerate(candidates.get(kind, ())):
                if position in self._positions[kind]:
                    continue
                tokens = self._count(item.content)
                repeats = (kind, position) in self._repeats
                reason: Reason = "repeats" if repeats else "too_big" if tokens > whole else "no_room"
                yield LeftOut(item=replace(item, token_estimate=tokens), reason=reason)

    def _cost(self, item: ContextItem) -> int:
        """What an item adds: its line with bullet and line break; for the first of a section, also the header."""
        opening = "" if self._taken[item.context_type] else f"\n\n{HEADERS[self._language][item.context_type]}"
        return self._count(f"{opening}\n{_written(item)}")

    def _free(self, kind: ContextType, *, within_share: bool) -> int:
        rest = max(self._max - sum(self._used.values()) - self._reserved, 0)
        return min(rest, self._shares[kind] - self._used[kind]) if within_share else rest

    def _add(self, item: ContextItem, position: int) -> None:
        self._stated.add(item.content)
        self._positions[item.context_type].append(position)
        self._used[item.context_type] += self._cost(item)
        self._taken[item.context_type].append(replace(item, token_estimate=self._count(item.content)))

    def _cut(self, turn: ContextItem, free: int) -> ContextItem | None:
        """Return the longest beginning of a turn that fits, marked; None if too little would be left."""
        if free < CUT_TOKENS_MIN:
            return None
        low, high = 0, len(turn.content)
        while low < high:
            middle = (low + high + 1) // 2
            if self._cost(replace(turn, content=turn.content[:middle] + CUT_MARK)) <= free:
                low = middle
            else:
                high = middle - 1
        if low == 0:
            return None
        return replace(turn, content=turn.content[:low] + CUT_MARK, metadata={**turn.metadata, "truncated": True})

    def _oldest_turn(self) -> ContextItem | None:
        return self._taken["history"][-1] if self._taken["history"] else None

    def _is_stated(self, item: ContextItem, oldest: ContextItem | None) -> bool:
        """Whether the window says it: the same text, the same statement, or the turns that it was extracted from."""
        if any(item.content == taken.content for kind in CONTEXT_TYPES for taken in self._taken[kind]):
            return True
        if self._stated.repeats(item.content):
            return True
        if item.context_type != "memory" or oldest is None:
            return False
        thread, start = item.metadata.get("thread_id"), item.metadata.get("from_seq")
        since = oldest.metadata.get("from_seq")
        return (
            thread is not None
            and start is not None
            and since is not None
            and thread == oldest.metadata.get("thread_id")
            and start >= since
        )

    def _drop_one(self) -> None:
        for kind in ("fact", "memory", "history"):
            if self._taken[kind]:
                self._taken[kind].pop()
                self._positions[kind].pop()
                return
        raise ContextBudgetError("the system prompt alone is over the budget: shorten it or raise max_tokens")

    def _items_in_order(self) -> list[ContextItem]:
        return [
            item
            for kind in CONTEXT_TYPES
            for item in (reversed(self._taken[kind]) if kind == "history" else self._taken[kind])
        ]

    def _text(self) -> str:
        return format_items(self._items_in_order(), self._language)
