"""The routes of retention: pin, explain, archive and restore memories, and preview what a policy would do."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal

import asyncpg
from fastapi import Query
from starlette.responses import Response

from hippocampus.http import problems as memory_problems
from hippocampus.http.routes import retention_schemas as schemas
from hippocampus.retention import advice
from hippocampus.retention.archive import MemoryArchive
from hippocampus.retention_manager import MemoryRetentionManager
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import APP_PATH, USER_PATH, make_router
from pulse.http.edge.schemas import AppName
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)
apps_router = make_router("memory", f"{APP_PATH}/retention")

Archive = Annotated[MemoryArchive, service(MemoryArchive)]
Database = Annotated[asyncpg.Pool, service(asyncpg.Pool)]
Threshold = Annotated[float | None, Query(ge=0, le=1, description="The app's policy by default.")]
MinAgeDays = Annotated[float | None, Query(ge=0, le=36500, description="The app's policy by default.")]
_NOT_FOUND = problems.documented(memory_problems.MEMORY_NOT_FOUND)


@router.put(
    "/memories/{memory_id}/pin",
    summary="Pin a memory",
    dependencies=[require("append")],
    response_model=schemas.PinView,
    responses=_NOT_FOUND,
)
async def pin_memory(owner: PathOwner, memory_id: uuid.UUID, archive: Archive) -> Response:
    """Pin a memory: it never decays and is never cleaned up. An archived memory is restored."""
    return reply(schemas.PinView(pinned=True, changed=await archive.pin(*owner, memory_id)))


@router.delete(
    "/memories/{memory_id}/pin",
    summary="Unpin a memory",
    dependencies=[require("append")],
    response_model=schemas.PinView,
    responses=_NOT_FOUND,
)
async def unpin_memory(owner: PathOwner, memory_id: uuid.UUID, archive: Archive) -> Response:
    """Unpin a memory: it decays again, from its last access on."""
    return reply(schemas.PinView(pinned=False, changed=await archive.unpin(*owner, memory_id)))


@router.get(
    "/memories/{memory_id}/retention",
    summary="Explain a memory's strength",
    dependencies=[require("read")],
    response_model=schemas.ExplanationView,
    responses=_NOT_FOUND,
)
async def explain_retention(owner: PathOwner, memory_id: uuid.UUID, pool: Database) -> Response:
    """Read a memory's curve, its parameters, and when it will be too weak. Reading does not count as an access."""
    return reply(schemas.ExplanationView.of(await advice.explain(pool, *owner, memory_id)))


@router.get(
    "/archive", summary="List archived memories", dependencies=[require("read")], response_model=schemas.ArchivePageView
)
async def list_archive(owner: PathOwner, archive: Archive, page: Annotated[Page, page_of(50)]) -> Response:
    """List the memories that clean-ups archived, and until when each can be restored."""
    found = await archive.page(*owner, after=page.start(uuid.UUID), limit=page.limit)
    shown = [schemas.ArchivedMemoryView.of(each) for each in found]
    return reply(schemas.ArchivePageView(memories=shown, next_cursor=page.next_cursor(found, lambda each: each.id)))


@router.post(
    "/archive/restore",
    summary="Restore archived memories",
    dependencies=[require("admin")],
    response_model=schemas.RestoredView,
    responses=problems.documented(*problems.BODY),
)
async def restore(owner: PathOwner, body: schemas.RestoreInput, archive: Archive) -> Response:
    """Restore archived memories, as if they had been accessed now, and return those that were in the archive."""
    return reply(schemas.RestoredView(memory_ids=await archive.restore(*owner, body.memory_ids)))


@apps_router.get(
    "/dry-run",
    summary="Preview a clean-up",
    dependencies=[require("admin")],
    response_model=schemas.DryRunView,
)
async def retention_dry_run(
    app_name: AppName,
    retention: Annotated[MemoryRetentionManager, service(MemoryRetentionManager)],
    page: Annotated[Page, page_of(100)],
    threshold: Threshold = None,
    min_age_days: MinAgeDays = None,
) -> Response:
    """List the memories of an app that a clean-up would archive now, and why. Nothing is changed."""
    weak = await retention.preview(threshold, min_age_days, app_name, limit=page.limit, after=page.start(uuid.UUID))
    following = page.next_cursor(weak, lambda each: each.id)
    shown = [schemas.WeakMemoryView.of(each) for each in weak]
    return reply(schemas.DryRunView(memories=shown, next_cursor=following))


@apps_router.get(
    "/compare",
    summary="Compare another policy with the app's",
    dependencies=[require("admin")],
    response_model=schemas.ComparisonView,
)
async def compare_policies(
    app_name: AppName,
    pool: Database,
    page: Annotated[
        Page,
        page_of(20, limit_min=0, description="The maximum number of memories that the policies treat differently."),
    ],
    preset: Literal["high_interaction", "low_interaction", "sensitive", "knowledge"] | None = None,
    curve: Literal["strength", "classic"] | None = None,
    decay_rate: Annotated[float | None, Query(ge=0, le=100)] = None,
    threshold: Annotated[float | None, Query(ge=0, le=1)] = None,
    min_age_days: Annotated[float | None, Query(ge=0, le=36500)] = None,
    days: Annotated[float, Query(ge=0, le=3650, description="This many days from now, without further accesses.")] = 0,
) -> Response:
    """Report which of an app's memories another policy would keep and drop. Nothing is changed."""
    given = {
        "preset": preset,
        "retention_curve": curve,
        "decay_rate": decay_rate,
        "cleanup_threshold": threshold,
        "min_age_days": min_age_days,
    }
    other = {name: value for name, value in given.items() if value is not None}
    found = await advice.compare(pool, app_name, other, days=days, limit=page.limit, after=page.start(uuid.UUID))
    following = page.next_cursor(found.differing, lambda each: each.id)
    return reply(schemas.ComparisonView.of(found, next_cursor=following))
