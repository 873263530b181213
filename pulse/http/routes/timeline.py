"""The route of a conversation's timeline, under the user's path and under a short one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import AssertedSession, PathSession
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service
from pulse.http.routes.sessions import AfterSequence
from pulse.http.routes.timeline_schemas import TimelineView
from pulse.session_key import SessionKey
from pulse.timeline import TimelineService

router = make_router("timeline", USER_PATH, problems.SESSION_NOT_FOUND)
short_router = make_router("timeline", "", problems.SESSION_NOT_FOUND)

Timelines = Annotated[TimelineService, service(TimelineService)]
MessagePage = Annotated[Page, page_of(100)]
BeforeSequence = Annotated[
    int | None,
    Query(ge=1, le=2**63 - 1, description="The newest items before this number; replaces the cursor."),
]


@router.get(
    "/conversations/{session_id}/messages",
    summary="Read a conversation's timeline",
    dependencies=[require("read")],
    response_model=TimelineView,
)
async def list_messages(
    key: PathSession,
    timelines: Timelines,
    page: MessagePage,
    after_sequence: AfterSequence = 0,
    before_sequence: BeforeSequence = None,
) -> Response:
    """Read messages, thoughts, tool calls and results, page by page."""
    return await _read(timelines, key, page, after_sequence, before_sequence)


@short_router.get(
    "/conversations/{session_id}/messages",
    summary="Read a conversation's timeline by its id",
    dependencies=[require("read")],
    response_model=TimelineView,
)
async def list_conversation_messages(
    key: AssertedSession,
    timelines: Timelines,
    page: MessagePage,
    after_sequence: AfterSequence = 0,
    before_sequence: BeforeSequence = None,
) -> Response:
    """The same, with the app and the user in the query or in headers."""
    return await _read(timelines, key, page, after_sequence, before_sequence)


async def _read(
    timelines: TimelineService, key: SessionKey, page: Page, after_sequence: int, before_sequence: int | None
) -> Response:
    found = await timelines.get_conversation_messages(
        *key, after_sequence=page.start(int) or after_sequence, before_sequence=before_sequence, limit=page.limit
    )
    following = None if found.next_cursor is None else page.cursor_after(found.next_cursor)
    return reply(TimelineView.of_page(found, following))
