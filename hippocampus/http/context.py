"""The route that packs a context window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from hippocampus.context.window import ContextItem, ContextType, ContextWindow, Language, LeftOut, Reason
from hippocampus.context_assembler import ContextAssembler
from hippocampus.http import problems as memory_problems
from hippocampus.http.schemas import Embedding
from hippocampus.search import QUERY_LENGTH_MAX
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.roles import require
from pulse.http.routes.schemas import AppName, Body, Id, JsonObject, Name, UserId
from pulse.http.routes.sessions import PREFIX

router = APIRouter(
    prefix=PREFIX,
    tags=["memory"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)

#: One assembler per language of the headers.
Assemblers = Mapping[Language, ContextAssembler]


class ContextInput(Body):
    """A window to pack."""

    query: Annotated[
        str,
        StringConstraints(max_length=QUERY_LENGTH_MAX),
        Field(description="What to search for, usually what was just said. Blank: nothing is searched."),
    ] = ""
    session_id: Annotated[Id | None, Field(description="Whose newest turns are the history.")] = None
    system_prompt: Annotated[
        str | None, StringConstraints(max_length=1_000_000), Field(description="Taken whole, whatever its share.")
    ] = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000, description="The budget, headers included.")] = 8000
    language: Annotated[Literal["en", "zh"], Field(description="Of the headers.")] = "en"
    query_embedding: Embedding | None = None
    embedding_model: Annotated[Name | None, Field(description="Of query_embedding; by default the server's.")] = None
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "Where do I live?", "session_id": "order-17", "system_prompt": "Be brief."}]
        }
    )


class ItemView(BaseModel):
    """One piece of a window."""

    context_type: ContextType
    content: str
    relevance_score: float
    token_estimate: int
    metadata: Annotated[JsonObject, Field(description="Where it comes from.")]

    @classmethod
    def of(cls, item: ContextItem) -> Self:
        """Describe an item."""
        fields: dict[str, Any] = {name: getattr(item, name) for name in cls.model_fields}
        return cls(**{**fields, "metadata": dict(item.metadata)})


class SectionView(BaseModel):
    """What a section got and used, in tokens."""

    model_config = ConfigDict(from_attributes=True)
    context_type: ContextType
    share: int
    used: int
    items: int
    left_out: int


class LeftOutView(BaseModel):
    """A candidate that is not in the window."""

    context_type: ContextType
    reason: Annotated[
        Reason,
        Field(description="repeats: the window says it already; too_big: for any window; no_room: others took it."),
    ]
    token_estimate: int
    metadata: Annotated[JsonObject, Field(description="Where it comes from.")]

    @classmethod
    def of(cls, left: LeftOut) -> Self:
        """Describe it without its content."""
        item = left.item
        return cls(
            context_type=item.context_type,
            reason=left.reason,
            token_estimate=item.token_estimate,
            metadata=dict(item.metadata),
        )


class ContextView(BaseModel):
    """A packed window."""

    text: Annotated[str, Field(description="The window as it is written.")]
    items: list[ItemView]
    total_tokens: Annotated[int, Field(description="Of the text; never over max_tokens.")]
    max_tokens: int
    account: list[SectionView]
    left_out: list[LeftOutView]
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null where nothing failed.")]

    @classmethod
    def of(cls, window: ContextWindow, text: str) -> Self:
        """Describe a window."""
        return cls(
            text=text,
            items=[ItemView.of(item) for item in window.items],
            total_tokens=window.total_tokens,
            max_tokens=window.max_tokens,
            account=[SectionView.model_validate(section) for section in window.account],
            left_out=[LeftOutView.of(left) for left in window.left_out],
            degraded=window.degraded,
        )


def _assemblers_of(request: Request) -> Assemblers:
    assemblers: Assemblers = request.app.state.assemblers
    return assemblers


@router.post(
    "/context",
    summary="Pack a context window",
    dependencies=[require("read")],
    response_model=ContextView,
    responses=problems.documented(
        *problems.BODY, problems.SESSION_NOT_FOUND, memory_problems.CONTEXT_BUDGET, problems.INVALID_REQUEST
    ),
)
async def assemble_context(
    app_name: AppName,
    user_id: UserId,
    body: ContextInput,
    assemblers: Annotated[Assemblers, Depends(_assemblers_of)],
) -> Response:
    """Pack system prompt, facts, memories and the session's newest turns into a budget that is never exceeded."""
    assembler = assemblers[body.language]
    window = await assembler.assemble(
        app_name=app_name,
        user_id=user_id,
        session_id=body.session_id,
        query=body.query,
        query_embedding=body.query_embedding,
        system_prompt=body.system_prompt,
        max_tokens=body.max_tokens,
        embedding_model=body.embedding_model,
    )
    return reply(ContextView.of(window, assembler.format_context(window)))
