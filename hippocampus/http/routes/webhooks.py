"""The routes of webhooks: an app's endpoints, their secrets, and what became of the deliveries."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Annotated

from starlette.responses import Response

from hippocampus.http.routes import webhooks_schemas as schemas
from hippocampus.webhooks.service import DeliveryStatus, WebhookService
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import APP_PATH, make_router
from pulse.http.edge.schemas import AppName
from pulse.http.edge.services import service

router = make_router("webhooks", APP_PATH)

Webhooks = Annotated[WebhookService, service(WebhookService)]

_MISSING = problems.documented(problems.NOT_FOUND)
_BODY_REFUSALS = problems.documented(*problems.BODY, problems.NOT_FOUND, problems.INVALID_REQUEST)


@router.post(
    "/webhooks",
    summary="Add a webhook endpoint",
    dependencies=[require("admin")],
    status_code=201,
    response_model=schemas.NewEndpointView,
    responses=problems.documented(*problems.BODY, problems.INVALID_REQUEST),
)
async def add_webhook(app_name: AppName, body: schemas.EndpointInput, webhooks: Webhooks) -> Response:
    """Add an endpoint. Its secret is in this response alone."""
    made = await webhooks.add(app_name, body.url, event_types=body.event_types, description=body.description)
    view = schemas.NewEndpointView(endpoint=schemas.EndpointView.of(made.endpoint), secret=made.secret)
    return reply(view, status=201)


@router.get(
    "/webhooks",
    summary="List webhook endpoints",
    dependencies=[require("admin")],
    response_model=schemas.EndpointPageView,
)
async def list_webhooks(app_name: AppName, webhooks: Webhooks, page: Annotated[Page, page_of(100)]) -> Response:
    """List the app's endpoints, the oldest first, without their secrets."""
    found = await webhooks.list(app_name, limit=page.limit, after=page.start(uuid.UUID))
    following = page.next_cursor(found, lambda each: each.id)
    views = [schemas.EndpointView.of(each) for each in found]
    return reply(schemas.EndpointPageView(endpoints=views, next_cursor=following))


@router.get(
    "/webhooks/{endpoint_id}",
    summary="Read a webhook endpoint",
    dependencies=[require("admin")],
    response_model=schemas.EndpointView,
    responses=_MISSING,
)
async def get_webhook(app_name: AppName, endpoint_id: uuid.UUID, webhooks: Webhooks) -> Response:
    """Read an endpoint, without its secrets."""
    return reply(schemas.EndpointView.of(await webhooks.get(endpoint_id, app_name=app_name)))


@router.delete(
    "/webhooks/{endpoint_id}",
    summary="Remove a webhook endpoint",
    dependencies=[require("admin")],
    status_code=204,
    responses=_MISSING,
)
async def remove_webhook(app_name: AppName, endpoint_id: uuid.UUID, webhooks: Webhooks) -> Response:
    """Remove an endpoint, its secrets and its deliveries."""
    await webhooks.remove(app_name, endpoint_id)
    return Response(status_code=204)


@router.post(
    "/webhooks/{endpoint_id}/rotate",
    summary="Rotate a webhook's secret",
    dependencies=[require("admin")],
    response_model=schemas.SecretView,
    responses=_BODY_REFUSALS,
)
async def rotate_webhook(
    app_name: AppName, endpoint_id: uuid.UUID, body: schemas.RotationInput, webhooks: Webhooks
) -> Response:
    """Give an endpoint a new secret. Former ones sign beside it for a while."""
    overlap = timedelta(seconds=body.overlap_seconds)
    return reply(schemas.SecretView(secret=await webhooks.rotate(app_name, endpoint_id, overlap=overlap)))


@router.post(
    "/webhooks/{endpoint_id}/disable",
    summary="Disable a webhook endpoint",
    dependencies=[require("admin")],
    response_model=schemas.EndpointView,
    responses=_MISSING,
)
async def disable_webhook(app_name: AppName, endpoint_id: uuid.UUID, webhooks: Webhooks) -> Response:
    """Send nothing more to an endpoint. What happens is still stored, and can be replayed."""
    return reply(schemas.EndpointView.of(await webhooks.disable(app_name, endpoint_id)))


@router.post(
    "/webhooks/{endpoint_id}/enable",
    summary="Enable a webhook endpoint",
    dependencies=[require("admin")],
    response_model=schemas.EndpointView,
    responses=_MISSING,
)
async def enable_webhook(app_name: AppName, endpoint_id: uuid.UUID, webhooks: Webhooks) -> Response:
    """Send to an endpoint again what happens from now on."""
    return reply(schemas.EndpointView.of(await webhooks.enable(app_name, endpoint_id)))


@router.post(
    "/webhooks/{endpoint_id}/replay",
    summary="Replay webhook events",
    dependencies=[require("admin")],
    response_model=schemas.ReplayView,
    responses=_BODY_REFUSALS,
)
async def replay_webhook(
    app_name: AppName, endpoint_id: uuid.UUID, body: schemas.ReplayInput, webhooks: Webhooks
) -> Response:
    """Send stored events again, under their former ids."""
    count = await webhooks.replay(app_name, endpoint_id, event_id=body.event_id, since=body.since, until=body.until)
    return reply(schemas.ReplayView(replayed=count))


@router.post(
    "/webhooks/{endpoint_id}/ping",
    summary="Test a webhook endpoint",
    dependencies=[require("admin")],
    response_model=schemas.PingView,
    responses=problems.documented(problems.NOT_FOUND, problems.INVALID_REQUEST),
)
async def ping_webhook(app_name: AppName, endpoint_id: uuid.UUID, webhooks: Webhooks) -> Response:
    """Send a test event."""
    return reply(schemas.PingView(delivery_id=await webhooks.ping(app_name, endpoint_id)))


@router.get(
    "/webhook-deliveries",
    summary="List webhook deliveries",
    dependencies=[require("admin")],
    response_model=schemas.DeliveryPageView,
)
async def list_deliveries(
    app_name: AppName,
    webhooks: Webhooks,
    page: Annotated[Page, page_of(100)],
    endpoint_id: uuid.UUID | None = None,
    status: DeliveryStatus | None = None,
    event_id: uuid.UUID | None = None,
) -> Response:
    """List deliveries, the newest first."""
    found = await webhooks.deliveries(
        app_name, endpoint_id, status=status, event_id=event_id, limit=page.limit, before=page.start(uuid.UUID)
    )
    following = page.next_cursor(found, lambda each: each.id)
    views = [schemas.DeliveryView.of(each) for each in found]
    return reply(schemas.DeliveryPageView(deliveries=views, next_cursor=following))
