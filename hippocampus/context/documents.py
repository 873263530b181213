"""Parts of documents that join a context window: what the assembler knows of the knowledge service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hippocampus.context.window import ContextItem
from pulse.errors import InvalidInputError

#: Candidates that are fetched: one per this many tokens of their share, between two bounds.
DOCUMENT_TOKENS, DOCUMENTS_MIN, DOCUMENTS_MAX = 50, 5, 100

#: Takes a query; app_name, user_id, limit, the query's vector and its model. The vector may be None: words alone.
DocumentSearch: TypeAlias = Callable[..., Awaitable[Sequence[ContextItem]]]


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """The documents of a window.

    Attributes:
        ratio: their share of the budget, over 0 and at most 1.
        search: returns what matches, the best first, as items of the type ``document`` with their citation as metadata.
    """

    ratio: float
    search: DocumentSearch

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise InvalidInputError(f"the ratio of documents must be above 0 and at most 1, not {self.ratio!r:.40}")
