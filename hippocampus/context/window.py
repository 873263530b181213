"""What a context window holds, and how it is written; `hippocampus.context.packing` chooses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from hippocampus.context.languages import HEADERS, ContextType
from hippocampus.context.templates import CONTEXT_TYPES, MARKDOWN, MESSAGES, Template, messages, write
from hippocampus.text.languages import Language, language_of

__all__ = [
    "CONTEXT_TYPES",
    "HEADERS",
    "ContextItem",
    "ContextType",
    "ContextWindow",
    "Language",
    "LeftOut",
    "Reason",
    "SectionAccount",
    "format_items",
    "language_of_items",
]

#: ``repeats``: the window already says it; ``too_big``: it would not fit an empty window beside the system prompt;
#: ``no_room``: better or newer items used the budget.
Reason: TypeAlias = Literal["repeats", "too_big", "no_room"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem:
    """One piece of a context window.

    Attributes:
        content: as it is written, without the section's header and without the prefixes of `format_items`.
        relevance_score: 0 to 1.
        token_estimate: the size of the content, by the assembler's counter.
        metadata: ``memory_id``, ``fact_id`` or ``message_id``, the ``source``, its turns, its ``session_id`` and
            ``occurred_at``; ``is_today`` of a turn of the session; ``changed``, what holds instead of it now;
            ``truncated`` where something was cut off. Dates are written in the zone of ``occurred_at``.
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
        total_tokens: the size of the written text, as `counted_by` counts it; never over `max_tokens`.
        budget_used: total_tokens / max_tokens.
        account: per section, in the order in which they are written.
        left_out: every candidate that was not taken, section by section, the best or newest first.
        counted_by: ``estimate``, or the model that counted the whole.
        language: of the headers and labels.
        degraded: why text alone was searched although there is an embedder; None if nothing failed.
        reranked: whether a reranker ordered the first 50 of what matches; `rerank_failure`: why not, if there is one.
        template: how the items are written.
    """

    items: tuple[ContextItem, ...]
    total_tokens: int
    budget_used: float
    max_tokens: int
    account: tuple[SectionAccount, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    counted_by: str = "estimate"
    language: Language = "en"
    degraded: str | None = None
    template: Template = MARKDOWN
    reranked: bool = False
    rerank_failure: str | None = None

    @property
    def text(self) -> str:
        """The window as it is written, ready for a prompt; its tokens are `total_tokens`."""
        return write(self.items, self.language, self.template)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The window as messages of a chat API, ``{"role": …, "content": …}``: for windows of the template `MESSAGES`.

        Roles are ``system``, ``user`` and ``assistant``. What changes least comes first, so that the provider's prompt
        cache is used: the system prompt, the history, and before its last turn facts and memories.
        """
        return messages(self.items, self.language, self.template if self.template.as_messages else MESSAGES)


def format_items(items: Iterable[ContextItem], language: Language | None = None, template: Template = MARKDOWN) -> str:
    """Write items: the system prompt, then each section under its header; blank lines between.

    Only the first line of an item begins at the margin: nothing in it can be taken for a header, for
    another turn or for another item. Other templates escape tags, or write messages.

    Args:
        language: of the labels; None: that of the items (`language_of_items`). A window's is `ContextWindow.language`.
    """
    written = tuple(items)
    return write(written, language or language_of_items(written), template)


def language_of_items(items: Iterable[ContextItem]) -> Language:
    """Return the language that most words of the items are in, beside the system prompt; English if there is none."""
    return language_of(item.content for item in items if item.context_type != "system") or "en"
