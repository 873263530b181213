"""The route of a user's threads, the most recently changed first, each with its newest run."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from starlette.responses import Response

from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import AssertedOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import make_router
from pulse.http.edge.services import service
from pulse.http.routes.threads_schemas import ThreadListView, ThreadView
from pulse.threads import THREADS_MAX, ThreadList

router = make_router("streams", "/api")


@router.get(
    "/threads",
    summary="List a user's threads with their newest runs",
    dependencies=[require("read")],
    response_model=ThreadListView,
)
async def list_threads(
    owner: AssertedOwner,
    threads: Annotated[ThreadList, service(ThreadList)],
    page: Annotated[Page, page_of(100, limit_max=THREADS_MAX)],
) -> Response:
    """List threads, the most recently changed first: which are live, and the position of each."""
    after = page.start(tuple[datetime, uuid.UUID])
    found = await threads.list_threads(*owner, limit=page.limit, after=after)
    following = page.next_cursor(found, lambda each: (each.updated_at, each.id))
    shown = [ThreadView.of(each, thread_id=each.session_id) for each in found]
    return reply(ThreadListView(threads=shown, next_cursor=following))
