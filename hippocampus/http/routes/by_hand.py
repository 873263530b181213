"""The routes by which people write: remember, correct, retire and confirm memories and facts."""

from __future__ import annotations

import uuid
from typing import Annotated

from starlette.responses import Response

from hippocampus.by_hand import GivenFact, MemoryEditor
from hippocampus.http import problems as memory_problems
from hippocampus.http.routes import by_hand_schemas as schemas
from hippocampus.transfer.given_memories import GivenMemory
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)

Editor = Annotated[MemoryEditor, service(MemoryEditor)]
_REFUSALS = problems.documented(*problems.BODY, problems.INVALID_REQUEST)
_CHANGE_REFUSALS = problems.documented(*problems.BODY, problems.INVALID_REQUEST, memory_problems.MEMORY_NOT_FOUND)


@router.post(
    "/memories",
    summary="Remember a memory",
    dependencies=[require("append")],
    response_model=schemas.EditView,
    responses=_REFUSALS,
)
async def remember_memory(owner: PathOwner, body: schemas.MemoryInput, editor: Editor) -> Response:
    """Store a memory that a person wrote. A search finds it at once."""
    given = GivenMemory(
        content=body.content,
        name=body.name,
        metadata=body.metadata,
        importance=body.importance,
        occurred_at=body.occurred_at,
    )
    return reply(schemas.EditView.of(await editor.remember(*owner, given, by=body.by)))


@router.post(
    "/facts",
    summary="Remember a fact",
    dependencies=[require("append")],
    response_model=schemas.EditView,
    responses=_REFUSALS,
)
async def remember_fact(owner: PathOwner, body: schemas.FactInput, editor: Editor) -> Response:
    """State a fact by hand. It replaces what held under its key, whose history stays."""
    given = GivenFact(key=body.key, value=body.value, fact_type=body.fact_type, since=body.since)
    return reply(schemas.EditView.of(await editor.remember(*owner, given, by=body.by)))


@router.post(
    "/memories/{memory_id}/correct",
    summary="Correct a memory or a fact",
    dependencies=[require("admin")],
    response_model=schemas.EditView,
    responses=_CHANGE_REFUSALS,
)
async def correct(owner: PathOwner, memory_id: uuid.UUID, body: schemas.CorrectionInput, editor: Editor) -> Response:
    """Replace what a memory says, or the value of a fact from now on. What turns said before does not undo it."""
    return reply(schemas.EditView.of(await editor.correct(*owner, memory_id, body.value, by=body.by)))


@router.post(
    "/memories/{memory_id}/retire",
    summary="Retire a memory or a fact",
    dependencies=[require("admin")],
    response_model=schemas.EditView,
    responses=_CHANGE_REFUSALS,
)
async def retire(owner: PathOwner, memory_id: uuid.UUID, body: schemas.HandInput, editor: Editor) -> Response:
    """Let a memory no longer be found, or a fact no longer hold. Its history stays; POST /forget removes it."""
    return reply(schemas.EditView.of(await editor.retire(*owner, memory_id, by=body.by)))


@router.post(
    "/memories/{memory_id}/confirm",
    summary="Confirm a memory or a fact",
    dependencies=[require("append")],
    response_model=schemas.EditView,
    responses=_CHANGE_REFUSALS,
)
async def confirm(owner: PathOwner, memory_id: uuid.UUID, body: schemas.HandInput, editor: Editor) -> Response:
    """Confirm that a memory or a fact is right: a fact is certain from then on, a memory as strong as if used now."""
    return reply(schemas.EditView.of(await editor.confirm(*owner, memory_id, by=body.by)))
