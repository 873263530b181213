"""The bodies of the routes that erase on request."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hippocampus.erasure.service import EVENTS_MAX, SAMPLE_ROWS_MAX
from pulse.http.edge.schemas import Body, Id, JsonObject, View

Number = Annotated[int, Field(ge=1, le=2**63 - 1)]


class ForgetInput(Body):
    """What to erase: exactly one of session_id, memory_id and whole_user."""

    session_id: Annotated[
        Id | None, Field(description="A session, or only those of its events that sequence_nums or event_ids name.")
    ] = None
    sequence_nums: Annotated[tuple[Number, ...], Field(strict=False, max_length=EVENTS_MAX)] = ()
    event_ids: Annotated[tuple[Id, ...], Field(strict=False, max_length=EVENTS_MAX)] = ()
    memory_id: Annotated[uuid.UUID | None, Field(strict=False, description="A memory or a fact.")] = None
    whole_user: Annotated[bool, Field(description="Erase everything of the user.")] = False
    dry_run: Annotated[bool, Field(description="Report what would be erased, and change nothing.")] = False
    limit: Annotated[
        int,
        Field(ge=0, le=SAMPLE_ROWS_MAX, description="The maximum number of rows of each table that a dry run returns."),
    ] = 10
    model_config = ConfigDict(json_schema_extra={"examples": [{"session_id": "order-17", "dry_run": True}]})


class ErasureView(View):
    """An erasure and its outcome."""

    id: uuid.UUID
    scope: Literal["user", "session", "events", "memory", "fact"]
    thread_id: uuid.UUID | None
    sequence_nums: list[int]
    target_id: uuid.UUID | None
    counts: Annotated[dict[str, int], Field(description="The rows that were deleted or emptied, by table.")]
    remaining: Annotated[dict[str, int], Field(description="The rows that the erasure still finds, by table.")]
    requested_at: datetime
    finished_at: Annotated[datetime | None, Field(description="null: a worker continues; read it again later.")]


class TablePreviewView(View):
    """The rows of one table that would be erased."""

    table_name: str
    rows: int
    sample: list[JsonObject]


class ForgetView(View):
    """The outcome: `would_forget` of a dry run, otherwise `erasure`."""

    erasure: ErasureView | None = None
    would_forget: list[TablePreviewView] | None = None
