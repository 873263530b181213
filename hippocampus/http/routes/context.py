"""The routes that pack a context window, and that answer with what is known."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from starlette.responses import Response

from hippocampus.context_assembler import ContextAssembler
from hippocampus.http import problems as memory_problems
from hippocampus.http.routes.context_schemas import ContextInput, ContextView, RecallInput, RecallView
from hippocampus.http.routes.knowledge import Knowledge
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.roles import asserted_roles, require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)


@router.post(
    "/context",
    summary="Pack a context window",
    dependencies=[require("read")],
    response_model=ContextView,
    responses=problems.documented(
        *problems.BODY,
        problems.NOT_FOUND,
        problems.SESSION_NOT_FOUND,
        memory_problems.CONTEXT_BUDGET,
        problems.INVALID_REQUEST,
    ),
)
async def assemble_context(
    owner: PathOwner,
    body: ContextInput,
    assembler: Annotated[ContextAssembler, service(ContextAssembler)],
    knowledge: Knowledge,
    request: Request,
) -> Response:
    """Pack the system prompt, facts, memories and the session's newest turns into a budget that is never exceeded."""
    documents = None
    if body.document_ratio:
        roles = asserted_roles(request, body.roles)
        documents = knowledge.of(owner.app_name).part(body.document_ratio, corpora=body.corpora, roles=roles)
    window = await assembler.assemble(
        app_name=owner.app_name,
        user_id=owner.user_id,
        session_id=body.session_id,
        query=body.query,
        query_embedding=body.query_embedding,
        system_prompt=body.system_prompt,
        max_tokens=body.max_tokens,
        embedding_model=body.embedding_model,
        language=body.language,
        template=body.template,
        profile=body.profile,
        stable=body.stable,
        record_access=not body.explain,
        documents=documents,
        asked_at=body.asked_at,
        time_zone=body.time_zone,
    )
    return reply(ContextView.of_window(window, explain=body.explain))


@router.post(
    "/recall",
    summary="Recall what is known",
    dependencies=[require("read")],
    response_model=RecallView,
    responses=problems.documented(*problems.BODY, problems.INVALID_REQUEST),
)
async def recall(
    owner: PathOwner, body: RecallInput, assembler: Annotated[ContextAssembler, service(ContextAssembler)]
) -> Response:
    """Return one text for an agent: facts, then passages with their dates, within a budget that is never exceeded."""
    window = await assembler.recall(
        app_name=owner.app_name,
        user_id=owner.user_id,
        query=body.query,
        query_embedding=body.query_embedding,
        max_tokens=body.max_tokens,
        embedding_model=body.embedding_model,
        language=body.language,
        template=body.template,
        asked_at=body.asked_at,
        time_zone=body.time_zone,
    )
    return reply(RecallView.of(window))
