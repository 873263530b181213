"""The routes that trace memories and facts to their events, and events to what was extracted from them."""

from __future__ import annotations

import uuid
from typing import Annotated

import asyncpg
from fastapi import Path
from starlette.responses import Response

from hippocampus.erasure.provenance import consequences, provenance
from hippocampus.http import problems as memory_problems
from hippocampus.http.routes.provenance_schemas import ConsequencesView, OriginView, ProvenanceView
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner, PathSession
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)

Database = Annotated[asyncpg.Pool, service(asyncpg.Pool)]


@router.get(
    "/memories/{memory_id}/origin",
    summary="Trace a memory or a fact to its events",
    dependencies=[require("read")],
    response_model=OriginView,
    responses=problems.documented(memory_problems.MEMORY_NOT_FOUND),
)
async def origin(owner: PathOwner, memory_id: uuid.UUID, pool: Database) -> Response:
    """Read which events a memory, or every statement of a fact, was extracted from, by which job, prompt and model.

    A turn, by the id that a search or a citation gives it, comes from its own event.
    """
    found = await provenance(pool, *owner, memory_id)
    return reply(OriginView(origins=[ProvenanceView.of(each) for each in found]))


@router.get(
    "/sessions/{session_id}/events/{sequence_num}/drawn",
    summary="List what was extracted from an event",
    dependencies=[require("read")],
    response_model=ConsequencesView,
    responses=problems.documented(memory_problems.MEMORY_NOT_FOUND),
)
async def drawn_from_event(
    key: PathSession,
    sequence_num: Annotated[int, Path(ge=1, le=2**63 - 1, description="The event's sequence number.")],
    pool: Database,
) -> Response:
    """List the memories and facts that cite an event, and those extracted from a slice that contains it."""
    return reply(ConsequencesView.of(await consequences(pool, *key, sequence_num=sequence_num)))
