"""The bodies of the routes of state."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from pydantic import Field

from pulse.http.edge.schemas import DELETED_NOTE, ESCAPE_NOTE, EscapedObject, NextCursor, View


class StateView(View):
    """A session's state by scope, keys without their prefix."""

    thread_id: uuid.UUID
    version: int
    user_version: int
    app_version: int
    session: Annotated[EscapedObject, Field(description=ESCAPE_NOTE)]
    user: EscapedObject
    app: EscapedObject


class StateChangesView(View):
    """What changed since a version."""

    state: Annotated[EscapedObject, Field(description=f"Keys to set, with their prefixes. {DELETED_NOTE}")]
    is_whole: Annotated[bool, Field(description="All keys of the session are included: drop the others.")]
    version: Annotated[int, Field(description="Send these three versions with the next request.")]
    user_version: int
    app_version: int
    sequence_num: Annotated[int, Field(description="Of the session's newest event.")]


class StateChangeView(View):
    """An event that changed the state."""

    sequence_num: int
    version: Annotated[int, Field(description="The session's version after the event was appended.")]
    event_id: str
    event_type: str
    author: str
    invocation_id: str
    delta: Annotated[EscapedObject, Field(description="The keys that it set, with their prefixes.")]
    created_at: datetime


class StateHistoryView(View):
    """A page of changes, newest first."""

    changes: list[StateChangeView]
    next_cursor: NextCursor
