"""The routes of sessions and events: the methods of `OpenSessionService`, one route each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query, Request
from starlette.responses import Response

from pulse.errors import SessionNotFoundError
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.middleware import Telemetry
from pulse.http.edge.preconditions import NOT_MODIFIED, IfNoneMatch, Precondition, precondition, tagged
from pulse.http.edge.roles import require
from pulse.http.routes import schemas
from pulse.session_service import OpenSessionService

PREFIX = "/v1/apps/{app_name}/users/{user_id}"

router = APIRouter(
    prefix=PREFIX,
    tags=["sessions"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


def _service(request: Request) -> OpenSessionService:
    service = request.app.state.sessions
    assert isinstance(service, OpenSessionService)  # noqa: S101  # the process that builds the app puts it there
    return service


def _telemetry(request: Request) -> Telemetry:
    telemetry: Telemetry = request.app.state.telemetry
    return telemetry


Sessions = Annotated[OpenSessionService, Depends(_service)]
Limit = Annotated[int, Query(ge=1, le=schemas.PAGE_SIZE_MAX, description="How many at most.")]
AfterSequence = Annotated[int, Query(ge=0, le=2**63 - 1, description="Only events past this number.")]


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
async def create_session(
    app_name: schemas.AppName, user_id: schemas.UserId, body: schemas.SessionInput, sessions: Sessions
) -> Response:
    """Create a session, with its first state if there is one."""
    session = await sessions.create_session(
        app_name, user_id, body.state, session_id=body.session_id, metadata=body.metadata
    )
    return reply(schemas.SessionView.of(session), 201)


@router.get(
    "/sessions",
    summary="List a user's sessions",
    dependencies=[require("read")],
    response_model=schemas.SessionPageView,
)
async def list_sessions(
    app_name: schemas.AppName,
    user_id: schemas.UserId,
    sessions: Sessions,
    cursor: Cursor,
    limit: Limit = 100,
) -> Response:
    """List sessions without their events, the newest first."""
    page = await sessions.list_sessions(app_name, user_id, limit=limit, cursor=cursor.read(str))
    heads = [schemas.SessionHeadView.of(session) for session in page]
    following = None if page.next_cursor is None else cursor.write(page.next_cursor)
    return reply(schemas.SessionPageView(sessions=heads, next_cursor=following))


@router.get(
    "/sessions/{session_id}",
    summary="Read a session",
    dependencies=[require("read")],
    response_model=schemas.SessionView,
    responses={**NOT_MODIFIED, **problems.documented(problems.SESSION_NOT_FOUND)},
)
async def get_session(
    app_name: schemas.AppName,
    user_id: schemas.UserId,
    session_id: schemas.SessionId,
    sessions: Sessions,
    after_sequence: AfterSequence = 0,
    num_recent_events: Annotated[
        int, Query(ge=0, le=schemas.PAGE_SIZE_MAX, description="How many of the newest events; see /events for all.")
    ] = 100,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read a session's state and its newest events in one snapshot. Its ETag begins with its version."""
    session = await sessions.get_session(
        app_name, user_id, session_id, after_sequence=after_sequence, num_recent_events=num_recent_events
    )
    if session is None:
        raise _not_found(app_name, user_id, session_id)
    return tagged(reply(schemas.SessionView.of(session)), session.version, if_none_match)


@router.delete(
    "/sessions/{session_id}",
    summary="Delete a session",
    dependencies=[require("admin")],
    status_code=204,
    response_class=Response,
    responses=problems.documented(problems.SESSION_NOT_FOUND, problems.PRECONDITION_FAILED),
)
async def delete_session(
    app_name: schemas.AppName,
    user_id: schemas.UserId,
    session_id: schemas.SessionId,
    sessions: Sessions,
    condition: Precondition,
) -> Response:
    """Delete a session with its events, messages and jobs; what was learned from it stays."""
    with precondition(condition):
        version = None if condition is None else await condition.version_for(sessions, app_name, user_id, session_id)
        await sessions.delete_session(app_name, user_id, session_id, expected_version=version)
    return Response(status_code=204)


@router.post(
    "/sessions/{session_id}/finalize",
    summary="Finalise a session",
    dependencies=[require("append")],
    response_model=schemas.FinalizedView,
    responses=problems.documented(problems.SESSION_NOT_FOUND, problems.PRECONDITION_FAILED),
)
async def finalize_session(
    app_name: schemas.AppName,
    user_id: schemas.UserId,
    session_id: schemas.SessionId,
    sessions: Sessions,
    condition: Precondition,
) -> Response:
    """End a session for now: what is not yet consolidated is enqueued at once, if its app consolidates.

    Appending opens it again.
    """
    with precondition(condition):
        version = None if condition is None else await condition.version_for(sessions, app_name, user_id, session_id)
        jobs = await sessions.finalize_session(app_name, user_id, session_id, expected_version=version)
    return reply(schemas.FinalizedView(jobs=jobs))


@router.get(
    "/sessions/{session_id}/events",
    summary="Read a session's events",
    dependencies=[require("read")],
    response_model=schemas.EventPageView,
    responses=problems.documented(problems.SESSION_NOT_FOUND),
)
async def list_events(
    app_name: schemas.AppName,
    user_id: schemas.UserId,
    session_id: schemas.SessionId,
    sessions: Sessions,
    cursor: Cursor,
    after_sequence: AfterSequence = 0,
    limit: Limit = 100,
) -> Response:
    """Read events in sequence, page by page."""
    start = cursor.read(int) or after_sequence
    found = await sessions.list_events(app_name, user_id, session_id, after_sequence=start, limit=limit + 1)
    page = [schemas.EventView.of(event) for event in found[:limit]]
    following = cursor.write(page[-1].sequence_num) if len(found) > limit else None
    return reply(schemas.EventPageView(events=page, next_cursor=following))


@router.post(
    "/sessions/{session_id}/events",
    summary="Append events",
    dependencies=[require("append")],
    status_code=201,
    response_model=schemas.AppendedView,
    responses={
        200: {"model": schemas.AppendedView, "description": "Every event was stored already: nothing was changed."},
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
    app_name: schemas.AppName,
    user_id: schemas.UserId,
    session_id: schemas.SessionId,
    body: Annotated[schemas.AppendInput, Body()],
    sessions: Sessions,
    condition: Precondition,
    telemetry: Annotated[Telemetry, Depends(_telemetry)],
) -> Response:
    """Append events in order, all or none, with their state deltas and the jobs that the app's policy asks for.

    Safe to repeat: an event whose id is stored already with the same content is skipped, whatever the version.
    """
    records = [event.record() for event in body.events]
    expected = body.expected_version
    with precondition(condition):
        if condition is not None:
            asked = await condition.version_for(sessions, app_name, user_id, session_id)
            if None not in (expected, asked) and expected != asked:
                raise problems.ProblemError(
                    problems.INVALID_REQUEST, "expected_version and If-Match differ: send one of them"
                )
            expected = asked if asked is not None else expected
        outcome = await sessions.append(app_name, user_id, session_id, records, expected_version=expected)
    telemetry.appended(len(outcome.new_events))
    return reply(schemas.AppendedView.of(outcome), 201 if outcome.new_events else 200)


def _not_found(app_name: str, user_id: str, session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"there is no session {session_id!r} for app {app_name!r} and user {user_id!r}")
