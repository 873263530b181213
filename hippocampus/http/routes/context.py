"""The route that packs a context window."""

from __future__ import annotations

from typing import Annotated

from starlette.responses import Response

from hippocampus.context.window import Language
from hippocampus.context_assembler import ContextAssembler
from hippocampus.http import problems as memory_problems
from hippocampus.http.routes.context_schemas import ContextInput, ContextView
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)


class Assemblers(dict[Language, ContextAssembler]):
    """One assembler for each language of the headers."""


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
    owner: PathOwner, body: ContextInput, assemblers: Annotated[Assemblers, service(Assemblers)]
) -> Response:
    """Pack the system prompt, facts, memories and the session's newest turns into a budget that is never exceeded."""
    assembler = assemblers[body.language]
    window = await assembler.assemble(
        app_name=owner.app_name,
        user_id=owner.user_id,
        session_id=body.session_id,
        query=body.query,
        query_embedding=body.query_embedding,
        system_prompt=body.system_prompt,
        max_tokens=body.max_tokens,
        embedding_model=body.embedding_model,
    )
    return reply(ContextView.of_window(window, assembler.format_context(window)))
