"""The routes of webhooks, at a real writer, and their client."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from hippocampus.client import HippocampusClient, InvalidRequestError, KeyRefusedError, NotFoundError
from tests.support.key_scene import made
from tests.support.writer_process import WriterProcess


async def test_webhooks_through_the_client(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """Each call, with an admin's key alone; another app sees none of it; a secret is returned only once."""
    keys = [await made(writer_dsn, app, "admin"), await made(writer_dsn, app, "append", "read")]
    other = await made(writer_dsn, f"{app}-other", "admin")
    async with (
        HippocampusClient(writer.url, keys[0].text, app_name=app) as client,
        HippocampusClient(writer.url, keys[1].text, app_name=app) as agent,
        HippocampusClient(writer.url, other.text, app_name=f"{app}-other") as stranger,
    ):
        hook = await client.add_webhook("https://example.org/hook", event_types=["fact.changed"], description="d")
        assert hook.secret.startswith("whsec_")
        assert hook.secret not in repr(hook)
        assert [each async for each in client.webhooks(page_size=1)] == [hook.endpoint]
        assert await client.webhook(hook.endpoint.id) == hook.endpoint
        assert await client.rotate_webhook(hook.endpoint.id, overlap_seconds=0) != hook.secret
        ping = await client.ping_webhook(hook.endpoint.id)
        (delivery,) = [each async for each in client.webhook_deliveries(endpoint_id=hook.endpoint.id)]
        assert (delivery.id, delivery.event_type) == (ping, "webhook.ping")
        assert await client.replay_webhook(hook.endpoint.id, event_id=delivery.event_id) == 1
        assert await client.replay_webhook(hook.endpoint.id, since=datetime.now(UTC) - timedelta(hours=1)) == 0
        assert len([each async for each in client.webhook_deliveries(event_id=delivery.event_id, page_size=1)]) == 2
        assert (await client.disable_webhook(hook.endpoint.id)).disabled_reason == "by hand"
        with pytest.raises(InvalidRequestError, match="enable it first"):
            await client.ping_webhook(hook.endpoint.id)
        assert await client.enable_webhook(hook.endpoint.id) == hook.endpoint

        for call in (agent.add_webhook("https://example.org/"), agent.webhook(hook.endpoint.id)):
            with pytest.raises(KeyRefusedError):
                await call
        assert [each async for each in stranger.webhooks()] == []
        assert [each async for each in stranger.webhook_deliveries()] == []
        for missing in (
            stranger.webhook(hook.endpoint.id),
            stranger.rotate_webhook(hook.endpoint.id),
            stranger.ping_webhook(hook.endpoint.id),
            client.replay_webhook(hook.endpoint.id, event_id=str(uuid.uuid4())),
        ):
            with pytest.raises(NotFoundError):
                await missing
        for wrong in (
            client.add_webhook("http://u:p@example.org/"),
            client.add_webhook("https://example.org/", event_types=["fact.rumoured"]),
            client.replay_webhook(hook.endpoint.id),
        ):
            with pytest.raises(InvalidRequestError):
                await wrong
        await client.remove_webhook(hook.endpoint.id)
        assert [each async for each in client.webhooks()] == []
