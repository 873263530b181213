"""The routes beside the facts that hold: candidates, and keys that were merged."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from hippocampus.facts.ledger import FactLedger
from hippocampus.http.memory import PageLimit
from hippocampus.records import FactCandidate, FactMerge, FactType
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.roles import require
from pulse.http.routes.schemas import ESCAPE_NOTE, AppName, UserId
from pulse.http.routes.sessions import PREFIX
from pulse.postgres.json_values import escape_state

router = APIRouter(
    prefix=PREFIX,
    tags=["memory"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


class CandidateView(BaseModel):
    """A statement that was too unsure to replace what held when it was said."""

    id: uuid.UUID
    fact_id: uuid.UUID
    fact_type: FactType
    key: str
    value: Annotated[Any, Field(description=ESCAPE_NOTE)]
    confidence: float
    held_value: Annotated[Any, Field(description="What holds of the fact now.")]
    held_confidence: float
    valid_from: Annotated[datetime, Field(description="When it was said.")]
    recorded_at: datetime
    thread_id: uuid.UUID | None
    source_seqs: list[int]

    @classmethod
    def of(cls, candidate: FactCandidate) -> Self:
        """Describe a candidate."""
        fields = dataclasses.asdict(candidate)
        values = {name: escape_state(fields[name]) for name in ("value", "held_value")}
        return cls(**{**fields, **values, "source_seqs": list(candidate.source_seqs)})


class CandidatePageView(BaseModel):
    """A page of candidates, by type and key."""

    candidates: list[CandidateView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class MergeView(BaseModel):
    """A key that was taken for another spelling of a fact's key."""

    id: uuid.UUID
    fact_id: uuid.UUID
    fact_type: FactType
    from_key: str
    to_key: str
    method: Literal["normal_form", "meaning"]
    similarity: Annotated[float, Field(description="Cosine of the two texts; 1 for a normal form.")]
    embedding_model: str | None
    job_id: uuid.UUID | None
    merged_at: datetime
    undone_at: datetime | None

    @classmethod
    def of(cls, merge: FactMerge) -> Self:
        """Describe a merge."""
        return cls(**dataclasses.asdict(merge))


class MergePageView(BaseModel):
    """A page of merges, the newest first."""

    merges: list[MergeView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class FactIdView(BaseModel):
    """The fact that a change made or changed."""

    fact_id: Annotated[uuid.UUID | None, Field(description="Null where nothing is left that was said under the key.")]


def _ledger_of(request: Request) -> FactLedger:
    ledger = request.app.state.ledger
    assert isinstance(ledger, FactLedger)  # noqa: S101  # the process that builds the app puts it there
    return ledger


Ledger = Annotated[FactLedger, Depends(_ledger_of)]


@router.get(
    "/fact-candidates", summary="List unsure facts", dependencies=[require("read")], response_model=CandidatePageView
)
async def list_candidates(
    app_name: AppName,
    user_id: UserId,
    ledger: Ledger,
    cursor: Cursor,
    fact_type: FactType | None = None,
    limit: PageLimit = 50,
) -> Response:
    """List statements that were too unsure to replace what held. They count in no list of facts and in no search."""
    place = cursor.read(tuple[str, str, datetime, uuid.UUID])
    found = await ledger.list_candidates(
        app_name=app_name, user_id=user_id, fact_type=fact_type, limit=limit, after=place
    )
    shown = [CandidateView.of(each) for each in found]
    following = cursor.following(found, limit, lambda each: (each.fact_type, each.key, each.valid_from, each.id))
    return reply(CandidatePageView(candidates=shown, next_cursor=following))


@router.post(
    "/fact-candidates/{candidate_id}/promote",
    summary="Believe an unsure fact",
    dependencies=[require("admin")],
    response_model=FactIdView,
    responses=problems.documented(problems.NOT_FOUND),
)
async def promote_candidate(app_name: AppName, user_id: UserId, candidate_id: uuid.UUID, ledger: Ledger) -> Response:
    """Let a candidate count from now on, as true from when it was said."""
    return reply(FactIdView(fact_id=await ledger.promote(candidate_id, app_name=app_name, user_id=user_id)))


@router.get(
    "/fact-merges",
    summary="List merged keys",
    dependencies=[require("read")],
    response_model=MergePageView,
)
async def list_merges(
    app_name: AppName,
    user_id: UserId,
    ledger: Ledger,
    cursor: Cursor,
    fact_type: FactType | None = None,
    limit: PageLimit = 50,
) -> Response:
    """List the keys that were taken for other spellings of a fact's key, the newest first."""
    found = await ledger.list_merges(
        app_name=app_name,
        user_id=user_id,
        fact_type=fact_type,
        limit=limit,
        after=cursor.read(tuple[datetime, uuid.UUID]),
    )
    shown = [MergeView.of(each) for each in found]
    following = cursor.following(found, limit, lambda each: (each.merged_at, each.id))
    return reply(MergePageView(merges=shown, next_cursor=following))


@router.post(
    "/fact-merges/{merge_id}/undo",
    summary="Part a merged key",
    dependencies=[require("admin")],
    response_model=FactIdView,
    responses=problems.documented(problems.NOT_FOUND),
)
async def undo_merge(app_name: AppName, user_id: UserId, merge_id: uuid.UUID, ledger: Ledger) -> Response:
    """Make what was said under a merged key a fact of its own. The two keys are never merged again."""
    return reply(FactIdView(fact_id=await ledger.undo_merge(merge_id, app_name=app_name, user_id=user_id)))
