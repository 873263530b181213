"""The routes that erase on request."""

from __future__ import annotations

import uuid
from typing import Annotated

from starlette.responses import Response

from hippocampus.erasure.service import Erasure, ErasureService
from hippocampus.http import problems as memory_problems
from hippocampus.http.routes.erasures_schemas import ErasureView, ForgetInput, ForgetView, TablePreviewView
from pulse.errors import InvalidInputError
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import Owner, PathOwner
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service

#: A request is answered after this time even if many sessions of the user remain; a worker erases them.
FORGET_SECONDS = 10.0

router = make_router("memory", USER_PATH)

TheErasures = Annotated[ErasureService, service(ErasureService)]


@router.post(
    "/forget",
    summary="Erase on request",
    dependencies=[require("admin")],
    response_model=ForgetView,
    responses=problems.documented(
        *problems.BODY, problems.SESSION_NOT_FOUND, memory_problems.MEMORY_NOT_FOUND, problems.INVALID_REQUEST
    ),
)
async def forget(owner: PathOwner, body: ForgetInput, erasures: TheErasures) -> Response:
    """Erase a user, a session, events, a memory or a fact, with everything that was extracted from them.

    The response counts the rows that were erased and those that are still found, by table. It cannot be undone.
    """
    named = [body.session_id, body.memory_id, body.whole_user or None]
    if sum(each is not None for each in named) != 1:
        raise InvalidInputError("name one of session_id, memory_id and whole_user")
    if (body.sequence_nums or body.event_ids) and body.session_id is None:
        raise InvalidInputError("sequence_nums and event_ids need the session_id of their session")
    if body.dry_run:
        reached = await erasures.preview(
            *owner,
            session_id=body.session_id,
            sequence_nums=body.sequence_nums,
            event_ids=body.event_ids,
            memory_id=body.memory_id,
            limit=body.limit,
        )
        return reply(ForgetView(would_forget=[TablePreviewView.of(each) for each in reached]))
    return reply(ForgetView(erasure=ErasureView.of(await _forget(erasures, owner, body))))


async def _forget(erasures: ErasureService, owner: Owner, body: ForgetInput) -> Erasure:
    if body.memory_id is not None:
        return await erasures.erase_memory(*owner, body.memory_id)
    if body.session_id is None:
        return await erasures.erase_user(*owner, seconds_max=FORGET_SECONDS)
    if body.sequence_nums or body.event_ids:
        return await erasures.erase_events(
            *owner, body.session_id, sequence_nums=body.sequence_nums, event_ids=body.event_ids
        )
    return await erasures.erase_session(*owner, body.session_id)


@router.get(
    "/erasures/{erasure_id}",
    summary="Read an erasure",
    dependencies=[require("admin")],
    response_model=ErasureView,
    responses=problems.documented(memory_problems.MEMORY_NOT_FOUND),
)
async def get_erasure(owner: PathOwner, erasure_id: uuid.UUID, erasures: TheErasures) -> Response:
    """Read what was erased, and what is still found."""
    return reply(ErasureView.of(await erasures.get(*owner, erasure_id)))
