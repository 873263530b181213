"""The routes that list apps and their users."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from hippocampus.http.routes import users_schemas as schemas
from hippocampus.users import USERS_MAX, UserList
from pulse.http.edge.bodies import reply
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import EVERY_APP, require
from pulse.http.edge.routing import APP_PATH, make_router
from pulse.http.edge.schemas import WITHOUT_NUL, AppName
from pulse.http.edge.services import service

router = make_router("users", "/v1/apps")
app_router = make_router("users", APP_PATH)

Users = Annotated[UserList, service(UserList)]
Contains = Annotated[
    str,
    Query(max_length=255, pattern=WITHOUT_NUL, description="Only names that contain this, in upper or lower case."),
]


@router.get(
    "", summary="List apps", dependencies=[require("read"), EVERY_APP], response_model=schemas.AppSummaryPageView
)
async def list_apps(
    users: Users, page: Annotated[Page, page_of(50, limit_max=USERS_MAX)], contains: Contains = ""
) -> Response:
    """List the apps that have sessions or memories, by name. Needs an all-apps key."""
    found = await users.list_apps(contains=contains, limit=page.limit, after=page.start(str))
    following = None if found.following is None else page.cursor_after(found.following)
    shown = [schemas.AppSummaryView.of(each) for each in found.apps]
    return reply(schemas.AppSummaryPageView(apps=shown, next_cursor=following))


@app_router.get(
    "/users", summary="List an app's users", dependencies=[require("read")], response_model=schemas.UserSummaryPageView
)
async def list_users(
    app_name: AppName,
    users: Users,
    page: Annotated[Page, page_of(50, limit_max=USERS_MAX)],
    contains: Contains = "",
) -> Response:
    """List the users of an app, by name: how much is remembered of each, and what was said last."""
    found = await users.list_users(app_name, contains=contains, limit=page.limit, after=page.start(str))
    following = None if found.following is None else page.cursor_after(found.following)
    shown = [schemas.UserSummaryView.of(each) for each in found.users]
    return reply(schemas.UserSummaryPageView(users=shown, next_cursor=following))
