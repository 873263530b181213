"""The routes of sessions and events: the methods of `OpenSessionService`, one route each."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner, PathSession
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.preconditions import NOT_MODIFIED, IfNoneMatch, Precondition, precondition, tagged
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.schemas import PAGE_SIZE_MAX
from pulse.http.edge.services import service
from pulse.http.routes import sessions_schemas as schemas
from pulse.session_service import OpenSessionService

router = make_router("sessions", USER_PATH)

Sessions = Annotated[OpenSessionService, service(OpenSessionService)]
AfterSequence = Annotated[int, Query(ge=0, le=2**63 - 1, description="Only events after this number.")]


@router.post(
    "/sessions",
    summary="Create a session",
    dependencies=[require("append")],
    status_code=201,
    response_model=schemas.SessionView,
    responses=problems.documented(
        *problems.BODY, problems.SESSION_EXISTS, problems.INVALID_REQUEST, problems.STATE_TOO_LARGE
    ),
)
async def create_session(owner: PathOwner, body: schemas.SessionInput, sessions: Sessions) -> Response:
    """Create a session, optionally with an initial state."""
    session = await sessions.create_session(*owner, body.state, session_id=body.session_id, metadata=body.metadata)
    return reply(schemas.SessionView.of(session), 201)


@router.get(
    "/sessions",
    summary="List a user's sessions",
    dependencies=[require("read")],
    response_model=schemas.SessionPageView,
)
async def list_sessions(owner: PathOwner, sessions: Sessions, page: Annotated[Page, page_of(100)]) -> Response:
    """List sessions without their events, newest first."""
    found = await sessions.list_sessions(*owner, limit=page.limit, cursor=page.start(str))
    shown = [schemas.SessionHeadView.of(session) for session in found]
    following = None if found.next_cursor is None else page.cursor_after(found.next_cursor)
    return reply(schemas.SessionPageView(sessions=shown, next_cursor=following))


@router.get(
    "/sessions/{session_id}",
    summary="Read a session",
    dependencies=[require("read")],
    response_model=schemas.SessionView,
    responses={**NOT_MODIFIED, **problems.documented(problems.SESSION_NOT_FOUND)},
)
async def get_session(
    key: PathSession,
    sessions: Sessions,
    after_sequence: AfterSequence = 0,
    num_recent_events: Annotated[
        int, Query(ge=0, le=PAGE_SIZE_MAX, description="How many of the newest events; use /events to read all.")
    ] = 100,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read a session's state and its newest events in one snapshot. Its ETag begins with its version."""
    session = await sessions.get_session(*key, after_sequence=after_sequence, num_recent_events=num_recent_events)
    if session is None:
        raise key.not_found()
    return tagged(reply(schemas.SessionView.of(session)), session.version, if_none_match)


@router.delete(
    "/sessions/{session_id}",
    summary="Delete a session",
    dependencies=[require("admin")],
    status_code=204,
    response_class=Response,
    responses=problems.documented(problems.SESSION_NOT_FOUND, problems.PRECONDITION_FAILED),
)
async def delete_session(key: PathSession, sessions: Sessions, condition: Precondition) -> Response:
    """Delete a session with its events, messages and jobs. Memories that were extracted from it remain."""
    with precondition(condition):
        version = None if condition is None else await condition.version_for(sessions, key)
        await sessions.delete_session(*key, expected_version=version)
    return Response(status_code=204)


@router.post(
    "/sessions/{session_id}/finalize",
    summary="Finalize a session",
    dependencies=[require("append")],
    response_model=schemas.FinalizedView,
    responses=problems.documented(problems.SESSION_NOT_FOUND, problems.PRECONDITION_FAILED),
)
async def finalize_session(key: PathSession, sessions: Sessions, condition: Precondition) -> Response:
    """Finalize a session: its new events are enqueued for consolidation at once, if the app's policy consolidates.

    Appending opens the session again.
    """
    with precondition(condition):
        version = None if condition is None else await condition.version_for(sessions, key)
        jobs = await sessions.finalize_session(*key, expected_version=version)
    return reply(schemas.FinalizedView(jobs=jobs))


@router.get(
    "/sessions/{session_id}/events",
    summary="Read a session's events",
    dependencies=[require("read")],
    response_model=schemas.EventPageView,
    responses=problems.documented(problems.SESSION_NOT_FOUND),
)
async def list_events(
    key: PathSession, sessions: Sessions, page: Annotated[Page, page_of(100)], after_sequence: AfterSequence = 0
) -> Response:
    """Read events in sequence, page by page."""
    start = page.start(int) or after_sequence
    found = await sessions.list_events(*key, after_sequence=start, limit=page.limit + 1)
    shown = [schemas.EventView.of(event) for event in found[: page.limit]]
    following = page.cursor_after(shown[-1].sequence_num) if len(found) > page.limit else None
    return reply(schemas.EventPageView(events=shown, next_cursor=following))


@router.post(
    "/sessions/{session_id}/events",
    summary="Append events",
    dependencies=[require("append")],
    status_code=201,
    response_model=schemas.AppendedView,
    responses={
        200: {"model": schemas.AppendedView, "description": "Every event was already stored: nothing was changed."},
        **problems.documented(
            *problems.BODY,
            problems.SESSION_NOT_FOUND,
            problems.VERSION_CONFLICT,
            problems.PRECONDITION_FAILED,
            problems.EVENT_CONFLICT,
            problems.EVENT_TOO_LARGE,
            problems.STATE_TOO_LARGE,
            problems.INVALID_REQUEST,
        ),
    },
)
async def append_events(
    key: PathSession,
    body: Annotated[schemas.AppendInput, Body()],
    sessions: Sessions,
    condition: Precondition,
) -> Response:
    """Append events in order, all or none, with their state deltas and the jobs that the app's policy requires.

    Safe to repeat: an event that is already stored with the same id and content is skipped, whatever the version.
    """
    records = [event.record() for event in body.events]
    expected = body.expected_version
    with precondition(condition):
        if condition is not None:
            required = await condition.version_for(sessions, key)
            if None not in (expected, required) and expected != required:
                raise problems.ProblemError(
                    problems.INVALID_REQUEST, "expected_version and If-Match differ: send one of them"
                )
            expected = required if required is not None else expected
        outcome = await sessions.append(*key, records, expected_version=expected)
    return reply(schemas.AppendedView.of_append(outcome), 201 if outcome.new_events else 200)
