"""The route of a user's threads, the one that changed last first, each with its newest run."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.owner import AssertedOwner
from pulse.http.edge.roles import require
from pulse.runs.records import RunStatus
from pulse.threads import THREADS_MAX, NewestRun, Thread, ThreadList

router = APIRouter(
    prefix="/api",
    tags=["streams"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


class NewestRunView(BaseModel):
    """The run of a thread that began last."""

    run_id: str
    status: RunStatus
    error: str | None
    started_at: datetime
    completed_at: datetime | None

    @classmethod
    def of(cls, run: NewestRun) -> NewestRunView:
        """Describe a run."""
        return cls(
            run_id=run.run_id,
            status=run.status,
            error=run.error,
            started_at=run.started_at,
            completed_at=run.completed_at,
        )


class ThreadView(BaseModel):
    """A thread without its events and its state."""

    thread_id: Annotated[str, Field(description="The session's id.")]
    version: Annotated[int, Field(description="Moves with each append.")]
    last_sequence: Annotated[int, Field(description="The number of its newest event; 0 where it has none.")]
    created_at: datetime
    updated_at: datetime
    finalized_at: datetime | None
    newest_run: Annotated[NewestRunView | None, Field(description="It is live while this one is `running`.")]

    @classmethod
    def of(cls, thread: Thread) -> ThreadView:
        """Describe a thread."""
        return cls(
            thread_id=thread.session_id,
            version=thread.version,
            last_sequence=thread.last_sequence,
            created_at=thread.created_at,
            updated_at=thread.updated_at,
            finalized_at=thread.finalized_at,
            newest_run=None if thread.newest_run is None else NewestRunView.of(thread.newest_run),
        )


class ThreadListView(BaseModel):
    """Threads, the one that changed last first."""

    threads: list[ThreadView]
    next_cursor: Annotated[
        str | None,
        Field(description="Where the next page starts; null after the last. What changes meanwhile moves up."),
    ]


def _list(request: Request) -> ThreadList:
    found: ThreadList = request.app.state.threads
    return found


@router.get(
    "/threads",
    summary="List a user's threads with their newest runs",
    dependencies=[require("read")],
    response_model=ThreadListView,
)
async def list_threads(
    owner: AssertedOwner,
    threads: Annotated[ThreadList, Depends(_list)],
    cursor: Cursor,
    limit: Annotated[int, Query(ge=1, le=THREADS_MAX, description="How many at most.")] = 100,
) -> Response:
    """List what changed last first: which threads are live, and where each of them stands."""
    place = cursor.read(tuple[datetime, uuid.UUID])
    found = await threads.list_threads(owner.app_name, owner.user_id, limit=limit, after=place)
    following = cursor.following(found, limit, lambda each: (each.updated_at, each.id))
    return reply(ThreadListView(threads=[ThreadView.of(each) for each in found], next_cursor=following))
