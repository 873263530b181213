"""The routes of a session's state: by scope, what changed since, and the events that made it."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor, ListCursor
from pulse.http.edge.owner import AssertedOwner, Owner, PathOwner
from pulse.http.edge.roles import require
from pulse.http.routes import schemas, sessions
from pulse.postgres.json_values import escape_state
from pulse.state.history import StateChange, StateHistory
from pulse.state_debug import HISTORY_LENGTH, StateDebugService

_RESPONSES = problems.documented(*problems.COMMON, problems.INVALID_REQUEST, problems.SESSION_NOT_FOUND)

router = APIRouter(prefix=sessions.PREFIX, tags=["state"], route_class=ExactRoute, responses=_RESPONSES)
short_router = APIRouter(prefix="/api", tags=["state"], route_class=ExactRoute, responses=_RESPONSES)

JsonObject = schemas.JsonObject


class StateView(BaseModel):
    """A session's state by scope, keys without their prefix."""

    thread_id: uuid.UUID
    version: int
    user_version: int
    app_version: int
    session: Annotated[JsonObject, Field(description=schemas.ESCAPE_NOTE)]
    user: JsonObject
    app: JsonObject


class StateChangesView(BaseModel):
    """What changed since a version."""

    state: Annotated[JsonObject, Field(description=f"Keys to set, with their prefixes. {schemas.DELETED_NOTE}")]
    is_whole: Annotated[bool, Field(description="The session's own keys are all of them: drop the others.")]
    version: Annotated[int, Field(description="Give these three the next time.")]
    user_version: int
    app_version: int
    sequence_num: Annotated[int, Field(description="Of the session's newest event.")]


class StateChangeView(BaseModel):
    """An event that changed the state."""

    sequence_num: int
    version: Annotated[int, Field(description="Of the session, once the event was appended.")]
    event_id: str
    event_type: str
    author: str
    invocation_id: str
    delta: Annotated[JsonObject, Field(description="The keys that it set, with their prefixes.")]
    created_at: datetime

    @classmethod
    def of(cls, change: StateChange) -> StateChangeView:
        """Describe a change."""
        return cls(
            sequence_num=change.sequence_num,
            version=change.version,
            event_id=change.event_id,
            event_type=change.event_type,
            author=change.author,
            invocation_id=change.invocation_id,
            delta=escape_state(change.delta),
            created_at=change.created_at,
        )


class StateHistoryView(BaseModel):
    """Changes, the newest first."""

    changes: list[StateChangeView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


def _debug(request: Request) -> StateDebugService:
    service = request.app.state.state_debug
    assert isinstance(service, StateDebugService)  # noqa: S101  # the process that builds the app puts it there
    return service


def _history(request: Request) -> StateHistory:
    history = request.app.state.state_history
    assert isinstance(history, StateHistory)  # noqa: S101  # as above
    return history


Debug = Annotated[StateDebugService, Depends(_debug)]
History = Annotated[StateHistory, Depends(_history)]
Keys = Annotated[
    list[str] | None,
    Query(max_length=1000, description="Only these keys, with their prefixes; all where there is none."),
]
Version = Annotated[int, Query(ge=0, le=2**31 - 1)]
SharedVersion = Annotated[int, Query(ge=0, le=2**63 - 1, description="As the session was read; 0 for all of it.")]


@router.get(
    "/sessions/{session_id}/state",
    summary="Read a session's state by scope",
    dependencies=[require("read")],
    response_model=StateView,
)
async def get_state(owner: PathOwner, session_id: schemas.SessionId, debug: Debug, key: Keys = None) -> Response:
    """Read the state in one snapshot, or only some keys of it."""
    return await _state(debug, owner, session_id, key)


@short_router.get(
    "/threads/{session_id}/state",
    summary="Read a thread's state by scope",
    dependencies=[require("read")],
    response_model=StateView,
)
async def get_thread_state(
    owner: AssertedOwner, session_id: schemas.SessionId, debug: Debug, key: Keys = None
) -> Response:
    """The same, with the app and the user in the query or in headers."""
    return await _state(debug, owner, session_id, key)


@router.get(
    "/sessions/{session_id}/state/changes",
    summary="Read what changed in a session's state",
    dependencies=[require("read")],
    response_model=StateChangesView,
)
async def get_changes(
    owner: PathOwner,
    session_id: schemas.SessionId,
    history: History,
    since_version: Version = 0,
    since_user_version: SharedVersion = 0,
    since_app_version: SharedVersion = 0,
) -> Response:
    """Read the keys that were set since a version, so that a large state is sent once."""
    found = await history.changes_since(
        owner.app_name,
        owner.user_id,
        session_id,
        since_version,
        user_version=since_user_version,
        app_version=since_app_version,
    )
    view = StateChangesView(
        state=escape_state(found.state),
        is_whole=found.is_whole,
        version=found.version,
        user_version=found.user_version,
        app_version=found.app_version,
        sequence_num=found.sequence_num,
    )
    return reply(view)


@router.get(
    "/sessions/{session_id}/state/history",
    summary="Read how a session's state came to be",
    dependencies=[require("read")],
    response_model=StateHistoryView,
)
async def get_history(
    owner: PathOwner,
    session_id: schemas.SessionId,
    debug: Debug,
    cursor: Cursor,
    limit: sessions.Limit = HISTORY_LENGTH,
) -> Response:
    """Read the events that changed the state, the newest first."""
    return await _past(debug, owner, session_id, limit, cursor)


@short_router.get(
    "/threads/{session_id}/state/history",
    summary="Read how a thread's state came to be",
    dependencies=[require("read")],
    response_model=StateHistoryView,
)
async def get_thread_history(
    owner: AssertedOwner,
    session_id: schemas.SessionId,
    debug: Debug,
    cursor: Cursor,
    limit: sessions.Limit = HISTORY_LENGTH,
) -> Response:
    """The same, with the app and the user in the query or in headers."""
    return await _past(debug, owner, session_id, limit, cursor)


async def _state(debug: StateDebugService, owner: Owner, session_id: str, keys: list[str] | None) -> Response:
    found = await debug.get_state(owner.app_name, owner.user_id, session_id, keys=keys)
    view = StateView(
        thread_id=found.thread_id,
        version=found.version,
        user_version=found.user_version,
        app_version=found.app_version,
        session=escape_state(found.session),
        user=escape_state(found.user),
        app=escape_state(found.app),
    )
    return reply(view)


async def _past(debug: StateDebugService, owner: Owner, session_id: str, limit: int, cursor: ListCursor) -> Response:
    page = await debug.get_history(owner.app_name, owner.user_id, session_id, limit=limit, before=cursor.read(int))
    changes = [StateChangeView.of(change) for change in page.changes]
    following = None if page.next_cursor is None else cursor.write(page.next_cursor)
    return reply(StateHistoryView(changes=changes, next_cursor=following))
