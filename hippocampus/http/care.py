"""The routes that forget for good, and those that trace, pin, restore and explain memories."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from hippocampus.erasure.provenance import consequences, provenance
from hippocampus.erasure.service import Erasure, ErasureService
from hippocampus.http import care_schemas as schemas
from hippocampus.http import problems as memory_problems
from hippocampus.http.memory import PageLimit
from hippocampus.retention import advice
from hippocampus.retention.archive import MemoryArchive
from pulse.errors import InvalidInputError
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.roles import require
from pulse.http.routes.schemas import AppName, SessionId, UserId
from pulse.http.routes.sessions import PREFIX

if TYPE_CHECKING:
    from pulse.database import Pool

#: A request is answered after so long, also where a user's sessions are many; a worker goes on.
FORGET_SECONDS = 10.0

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

_NOT_FOUND = problems.documented(memory_problems.MEMORY_NOT_FOUND)


def _pool_of(request: Request) -> Pool:
    pool: Pool = request.app.state.pool
    return pool


ThePool = Annotated[Any, Depends(_pool_of)]
Number = Annotated[int, Path(ge=1, le=2**63 - 1, description="The event's sequence number.")]


@router.post(
    "/forget",
    summary="Forget for good",
    dependencies=[require("admin")],
    response_model=schemas.ForgetView,
    responses=problems.documented(
        *problems.BODY, problems.SESSION_NOT_FOUND, memory_problems.MEMORY_NOT_FOUND, problems.INVALID_REQUEST
    ),
)
async def forget(app_name: AppName, user_id: UserId, body: schemas.ForgetInput, pool: ThePool) -> Response:
    """Forget a user, a session, events, a memory or a fact, with everything that was drawn from them.

    The answer proves it: rows by table that went, and those that are still found. Nothing brings them back.
    """
    named = [body.session_id, body.memory_id, body.whole_user or None]
    if sum(each is not None for each in named) != 1:
        raise InvalidInputError("name one of session_id, memory_id and whole_user")
    if (body.sequence_nums or body.event_ids) and body.session_id is None:
        raise InvalidInputError("sequence_nums and event_ids need the session_id of their session")
    forgetting = ErasureService(pool)
    if body.dry_run:
        reached = await forgetting.preview(
            app_name,
            user_id,
            session_id=body.session_id,
            sequence_nums=body.sequence_nums,
            event_ids=body.event_ids,
            memory_id=body.memory_id,
            limit=body.limit,
        )
        shown = [schemas.TablePreviewView.model_validate(each) for each in reached]
        return reply(schemas.ForgetView(would_forget=shown))
    done = await _forget(forgetting, app_name, user_id, body)
    return reply(schemas.ForgetView(erasure=schemas.ErasureView.model_validate(done)))


async def _forget(forgetting: ErasureService, app_name: str, user_id: str, body: schemas.ForgetInput) -> Erasure:
    if body.memory_id is not None:
        return await forgetting.erase_memory(app_name, user_id, body.memory_id)
    if body.session_id is None:
        return await forgetting.erase_user(app_name, user_id, seconds_max=FORGET_SECONDS)
    if body.sequence_nums or body.event_ids:
        return await forgetting.erase_events(
            app_name, user_id, body.session_id, sequence_nums=body.sequence_nums, event_ids=body.event_ids
        )
    return await forgetting.erase_session(app_name, user_id, body.session_id)


@router.get(
    "/erasures/{erasure_id}",
    summary="Look a request to forget up",
    dependencies=[require("admin")],
    response_model=schemas.ErasureView,
    responses=_NOT_FOUND,
)
async def get_erasure(app_name: AppName, user_id: UserId, erasure_id: uuid.UUID, pool: ThePool) -> Response:
    """Read what went, and what is still found."""
    return reply(schemas.ErasureView.model_validate(await ErasureService(pool).get(app_name, user_id, erasure_id)))


@router.get(
    "/memories/{memory_id}/origin",
    summary="Trace a memory or a fact to its events",
    dependencies=[require("read")],
    response_model=schemas.OriginView,
    responses=_NOT_FOUND,
)
async def origin(app_name: AppName, user_id: UserId, memory_id: uuid.UUID, pool: ThePool) -> Response:
    """Read which events it was drawn from, by which job, prompt and model; of a fact every statement."""
    found = await provenance(pool, app_name, user_id, memory_id)
    return reply(schemas.OriginView(origins=[schemas.ProvenanceView.model_validate(each) for each in found]))


@router.get(
    "/sessions/{session_id}/events/{sequence_num}/drawn",
    summary="List what was drawn from an event",
    dependencies=[require("read")],
    response_model=schemas.ConsequencesView,
    responses=_NOT_FOUND,
)
async def drawn_from_event(
    app_name: AppName, user_id: UserId, session_id: SessionId, sequence_num: Number, pool: ThePool
) -> Response:
    """List the memories and facts that cite an event, and those drawn from a slice that holds it."""
    found = await consequences(pool, app_name, user_id, session_id, sequence_num=sequence_num)
    return reply(schemas.ConsequencesView.model_validate(found))


@router.put(
    "/memories/{memory_id}/pin",
    summary="Pin a memory",
    dependencies=[require("append")],
    response_model=schemas.PinView,
    responses=_NOT_FOUND,
)
async def pin_memory(app_name: AppName, user_id: UserId, memory_id: uuid.UUID, pool: ThePool) -> Response:
    """Keep a memory: it never fades and is never cleaned up. One in the archive is restored."""
    changed = await MemoryArchive(pool).pin(app_name, user_id, memory_id)
    return reply(schemas.PinView(pinned=True, changed=changed))


@router.delete(
    "/memories/{memory_id}/pin",
    summary="Unpin a memory",
    dependencies=[require("append")],
    response_model=schemas.PinView,
    responses=_NOT_FOUND,
)
async def unpin_memory(app_name: AppName, user_id: UserId, memory_id: uuid.UUID, pool: ThePool) -> Response:
    """Let a memory fade again, from its last access on."""
    changed = await MemoryArchive(pool).unpin(app_name, user_id, memory_id)
    return reply(schemas.PinView(pinned=False, changed=changed))


@router.get(
    "/memories/{memory_id}/retention",
    summary="Explain a memory's strength",
    dependencies=[require("read")],
    response_model=schemas.ExplanationView,
    responses=_NOT_FOUND,
)
async def explain_retention(app_name: AppName, user_id: UserId, memory_id: uuid.UUID, pool: ThePool) -> Response:
    """Read its curve, what goes into it, and when it will be too weak. Looking is no access."""
    found = await advice.explain(pool, app_name, user_id, memory_id)
    return reply(schemas.ExplanationView.model_validate(found))


@router.get(
    "/archive", summary="List archived memories", dependencies=[require("read")], response_model=schemas.ArchivePageView
)
async def list_archive(
    app_name: AppName,
    user_id: UserId,
    pool: ThePool,
    cursor: Cursor,
    limit: PageLimit = 50,
) -> Response:
    """List what clean-ups have put away, and until when it can be restored."""
    found = await MemoryArchive(pool).page(app_name, user_id, after=cursor.read(uuid.UUID), limit=limit)
    following = cursor.following(found, limit, lambda each: each.id)
    shown = [schemas.ArchivedMemoryView.model_validate(each) for each in found]
    return reply(schemas.ArchivePageView(memories=shown, next_cursor=following))


@router.post(
    "/archive/restore",
    summary="Restore archived memories",
    dependencies=[require("admin")],
    response_model=schemas.RestoredView,
    responses=problems.documented(*problems.BODY, problems.INVALID_REQUEST),
)
async def restore(app_name: AppName, user_id: UserId, body: schemas.RestoreInput, pool: ThePool) -> Response:
    """Bring archived memories back, as fresh as if they had been used now; return those that were there."""
    restored = await MemoryArchive(pool).restore(app_name, user_id, body.memory_ids)
    return reply(schemas.RestoredView(memory_ids=restored))


@apps_router.get(
    "/retention/compare",
    summary="Compare another policy with the app's",
    dependencies=[require("admin")],
    response_model=schemas.ComparisonView,
)
async def compare_policies(
    app_name: AppName,
    pool: ThePool,
    cursor: Cursor,
    preset: Literal["high_interaction", "low_interaction", "sensitive", "knowledge"] | None = None,
    curve: Literal["strength", "classic"] | None = None,
    decay_rate: Annotated[float | None, Query(ge=0, le=100)] = None,
    threshold: Annotated[float | None, Query(ge=0, le=1)] = None,
    min_age_days: Annotated[float | None, Query(ge=0, le=36500)] = None,
    days: Annotated[float, Query(ge=0, le=3650, description="So many days from now, if nothing is used.")] = 0,
    limit: Annotated[int, Query(ge=0, le=1000, description="Memories to list that they treat differently.")] = 20,
) -> Response:
    """Say what another policy would keep and drop of an app's memories. Nothing is changed."""
    given = {
        "preset": preset,
        "retention_curve": curve,
        "decay_rate": decay_rate,
        "cleanup_threshold": threshold,
        "min_age_days": min_age_days,
    }
    other = {name: value for name, value in given.items() if value is not None}
    found = await advice.compare(pool, app_name, other, days=days, limit=limit, after=cursor.read(uuid.UUID))
    following = cursor.following(found.differing, limit, lambda each: each.id) if limit else None
    shown = schemas.ComparisonView.model_validate(found)
    return reply(shown.model_copy(update={"next_cursor": following}))
