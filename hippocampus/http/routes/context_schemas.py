"""The bodies of the route that packs a context window."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus.context.window import ContextType, ContextWindow, Reason
from hippocampus.http.fields import Embedding
from hippocampus.search import QUERY_LENGTH_MAX
from pulse.http.edge.schemas import Body, Id, JsonObject, Name, View


class ContextInput(Body):
    """A window to pack."""

    query: Annotated[
        str,
        StringConstraints(max_length=QUERY_LENGTH_MAX),
        Field(description="What to search for, usually the newest message. If blank, nothing is searched."),
    ] = ""
    session_id: Annotated[Id | None, Field(description="The session whose newest turns are the history.")] = None
    system_prompt: Annotated[
        str | None, StringConstraints(max_length=1_000_000), Field(description="Included in full, whatever its share.")
    ] = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000, description="The budget, headers included.")] = 8000
    language: Annotated[Literal["en", "zh"], Field(description="The language of the headers.")] = "en"
    query_embedding: Embedding | None = None
    embedding_model: Annotated[
        Name | None, Field(description="The model of query_embedding; by default the server's.")
    ] = None
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "Where do I live?", "session_id": "order-17", "system_prompt": "Be brief."}]
        }
    )


class ItemView(View):
    """An item of a window."""

    context_type: ContextType
    content: str
    relevance_score: float
    token_estimate: int
    metadata: Annotated[JsonObject, Field(description="Its origin.")]


class SectionView(View):
    """The share of a section and its use, in tokens."""

    context_type: ContextType
    share: int
    used: int
    items: int
    left_out: int


class LeftOutView(View):
    """A candidate that is not in the window."""

    context_type: ContextType
    reason: Annotated[
        Reason,
        Field(description="repeats: it is in the window; too_big: it fits no window; no_room: the budget is used up."),
    ]
    token_estimate: int
    metadata: Annotated[JsonObject, Field(description="Its origin.")]


class ContextView(View):
    """A packed window."""

    text: Annotated[str, Field(description="The window as text.")]
    items: list[ItemView]
    total_tokens: Annotated[int, Field(description="The tokens of the text; never over max_tokens.")]
    max_tokens: int
    account: list[SectionView]
    left_out: list[LeftOutView]
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null if nothing failed.")]

    @classmethod
    def of_window(cls, window: ContextWindow, text: str) -> ContextView:
        """Return the view of a window."""
        left_out = [LeftOutView.of(each.item, reason=each.reason) for each in window.left_out]
        return cls.of(window, text=text, left_out=left_out)
