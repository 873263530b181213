"""The bodies of the routes that pack a context window."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus.context.templates import TemplateName
from hippocampus.context.window import ContextType, ContextWindow, Reason
from hippocampus.context_assembler import RECALL_TOKENS
from hippocampus.http.fields import AskedAt, Embedding, TimeZone
from hippocampus.http.routes.knowledge_schemas import Corpora, Roles
from hippocampus.search import QUERY_LENGTH_MAX
from pulse.http.edge.schemas import Body, Id, JsonObject, Name, View


class _Query(Body):
    """What is searched for, and how the answer is written."""

    query: Annotated[
        str,
        StringConstraints(max_length=QUERY_LENGTH_MAX),
        Field(description="What to search for, usually the newest message. If blank, nothing is searched."),
    ] = ""
    language: Annotated[
        Literal["en", "zh"] | None,
        Field(description="The language of headers and labels; null: that of the conversation."),
    ] = None
    template: Annotated[TemplateName, Field(description="How the text is written.")] = "markdown"
    query_embedding: Embedding | None = None
    embedding_model: Annotated[
        Name | None, Field(description="The model of query_embedding; by default the server's.")
    ] = None
    asked_at: AskedAt = None
    time_zone: TimeZone = None


class ContextInput(_Query):
    """A window to pack."""

    session_id: Annotated[Id | None, Field(description="The session whose newest turns are the history.")] = None
    system_prompt: Annotated[
        str | None, StringConstraints(max_length=1_000_000), Field(description="Included in full, whatever its share.")
    ] = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000, description="The budget, headers included.")] = 8000
    profile: Annotated[bool, Field(description="Begin the facts with the user's profile.")] = False
    stable: Annotated[
        bool, Field(description="Begin with what does not depend on the query, for a provider's prompt cache.")
    ] = False
    document_ratio: Annotated[
        float, Field(ge=0, le=1, description="The share of the budget for documents that match; 0: none.")
    ] = 0
    corpora: Corpora = None
    roles: Roles
    explain: Annotated[
        bool,
        Field(description="For people who examine a window: return the texts that were left out, and count no use."),
    ] = False
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "Where do I live?", "session_id": "order-17", "system_prompt": "Be brief."}]
        }
    )


class RecallInput(_Query):
    """What to recall."""

    max_tokens: Annotated[int, Field(ge=1, le=10_000_000, description="The budget of the text.")] = RECALL_TOKENS
    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Where do I live?", "max_tokens": 500}]})


class RecallView(View):
    """What is known."""

    text: Annotated[str, Field(description="Facts, then passages with their dates; empty if nothing is known.")]
    total_tokens: Annotated[int, Field(description="The tokens of the text; never over max_tokens.")]
    language: Literal["en", "zh"]
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null if nothing failed.")]
    reranked: Annotated[bool, Field(description="Whether a reranker ordered the first 50 of what was found.")]
    rerank_failure: Annotated[str | None, Field(description="Why not, although there is one: the first order stands.")]


class MessageView(View):
    """A message of a chat API."""

    role: Literal["system", "user", "assistant"]
    content: str


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
    content: Annotated[str | None, Field(description="With `explain`.")]


class ContextView(View):
    """A packed window."""

    text: Annotated[str, Field(description="The window as text.")]
    messages: Annotated[
        list[MessageView],
        Field(description="The window as messages of a chat API, for the template messages; else empty."),
    ]
    language: Literal["en", "zh"]
    items: list[ItemView]
    total_tokens: Annotated[int, Field(description="The tokens of the text; never over max_tokens.")]
    max_tokens: int
    account: list[SectionView]
    left_out: list[LeftOutView]
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null if nothing failed.")]
    reranked: Annotated[bool, Field(description="Whether a reranker ordered the first 50 of what was found.")]
    rerank_failure: Annotated[str | None, Field(description="Why not, although there is one: the first order stands.")]

    @classmethod
    def of_window(cls, window: ContextWindow, *, explain: bool) -> ContextView:
        """Return the view of a window.

        Args:
            explain: with the texts of what was left out.
        """
        messages = [MessageView.model_validate(each) for each in window.messages] if window.template.as_messages else []
        left_out = [
            LeftOutView.of(each.item, reason=each.reason, content=each.item.content if explain else None)
            for each in window.left_out
        ]
        return cls.of(window, messages=messages, left_out=left_out)
