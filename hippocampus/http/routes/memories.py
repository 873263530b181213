"""The routes that search and list memories."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from hippocampus.http.fields import Moment
from hippocampus.http.routes.memories_schemas import MemoryPageView, MemoryView, ResultView, SearchInput, SearchView
from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import MemoryPosition, MemoryType
from hippocampus.search import MemorySearch, SearchWeights
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.schemas import Id
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)

Memories = Annotated[OpenMemoryService, service(OpenMemoryService)]


@router.post(
    "/search",
    summary="Search the memory",
    dependencies=[require("read")],
    response_model=SearchView,
    responses=problems.documented(*problems.BODY, problems.SESSION_NOT_FOUND, problems.INVALID_REQUEST),
)
async def search_memory(
    owner: PathOwner, body: SearchInput, search: Annotated[MemorySearch, service(MemorySearch)]
) -> Response:
    """Find the best matches among memories, facts and turns, and say why each matched."""
    response = await search.search(
        app_name=owner.app_name,
        user_id=owner.user_id,
        query=body.query,
        limit=body.limit,
        narrow=body.narrow(),
        query_embedding=body.query_embedding,
        embedding_model=body.embedding_model,
        asked_at=body.asked_at,
        time_zone=body.time_zone,
        record_access=not body.explain,
        weights=None if body.weights is None else SearchWeights(**body.weights.model_dump()),
        explain=body.explain,
    )
    return reply(SearchView.of(response, results=[ResultView.of(each) for each in response.memories]))


@router.get(
    "/memories",
    summary="List memories",
    dependencies=[require("read")],
    response_model=MemoryPageView,
    responses=problems.documented(problems.SESSION_NOT_FOUND),
)
async def list_memories(
    owner: PathOwner,
    memory: Memories,
    page: Annotated[Page, page_of(50)],
    memory_type: MemoryType | None = None,
    session_id: Annotated[Id | None, Query(description="Only memories that were extracted from this session.")] = None,
    since: Annotated[Moment | None, Query(description="At this time or later.")] = None,
    until: Annotated[Moment | None, Query(description="Before this time.")] = None,
) -> Response:
    """List a user's memories, strongest first. Listing does not count as an access: it strengthens nothing."""
    found = await memory.list_memories(
        app_name=owner.app_name,
        user_id=owner.user_id,
        memory_type=memory_type,
        session_id=session_id,
        since=since,
        until=until,
        limit=page.limit,
        after=page.start(MemoryPosition),
    )
    following = page.next_cursor(found, MemoryPosition.of)
    return reply(MemoryPageView(memories=[MemoryView.of(each) for each in found], next_cursor=following))
