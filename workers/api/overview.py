"""The routes of operations: what the installation does, what it did and cost, and who has keys. They change nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime
from typing import Annotated, Any

import asyncpg
from fastapi import Query
from starlette.responses import Response

from pulse.api_keys import ApiKeyService
from pulse.http.edge.bodies import reply
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import EVERY_APP, require
from pulse.http.edge.routing import make_router
from pulse.http.edge.services import service
from pulse.http.routes.runs_schemas import ModelPricesView
from pulse.runs.prices import ModelPrices
from workers.api import overview_schemas as schemas
from workers.process.roles import OPTIONAL_ROLES, ROLES
from workers.telemetry import overview
from workers.telemetry.discovery import SEEN_SECONDS_MAX

FAILED_JOBS_MAX = 20
SHARED_SECONDS = 15.0

router = make_router("operation", "/api/installation")


class SharedReads:
    """Readings of the whole installation: each is made once in `SHARED_SECONDS`, however many pages ask for it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Any]]) -> Any:
        """Return the reading of this key; one that failed is made again."""
        now = time.monotonic()
        self._kept = {name: kept for name, kept in self._kept.items() if self._is_good(*kept, now)}
        if key not in self._kept:
            self._kept[key] = now, asyncio.ensure_future(read())
        # Shielded: a caller that leaves does not end the reading of the others.
        return await asyncio.shield(self._kept[key][1])

    @staticmethod
    def _is_good(since: float, reading: asyncio.Future[Any], now: float) -> bool:
        if not reading.done():
            return True
        return now - since < SHARED_SECONDS and not reading.cancelled() and reading.exception() is None


Database = Annotated[asyncpg.Pool, service(asyncpg.Pool)]
Shared = Annotated[SharedReads, service(SharedReads)]


@router.get(
    "/overview",
    summary="Read what runs, waits and failed",
    dependencies=[require("read"), EVERY_APP],
    response_model=schemas.OverviewView,
)
async def read_overview(pool: Database, shared: Shared) -> Response:
    """Read the processes, the queues and their ages, the lag of consolidation, breakers, and the last failed jobs."""
    return reply(await shared.get("overview", lambda: _overview(pool)))


async def _overview(pool: asyncpg.Pool) -> schemas.OverviewView:
    processes = await overview.live_processes(pool, within_seconds=SEEN_SECONDS_MAX)
    alive = {each.role for each in processes}
    return schemas.OverviewView.model_validate(
        {
            "processes": processes,
            "missing_roles": [each.name for each in ROLES if each.name not in {*alive, *OPTIONAL_ROLES}],
            "queues": await overview.queues(pool),
            "lag": await overview.lag(pool),
            "breakers": await overview.breakers(pool),
            "limits": await overview.limits(pool),
            "refused_texts": await overview.refused_texts(pool),
            "failed_jobs": await overview.failed_jobs(pool, limit=FAILED_JOBS_MAX),
            "pulse_scopes": await overview.pulse_scopes(pool),
            "oldest_webhook_seconds": await overview.oldest_webhook_seconds(pool),
        }
    )


@router.get(
    "/activity",
    summary="Read what happened in the last hours, and what the last days cost",
    dependencies=[require("read"), EVERY_APP],
    response_model=schemas.ActivityView,
)
async def read_activity(
    pool: Database,
    shared: Shared,
    prices: Annotated[ModelPrices, service(ModelPrices)],
    hours: Annotated[int, Query(ge=1, le=72)] = 24,
    days: Annotated[int, Query(ge=1, le=31)] = 7,
) -> Response:
    """Read turns, jobs and calls of tools by the hour, and the calls and tokens of models by the day and the app.

    They are counted from the database, at most 200,000 rows of each kind and hour.
    """

    async def read() -> schemas.ActivityView:
        found = {"hours": await overview.hours(pool, hours), "days": await overview.day_costs(pool, days)}
        return schemas.ActivityView.model_validate({**found, "prices": ModelPricesView.of(prices)})

    return reply(await shared.get(("activity", hours, days), read))


@router.get(
    "/keys",
    summary="List keys",
    dependencies=[require("admin"), EVERY_APP],
    response_model=schemas.KeyPageView,
)
async def list_keys(
    keys: Annotated[ApiKeyService, service(ApiKeyService)], page: Annotated[Page, page_of(100)]
) -> Response:
    """List the keys of all apps without their secrets, the newest first, with revoked and expired ones."""
    found = await keys.list(limit=page.limit, after=page.start(tuple[datetime, str]))
    following = page.next_cursor(found, lambda each: (each.created_at, each.id))
    return reply(schemas.KeyPageView(keys=[schemas.KeyView.of(each) for each in found], next_cursor=following))
