"""The calls about an app's webhooks. Each needs a key with the role admin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Literal

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import NewWebhookEndpoint, WebhookDeliveryRecord, WebhookEndpointRecord, pick


class WebhookCalls(Calls):
    """Adds and removes endpoints, rotates their secrets, and lists, repeats and tests deliveries."""

    async def add_webhook(
        self, url: str, *, event_types: Sequence[str] = (), description: str = ""
    ) -> NewWebhookEndpoint:
        """Add an endpoint, by default for every type of event. Its secret is returned only once."""
        body = {"url": url, "event_types": list(event_types), "description": description}
        made = await self._call("POST", self._app("webhooks"), json=body)
        return NewWebhookEndpoint(endpoint=pick(WebhookEndpointRecord, made["endpoint"]), secret=made["secret"])

    async def webhooks(self, *, page_size: int = 100) -> AsyncIterator[WebhookEndpointRecord]:
        """Yield the app's endpoints, the oldest first."""
        async for each in self._pages(self._app("webhooks"), "endpoints", limit=page_size):
            yield pick(WebhookEndpointRecord, each)

    async def webhook(self, endpoint_id: str) -> WebhookEndpointRecord:
        """Read an endpoint."""
        return pick(WebhookEndpointRecord, await self._call("GET", self._app("webhooks", endpoint_id)))

    async def remove_webhook(self, endpoint_id: str) -> None:
        """Remove an endpoint, its secrets and its deliveries."""
        await self._call("DELETE", self._app("webhooks", endpoint_id))

    async def rotate_webhook(self, endpoint_id: str, *, overlap_seconds: float = 86_400.0) -> str:
        """Give an endpoint a new secret, and return it; former ones sign beside it for a while."""
        path = self._app("webhooks", endpoint_id, "rotate")
        found = await self._call("POST", path, json={"overlap_seconds": overlap_seconds})
        return str(found["secret"])

    async def disable_webhook(self, endpoint_id: str) -> WebhookEndpointRecord:
        """Send nothing more to an endpoint."""
        return pick(WebhookEndpointRecord, await self._call("POST", self._app("webhooks", endpoint_id, "disable")))

    async def enable_webhook(self, endpoint_id: str) -> WebhookEndpointRecord:
        """Send to an endpoint again what happens from now on."""
        return pick(WebhookEndpointRecord, await self._call("POST", self._app("webhooks", endpoint_id, "enable")))

    async def replay_webhook(
        self,
        endpoint_id: str,
        *,
        event_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> int:
        """Send a stored event, or those of a range of time, again under their former ids; return how many."""
        body = plain({"event_id": event_id, "since": since, "until": until})
        found = await self._call("POST", self._app("webhooks", endpoint_id, "replay"), json=body)
        return int(found["replayed"])

    async def ping_webhook(self, endpoint_id: str) -> str:
        """Send a test event, and return the id of its delivery."""
        return str((await self._call("POST", self._app("webhooks", endpoint_id, "ping")))["delivery_id"])

    async def webhook_deliveries(
        self,
        *,
        endpoint_id: str | None = None,
        status: Literal["waiting", "parked", "sending", "delivered", "failed", "cancelled"] | None = None,
        event_id: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[WebhookDeliveryRecord]:
        """Yield deliveries, the newest first."""
        filters = {"endpoint_id": endpoint_id, "status": status, "event_id": event_id}
        path = self._app("webhook-deliveries")
        async for each in self._pages(path, "deliveries", limit=page_size, **filters):
            yield pick(WebhookDeliveryRecord, each)
