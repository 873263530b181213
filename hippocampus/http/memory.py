"""The routes that read the memory: search, memories, facts, and what a clean-up would archive."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from hippocampus.http import schemas
from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import FactType, HistoryPosition, MemoryPosition, MemoryType
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import MemorySearch
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.roles import require
from pulse.http.routes.schemas import AppName, Id, Name, PathName, UserId
from pulse.http.routes.sessions import PREFIX

router = APIRouter(
    prefix=PREFIX,
    tags=["memory"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)
apps_router = APIRouter(
    prefix="/v1/apps/{app_name}",
    tags=["memory"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


def memory_of(request: Request) -> OpenMemoryService:
    """Return the process's memory service."""
    service = request.app.state.memory
    assert isinstance(service, OpenMemoryService)  # noqa: S101  # the process that builds the app puts it there
    return service


def _search_of(request: Request) -> MemorySearch:
    search = request.app.state.search
    assert isinstance(search, MemorySearch)  # noqa: S101  # as above
    return search


def _retention_of(request: Request) -> MemoryRetentionManager:
    manager = request.app.state.retention
    assert isinstance(manager, MemoryRetentionManager)  # noqa: S101  # as above
    return manager


Memories = Annotated[OpenMemoryService, Depends(memory_of)]
PageLimit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Said = schemas.Moment


@router.post(
    "/search",
    summary="Search the memory",
    dependencies=[require("read")],
    response_model=schemas.SearchView,
    responses=problems.documented(*problems.BODY, problems.SESSION_NOT_FOUND, problems.INVALID_REQUEST),
)
async def search_memory(
    app_name: AppName,
    user_id: UserId,
    body: schemas.SearchInput,
    search: Annotated[MemorySearch, Depends(_search_of)],
) -> Response:
    """Find what matches best among memories, facts and the turns that are not yet consolidated, and why it does."""
    response = await search.search(
        app_name=app_name,
        user_id=user_id,
        query=body.query,
        limit=body.limit,
        narrow=body.narrow(),
        query_embedding=body.query_embedding,
        embedding_model=body.embedding_model,
    )
    return reply(schemas.SearchView.of(response))


@router.get(
    "/memories",
    summary="List memories",
    dependencies=[require("read")],
    response_model=schemas.MemoryPageView,
    responses=problems.documented(problems.SESSION_NOT_FOUND),
)
async def list_memories(
    app_name: AppName,
    user_id: UserId,
    memory: Memories,
    cursor: Cursor,
    memory_type: MemoryType | None = None,
    session_id: Annotated[Id | None, Query(description="Only what was drawn from this session.")] = None,
    since: Annotated[Said | None, Query(description="Said then or later.")] = None,
    until: Annotated[Said | None, Query(description="Said before then.")] = None,
    limit: PageLimit = 50,
) -> Response:
    """List a user's memories, the strongest first. Looking is no access: it strengthens nothing."""
    found = await memory.list_memories(
        app_name=app_name,
        user_id=user_id,
        memory_type=memory_type,
        session_id=session_id,
        since=since,
        until=until,
        limit=limit,
        after=cursor.read(MemoryPosition),
    )
    shown = [schemas.MemoryView.of(each) for each in found]
    following = cursor.following(found, limit, MemoryPosition.of)
    return reply(schemas.MemoryPageView(memories=shown, next_cursor=following))


@router.get(
    "/facts",
    summary="List facts",
    dependencies=[require("read")],
    response_model=schemas.FactPageView,
)
async def list_facts(
    app_name: AppName,
    user_id: UserId,
    memory: Memories,
    cursor: Cursor,
    fact_type: FactType | None = None,
    key: Annotated[Name | None, Query(description="Only this key.")] = None,
    as_of: Annotated[Said | None, Query(description="What was true then; now where it is left out.")] = None,
    known_at: Annotated[Said | None, Query(description="As it was known then; now where it is left out.")] = None,
    limit: PageLimit = 50,
) -> Response:
    """List what holds of a user, now or at another time."""
    found = await memory.list_facts(
        app_name=app_name,
        user_id=user_id,
        fact_type=fact_type,
        key=key,
        as_of=as_of,
        known_at=known_at,
        limit=limit,
        after=cursor.read(tuple[str, str]),
    )
    shown = [schemas.FactView.of(each) for each in found]
    following = cursor.following(found, limit, lambda each: (each.fact_type, each.key))
    return reply(schemas.FactPageView(facts=shown, next_cursor=following))


@router.get(
    "/facts/{fact_type}/{key}/history",
    summary="Read a fact's history",
    dependencies=[require("read")],
    response_model=schemas.FactHistoryView,
    responses=problems.documented(problems.NOT_FOUND),
)
async def fact_history(
    app_name: AppName,
    user_id: UserId,
    fact_type: FactType,
    key: PathName,
    memory: Memories,
    cursor: Cursor,
    limit: PageLimit = 100,
) -> Response:
    """Read every statement about one key: what holds, what it replaced, what was less sure."""
    start = cursor.read(HistoryPosition)
    versions = await memory.fact_history(
        app_name=app_name, user_id=user_id, fact_type=fact_type, key=key, limit=limit, after=start
    )
    if not versions and start is None:
        raise problems.ProblemError(problems.NOT_FOUND, f"nothing was ever said of {fact_type} {key!r}; see /facts")
    following = cursor.write(HistoryPosition.after(versions, start)) if len(versions) == limit else None
    shown = [schemas.FactVersionView.of(each) for each in versions]
    return reply(schemas.FactHistoryView(versions=shown, next_cursor=following))


@apps_router.get(
    "/retention/dry-run",
    summary="See what a clean-up would archive",
    dependencies=[require("admin")],
    response_model=schemas.DryRunView,
)
async def retention_dry_run(
    app_name: AppName,
    retention: Annotated[MemoryRetentionManager, Depends(_retention_of)],
    cursor: Cursor,
    threshold: Annotated[float | None, Query(ge=0, le=1, description="By default the app's policy.")] = None,
    min_age_days: Annotated[float | None, Query(ge=0, le=36500, description="By default the app's policy.")] = None,
    limit: PageLimit = 100,
) -> Response:
    """List the memories of an app's users that are too weak now, and why. It changes nothing."""
    weak = await retention.preview(threshold, min_age_days, app_name, limit=limit, after=cursor.read(uuid.UUID))
    following = cursor.following(weak, limit, lambda each: each.id)
    return reply(schemas.DryRunView(memories=[schemas.WeakMemoryView.of(each) for each in weak], next_cursor=following))
