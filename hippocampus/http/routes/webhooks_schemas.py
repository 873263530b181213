"""The bodies of the routes of webhooks."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field, StringConstraints

from hippocampus.webhooks.service import (
    DESCRIPTION_LENGTH_MAX,
    OVERLAP,
    OVERLAP_MAX,
    REPLAY_MAX,
    URL_LENGTH_MAX,
    DeliveryStatus,
    WebhookEventType,
)
from pulse.http.edge.schemas import WITHOUT_NUL, Body, NextCursor, View


class EndpointInput(Body):
    """An address that is to receive the app's events."""

    url: Annotated[
        str, StringConstraints(min_length=1, max_length=URL_LENGTH_MAX), Field(description="An https address.")
    ]
    event_types: Annotated[list[WebhookEventType], Field(default_factory=list, description="None: every type.")]
    description: Annotated[str, StringConstraints(max_length=DESCRIPTION_LENGTH_MAX, pattern=WITHOUT_NUL)] = ""
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://example.org/hook", "event_types": ["fact.changed"]}]}
    )


class RotationInput(Body):
    """How long former secrets still sign."""

    overlap_seconds: Annotated[
        float, Field(ge=0, le=OVERLAP_MAX.total_seconds(), allow_inf_nan=False, description="A day by default.")
    ] = OVERLAP.total_seconds()
    model_config = ConfigDict(json_schema_extra={"examples": [{"overlap_seconds": 3600.0}]})


class ReplayInput(Body):
    """Events to send again: one, or those of a range of time."""

    event_id: Annotated[uuid.UUID | None, Field(strict=False)] = None
    since: Annotated[AwareDatetime | None, Field(strict=False)] = None
    until: Annotated[AwareDatetime | None, Field(strict=False, description="Excluded; now by default.")] = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"since": "2026-05-01T00:00:00Z"}]})


class EndpointView(View):
    """An address that receives the app's events, without its secrets."""

    id: uuid.UUID
    url: str
    event_types: Annotated[list[str], Field(description="Empty: every type.")]
    description: str
    failures_in_row: Annotated[int, Field(description="Attempts since it last answered with 2xx.")]
    disabled_at: datetime | None
    disabled_reason: str | None
    created_at: datetime


class NewEndpointView(View):
    """A new endpoint with its secret, which is returned only once."""

    endpoint: EndpointView
    secret: str


class SecretView(View):
    """A new secret, which is returned only once."""

    secret: str


class EndpointPageView(View):
    """A page of endpoints, the oldest first."""

    endpoints: list[EndpointView]
    next_cursor: NextCursor


class DeliveryView(View):
    """An event on its way to an endpoint."""

    id: uuid.UUID
    endpoint_id: uuid.UUID
    event_id: Annotated[uuid.UUID, Field(description="The webhook-id that the receiver gets.")]
    event_type: str
    event_at: datetime
    status: DeliveryStatus
    attempts: int
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    response_status: int | None
    error_code: str | None
    ended_at: datetime | None
    created_at: datetime


class DeliveryPageView(View):
    """A page of deliveries, the newest first."""

    deliveries: list[DeliveryView]
    next_cursor: NextCursor


class ReplayView(View):
    """How many events are sent again."""

    replayed: Annotated[int, Field(description=f"At most {REPLAY_MAX}.")]


class PingView(View):
    """The delivery of a test event."""

    delivery_id: uuid.UUID
