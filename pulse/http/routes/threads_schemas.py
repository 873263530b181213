"""The bodies of the route of threads."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from pulse.http.edge.schemas import View
from pulse.runs.records import RunStatus


class NewestRunView(View):
    """The run of a thread that started last."""

    run_id: str
    status: RunStatus
    error: str | None
    started_at: datetime
    completed_at: datetime | None


class ThreadView(View):
    """A thread without its events and its state."""

    thread_id: Annotated[str, Field(description="The session's id.")]
    version: Annotated[int, Field(description="Increases with each append.")]
    last_sequence: Annotated[int, Field(description="The number of its newest event; 0 if it has none.")]
    created_at: datetime
    updated_at: datetime
    finalized_at: datetime | None
    newest_run: Annotated[NewestRunView | None, Field(description="The thread is live while this run is `running`.")]


class ThreadListView(View):
    """A page of threads, the most recently changed first."""

    threads: list[ThreadView]
    next_cursor: Annotated[
        str | None,
        Field(
            description="Where the next page starts; null after the last page. Threads that change meanwhile move up."
        ),
    ]
