"""The routes of facts: what holds, its history, uncertain statements, and merged keys."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from hippocampus.facts.ledger import FactLedger
from hippocampus.http.fields import Moment
from hippocampus.http.routes import facts_schemas as schemas
from hippocampus.http.routes.memories import Memories
from hippocampus.records import FactType, HistoryPosition
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.schemas import Name, PathName
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)

Ledger = Annotated[FactLedger, service(FactLedger)]


@router.get("/facts", summary="List facts", dependencies=[require("read")], response_model=schemas.FactPageView)
async def list_facts(
    owner: PathOwner,
    memory: Memories,
    page: Annotated[Page, page_of(50)],
    fact_type: FactType | None = None,
    key: Annotated[Name | None, Query(description="Only this key.")] = None,
    as_of: Annotated[Moment | None, Query(description="Facts as they were true at this time; now by default.")] = None,
    known_at: Annotated[Moment | None, Query(description="As they were known at this time; now by default.")] = None,
) -> Response:
    """List the facts about a user, current or at another time."""
    found = await memory.list_facts(
        app_name=owner.app_name,
        user_id=owner.user_id,
        fact_type=fact_type,
        key=key,
        as_of=as_of,
        known_at=known_at,
        limit=page.limit,
        after=page.start(tuple[str, str]),
    )
    following = page.next_cursor(found, lambda each: (each.fact_type, each.key))
    return reply(schemas.FactPageView(facts=[schemas.FactView.of(each) for each in found], next_cursor=following))


@router.get(
    "/facts/{fact_type}/{key}/history",
    summary="Read a fact's history",
    dependencies=[require("read")],
    response_model=schemas.FactHistoryView,
    responses=problems.documented(problems.NOT_FOUND),
)
async def fact_history(
    owner: PathOwner, fact_type: FactType, key: PathName, memory: Memories, page: Annotated[Page, page_of(100)]
) -> Response:
    """Read every statement about one key: the current one, those it replaced, and those that were less certain."""
    start = page.start(HistoryPosition)
    found = await memory.fact_history(
        app_name=owner.app_name, user_id=owner.user_id, fact_type=fact_type, key=key, limit=page.limit, after=start
    )
    if not found and start is None:
        raise problems.ProblemError(problems.NOT_FOUND, f"there is no statement about {fact_type} {key!r}; see /facts")
    following = page.cursor_after(HistoryPosition.after(found, start)) if len(found) == page.limit else None
    shown = [schemas.FactVersionView.of(each) for each in found]
    return reply(schemas.FactHistoryView(versions=shown, next_cursor=following))


@router.get(
    "/fact-candidates",
    summary="List uncertain facts",
    dependencies=[require("read")],
    response_model=schemas.CandidatePageView,
)
async def list_candidates(
    owner: PathOwner, ledger: Ledger, page: Annotated[Page, page_of(50)], fact_type: FactType | None = None
) -> Response:
    """List the statements that were too uncertain to replace a fact. No list of facts and no search includes them."""
    found = await ledger.list_candidates(
        app_name=owner.app_name,
        user_id=owner.user_id,
        fact_type=fact_type,
        limit=page.limit,
        after=page.start(tuple[str, str, datetime, uuid.UUID]),
    )
    following = page.next_cursor(found, lambda each: (each.fact_type, each.key, each.valid_from, each.id))
    shown = [schemas.CandidateView.of(each) for each in found]
    return reply(schemas.CandidatePageView(candidates=shown, next_cursor=following))


@router.post(
    "/fact-candidates/{candidate_id}/promote",
    summary="Promote an uncertain fact",
    dependencies=[require("admin")],
    response_model=schemas.FactIdView,
    responses=problems.documented(problems.NOT_FOUND),
)
async def promote_candidate(owner: PathOwner, candidate_id: uuid.UUID, ledger: Ledger) -> Response:
    """Make a candidate a fact that is true from when it was stated."""
    fact_id = await ledger.promote(candidate_id, app_name=owner.app_name, user_id=owner.user_id)
    return reply(schemas.FactIdView(fact_id=fact_id))


@router.get(
    "/fact-merges", summary="List merged keys", dependencies=[require("read")], response_model=schemas.MergePageView
)
async def list_merges(
    owner: PathOwner, ledger: Ledger, page: Annotated[Page, page_of(50)], fact_type: FactType | None = None
) -> Response:
    """List the keys that were recognized as other spellings of a fact's key, newest first."""
    found = await ledger.list_merges(
        app_name=owner.app_name,
        user_id=owner.user_id,
        fact_type=fact_type,
        limit=page.limit,
        after=page.start(tuple[datetime, uuid.UUID]),
    )
    following = page.next_cursor(found, lambda each: (each.merged_at, each.id))
    return reply(schemas.MergePageView(merges=[schemas.MergeView.of(each) for each in found], next_cursor=following))


@router.post(
    "/fact-merges/{merge_id}/undo",
    summary="Undo a merge of keys",
    dependencies=[require("admin")],
    response_model=schemas.FactIdView,
    responses=problems.documented(problems.NOT_FOUND),
)
async def undo_merge(owner: PathOwner, merge_id: uuid.UUID, ledger: Ledger) -> Response:
    """Make the statements under a merged key a separate fact. The two keys are never merged again."""
    fact_id = await ledger.undo_merge(merge_id, app_name=owner.app_name, user_id=owner.user_id)
    return reply(schemas.FactIdView(fact_id=fact_id))
