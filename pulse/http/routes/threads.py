"""The routes of a user's threads: the list, each with its newest run, and what happens in one."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from pulse.events import Session
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.frame_stream import FrameStream, sender_of, sse_of
from pulse.http.edge.owner import AssertedOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import make_router
from pulse.http.edge.schemas import WITHOUT_NUL, Id, SessionId
from pulse.http.edge.services import service, service_of
from pulse.http.edge.stream_access import Access, StreamSettings, access_of
from pulse.http.routes.runs import STREAM, Frames, LastEventId, Legacy, Offset, TicketQuery, streamed
from pulse.http.routes.threads_schemas import ThreadListView, ThreadView
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from pulse.streams.thread_streams import ThreadCursor, ThreadStreams
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
    contains: Annotated[
        str,
        Query(max_length=512, pattern=WITHOUT_NUL, description="Only ids that contain this, in upper or lower case."),
    ] = "",
    thread_id: Annotated[Id | None, Query(description="Only this thread.")] = None,
) -> Response:
    """List threads, the most recently changed first: which are live, and the position of each."""
    after = page.start(tuple[datetime, uuid.UUID])
    found = await threads.list_threads(*owner, limit=page.limit, after=after, contains=contains, session_id=thread_id)
    following = page.next_cursor(found, lambda each: (each.updated_at, each.id))
    shown = [ThreadView.of(each, thread_id=each.session_id) for each in found]
    return reply(ThreadListView(threads=shown, next_cursor=following))


@router.get(
    "/threads/{session_id}/events",
    summary="Follow a session",
    dependencies=[require("read")],
    response_class=FrameStream,
    responses={
        **STREAM,
        **problems.documented(
            problems.WRONG_TICKET, problems.WRONG_ORIGIN, problems.SESSION_NOT_FOUND, problems.ENDING
        ),
    },
)
async def follow_session(
    request: Request,
    session_id: SessionId,
    access: Annotated[Access, Depends(access_of)],
    offset: Offset = None,
    last_event_id: LastEventId = None,
    frames: Frames = "agui",
    legacy: Legacy = False,
    ticket: TicketQuery = None,
) -> Response:
    """Stream a session's runs over SSE, one after the other, from the active one or after the named frame.

    The conversation and the state come once, with the first run. An event of no run is sent as a run of its own.
    """
    access.require_session(session_id)
    access.require_run(None)
    session = await session_of(request, access, session_id)
    threads = service_of(request, ThreadStreams)
    cursor = await thread_cursor_of(threads, session, last_event_id or offset)
    seconds = service_of(request, StreamSettings).heartbeat_seconds
    at_once = sender_of(request.scope, legacy=legacy)
    batches = threads.follow(session, cursor, heartbeat_seconds=seconds, send_at_once=at_once)
    first = None if cursor.within is not None else str(cursor)
    chunks = sse_of(batches, session_id, legacy=legacy, custom=frames == "custom", cursor=first)
    return streamed(request, chunks, AsyncExitStack())


async def session_of(connection: HTTPConnection, access: Access, session_id: str) -> Session:
    """Return the session to follow.

    Raises:
        SessionNotFoundError: there is no session of this name.
    """
    key = SessionKey(*access.owner, session_id)
    session = await service_of(connection, OpenSessionService).get_session(*key, num_recent_events=0)
    if session is None:
        raise key.not_found()
    return session


async def thread_cursor_of(threads: ThreadStreams, session: Session, offset: str | None) -> ThreadCursor:
    """Return a client's position in a thread, by default at the active run.

    Raises:
        InvalidInputError: it is not a cursor of this thread.
        StreamsClosedError: this process is stopping.
    """
    if offset in (None, "", "-1"):
        return await threads.start_of(session, from_newest=offset == "-1")
    cursor = ThreadCursor.parse(str(offset))
    await threads.check(session, cursor)
    return cursor
