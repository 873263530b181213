"""The route that reads a user's profile."""

from __future__ import annotations

from typing import Annotated, Literal

import asyncpg
from fastapi import Query
from starlette.responses import Response

from hippocampus import profile
from hippocampus.http.fields import Moment
from hippocampus.http.routes.profile_schemas import ProfileView
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)


@router.get(
    "/profile",
    summary="Read a user's profile",
    dependencies=[require("read")],
    response_model=ProfileView,
    responses=problems.documented(problems.INVALID_REQUEST),
)
async def read_profile(
    owner: PathOwner,
    pool: Annotated[asyncpg.Pool, service(asyncpg.Pool)],
    max_tokens: Annotated[
        int,
        Query(ge=profile.PROFILE_TOKENS_MIN, le=profile.PROFILE_TOKENS_MAX, description="The budget of the page."),
    ] = profile.PROFILE_TOKENS,
    language: Annotated[
        Literal["en", "zh"] | None, Query(description="The language of the titles; by default that of the lines.")
    ] = None,
    as_of: Annotated[Moment | None, Query(description="What was true then; by default now.")] = None,
) -> Response:
    """Read what is known of a user on one page: instructions, rules, facts and the strongest insights."""
    page = await profile.read_profile(
        pool,
        app_name=owner.app_name,
        user_id=owner.user_id,
        max_tokens=max_tokens,
        language=language,
        as_of=as_of,
    )
    return reply(ProfileView.of(page))
