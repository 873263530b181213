"""The bodies of the routes of operations. They hold names, codes and numbers, and no words of users."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from pydantic import Field

from pulse.api_keys import Role
from pulse.http.edge.schemas import NextCursor, View
from pulse.http.routes.runs_schemas import ModelPricesView


class ProcessView(View):
    """A process that reported within the last minute."""

    role: str
    host: str
    port: int
    pid: int
    up_seconds: float
    seen_seconds: Annotated[float, Field(description="Since it last reported.")]


class QueueView(View):
    """The jobs of a queue."""

    queue: str
    waiting: int
    running: int
    failed: int
    oldest_seconds: Annotated[float | None, Field(description="The age of the oldest job that waits.")]


class LagView(View):
    """How much a stage of consolidation has yet to do."""

    stage: str
    sessions: int
    events: int
    oldest_seconds: float


class BreakerView(View):
    """Whether a worker pool may call a model."""

    name: str
    state: str
    reason: str | None
    probe_seconds: Annotated[float | None, Field(description="Until the next call is let through.")]
    since_seconds: float | None


class CallLimitView(View):
    """For how long no process may call a model."""

    name: str
    blocked_seconds: float
    reason: str | None


class RefusedTextsView(View):
    """How many texts a model refused to embed."""

    model: str
    texts: int


class FailedJobView(View):
    """A consolidation job that failed."""

    id: uuid.UUID
    app_name: str
    user_id: str
    session_id: str
    job_type: str
    attempts: int
    error_code: str | None
    completed_at: datetime | None


class OverviewView(View):
    """What runs, waits and failed."""

    processes: list[ProcessView]
    missing_roles: Annotated[list[str], Field(description="Roles that `hippocampus up` starts, and that do not run.")]
    queues: list[QueueView]
    lag: list[LagView]
    breakers: list[BreakerView]
    limits: list[CallLimitView]
    refused_texts: list[RefusedTextsView]
    failed_jobs: Annotated[list[FailedJobView], Field(description="The last 20.")]
    pulse_scopes: Annotated[list[str], Field(description="The instances of the autonomic layer that were started.")]
    oldest_webhook_seconds: Annotated[float, Field(description="Of the delivery that is overdue for longest.")]


class HourView(View):
    """What happened in an hour."""

    start: datetime
    turns: int
    jobs_completed: int
    jobs_failed: int
    tool_calls: int
    tool_calls_failed: int


class ModelTokensView(View):
    """The tokens of a model."""

    model: Annotated[str | None, Field(description="null where it was not noted, as for jobs of former releases.")]
    prompt_tokens: int
    output_tokens: int


class DayCostView(View):
    """What the consolidation of an app cost on a day, in UTC."""

    day: datetime
    app_name: str
    jobs: int
    generate_calls: int
    embed_calls: int
    prompt_tokens: int
    output_tokens: int
    usage: list[ModelTokensView]


class ActivityView(View):
    """What happened in the last hours, and what the last days cost."""

    hours: list[HourView]
    days: list[DayCostView]
    prices: Annotated[ModelPricesView, Field(description="For the `usage` of a day.")]


class KeyView(View):
    """A key, without its secret."""

    id: str
    app_name: str | None
    user_id: str | None
    name: str
    roles: list[Role]
    user_roles: list[str] | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class KeyPageView(View):
    """A page of keys, the newest first."""

    keys: list[KeyView]
    next_cursor: NextCursor
