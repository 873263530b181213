"""The routes of a session's state: by scope, what changed since a version, and the events that changed it."""

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
from pulse.http.routes.state_schemas import StateChangesView, StateChangeView, StateHistoryView, StateView
from pulse.session_key import SessionKey
from pulse.state.history import StateHistory
from pulse.state_debug import HISTORY_LENGTH, StateDebugService

router = make_router("state", USER_PATH, problems.SESSION_NOT_FOUND)
short_router = make_router("state", "/api", problems.SESSION_NOT_FOUND)

Debug = Annotated[StateDebugService, service(StateDebugService)]
History = Annotated[StateHistory, service(StateHistory)]
HistoryPage = Annotated[Page, page_of(HISTORY_LENGTH)]
Keys = Annotated[
    list[str] | None, Query(max_length=1000, description="Only these keys, with their prefixes; all by default.")
]
Version = Annotated[int, Query(ge=0, le=2**31 - 1)]
SharedVersion = Annotated[int, Query(ge=0, le=2**63 - 1, description="Of an earlier read; 0 for every key.")]


@router.get(
    "/sessions/{session_id}/state",
    summary="Read a session's state by scope",
    dependencies=[require("read")],
    response_model=StateView,
)
async def get_state(session: PathSession, debug: Debug, key: Keys = None) -> Response:
    """Read the state, or some of its keys, in one snapshot."""
    return await _state(debug, session, key)


@short_router.get(
    "/threads/{session_id}/state",
    summary="Read a thread's state by scope",
    dependencies=[require("read")],
    response_model=StateView,
)
async def get_thread_state(session: AssertedSession, debug: Debug, key: Keys = None) -> Response:
    """The same, with the app and the user in the query or in headers."""
    return await _state(debug, session, key)


@router.get(
    "/sessions/{session_id}/state/changes",
    summary="Read what changed in a session's state",
    dependencies=[require("read")],
    response_model=StateChangesView,
)
async def get_changes(
    session: PathSession,
    history: History,
    since_version: Version = 0,
    since_user_version: SharedVersion = 0,
    since_app_version: SharedVersion = 0,
) -> Response:
    """Read the keys that were set since a version, so that a large state is sent only once."""
    found = await history.changes_since(
        *session, since_version, user_version=since_user_version, app_version=since_app_version
    )
    return reply(StateChangesView.of(found))


@router.get(
    "/sessions/{session_id}/state/history",
    summary="Read the history of a session's state",
    dependencies=[require("read")],
    response_model=StateHistoryView,
)
async def get_history(session: PathSession, debug: Debug, page: HistoryPage) -> Response:
    """Read the events that changed the state, newest first."""
    return await _changes(debug, session, page)


@short_router.get(
    "/threads/{session_id}/state/history",
    summary="Read the history of a thread's state",
    dependencies=[require("read")],
    response_model=StateHistoryView,
)
async def get_thread_history(session: AssertedSession, debug: Debug, page: HistoryPage) -> Response:
    """The same, with the app and the user in the query or in headers."""
    return await _changes(debug, session, page)


async def _state(debug: StateDebugService, session: SessionKey, keys: list[str] | None) -> Response:
    return reply(StateView.of(await debug.get_state(*session, keys=keys)))


async def _changes(debug: StateDebugService, session: SessionKey, page: Page) -> Response:
    found = await debug.get_history(*session, limit=page.limit, before=page.start(int))
    following = None if found.next_cursor is None else page.cursor_after(found.next_cursor)
    return reply(StateHistoryView(changes=[StateChangeView.of(each) for each in found.changes], next_cursor=following))
