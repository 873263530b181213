"""A writer's API within the test's own process: real HTTP, and access to its internals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from pulse import database
from pulse.runs.agents import Agent
from pulse.tools.registries import ToolRegistries
from tests.support.http_server import running
from tests.support.stream_client import OWNER
from tests.support.waiting import until
from workers.api import live_streams
from workers.api.app import build_api
from workers.settings import Settings
from workers.telemetry.writer_metrics import WriterMetrics
from workers.writer import _server_config


@dataclass(frozen=True, slots=True)
class LiveWriter:
    url: str
    pool: asyncpg.Pool
    live: live_streams.LiveStreams
    services: dict[Any, object]
    metrics: WriterMetrics
    #: It takes requests without a key, from the user whom these name.
    headers: Mapping[str, str] = field(default_factory=OWNER.copy)


def _services_of(api: Any) -> dict[Any, object]:
    """Return what the routes within the middleware request: a test may replace a service."""
    while not isinstance(api, FastAPI):
        api = api.app if isinstance(api, CORSMiddleware) else api._app
    services: dict[Any, object] = api.state.services
    return services


@asynccontextmanager
async def serving(dsn: str, agents: Mapping[str, Agent], **settings: Any) -> AsyncIterator[LiveWriter]:
    """Serve the API on a free loopback port until the block is left."""
    config = Settings(database_url=dsn, stream_heartbeat_seconds=0.2, **settings)
    metrics = WriterMetrics()
    async with (
        await database.create_pool(dsn) as pool,
        live_streams.opened(config, pool, agents) as live,
    ):
        metrics.watch(streams=live.streams, runner=live.runner, listener=live.listener, carrier=live.carrier)
        tools = ToolRegistries(pool)
        api = build_api(config, pool, live, LocalEmbedder(), LocalGenerator(), metrics, tools_of_apps=tools)
        try:
            async with running(_server_config(api, config.max_body_bytes)) as served:
                try:
                    # A transient that is sent before reaches nobody.
                    await until(lambda: live.listener.is_running, "it listens")
                    yield LiveWriter(served.url, pool, live, _services_of(api), metrics)
                finally:
                    live.streams.begin_stop()
        finally:
            await tools.close()
